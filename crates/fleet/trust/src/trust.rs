//! Whom a running node trusts: its certificate, the fleet's CA, the list of revoked nodes, and who is connected.
//!
//! ```text
//!   renewed certificate ─▶ Trust ◀─ newer list of revoked nodes ─▶ connections of those on it end
//!                            │ always the present ones
//!                            ▼
//!                     TLS 1.3: no tickets, so every connection is checked whole
//! ```

use crate::certificate::{Membership, anchor_name, node_name};
use crate::dates::{CERTIFICATE_SECONDS, Clock};
use crate::id::{FleetId, NodeId};
use crate::keys::{NodeKey, PublicKey, random};
use crate::link;
use crate::members::{Presence, Run};
use crate::revoked::Revoked;
use crate::token::Address;
use crate::verify::{AnchorOf, Ca, Members, key_of, problem_of, provider, server_name};
use parking_lot::{Mutex, MutexGuard, RwLock};
use problem::{Code, Problem};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::oneshot;

/// How long a certificate is not renewed while either this node's clock is wrong or an anchor's was.
const DOUBT_SECONDS: u64 = 3_600;

/// See the top of this file. One for each node.
#[derive(Debug)]
pub struct Trust {
    standing: Arc<Standing>,
    key: NodeKey,
    run: Run,
    for_strangers: Arc<ServerConfig>,
    for_members: Arc<ServerConfig>,
    to_members: Arc<ClientConfig>,
    connected: Arc<Mutex<Connected>>,
    changing: Mutex<()>,
}

/// What changes while a node runs, as TLS looks at it.
#[derive(Debug)]
pub(crate) struct Standing {
    pub ca: Ca,
    clock: Clock,
    present: RwLock<Present>,
}

struct Present {
    membership: Membership,
    certified: Arc<CertifiedKey>,
    begins: u64,
    /// When this run took the certificate from an anchor, by the machine's clock.
    taken_at: Option<u64>,
    revoked: Option<Arc<Revoked>>,
    /// Another list of the same revision was seen.
    has_rival_list: bool,
}

/// A connection of a member. It is counted until this is dropped.
#[derive(Debug)]
pub struct Peer {
    pub node: NodeId,
    number: u64,
    ended: oneshot::Receiver<LinkEnd>,
    connected: Arc<Mutex<Connected>>,
}

/// Why a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEnd {
    /// The node was taken out of the fleet.
    Revoked,
    /// The node has started again, or another machine has its key.
    NewLife,
}

#[derive(Debug, Default)]
struct Connected {
    next: u64,
    all: BTreeMap<u64, (NodeId, oneshot::Sender<LinkEnd>)>,
}

impl Trust {
    /// What a node has after it has joined, made ready for TLS.
    ///
    /// # Errors
    /// [`Code::DataUnusable`]: certificate, CA and key do not belong together.
    pub fn new(key: NodeKey, membership: Membership, revoked: Option<Revoked>, clock: Clock) -> Result<Self, Problem> {
        let unusable = |_| Problem::new(Code::DataUnusable, "the fleet's certificate cannot be read");
        let ca = Ca::new(&membership.ca).map_err(unusable)?;
        let present = Present::new(&ca, &key, membership, revoked.map(Arc::new))?;
        let standing = Arc::new(Standing { ca, clock, present: RwLock::new(present) });
        Ok(Self {
            for_strangers: server_config(&standing, Strangers::May)?,
            for_members: server_config(&standing, Strangers::MayNot)?,
            to_members: Arc::new(client_config(&standing)?),
            standing,
            key,
            run: random()?,
            connected: Arc::default(),
            changing: Mutex::default(),
        })
    }

    pub fn node(&self) -> NodeId {
        self.key.id()
    }

    pub fn fleet(&self) -> FleetId {
        self.standing.ca.fleet
    }

    /// The key of the fleet's CA: what [`crate::Anchor::sign`] signs with.
    pub fn ca_key(&self) -> PublicKey {
        self.standing.ca.key
    }

    pub fn membership(&self) -> Membership {
        self.standing.present.read().membership.clone()
    }

    pub fn revoked(&self) -> Option<Arc<Revoked>> {
        self.standing.present.read().revoked.clone()
    }

    /// Whether a node was taken out of the fleet.
    pub fn is_revoked(&self, node: &NodeId) -> bool {
        self.standing.is_revoked(node)
    }

