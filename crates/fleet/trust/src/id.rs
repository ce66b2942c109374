//! The names of nodes and fleets: short hashes of what nobody else can have.

use crate::keys::{PublicKey, sha256};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of the name that people give a node or a fleet. A longer one is refused.
pub const NAME_BYTES_MAX: usize = 32;

/// A node: the first 16 bytes of the SHA-256 of its public key. A node that joins twice is the same one, and no anchor
/// has to hand out numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeId(pub [u8; 16]);

/// A fleet: the first 8 bytes of the SHA-256 of its CA's certificate. Two fleets may have one name, and never one id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetId(pub [u8; 8]);

impl NodeId {
    pub fn of(key: &PublicKey) -> Self {
        Self(first(&sha256(&[key])))
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn read(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }
}

impl FleetId {
    pub fn of(ca_hash: &[u8; 32]) -> Self {
        Self(first(ca_hash))
    }
}

/// Checks a name that people give: it ends up in logs, on screens and in URLs.
///
/// # Errors
/// [`Code::Usage`].
pub fn check_name(name: &str) -> Result<(), Problem> {
    if is_name(name) {
        return Ok(());
    }
    let detail = format!("{name:?} is no name of a node or a fleet: 1 to {NAME_BYTES_MAX} of a-z, 0-9 and -");
    Err(Problem::new(Code::Usage, detail).with_hint("choose a name like `pi-7`"))
}

pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && is_plain
}

fn first<const N: usize>(hash: &[u8; 32]) -> [u8; N] {
    std::array::from_fn(|at| hash[at])
}

/// Byte arrays as hexadecimal text in records.
pub(crate) mod as_hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer, const N: usize>(bytes: &[u8; N], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::hex(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(from: D) -> Result<[u8; N], D::Error> {
        let text = String::deserialize(from)?;
        super::unhex(&text).ok_or_else(|| D::Error::custom(format!("{} hexadecimal digits are wanted", 2 * N)))
    }
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_plain = text.len() == 2 * N && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..2 * N).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2).filter(|_| is_plain)?, 16).ok()?;
    }
    Some(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl fmt::Display for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetId({self})")
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for NodeId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::read(&text).ok_or("a node's id has 32 hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_nothing_else_is_one() {
        let id = NodeId::of(&[7; 32]);
        assert_eq!(NodeId::read(&id.to_string()), Some(id));
        for text in ["", "7", &"g".repeat(32), &"F".repeat(32), &"é".repeat(16), &"a".repeat(33)] {
            assert_eq!(NodeId::read(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_plain() {
        for name in ["", "Pi", "pi 7", "../up", &"x".repeat(33)] {
            assert_eq!(check_name(name).unwrap_err().code, Code::Usage, "{name}");
        }
        check_name("pi-7").unwrap();
    }
}
