//! The gate over real sockets: packets written by hand, and clients that are not ours.

mod durability;
mod sessions;
mod subscriptions;
mod support;
