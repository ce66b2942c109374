//! How a node becomes an anchor and stops being one, and what anchors ask each other: `lighter-anchor/1`.
//!
//! ```text
//!  anchor                                       member
//!    Ready ────────────────────────────────────▶ may it be one?
//!    ◀──── a key for this connection, signed ─── it may
//!    Become: the CA's key sealed to it, ledger ▶ on disk, and then its part in the fleet begins again
//!    Cease: a member's certificate ────────────▶ the CA's key is deleted, and the same
//!    Adopt: the ledger of another set ──────────▶ an anchor takes it
//!    Ledger ◀──────────────────────────────────▶ between anchors
//! ```
//! A message is four bytes of length, little-endian, and JSON. Only anchors ask.

use crate::agreed::Agree;
use crate::anchor::{Anchor, Channel};
use crate::certificate::Membership;
use crate::id::NodeId;
use crate::keys::{NodeKey, Seed};
use crate::ledger::{Claim, Ledger};
use crate::link::{ANCHOR, connect_for, in_time, out_of_place, why};
use crate::members::Member;
use crate::seal::{Opener, seal};
use crate::token::Address;
use crate::trust::Trust;
use crate::verify::problem_of;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use problem::{Code, Problem};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::client::TlsStream;

/// Anchors of a fleet. Another one is refused.
pub const ANCHORS_MAX: usize = 3;
/// Bytes of a message: a ledger of the largest fleet. A longer one is refused before it is read.
pub const OFFICE_BYTES_MAX: usize = 32 << 20;
/// How long one question takes, with the ledger that travels.
const TIMEOUT: Duration = Duration::from_secs(30);

const EXPORTER: &[u8] = b"EXPORTER-lighterage-anchor-1";

/// What an anchor asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfficeQuestion {
    Ready,
    Become { from: String, sealed: String, ledger: Box<Ledger> },
    Ledger,
    Adopt { ledger: Box<Ledger> },
    Cease { certificate: String },
}

/// What it is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfficeAnswer {
    Ready { key: String, signature: String },
    Ledger(Box<Ledger>),
    Done,
    Refused { code: String, detail: String },
}

/// What several anchors have in common beside members: given by the one that was alone.
#[derive(Debug, Clone, Default)]
pub struct Estate {
    pub notes: BTreeMap<String, String>,
    /// Numbers that were given until now.
    pub numbers: BTreeMap<String, u64>,
}

impl Anchor {
    /// From now on it can agree with other anchors; with none no more.
    pub fn agree_by(&self, agree: Option<Arc<dyn Agree>>) {
        *self.agree.write() = agree;
    }

    /// Tells of each change of the ledger.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The anchors of a fleet with several, and where they listen; and which set of anchors this is.
    pub fn set(&self) -> (u64, BTreeMap<NodeId, Address>) {
        self.look(|ledger| {
            let anchors = ledger.anchors().filter_map(|(node, one)| Some((*node, one.at.clone()?)));
            (ledger.set(), anchors.collect())
        })
    }

    pub fn is_anchor(&self, node: &NodeId) -> bool {
        self.look(|ledger| ledger.member(node).is_ok_and(|member| member.is_anchor))
    }

    /// Where anchors listen, as nodes are told: this one first.
    pub fn addresses(&self) -> Vec<Address> {
        let own = self.addresses.read().clone();
        let all: Vec<Address> = self.look(|ledger| ledger.anchors().filter_map(|(_, one)| one.at.clone()).collect());
        let others = all.into_iter().filter(|at| !own.contains(at)).collect();
        [own, others].concat()
    }

    /// This anchor listens there from now on: invitations name it, and [`Anchor::tell_address`] tells the others.
    pub fn listen_at(&self, addresses: Vec<Address>) {
        *self.addresses.write() = addresses;
    }

