//! The gate on real sockets: what goes through, what is refused, and what it survives.

mod access;
mod drain;
mod floods;
mod http2;
mod limits;
mod malformed;
mod requests;
mod support;
mod tls;
