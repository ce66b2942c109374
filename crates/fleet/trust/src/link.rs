//! The side that asks: joins by an invitation or by digits, renews, says hello, connects to members.
//!
//! ```text
//!   lighter-join/1    the anchor shows its certificate, the node none   Join · Knock, Reveal · Renew
//!   lighter-hello/1   both show theirs, towards an anchor              Hello · Leave
//!   lighter-fleet/1   both show theirs                                 whatever the node speaks
//!   lighter-calls/1   both show theirs                                 calls: HTTP/2
//!   lighter-engine/1  both show theirs, towards an anchor              what the engine speaks
//!   lighter-anchor/1  both show theirs, from an anchor                 [`crate::office`]
//!   lighter-routes/1  both show theirs, between anchors                what the servers of the engine speak
//! ```
//! These words are TLS's ALPN, so that one listener does for all. Every wait has its end.

use crate::anchor::{Channel, JOIN_PURPOSE, KNOCK_PURPOSE, PROOF_PURPOSE, RENEW_PURPOSE};
use crate::certificate::Membership;
use crate::digits::{Digits, commitment};
use crate::id::{NodeId, check_name};
use crate::invitations::InvitationId;
use crate::keys::{NodeKey, random, sha256};
use crate::message::{Admission, HEAD_BYTES, MessageHead, REPLY_BYTES_MAX, Reply, Request, refusal};
use crate::revoked::Revoked;
use crate::token::{Address, Token};
use crate::trust::{Peer, Trust, stranger_config};
use crate::verify::{Ca, key_of, problem_of, server_name};
use problem::{Code, Problem};
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub const JOIN: &[u8] = b"lighter-join/1";
pub const HELLO: &[u8] = b"lighter-hello/1";
pub const FLEET: &[u8] = b"lighter-fleet/1";
pub const CALLS: &[u8] = b"lighter-calls/1";
pub const ENGINE: &[u8] = b"lighter-engine/1";
pub const ANCHOR: &[u8] = b"lighter-anchor/1";
pub const ROUTES: &[u8] = b"lighter-routes/1";

/// How long one question takes, with everything before it. Beyond it the next address is tried.
pub const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a person has to compare digits.
pub const KNOCK_TIMEOUT: Duration = Duration::from_secs(300);
/// How often all addresses are tried while no anchor answers.
const ROUNDS: u32 = 5;
/// The pause after the first round. Each is twice the one before it, and longer by chance.
const PAUSE: Duration = Duration::from_millis(200);

const EXPORTER: &[u8] = b"EXPORTER-lighterage-join-1";

/// What an anchor gave: to be kept, and to make a [`Trust`] of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    pub membership: Membership,
    pub revoked: Option<Revoked>,
}

/// A node that waits until a person has compared digits.
pub struct Knock {
    stream: TlsStream<TcpStream>,
    ca: Vec<u8>,
    address: Address,
    key: crate::PublicKey,
    digits: Digits,
}

/// What an anchor says to a member that says hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    pub incarnation: u64,
    /// Another machine had this node's key, and was refused, in the last hour.
    pub is_doubled: bool,
}

/// Joins by an invitation. Trying it again with the same key is safe: it counts once.
///
/// # Errors
/// [`Code::FleetUnknown`]: what listens there does not have the CA that the token names. [`Code::AnchorsAway`]. What
/// the anchor answers: `Invitation…`, [`Code::NotAdmitted`], [`Code::NodeRevoked`].
pub async fn join(token: &Token, key: &NodeKey, name: &str) -> Result<Joined, Problem> {
    check_name(name)?;
    let config = stranger_config(Some(token.ca_hash))?;
    let proof_key = token.proof_key();
    let invitation = InvitationId::of(&proof_key.public());
    let request = |channel: &Channel| Request::Join {
        invitation,
        key: key.public(),
        name: name.to_owned(),
        proof: proof_key.sign(PROOF_PURPOSE, &[channel, &key.public(), name.as_bytes()]),
        signature: key.sign(JOIN_PURPOSE, &[channel, &invitation.0, name.as_bytes()]),
    };
    ask_any(&token.anchors, &config, key, &request).await
}

/// Asks for a new certificate, with the node's key alone: the old certificate may have ended, and the clock be wrong.
///
/// # Errors
/// [`Code::NodeRevoked`], [`Code::NotAdmitted`], [`Code::AnchorsAway`], [`Code::FleetUnknown`].
pub async fn renew(membership: &Membership, key: &NodeKey) -> Result<Joined, Problem> {
    let config = stranger_config(Some(membership.ca_hash()))?;
    let request =
        |channel: &Channel| Request::Renew { key: key.public(), signature: key.sign(RENEW_PURPOSE, &[channel]) };
    let joined = ask_any(&membership.anchors, &config, key, &request).await?;
    // Which life this is, a hello says.
    let membership = Membership { incarnation: membership.incarnation, ..joined.membership };
    Ok(Joined { membership, ..joined })
}

