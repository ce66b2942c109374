//! The gate over real sockets: packets written by hand, and clients that are not ours.

mod abuse;
mod bridge;
mod bridge_outside;
mod clients;
mod durability;
mod limits;
mod passwords;
mod sessions;
mod subscriptions;
pub mod support;
mod tls;
mod users;
mod wills;
