//! The gate over real sockets: packets written by hand, and clients that are not ours.

mod abuse;
mod bridge;
mod clients;
mod durability;
mod limits;
mod sessions;
mod subscriptions;
mod support;
mod tls;
mod wills;