/// Knocks at an anchor without an invitation. Show the digits: a person compares them with the anchor's, and only then
/// says so by [`Knock::confirmed`].
///
/// # Errors
/// [`Code::AnchorsAway`], [`Code::AnchorBusy`].
pub async fn knock(address: &Address, key: &NodeKey, name: &str) -> Result<Knock, Problem> {
    check_name(name)?;
    in_time(QUESTION_TIMEOUT, knock_once(address, key, name)).await
}

impl Knock {
    /// What this side shows.
    pub fn digits(&self) -> Digits {
        self.digits
    }

    /// Waits to be let in. Call this once a person has said that the anchor shows the same digits: otherwise somebody
    /// between the two might let this node into a fleet of their own.
    ///
    /// # Errors
    /// [`Code::NotAdmitted`]: nobody let it in, in time. [`Code::AnchorsAway`].
    pub async fn confirmed(mut self) -> Result<Joined, Problem> {
        let nobody = || Problem::new(Code::NotAdmitted, "nobody let this node in");
        let reply = timeout(KNOCK_TIMEOUT, receive_reply(&mut self.stream)).await.map_err(|_| nobody())??;
        joined(reply, &self.ca, &self.key, &[self.address])
    }
}

/// Says hello to an anchor: this is how a node learns who was revoked, and that another machine has its key. `keep` is
/// called with a new incarnation and has to make it durable before it returns.
///
/// # Errors
/// [`Code::NodeDoubled`]: stop, and ask a person. [`Code::NodeRevoked`], [`Code::CertificateEnded`],
/// [`Code::AnchorsAway`], [`Code::FleetUnknown`]; those of `keep`.
pub async fn hello(
    trust: &Trust,
    address: &Address,
    keep: impl Fn(&Membership) -> Result<(), Problem>,
) -> Result<Welcome, Problem> {
    loop {
        let presence = trust.presence();
        let welcome = in_time(QUESTION_TIMEOUT, async {
            let mut stream = open(address, &trust.to_members(HELLO), trust.name_of(None)).await?;
            send(&mut stream, &Request::Hello(presence).write()).await?;
            receive_reply(&mut stream).await
        })
        .await?;
        let Reply::Welcome { incarnation, is_doubled, revoked } = accepted(welcome)? else {
            return Err(out_of_place());
        };
        if !revoked.is_empty() {
            trust.learn_revoked(&revoked)?;
        }
        if incarnation == presence.incarnation {
            return Ok(Welcome { incarnation, is_doubled });
        }
        if incarnation != presence.incarnation.saturating_add(1) {
            return Err(Problem::new(Code::FleetMessage, "the anchor counts this node's lives backwards"));
        }
        let _changing = trust.changing();
        // On disk before it counts anywhere: then a copy of an older folder is behind.
        keep(&Membership { incarnation, ..trust.membership() })?;
        trust.set_incarnation(incarnation);
    }
}

/// Leaves the fleet: an anchor revokes this node's key, for good, before this returns.
///
/// # Errors
/// [`Code::AnchorsAway`]: none has answered; it may be revoked, and asking again says so. [`Code::NodeRevoked`]: it was
/// already. As [`hello`].
pub async fn leave(trust: &Trust) -> Result<(), Problem> {
    let mut last = Problem::new(Code::AnchorsAway, "this node knows of no anchor");
    for address in trust.membership().anchors {
        let asked = in_time(QUESTION_TIMEOUT, async {
            let mut stream = open(&address, &trust.to_members(HELLO), trust.name_of(None)).await?;
            send(&mut stream, &Request::Leave.write()).await?;
            receive_reply(&mut stream).await
        });
        match asked.await.and_then(accepted) {
            Ok(Reply::Left) => return Ok(()),
            Ok(_) => return Err(out_of_place()),
            Err(problem) if may_pass(problem.code) => last = problem,
            Err(problem) => return Err(problem),
        }
    }
    Err(last)
}

/// Connects to a member. The stream speaks whatever the two nodes do; the [`Peer`] says when it has to end.
///
/// # Errors
/// [`Code::FleetUnknown`]: another node, or none of the fleet, listens there. [`Code::NodeRevoked`],
/// [`Code::CertificateEnded`], [`Code::AnchorsAway`]. What the other side thinks of this node, the first read says:
/// [`why`] reads its error.
pub async fn connect(trust: &Trust, address: &Address, node: &NodeId) -> Result<(Peer, TlsStream<TcpStream>), Problem> {
    connect_for(FLEET, trust, address, node).await
}

