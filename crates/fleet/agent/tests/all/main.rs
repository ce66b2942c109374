//! The crate through its public API: some nodes on 127.0.0.1, with their folders.

mod anchors;
mod digits;
mod life;
mod refused;
mod world;