    /// Makes members anchors beside `own`: each with where it listens. They are given the key by [`appoint`].
    ///
    /// # Errors
    /// [`Code::Usage`]: there would not be three. As [`Ledger::appoint`], and the ledger cannot be kept.
    pub fn appoint(&self, own: &NodeId, new: &[(NodeId, Address)], estate: &Estate) -> Result<(), Problem> {
        let own_at = self.addresses.read().first().cloned();
        self.change(|ledger| {
            let is_first = !ledger.has_several_anchors();
            for (node, at) in new {
                ledger.appoint(node, at.clone())?;
            }
            if let Some(at) = &own_at {
                ledger.appoint(own, at.clone())?;
            }
            check_count(ledger.anchors().count())?;
            if is_first {
                ledger.notes.extend(estate.notes.clone());
                let given = estate.numbers.iter();
                let claims = given.map(|(name, number)| (name.clone(), Claim { confirmed: *number, claimed: *number }));
                ledger.claims.extend(claims);
            }
            Ok(())
        })
    }

    /// An anchor is a member like others from now on. It is told by [`dismiss`].
    ///
    /// # Errors
    /// As [`Ledger::dismiss`], and the ledger cannot be kept.
    pub fn dismiss(&self, node: &NodeId) -> Result<(), Problem> {
        self.change(|ledger| ledger.dismiss(node))
    }

    /// Says where this anchor listens, if the others know another place.
    ///
    /// # Errors
    /// The ledger cannot be kept.
    pub fn tell_address(&self, own: &NodeId) -> Result<(), Problem> {
        let Some(at) = self.addresses.read().first().cloned() else { return Ok(()) };
        let is_other = self.look(|ledger| {
            let elsewhere = |(node, one): (&NodeId, &Member)| node == own && one.at.as_ref() != Some(&at);
            ledger.has_several_anchors() && ledger.anchors().any(elsewhere)
        });
        match is_other {
            true => self.change(|ledger| ledger.appoint(own, at.clone())),
            false => Ok(()),
        }
    }

    /// The next number of what is counted under `name`, for who knows it up to `known`: given once among several
    /// anchors. None: there is one anchor, which counts by itself.
    ///
    /// # Errors
    /// [`Code::DeploymentChanged`]: another anchor came first. The ledger cannot be kept.
    pub fn claim(&self, name: &str, known: u64) -> Result<Option<u64>, Problem> {
        match self.look(Ledger::has_several_anchors) {
            true => self.change(|ledger| ledger.claim(name, known)).map(Some),
            false => Ok(None),
        }
    }

    /// Another anchor has what has this number.
    ///
    /// # Errors
    /// As [`Anchor::claim`].
    pub fn confirm(&self, name: &str, number: u64) -> Result<(), Problem> {
        self.change(|ledger| ledger.confirm(name, number))
    }

    /// A text that several anchors have in common.
    pub fn note(&self, name: &str) -> Option<String> {
        self.look(|ledger| ledger.notes.get(name).cloned())
    }

    /// Makes another text of it.
    ///
    /// # Errors
    /// Those of `change`, and the ledger cannot be kept.
    pub fn change_note(
        &self,
        name: &str,
        change: impl Fn(Option<&str>) -> Result<String, Problem>,
    ) -> Result<(), Problem> {
        self.change(|ledger| {
            let changed = change(ledger.notes.get(name).map(String::as_str))?;
            ledger.notes.insert(name.to_owned(), changed);
            Ok(())
        })
    }
}

/// One anchor, or three: of two either one stops all.
fn check_count(anchors: usize) -> Result<(), Problem> {
    match anchors {
        2 => Err(Problem::new(
            Code::Usage,
            "a fleet has one anchor or three: of two neither could change anything alone",
        )
        .with_hint("name two nodes: lighter fleet anchor add NODE NODE")),
        count if count > ANCHORS_MAX => {
            Err(Problem::new(Code::Usage, format!("a fleet has at most {ANCHORS_MAX} anchors"))
                .with_hint("take one out first: lighter fleet anchor rm NODE"))
        }
        _ => Ok(()),
    }
}

