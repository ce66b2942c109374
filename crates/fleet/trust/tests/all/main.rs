//! The crate through its public API, over real sockets on 127.0.0.1.

mod agreed;
mod digits;
mod folders;
mod joining;
mod lives;
mod members;
mod office;
mod strangers;
mod world;