/// Connects to a member for calls.
///
/// # Errors
/// As [`connect`].
pub async fn connect_for_calls(
    trust: &Trust,
    address: &Address,
    node: &NodeId,
) -> Result<(Peer, TlsStream<TcpStream>), Problem> {
    connect_for(CALLS, trust, address, node).await
}

/// Connects to another anchor, for the server of its engine.
///
/// # Errors
/// As [`connect`].
pub async fn connect_for_routes(
    trust: &Trust,
    address: &Address,
    node: &NodeId,
) -> Result<(Peer, TlsStream<TcpStream>), Problem> {
    connect_for(ROUTES, trust, address, node).await
}

pub(crate) async fn connect_for(
    protocol: &[u8],
    trust: &Trust,
    address: &Address,
    node: &NodeId,
) -> Result<(Peer, TlsStream<TcpStream>), Problem> {
    let name = trust.name_of(Some(node));
    let stream = in_time(QUESTION_TIMEOUT, open(address, &trust.to_members(protocol), name)).await?;
    Ok((trust.connected(*node)?, stream))
}

/// Connects to whatever anchor listens there: a node knows anchors by their addresses before it knows them by name.
///
/// # Errors
/// As [`connect`].
pub async fn connect_anchor(trust: &Trust, address: &Address) -> Result<(Peer, TlsStream<TcpStream>), Problem> {
    connect_anchor_for(FLEET, trust, address).await
}

/// Connects to whatever anchor listens there, for the fleet's engine.
///
/// # Errors
/// As [`connect`].
pub async fn connect_for_engine(trust: &Trust, address: &Address) -> Result<(Peer, TlsStream<TcpStream>), Problem> {
    connect_anchor_for(ENGINE, trust, address).await
}

async fn connect_anchor_for(
    protocol: &[u8],
    trust: &Trust,
    address: &Address,
) -> Result<(Peer, TlsStream<TcpStream>), Problem> {
    let stream = in_time(QUESTION_TIMEOUT, open(address, &trust.to_members(protocol), trust.name_of(None))).await?;
    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let node = leaf.and_then(|leaf| key_of(leaf)).map(|key| NodeId::of(&key)).ok_or_else(out_of_place)?;
    Ok((trust.connected(node)?, stream))
}

/// What an error of a connection says to a person: what TLS refused, or that the other side has gone.
pub fn why(error: &io::Error) -> Problem {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => problem_of(error),
        None => Problem::new(Code::AnchorsAway, format!("the connection broke: {error}")),
    }
}

/// Asks one address after the other, some rounds long, until one answers for good.
async fn ask_any(
    addresses: &[Address],
    config: &Arc<ClientConfig>,
    key: &NodeKey,
    request: &impl Fn(&Channel) -> Request,
) -> Result<Joined, Problem> {
    let mut last = Problem::new(Code::AnchorsAway, "the invitation names no anchor");
    for round in 0..ROUNDS {
        for address in addresses {
            let asked = in_time(QUESTION_TIMEOUT, ask(address, config, request)).await;
            match asked.and_then(|(reply, ca)| joined(reply, &ca, &key.public(), addresses)) {
                Ok(joined) => return Ok(joined),
                Err(problem) if problem.code == Code::AnchorsAway && last.code == Code::FleetUnknown => {}
                // Another one may answer, or this one later.
                Err(problem) if may_pass(problem.code) => last = problem,
                Err(problem) => return Err(problem),
            }
        }
        if last.code == Code::FleetUnknown || round + 1 == ROUNDS {
            break;
        }
        let [chance] = random()?;
        sleep(PAUSE * (1 << round) + PAUSE * u32::from(chance) / 128).await;
    }
    Err(last)
}

fn may_pass(code: Code) -> bool {
    matches!(code, Code::AnchorsAway | Code::AnchorBusy | Code::FleetUnknown)
}

async fn ask(
    address: &Address,
    config: &Arc<ClientConfig>,
    request: &impl Fn(&Channel) -> Request,
) -> Result<(Reply, Vec<u8>), Problem> {
    let (mut stream, ca, channel) = open_as_stranger(address, config).await?;
    send(&mut stream, &request(&channel).write()).await?;
    Ok((receive_reply(&mut stream).await?, ca))
}

async fn knock_once(address: &Address, key: &NodeKey, name: &str) -> Result<Knock, Problem> {
    let (mut stream, ca, channel) = open_as_stranger(address, &stranger_config(None)?).await?;
    let nonce = random()?;
    let knock =
        Request::Knock { key: key.public(), name: name.to_owned(), commitment: commitment(&key.public(), &nonce) };
    send(&mut stream, &knock.write()).await?;
    let Reply::Nonce(of_anchor) = accepted(receive_reply(&mut stream).await?)? else { return Err(out_of_place()) };
    let signature = key.sign(KNOCK_PURPOSE, &[&channel, name.as_bytes()]);
    send(&mut stream, &Request::Reveal { nonce, signature }.write()).await?;
    let digits = Digits::of(&key.public(), &sha256(&[&ca]), &nonce, &of_anchor);
    Ok(Knock { stream, ca, address: address.clone(), key: key.public(), digits })
}

