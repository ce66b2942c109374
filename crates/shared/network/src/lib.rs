//! Packets of a board, without a machine: the card and the clock are parameters, so that a fuzzer can be both.
//!
//! ```text
//!   Nic: virtio, or Slip over a SerialLine ─▶ Net: addresses, ARP, DHCP, UDP, TCP ─▶ connections, beacons
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod card;
mod net;
mod slip;

pub use card::Card;
pub use net::{CONNECTIONS_MAX, Net};
pub use slip::{SerialLine, Slip};
pub use smoltcp::socket::tcp;

use alloc::vec::Vec;

/// Longest packet, with its Ethernet header.
pub const PACKET_BYTES_MAX: usize = 1_514;

/// A way to the network.
pub trait Nic: Send {
    /// None: there is nobody else on the line, and packets are IP without a header around it.
    fn ethernet_address(&self) -> Option<[u8; 6]>;

    /// The oldest packet that has arrived.
    fn receive(&mut self) -> Option<Vec<u8>>;

    /// Whether a packet has begun to arrive: its bytes are lost if they are not taken soon.
    fn is_receiving(&self) -> bool {
        false
    }

    /// Whether there is room for a packet to be sent.
    fn has_room(&mut self) -> bool;

    /// Sends a packet, if there is room.
    fn send(&mut self, packet: &[u8]);
}