    /// Whether it is time to renew this node's certificate. Where the clock is wrong, dates say nothing: then it is
    /// at the node's start, and when half of a certificate's time has passed since it was taken. Where it may be
    /// right, and that of an anchor was ahead, it is each hour, because with another certificate and list all may be
    /// well again.
    pub fn wants_renewal(&self) -> bool {
        let (now, floor) = self.standing.time();
        let present = self.standing.present.read();
        if now >= floor {
            return present.membership.dates().is_none_or(|dates| dates.want_renewal(now));
        }
        let rest = if now >= self.standing.clock.built() { DOUBT_SECONDS } else { CERTIFICATE_SECONDS / 2 };
        present.taken_at.is_none_or(|at| now.abs_diff(at) >= rest)
    }

    /// Seconds until this node's certificate ends; 0 once it has. None: the clock is wrong, so nobody knows.
    pub fn seconds_left(&self) -> Option<u64> {
        let (now, floor) = self.standing.time();
        let dates = self.standing.present.read().membership.dates()?;
        (now >= floor).then(|| dates.ends.saturating_sub(now))
    }

    /// The right to change the membership that is here and on disk: one change after the other.
    pub fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// What this node says when it says hello.
    pub fn presence(&self) -> Presence {
        Presence { incarnation: self.standing.present.read().membership.incarnation, run: self.run }
    }

    /// Takes what an anchor gave: from now on new connections show the new certificate.
    ///
    /// # Errors
    /// [`Code::FleetUnknown`]: it is not this node's, or not of this fleet. Nothing has changed.
    pub fn become_again(&self, membership: Membership) -> Result<(), Problem> {
        let mut present = self.standing.present.write();
        if membership.ca != present.membership.ca {
            return Err(Problem::new(Code::FleetUnknown, "the membership is of another fleet"));
        }
        let not_ours = |_| Problem::new(Code::FleetUnknown, "the certificate is not for this node's key");
        let revoked = present.revoked.clone();
        let new = Present::new(&self.standing.ca, &self.key, membership, revoked).map_err(not_ours)?;
        *present = Present { taken_at: Some(self.standing.clock.now()), ..new };
        Ok(())
    }

    /// Where anchors listen from now on.
    pub fn set_anchors(&self, anchors: Vec<Address>) {
        self.standing.present.write().membership.anchors = anchors;
    }

    /// The anchor's count of this node's lives, once it is on disk.
    pub fn set_incarnation(&self, incarnation: u64) {
        self.standing.present.write().membership.incarnation = incarnation;
    }

    /// Takes a signed list if it is newer than what is known, and ends the connections of those on it. Says whether
    /// it was newer.
    ///
    /// # Errors
    /// [`Code::FleetMessage`]: it is no list of this fleet.
    pub fn learn_revoked(&self, bytes: &[u8]) -> Result<bool, Problem> {
        let list = Arc::new(self.read_list(bytes)?);
        {
            let mut present = self.standing.present.write();
            let known = present.revoked.as_deref();
            if known.is_some_and(|known| known.revision() >= list.revision()) {
                let is_rival = |known: &Revoked| known.revision() == list.revision() && known.bytes() != bytes;
                present.has_rival_list = present.has_rival_list || known.is_some_and(is_rival);
                return Ok(false);
            }
            (present.revoked, present.has_rival_list) = (Some(list.clone()), false);
        }
        self.connected.lock().end(LinkEnd::Revoked, |node| list.contains(node));
        Ok(true)
    }

    /// Reads a list, of whatever revision.
    ///
    /// # Errors
    /// [`Code::FleetMessage`]: it is no list of this fleet.
    pub fn read_list(&self, bytes: &[u8]) -> Result<Revoked, Problem> {
        let refused = |fault: crate::revoked::ListFault| Problem::new(Code::FleetMessage, fault.to_string());
        Revoked::read(bytes, self.fleet(), &self.standing.ca.key).map_err(refused)
    }

    /// Whether another list was seen of the revision that this node knows. An anchor that was restored from a backup
    /// has made it, and is to hear of this one.
    pub fn has_rival_list(&self) -> bool {
        self.standing.present.read().has_rival_list
    }

    /// Counts a connection of `node`, whose certificate TLS has checked.
    ///
    /// # Errors
    /// [`Code::NodeRevoked`]: it was revoked meanwhile.
    pub fn connected(&self, node: NodeId) -> Result<Peer, Problem> {
        let (sender, ended) = oneshot::channel();
        let mut connected = self.connected.lock();
        // Under this lock: a list that is learned later finds the connection.
        if self.standing.is_revoked(&node) {
            return Err(Problem::new(Code::NodeRevoked, format!("the node {node} was taken out of the fleet")));
        }
        connected.next += 1;
        let number = connected.next;
        connected.all.insert(number, (node, sender));
        Ok(Peer { node, number, ended, connected: self.connected.clone() })
    }

    /// Ends the connections of a node that lives anew.
    pub fn end_life(&self, node: &NodeId) {
        self.connected.lock().end(LinkEnd::NewLife, |one| one == node);
    }