/// Asks whether a node may be an anchor.
///
/// # Errors
/// Why it may not; it cannot be reached.
pub async fn ready(trust: &Trust, at: &Address, node: &NodeId) -> Result<(), Problem> {
    in_time(TIMEOUT, async {
        let (_peer, mut stream) = connect_for(ANCHOR, trust, at, node).await?;
        match ask(&mut stream, &OfficeQuestion::Ready).await? {
            OfficeAnswer::Ready { .. } => Ok(()),
            _ => Err(out_of_place()),
        }
    })
    .await
}

/// Gives a node that the ledger has as an anchor what it needs to be one. It may be given it again.
///
/// # Errors
/// As [`ready`].
pub async fn appoint(trust: &Trust, anchor: &Anchor, at: &Address, node: &NodeId) -> Result<(), Problem> {
    let ledger = anchor.ledger();
    let key = ledger.member(node).map(|member| member.key)?;
    if !anchor.is_anchor(node) {
        return Err(Problem::new(Code::Internal, "the ledger does not have the node as an anchor"));
    }
    in_time(TIMEOUT, async {
        let (_peer, mut stream) = connect_for(ANCHOR, trust, at, node).await?;
        let OfficeAnswer::Ready { key: shown, signature } = ask(&mut stream, &OfficeQuestion::Ready).await? else {
            return Err(out_of_place());
        };
        let channel = channel_of(&stream)?;
        let shown = (&bytes(&shown)?, &bytes(&signature)?);
        let (from, sealed) = seal(anchor.authority.seed(), &key, shown, &channel)?;
        let asked = OfficeQuestion::Become {
            from: STANDARD.encode(from),
            sealed: STANDARD.encode(sealed),
            ledger: Box::new(ledger),
        };
        done(ask(&mut stream, &asked).await?)
    })
    .await
}

/// Tells a node that the ledger has as a member that it is no anchor any more.
///
/// # Errors
/// As [`ready`].
pub async fn dismiss(trust: &Trust, anchor: &Anchor, at: &Address, node: &NodeId) -> Result<(), Problem> {
    let ledger = anchor.ledger();
    let certificate = anchor.admission(ledger.member(node)?)?.certificate;
    in_time(TIMEOUT, async {
        let (_peer, mut stream) = connect_for(ANCHOR, trust, at, node).await?;
        done(ask(&mut stream, &OfficeQuestion::Cease { certificate: STANDARD.encode(certificate) }).await?)
    })
    .await
}

/// Gives another anchor the ledger, because there is another set of anchors: the log of the one before may be silent.
///
/// # Errors
/// As [`ready`].
pub async fn tell_set(trust: &Trust, anchor: &Anchor, at: &Address, node: &NodeId) -> Result<(), Problem> {
    let asked = OfficeQuestion::Adopt { ledger: Box::new(anchor.ledger()) };
    in_time(TIMEOUT, async {
        let (_peer, mut stream) = connect_for(ANCHOR, trust, at, node).await?;
        done(ask(&mut stream, &asked).await?)
    })
    .await
}

/// The ledger of another anchor.
///
/// # Errors
/// As [`ready`].
pub async fn ledger_of(trust: &Trust, at: &Address, node: &NodeId) -> Result<Ledger, Problem> {
    in_time(TIMEOUT, async {
        let (_peer, mut stream) = connect_for(ANCHOR, trust, at, node).await?;
        match ask(&mut stream, &OfficeQuestion::Ledger).await? {
            OfficeAnswer::Ledger(ledger) => Ok(*ledger),
            _ => Err(out_of_place()),
        }
    })
    .await
}

/// The side that is asked: shows a key, and opens what is sealed to it.
pub struct Nominee {
    opener: Option<Opener>,
    channel: Channel,
}

