//! Nodes with real certificates and real sockets on this machine, which call each other.

mod calls;
mod cancelled;
mod hostile;
mod lost;
mod many;
mod refused;
mod reports;
mod streams;
mod world;
