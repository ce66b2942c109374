//! What the MQTT gate promises: over real sockets, in virtual time, and together with queues, units and a lying disk.

mod alone;
mod client;
#[path = "../../../../state/tests/all/common/mod.rs"]
mod common;
#[path = "../../../../state/tests/power_cut/disk.rs"]
mod disk;
mod gate;
mod joint;
mod simulation;
