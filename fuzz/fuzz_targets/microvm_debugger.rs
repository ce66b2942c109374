//! What comes over a debugger's line: bytes become packets, packets commands, and each has its bounds.
#![no_main]
#![allow(dead_code, reason = "parts of a crate whose other parts need KVM")]

#[path = "../../crates/units/unit-microvm/src/gdb.rs"]
mod gdb;
#[path = "../../crates/units/unit-microvm/src/x86_64/registers.rs"]
mod registers;
/// What a debugger calls the processor is no part of what comes over the line.
mod processor {
    pub const GDB_NAME: &str = "any";
}

use gdb::{Command, PACKET_BYTES_MAX, Packet, Reader};
use lighter_fuzz::fuzz_target;
use registers::Registers;

fn check(command: Command) {
    match command {
        Command::Read { bytes, .. } => assert!(2 * bytes < PACKET_BYTES_MAX),
        Command::Write { bytes, .. } => assert!(bytes.len() <= PACKET_BYTES_MAX),
        Command::Features { offset, bytes } => {
            let part = gdb::features(offset, bytes);
            assert!(part.starts_with('m') || part.starts_with('l'));
        }
        Command::SetRegisters(bytes) => {
            let before = Registers::at(0x40_0000, 0x20_0000);
            if let Some(after) = before.set_by_gdb(&bytes) {
                // The privilege to leave by a port, and all else that makes the machine what it is, stays.
                assert_eq!(after.0.rflags & 0x3202, before.0.rflags & 0x3202);
                assert_eq!(before.set_by_gdb(&after.of_gdb()).unwrap(), after);
            }
        }
        _ => {}
    }
}

fuzz_target!(|data: &[u8]| {
    let mut reader = Reader::default();
    for byte in data {
        if let Some(Packet::Command(command)) = reader.take(*byte) {
            check(command);
        }
    }
    // The same as the text of a packet whose sum is right, for sums are hard to guess.
    if data.len() <= PACKET_BYTES_MAX {
        check(Command::read(data));
    }
    if let Ok(text) = std::str::from_utf8(data)
        && !text.contains(['$', '#', '\x03'])
        && text.len() <= PACKET_BYTES_MAX
    {
        let mut reader = Reader::default();
        let found: Vec<Packet> = gdb::packet(text).bytes().filter_map(|byte| reader.take(byte)).collect();
        assert_eq!(found, [Packet::Command(Command::read(text.as_bytes()))]);
    }
});
