//! gdb's remote serial protocol, as far as one machine with one thread needs it. Pure.
//!
//! ```text
//!   gdb ── $m100000,8#.. ──▶ Reader ──▶ Packet ──▶ Command      packet ── $0011..#cs ──▶ gdb
//! ```
//! Breakpoints are gdb's own: it writes them into the memory as it writes anything else, and takes them out again.

use crate::processor::GDB_NAME;

/// Bytes of one packet, as gdb is told.
pub const PACKET_BYTES_MAX: usize = 0x4000;

/// What comes from gdb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Command(Command),
    /// The guest is to stand still.
    Interrupt,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Why does it stand still?
    Why,
    Registers,
    SetRegisters(Vec<u8>),
    Read {
        at: u64,
        bytes: usize,
    },
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    Step,
    Continue,
    /// Goes on without a debugger.
    Detach,
    Kill,
    /// What is answered the same always.
    Fixed(&'static str),
    Features {
        offset: usize,
        bytes: usize,
    },
    /// No more acknowledgements.
    Quiet,
    /// An empty answer says so.
    Unknown,
}

/// The machine, for gdb: all else follows from it.
fn description() -> String {
    format!(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\">\
         <target><architecture>{GDB_NAME}</architecture></target>"
    )
}

const SUPPORTED: &str = "PacketSize=4000;QStartNoAckMode+;swbreak+;qXfer:features:read+";

impl Command {
    pub fn read(text: &[u8]) -> Self {
        let known = || -> Option<Self> {
            let (first, rest) = text.split_first()?;
            let rest = std::str::from_utf8(rest).ok()?;
            Some(match (first, rest) {
                (b'?', "") => Self::Why,
                (b'g', "") => Self::Registers,
                (b'G', _) => Self::SetRegisters(unhex(rest)?),
                (b'm', _) => {
                    let (at, bytes) = pair(rest)?;
                    Self::Read { at, bytes: bytes.min(PACKET_BYTES_MAX / 2 - 1) }
                }
                (b'M', _) => {
                    let (place, bytes) = rest.split_once(':')?;
                    let ((at, length), bytes) = (pair(place)?, unhex(bytes)?);
                    if length != bytes.len() {
                        return None;
                    }
                    Self::Write { at, bytes }
                }
                (b's', "") => Self::Step,
                (b'c', "") => Self::Continue,
                // With a signal, which nobody here would hear.
                (b'S', _) => Self::Step,
                (b'C', _) => Self::Continue,
                (b'D', _) => Self::Detach,
                (b'k', _) => Self::Kill,
                (b'v', "MustReplyEmpty") => Self::Unknown,
                (b'v', _) if rest.starts_with("Kill") => Self::Kill,
                (b'H' | b'T', _) => Self::Fixed("OK"),
                (b'Q', "StartNoAckMode") => Self::Quiet,
                (b'q', "C") => Self::Fixed("QC1"),
                (b'q', "fThreadInfo") => Self::Fixed("m1"),
                (b'q', "sThreadInfo") => Self::Fixed("l"),
                // The machine is gdb's: it ends with it.
                (b'q', _) if rest.starts_with("Attached") => Self::Fixed("0"),
                (b'q', _) if rest.starts_with("Supported") => Self::Fixed(SUPPORTED),
                (b'q', _) => {
                    let (offset, bytes) = pair(rest.strip_prefix("Xfer:features:read:target.xml:")?)?;
                    Self::Features { offset: usize::try_from(offset).ok()?, bytes }
                }
                _ => return None,
            })
        };
        known().unwrap_or(Self::Unknown)
    }
}

/// A part of the description of the machine.
pub fn features(offset: usize, bytes: usize) -> String {
    let description = description();
    let rest = description.get(offset..).unwrap_or_default();
    match rest.get(..bytes) {
        Some(part) if part.len() < rest.len() => format!("m{part}"),
        _ => format!("l{rest}"),
    }
}

/// Collects packets from a stream of bytes.
#[derive(Default)]
pub struct Reader {
    /// None between two packets.
    packet: Option<Vec<u8>>,
}

impl Reader {
    /// The next byte; the packet it ends. A packet whose sum is wrong is as if it had never been sent: the streams we
    /// use lose nothing.
    pub fn take(&mut self, byte: u8) -> Option<Packet> {
        match (&mut self.packet, byte) {
            (None, 3) => return Some(Packet::Interrupt),
            (None | Some(_), b'$') => self.packet = Some(Vec::new()),
            (None, _) => {}
            (Some(packet), _) if packet.len() > PACKET_BYTES_MAX + 3 => self.packet = None,
            (Some(packet), _) => {
                packet.push(byte);
                let length = packet.len();
                if length >= 3 && packet[length - 3] == b'#' {
                    let packet = self.packet.take()?;
                    let (text, sum) = (&packet[..length - 3], &packet[length - 2..]);
                    let is_whole = unhex(std::str::from_utf8(sum).ok()?)? == [checksum(text)];
                    return is_whole.then(|| Packet::Command(Command::read(text)));
                }
            }
        }
        None
    }
}

/// What is said, as a packet.
pub fn packet(text: &str) -> String {
    format!("${text}#{:02x}", checksum(text.as_bytes()))
}

/// Text for the user.
pub fn words(text: &[u8]) -> String {
    format!("O{}", hex(text))
}

fn checksum(text: &[u8]) -> u8 {
    text.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn pair(text: &str) -> Option<(u64, usize)> {
    let (first, second) = text.split_once(',')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(first)?, usize::try_from(number(second)?).ok()?))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let byte = |two: &[u8]| u8::try_from(digit(&two[0])? * 16 + digit(&two[1])?).ok();
    text.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Packet> {
        let mut reader = Reader::default();
        bytes.iter().filter_map(|byte| reader.take(*byte)).collect()
    }

    #[test]
    fn packets_are_found_between_acknowledgements_and_interrupts() {
        let found = read(b"+$g#67+\x03$m100000,8#1a$c#63");
        // The sum of the second is wrong.
        let wanted = [Packet::Command(Command::Registers), Packet::Interrupt, Packet::Command(Command::Continue)];
        assert_eq!(found, wanted);
        assert_eq!(
            read(packet("M10,2:00ff").as_bytes()),
            [Packet::Command(Command::Write { at: 16, bytes: vec![0, 255] })]
        );
    }

    #[test]
    fn what_makes_no_sense_is_unknown() {
        for text in ["", "M10,3:00ff", "m10", "Gxy", "m-1,4", "qXfer:features:read:other.xml:0,4", "\u{e9}", "z0,1,1"] {
            assert_eq!(Command::read(text.as_bytes()), Command::Unknown, "{text}");
        }
        read(&vec![b'$'; 100_000]);
        read(&[b"$".as_slice(), &vec![b'x'; 100_000]].concat());
    }

    #[test]
    fn the_description_is_read_in_parts() {
        let (first, rest) = (features(0, 10), features(10, 10_000));
        assert_eq!([&first[1..], &rest[1..]].concat(), description());
        assert!(first.starts_with('m') && rest.starts_with('l') && features(usize::MAX, 1) == "l");
    }
}