impl Nominee {
    /// For one connection.
    ///
    /// # Errors
    /// TLS says that there is none.
    pub fn new(connection: &rustls::ServerConnection) -> Result<Self, Problem> {
        let channel = connection.export_keying_material([0; 32], EXPORTER, None);
        Ok(Self { opener: None, channel: channel.map_err(|error| problem_of(&error))? })
    }

    /// The answer to [`OfficeQuestion::Ready`].
    ///
    /// # Errors
    /// There is no randomness.
    pub fn show(&mut self, key: &NodeKey) -> Result<OfficeAnswer, Problem> {
        let opener = Opener::new()?;
        let (public, signature) = opener.shown(key, &self.channel);
        self.opener = Some(opener);
        Ok(OfficeAnswer::Ready { key: STANDARD.encode(public), signature: STANDARD.encode(signature) })
    }

    /// The CA's key.
    ///
    /// # Errors
    /// [`Code::FleetMessage`]: it was not sealed to the key that was shown.
    pub fn open(&mut self, from: &str, sealed: &str) -> Result<Seed, Problem> {
        let opener = self.opener.take().ok_or_else(out_of_place)?;
        let sealed = STANDARD.decode(sealed).map_err(|_| out_of_place())?;
        opener.open(&bytes(from)?, &self.channel, &sealed)
    }
}

/// The membership with which an anchor goes on as a member.
///
/// # Errors
/// [`Code::FleetMessage`].
pub fn as_member(trust: &Trust, certificate: &str) -> Result<Membership, Problem> {
    let certificate = STANDARD.decode(certificate).map_err(|_| out_of_place())?;
    let membership = Membership { certificate, ..trust.membership() };
    trust.become_again(membership.clone())?;
    Ok(membership)
}

/// One message. Its length is looked at before it is read.
///
/// # Errors
/// [`Code::FleetMessage`]; the connection ended.
pub async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, Problem> {
    let length = from.read_u32_le().await.map_err(|error| why(&error))? as usize;
    if length > OFFICE_BYTES_MAX {
        let detail = format!("a message between anchors of {length} bytes, {OFFICE_BYTES_MAX} at most");
        return Err(Problem::new(Code::FleetMessage, detail));
    }
    let mut bytes = Vec::new();
    // It grows as bytes come: a length alone costs nothing.
    from.take(length as u64).read_to_end(&mut bytes).await.map_err(|error| why(&error))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(Code::FleetMessage, format!("a message between anchors cannot be read: {error}")))
}

/// # Errors
/// The connection ended.
pub async fn send(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> Result<(), Problem> {
    let body = serde_json::to_vec(message).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let length = (body.len() as u32).to_le_bytes();
    to.write_all(&[&length[..], &body].concat()).await.map_err(|error| why(&error))?;
    to.flush().await.map_err(|error| why(&error))
}

impl From<&Problem> for OfficeAnswer {
    fn from(problem: &Problem) -> Self {
        Self::Refused { code: problem.code.to_string(), detail: problem.detail.to_string() }
    }
}

async fn ask(stream: &mut TlsStream<TcpStream>, asked: &OfficeQuestion) -> Result<OfficeAnswer, Problem> {
    send(stream, asked).await?;
    match receive(stream).await? {
        OfficeAnswer::Refused { code, detail } => {
            Err(Problem::new(Code::from_name(&code).unwrap_or(Code::Unknown), detail))
        }
        answered => Ok(answered),
    }
}

fn done(answered: OfficeAnswer) -> Result<(), Problem> {
    match answered {
        OfficeAnswer::Done => Ok(()),
        _ => Err(out_of_place()),
    }
}

fn channel_of(stream: &TlsStream<TcpStream>) -> Result<Channel, Problem> {
    stream.get_ref().1.export_keying_material([0; 32], EXPORTER, None).map_err(|error| problem_of(&error))
}

fn bytes<const N: usize>(text: &str) -> Result<[u8; N], Problem> {
    STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok()).ok_or_else(out_of_place)
}