    /// Whether a certificate, which TLS has checked, is an anchor's.
    pub fn is_anchor(&self, certificate: &CertificateDer<'_>) -> bool {
        self.standing.ca.has_name(certificate, &anchor_name(self.fleet())).is_ok()
    }

    pub(crate) fn for_strangers(&self) -> Arc<ServerConfig> {
        self.for_strangers.clone()
    }

    pub(crate) fn for_members(&self) -> Arc<ServerConfig> {
        self.for_members.clone()
    }

    pub(crate) fn to_members(&self, protocol: &[u8]) -> Arc<ClientConfig> {
        let mut config = (*self.to_members).clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }

    /// The name by which TLS knows a node, or any anchor.
    pub(crate) fn name_of(&self, node: Option<&NodeId>) -> ServerName<'static> {
        let fleet = self.fleet();
        server_name(&node.map_or_else(|| anchor_name(fleet), |node| node_name(&node.to_string(), fleet)))
    }
}

impl Standing {
    /// The machine's clock, and the time that is surely past.
    pub fn time(&self) -> (u64, u64) {
        let present = self.present.read();
        let issued = present.revoked.as_deref().map_or(0, Revoked::issued);
        (self.clock.now(), self.clock.built().max(present.begins).max(issued))
    }

    pub fn is_revoked(&self, node: &NodeId) -> bool {
        self.present.read().revoked.as_ref().is_some_and(|list| list.contains(node))
    }
}

impl Present {
    fn new(ca: &Ca, key: &NodeKey, membership: Membership, revoked: Option<Arc<Revoked>>) -> Result<Self, Problem> {
        let unusable = |what: &str| Problem::new(Code::DataUnusable, format!("the node's certificate {what}"));
        let leaf = CertificateDer::from(&membership.certificate[..]);
        ca.check(&leaf, |dates| Ok(dates.begins)).map_err(|_| unusable("is not signed by the fleet's CA"))?;
        if key_of(&membership.certificate) != Some(key.public()) {
            return Err(unusable("is not for its key"));
        }
        let begins = membership.dates().map_or(0, |dates| dates.begins);
        let certified = CertifiedKey::from_der(membership.chain(), key.pkcs8().into(), &provider())
            .map(Arc::new)
            .map_err(|error| unusable(&format!("cannot be used: {error}")))?;
        Ok(Self { membership, certified, begins, taken_at: None, revoked, has_rival_list: false })
    }
}

impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Present").field("membership", &self.membership).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Standing {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present.read().certified.clone())
    }
}

impl ResolvesClientCert for Standing {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.present.read().certified.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Connected {
    fn end(&mut self, why: LinkEnd, is_meant: impl Fn(&NodeId) -> bool) {
        let meant: Vec<u64> =
            self.all.iter().filter(|(_, (node, _))| is_meant(node)).map(|(number, _)| *number).collect();
        for number in meant {
            let Some((_, sender)) = self.all.remove(&number) else { continue };
            // Nobody waits for it if the connection is just ending by itself.
            let _ = sender.send(why);
        }
    }
}

impl Peer {
    /// Waits until the connection has to end. The task that serves it waits for this beside everything else.
    pub async fn ended(&mut self) -> LinkEnd {
        match (&mut self.ended).await {
            Ok(why) => why,
            // The other half lives as long as this is counted.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.connected.lock().all.remove(&self.number);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strangers {
    May,
    MayNot,
}

fn server_config(standing: &Arc<Standing>, strangers: Strangers) -> Result<Arc<ServerConfig>, Problem> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| problem_of(&error))?;
    let (builder, protocols) = match strangers {
        Strangers::May => (builder.with_no_client_auth(), vec![link::JOIN]),
        Strangers::MayNot => (
            builder.with_client_cert_verifier(Arc::new(Members(standing.clone()))),
            vec![link::HELLO, link::FLEET, link::CALLS, link::ENGINE, link::ANCHOR, link::ROUTES],
        ),
    };
    let mut config = builder.with_cert_resolver(standing.clone());
    config.alpn_protocols = protocols.into_iter().map(<[u8]>::to_vec).collect();
    // A session that is taken up again would pass the check of its certificate by.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn client_config(standing: &Arc<Standing>) -> Result<ClientConfig, Problem> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| problem_of(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Members(standing.clone())))
        .with_client_cert_resolver(standing.clone());
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// For those who are no members yet, or whose certificate has ended.
pub(crate) fn stranger_config(ca_hash: Option<[u8; 32]>) -> Result<Arc<ClientConfig>, Problem> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| problem_of(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnchorOf { ca_hash }))
        .with_no_client_auth();
    config.alpn_protocols = vec![link::JOIN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(Arc::new(config))
}
