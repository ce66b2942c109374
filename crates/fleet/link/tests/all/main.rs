//! Nodes with real certificates and real sockets on this machine, which call each other.

mod cable;
mod calls;
mod cancelled;
mod exchanges;
mod hostile;
mod lost;
mod mail;
mod many;
mod refused;
mod reports;
mod silent;
mod streams;
mod world;