/// Towards an anchor, with its CA as TLS has checked it.
async fn open_as_stranger(
    address: &Address,
    config: &Arc<ClientConfig>,
) -> Result<(TlsStream<TcpStream>, Vec<u8>, Channel), Problem> {
    let stream = open(address, config, server_name("anchor.lighter")).await?;
    let (_, connection) = stream.get_ref();
    let ca = connection.peer_certificates().and_then(|chain| chain.get(1)).map(|ca| ca.to_vec());
    let ca = ca.ok_or_else(out_of_place)?;
    let channel = connection.export_keying_material([0; 32], EXPORTER, None).map_err(|error| problem_of(&error))?;
    Ok((stream, ca, channel))
}

async fn open(
    address: &Address,
    config: &Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<TlsStream<TcpStream>, Problem> {
    let away = |error: io::Error| Problem::new(Code::AnchorsAway, format!("{address}: {error}"));
    let socket = match address {
        Address::Ip(address) => TcpStream::connect(address).await,
        Address::Name { host, port } => TcpStream::connect((host.as_str(), *port)).await,
    };
    let socket = socket.map_err(away)?;
    socket.set_nodelay(true).map_err(away)?;
    let stream = TlsConnector::from(config.clone()).connect(name, socket).await.map_err(|error| why(&error))?;
    let spoken = stream.get_ref().1.alpn_protocol();
    if spoken != config.alpn_protocols.first().map(Vec::as_slice) {
        return Err(Problem::new(Code::FleetUnknown, format!("what listens at {address} is no node of a fleet")));
    }
    Ok(stream)
}

/// Checks what was given: it is signed by the CA that the connection was checked with, for this very key.
fn joined(reply: Reply, ca: &[u8], key: &crate::PublicKey, asked: &[Address]) -> Result<Joined, Problem> {
    let Reply::Admitted(admission) = accepted(reply)? else { return Err(out_of_place()) };
    let Admission { fleet_name, certificate, anchors, incarnation, revoked } = admission;
    let fleet = Ca::new(ca).map_err(|error| problem_of(&error))?;
    let leaf = CertificateDer::from(&certificate[..]);
    fleet.check(&leaf, |dates| Ok(dates.begins)).map_err(|error| problem_of(&error))?;
    if key_of(&certificate) != Some(*key) {
        return Err(Problem::new(Code::FleetUnknown, "the certificate is not for this node's key"));
    }
    let refused = |fault: crate::revoked::ListFault| Problem::new(Code::FleetMessage, fault.to_string());
    let revoked = match &revoked[..] {
        [] => None,
        list => Some(Revoked::read(list, fleet.fleet, &fleet.key).map_err(refused)?),
    };
    let anchors = if anchors.is_empty() { asked.to_vec() } else { anchors };
    let membership = Membership { fleet_name, ca: ca.to_vec(), certificate, anchors, incarnation };
    Ok(Joined { membership, revoked })
}

fn accepted(reply: Reply) -> Result<Reply, Problem> {
    match reply {
        Reply::Refused { code, reason } => Err(refusal(code, reason)),
        reply => Ok(reply),
    }
}

pub(crate) fn out_of_place() -> Problem {
    Problem::new(Code::FleetMessage, "the anchor's answer has no place here")
}

/// What both ends know of a connection, and nobody else.
pub(crate) fn channel_of(connection: &rustls::ServerConnection) -> Result<Channel, Problem> {
    connection.export_keying_material([0; 32], EXPORTER, None).map_err(|error| problem_of(&error))
}

async fn receive_reply(stream: &mut TlsStream<TcpStream>) -> Result<Reply, Problem> {
    let (head, body) = receive(stream, REPLY_BYTES_MAX).await?;
    Ok(Reply::read(head, &body)?)
}

/// One message. Its head is looked at before a body is read.
pub(crate) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> Result<(MessageHead, Vec<u8>), Problem> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.map_err(|error| why(&error))?;
    let head = MessageHead::read(head, bytes_max)?;
    let mut body = vec![0; head.length()];
    stream.read_exact(&mut body).await.map_err(|error| why(&error))?;
    Ok((head, body))
}

async fn send(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) -> Result<(), Problem> {
    stream.write_all(bytes).await.map_err(|error| why(&error))?;
    stream.flush().await.map_err(|error| why(&error))
}

pub(crate) async fn in_time<T>(most: Duration, work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let late = |_| Problem::new(Code::AnchorsAway, format!("there was no answer in {} s", most.as_secs()));
    timeout(most, work).await.map_err(late)?
}
