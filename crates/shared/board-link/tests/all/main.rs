//! How boards and nodes find, check and talk to each other.

mod beacons;
mod images;
mod payloads;
mod sessions;
mod settings;
mod world;
