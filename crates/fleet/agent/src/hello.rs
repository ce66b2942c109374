//! What two members say to each other on a link: one kind of message, in JSON behind four bytes of its length.
//!
//! ```text
//!   length 4, little-endian | { version, record?, revoked, list?, brief, known, heard_ms }
//! ```
//! A hello says what is new. What was said before on the same link, and who was told of before, is left out: in an idle
//! fleet most hellos are the little that says that a node is there.

use crate::table::{Part, Record, TOLD_MAX, ToldNode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_trust::NodeId;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a hello. A longer one ends the link before it is read.
pub const HELLO_BYTES_MAX: usize = 256 << 10;

const VERSION: u8 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    version: u8,
    /// What the node says of itself. None: what it has said before on this link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// Revision of its list of revoked nodes; 0: it has none.
    pub revoked: u64,
    /// The list, signed by the CA, where the other side has an older one. In base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    list: Option<String>,
    /// Whether hellos to this node may leave out what was said before. Older programs do not know how.
    #[serde(default)]
    pub brief: bool,
    /// Other nodes. Believed if an anchor says it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<ToldNode>,
    /// Other nodes that were among `known` before and are as they were: how long ago the anchor has heard of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heard_ms: BTreeMap<NodeId, u64>,
}

impl Hello {
    pub fn new(record: Option<Record>, revoked: u64, list: Option<&[u8]>, part: Part) -> Self {
        let (list, Part { known, heard_ms }) = (list.map(|list| STANDARD.encode(list)), part);
        Self { version: VERSION, record, revoked, list, brief: true, known, heard_ms }
    }

    /// The signed list that came along.
    pub fn list(&self) -> Option<Vec<u8>> {
        self.list.as_ref().and_then(|list| STANDARD.decode(list).ok())
    }

    pub fn write(&self) -> Vec<u8> {
        let body = serde_json::to_vec(self).expect("a hello is plain data");
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`Code::FleetMessage`].
    pub fn read(body: &[u8]) -> Result<Self, Problem> {
        let refused = |detail: String| Problem::new(Code::FleetMessage, detail);
        let version = |body: &[u8]| serde_json::from_slice::<Version>(body).ok();
        let hello: Self = match serde_json::from_slice(body) {
            Ok(hello) => hello,
            Err(error) => {
                return Err(match version(body) {
                    Some(Version { version }) if version != VERSION => other_version(version),
                    _ => refused(format!("a hello cannot be read: {error}")),
                });
            }
        };
        if hello.version != VERSION {
            return Err(other_version(hello.version));
        }
        let told = hello.known.len() + hello.heard_ms.len();
        if told > TOLD_MAX {
            return Err(refused(format!("a hello tells of {told} nodes, {TOLD_MAX} at most")));
        }
        hello.record.iter().try_for_each(Record::check)?;
        hello.known.iter().try_for_each(|told| told.record.check())?;
        Ok(hello)
    }
}

#[derive(Deserialize)]
struct Version {
    version: u8,
}

fn other_version(version: u8) -> Problem {
    Problem::new(Code::FleetMessage, format!("the other node says hello in version {version}, known is {VERSION}"))
}

/// One hello from a link. Its length is looked at before anything of it is read.
pub async fn receive(from: &mut (impl AsyncRead + Unpin)) -> Result<Hello, Problem> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await.map_err(|error| fleet_trust::link::why(&error))?;
    let length = u32::from_le_bytes(length) as usize;
    if length > HELLO_BYTES_MAX {
        return Err(Problem::new(Code::FleetMessage, format!("a hello of {length} bytes, {HELLO_BYTES_MAX} at most")));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).await.map_err(|error| fleet_trust::link::why(&error))?;
    Hello::read(&body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_trust::Address;

    fn record() -> Record {
        let host = format!("{}:65535", "a".repeat(253));
        let api = Some(format!("https://{host}"));
        Record {
            name: "x".repeat(32),
            address: Address::read(&host),
            version: "1".repeat(32),
            incarnation: u64::MAX,
            api,
        }
    }

    #[test]
    fn the_largest_hello_reads_back_and_fits() {
        let told = ToldNode { node: NodeId([0xff; 16]), is_anchor: true, record: record(), heard_ms: Some(u64::MAX) };
        let list = vec![7; fleet_trust::revoked::LIST_BYTES_MAX];
        let part = Part { known: vec![told; TOLD_MAX], ..Part::default() };
        let hello = Hello::new(Some(record()), u64::MAX, Some(&list), part);
        let bytes = hello.write();
        assert!(bytes.len() - 4 <= HELLO_BYTES_MAX, "{}", bytes.len());
        let read = Hello::read(&bytes[4..]).unwrap();
        assert_eq!((read.list(), read), (Some(list), hello));
    }

    #[test]
    fn what_is_no_hello_is_refused() {
        let hello = Hello::new(Some(record()), 0, None, Part::default());
        let told = ToldNode { node: NodeId([1; 16]), is_anchor: true, record: record(), heard_ms: None };
        let heard_ms = BTreeMap::from([(NodeId([2; 16]), 1)]);
        let many = Hello { known: vec![told; TOLD_MAX], heard_ms, ..hello.clone() };
        let named = Hello { record: Some(Record { name: "Pi 7".to_owned(), ..record() }), ..hello.clone() };
        let version = Hello { version: 2, ..hello };
        for wrong in [many, named, version] {
            assert_eq!(Hello::read(&wrong.write()[4..]).unwrap_err().code, Code::FleetMessage);
        }
        for wrong in [&b"{\"version\":2,\"other\":1}"[..], b"[]", b"", b"\xff"] {
            assert_eq!(Hello::read(wrong).unwrap_err().code, Code::FleetMessage);
        }
    }

    #[test]
    fn a_hello_of_an_idle_fleet_is_short_and_one_of_an_older_program_is_read() {
        let heard_ms = (1..=5).map(|number| (NodeId([number; 16]), 1_234)).collect();
        let hello = Hello::new(None, 7, None, Part { known: vec![], heard_ms });
        assert!(hello.write().len() <= 280, "{}", hello.write().len());
        assert_eq!(Hello::read(&hello.write()[4..]).unwrap(), hello);
        let older =
            br#"{"version":1,"record":{"name":"pi-7","address":null,"version":"0.1.0","incarnation":1},"revoked":0}"#;
        let read = Hello::read(older).unwrap();
        assert_eq!((read.brief, read.record.map(|record| record.name)), (false, Some("pi-7".to_owned())));
    }

    #[tokio::test]
    async fn a_hello_that_is_too_long_is_refused_before_it_is_read() {
        let mut bytes = &[0xff, 0xff, 0xff, 0xff][..];
        assert_eq!(receive(&mut bytes).await.unwrap_err().code, Code::FleetMessage);
    }
}
