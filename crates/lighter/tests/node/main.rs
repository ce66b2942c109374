//! The node as its users meet it: the real program, a data folder of its own, functions from `guests/prebuilt`.

mod access;
mod crash;
mod deploy;
mod events;
mod limits;
mod observe;
mod support;
