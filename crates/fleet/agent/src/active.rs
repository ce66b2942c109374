//! A node while it belongs to a fleet: what its tasks share, and the tasks that are not about links.
//!
//! ```text
//!   serve ─▶ accept ─▶ talk ─┐
//!   dial ────────────▶ talk ─┼─▶ Active: table, list of revoked nodes, what is wrong ─▶ Status
//!   keep: certificate, disk ─┘
//! ```

use crate::beacon::answer;
use crate::dial::dial;
use crate::known::Kept;
use crate::office::{Office, asked, keep_office};
use crate::places::Reach;
use crate::table::{Record, Row, Table};
use crate::talk::talk;
use fleet_trust::beacon::Here;
use fleet_trust::folder::Folder;
use fleet_trust::serve::{Arrivals, MemberArrival, serve};
use fleet_trust::{Address, Anchor, Membership, NodeId, Revoked, Trust, link};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

/// Links that this node has dialed. Others wait until one of them ends.
pub const LINKS_OUT_MAX: usize = 32;
/// Links that other nodes have dialed, one for each. Another node's is closed.
pub const LINKS_IN_MAX: usize = 1_024;

/// How often a node says hello on each link.
pub(crate) const PERIOD: Duration = Duration::from_secs(3);
/// How often the certificate is looked at, and the machine's address.
const KEEP_EVERY: Duration = Duration::from_secs(5);
/// How long what is known is not written down again, however often it changes.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
/// How long a renewal that failed is not tried again.
const RENEW_PAUSE: Duration = Duration::from_secs(60);
/// A certificate that ends within so many seconds, while no anchor answers, is said to people: seven days.
const ENDS_SOON_SECONDS: u64 = 7 * DAY_SECONDS;
const DAY_SECONDS: u64 = 24 * 3_600;
/// How often it is said in the log.
const WARN_EVERY: Duration = Duration::from_secs(DAY_SECONDS);
/// How often an anchor looks whether the list of revoked nodes is of a time to come.
const REVISE_EVERY: Duration = Duration::from_secs(60);
/// Members that have connected and are not yet served.
pub(crate) const ARRIVALS_MAX: usize = 16;

/// See the top of this file.
pub(crate) struct Active {
    pub folder: Folder,
    pub trust: Arc<Trust>,
    /// If this node is one.
    pub anchor: Option<Arc<Anchor>>,
    pub name: String,
    pub version: String,
    pub reach: Reach,
    pub api: Arc<OnceLock<ApiPlace>>,
    pub office: Arc<Office>,
    table: Mutex<Table>,
    /// On an anchor: who has shown an anchor's certificate, and who one of a member.
    certified: Mutex<BTreeMap<NodeId, bool>>,
    trouble: Mutex<Option<Problem>>,
    /// An anchor has refused another machine with this node's key, within the last hour.
    is_doubled: AtomicBool,
    /// Something that is to be kept has changed.
    has_news: AtomicBool,
    news: Notify,
    /// Revision of the list of revoked nodes.
    revision: watch::Sender<u64>,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// Where the node's own API is.
#[derive(Debug, Clone)]
pub struct ApiPlace {
    /// `http` or `https`.
    pub scheme: &'static str,
    pub listening: SocketAddr,
    /// The host that is told in place of this machine's address.
    pub name: Option<String>,
}

impl ApiPlace {
    /// Nobody beyond this machine reaches it.
    fn is_here_only(&self) -> bool {
        self.name.is_none() && self.listening.ip().is_loopback()
    }

    /// As `https://pi-7.example.org:8701`.
    fn url(&self, reach: &Reach) -> String {
        let (scheme, port) = (self.scheme, self.listening.port());
        match &self.name {
            Some(name) => format!("{scheme}://{name}:{port}"),
            None => format!("{scheme}://{}", reach.of(self.listening)),
        }
    }
}

/// What an [`Active`] is made of.
pub(crate) struct Parts {
    pub folder: Folder,
    pub trust: Trust,
    pub anchor: Option<Anchor>,
    pub name: String,
    pub version: String,
    pub reach: Reach,
    pub api: Arc<OnceLock<ApiPlace>>,
    pub office: Arc<Office>,
    pub kept: Kept,
}

impl Active {
    /// Begins to listen and to dial. `to` says where members go that connect; `arrivals` has those that say hello.
    pub fn start(
        parts: Parts,
        (listener, beacon): (TcpListener, Option<UdpSocket>),
        to: Arrivals,
        arrivals: mpsc::Receiver<MemberArrival>,
    ) -> Arc<Self> {
        let Parts { folder, trust, anchor, name, version, reach, api, office, kept } = parts;
        let mut table = Table::new(trust.node());
        let trust = Arc::new(trust);
        kept.nodes.into_iter().for_each(|told| {
            table.learn(told, Instant::now());
        });
        let revoked = trust.revoked();
        table.forget(|node| revoked.as_ref().is_some_and(|list| list.contains(node)));
        let active = Arc::new(Self {
            folder,
            anchor: anchor.map(Arc::new),
            name,
            version,
            reach,
            api,
            office,
            table: Mutex::new(table),
            certified: Mutex::default(),
            trouble: Mutex::default(),
            is_doubled: AtomicBool::new(false),
            has_news: AtomicBool::new(true),
            news: Notify::new(),
            revision: watch::Sender::new(revoked.as_deref().map_or(0, Revoked::revision)),
            tasks: Mutex::default(),
            trust: trust.clone(),
        });
        let answers = beacon.map(|socket| {
            let membership = trust.membership();
            let port = socket.local_addr().map_or(0, |address| address.port());
            tokio::spawn(answer(socket, Here { fleet: trust.fleet(), name: membership.fleet_name, port }))
        });
        let mut tasks = vec![
            tokio::spawn(serve(listener, trust, active.anchor.clone(), to)),
            tokio::spawn(accept(active.clone(), arrivals)),
            tokio::spawn(dial(active.clone())),
            tokio::spawn(keep(active.clone())),
            tokio::spawn(keep_office(active.clone())),
        ];
        tasks.extend(answers);
        *active.tasks.lock() = tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect();
        active
    }

    /// Ends all its tasks, and with them its links. What is known is written down.
    pub fn end(&self) {
        self.tasks.lock().iter().for_each(AbortHandle::abort);
        if self.has_news.swap(false, Relaxed)
            && let Err(problem) = Kept::new(self.rows()).write(&self.folder)
        {
            tracing::warn!("{} {}", problem.code, problem.detail);
        }
    }

    /// What this node says of itself.
    pub fn record(&self) -> Record {
        // Others on this machine reach what listens here alone, if there are any.
        let address = self.reach.address();
        let is_reached = |api: &&ApiPlace| !api.is_here_only() || address.is_loopback();
        let api = self.api.get().filter(is_reached).map(|api| api.url(&self.reach));
        Record {
            name: self.name.clone(),
            address: Some(address),
            version: self.version.clone(),
            incarnation: self.trust.presence().incarnation,
            api,
        }
    }

    /// Tells others where this node is reached, if that has changed. Members hear it with the next hello.
    fn look_again(&self) {
        if self.reach.look() {
            let address = self.reach.address();
            tracing::info!(%address, "this machine has another address");
            if let Some(anchor) = &self.anchor {
                anchor.listen_at(vec![address]);
            }
        }
    }

    pub fn rows(&self) -> Vec<Row> {
        self.admit_all();
        self.table.lock().rows(self.record(), self.anchor.is_some(), Instant::now())
    }

    /// A member says this of itself. On an anchor, the name is what the ledger has; elsewhere, what is known of it, so
    /// that nobody takes another's name and its mail.
    ///
    /// # Errors
    /// [`Code::NodeDoubled`]; [`Code::NodeRevoked`]; [`Code::NotAdmitted`]: the ledger of this anchor does not have the
    /// node.
    pub fn hear(&self, node: NodeId, record: Record, is_anchor: bool) -> Result<(), Problem> {
        let (name, is_anchor) = match &self.anchor {
            Some(anchor) => {
                self.certified.lock().insert(node, is_anchor);
                let missing = || format!("the ledger of this anchor has no node {node}");
                let name = anchor.name_of(&node).ok_or_else(|| Problem::new(Code::NotAdmitted, missing()))?;
                (name, anchor.is_anchor(&node))
            }
            None if record.name == self.name => (node.to_string(), is_anchor),
            None => (self.table.lock().name_of(&node, record.name), is_anchor),
        };
        let mut table = self.table.lock();
        // Looked at with the table in hand: whoever was forgotten a moment ago would come back for good.
        if self.trust.is_revoked(&node) {
            return Err(revoked(&node));
        }
        let is_news = table.hear(node, Record { name, ..record }, is_anchor, Instant::now())?;
        drop(table);
        if is_news {
            self.has_news();
        }
        Ok(())
    }

    /// On an anchor: who has shown an anchor's certificate last, and who one of a member.
    pub fn certified(&self) -> BTreeMap<NodeId, bool> {
        self.certified.lock().clone()
    }

    /// An anchor has said who is one: from now on they are where this node asks.
    pub async fn learn_anchors(&self) {
        let known = self.table.lock().anchors();
        if self.anchor.is_some() || known.is_empty() || known == self.trust.membership().anchors {
            return;
        }
        let (folder, trust) = (self.folder.clone(), self.trust.clone());
        let keep = move || {
            let _changing = trust.changing();
            trust.set_anchors(known);
            folder.keep_membership(&trust.membership())
        };
        let kept = spawn_blocking(keep).await.map_err(|error| failed(&error));
        if let Err(problem) = kept.flatten() {
            tracing::warn!("{} {}", problem.code, problem.detail);
        }
    }

    /// Where anchors listen.
    pub fn anchors(&self) -> Vec<Address> {
        match &self.anchor {
            Some(anchor) => anchor.addresses(),
            None => self.trust.membership().anchors,
        }
    }

    /// Works with the table.
    pub fn with_table<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        work(&mut self.table.lock())
    }

    pub fn has_news(&self) {
        self.has_news.store(true, Relaxed);
        self.news.notify_one();
    }

    /// An anchor's own table has all whom its ledger has, and none that has left.
    pub fn admit_all(&self) {
        let Some(anchor) = &self.anchor else { return };
        let revoked = self.trust.revoked();
        let mut table = self.table.lock();
        table.forget(|node| revoked.as_ref().is_some_and(|list| list.contains(node)));
        anchor.for_each_member(|(node, member)| table.admit(*node, &member.name, member.is_anchor));
    }

    /// Takes a signed list of revoked nodes, if it is newer: their links end, and every other link passes it on. The
    /// ledger of an anchor takes over what it lacks of it.
    ///
    /// # Errors
    /// [`Code::FleetMessage`]: it is none of this fleet. [`Code::DataUnusable`]: it holds until the node ends.
    pub async fn learn_list(&self, list: &[u8]) -> Result<(), Problem> {
        if self.trust.learn_revoked(list)? {
            self.pass_on().await?;
        }
        if self.anchor.is_some()
            && let Err(problem) = self.take_over(Arc::new(self.trust.read_list(list)?)).await
        {
            tracing::warn!("the ledger lacks what a list of revoked nodes says: {} {}", problem.code, problem.detail);
        }
        Ok(())
    }

    /// On an anchor: its ledger takes over what only this list says, and everybody hears what came of it.
    ///
    /// # Errors
    /// As [`Anchor::merge_list`] and [`Active::learn_list`].
    pub async fn take_over(&self, list: Arc<Revoked>) -> Result<(), Problem> {
        let Some(anchor) = self.anchor.clone() else { return Ok(()) };
        let merged = spawn_blocking(move || anchor.merge_list(&list)).await.map_err(|error| failed(&error))??;
        match merged {
            Some(list) if self.trust.learn_revoked(list.bytes())? => self.pass_on().await,
            _ => Ok(()),
        }
    }

    /// The list of revoked nodes is another one now.
    async fn pass_on(&self) -> Result<(), Problem> {
        let Some(list) = self.trust.revoked() else { return Ok(()) };
        self.table.lock().forget(|node| list.contains(node));
        self.has_news();
        self.revision.send_replace(list.revision());
        let folder = self.folder.clone();
        spawn_blocking(move || folder.keep_revoked(&list)).await.map_err(|error| failed(&error))?
    }

    pub fn revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// What keeps this node from its fleet, or soon will.
    pub fn trouble(&self) -> Option<Problem> {
        self.ending().or_else(|| self.trouble.lock().clone())
    }

    /// This node's certificate has ended, or ends soon, and no anchor is there that renews it.
    fn ending(&self) -> Option<Problem> {
        let is_away = self.trouble.lock().as_ref().is_some_and(|trouble| trouble.code == Code::AnchorsAway);
        let left = self.trust.seconds_left().filter(|left| is_away && *left <= ENDS_SOON_SECONDS)?;
        let when = match left.div_ceil(DAY_SECONDS) {
            0 => "has ended".to_owned(),
            1 => "ends within a day".to_owned(),
            days => format!("ends within {days} days"),
        };
        let detail = format!("this node's certificate {when}, and no anchor answers: then other nodes refuse it");
        Some(Problem::new(Code::CertificateEnded, detail))
    }

    /// What an anchor, or the way to it, has to say against this node. None: nothing any more.
    pub fn set_trouble(&self, trouble: Option<Problem>) {
        let mut kept = self.trouble.lock();
        if let Some(problem) = &trouble
            && kept.as_ref().is_none_or(|before| before.code != problem.code)
        {
            tracing::warn!("{} {}", problem.code, problem.detail);
        }
        *kept = trouble;
    }

    /// Whether anchors want nothing of this node any more.
    pub fn is_out(&self) -> bool {
        self.trouble.lock().as_ref().is_some_and(|one| matches!(one.code, Code::NodeRevoked | Code::NodeDoubled))
    }

    pub fn is_doubled(&self) -> bool {
        self.is_doubled.load(Relaxed)
    }

    /// Says hello to an anchor: learns whether this is still the life that counts, and who was revoked.
    ///
    /// # Errors
    /// As [`link::hello`] and [`Active::learn_list`].
    pub async fn say_hello(&self, anchor: &Address) -> Result<(), Problem> {
        let keep = |membership: &_| self.folder.keep_membership(membership);
        let revision = || self.trust.revoked().map(|list| list.revision());
        let before = revision();
        let welcome = link::hello(&self.trust, anchor, keep).await;
        // The trust has the list that came with it, whatever else went wrong.
        if revision() != before {
            self.pass_on().await?;
        }
        let welcome = welcome?;
        self.is_doubled.store(welcome.is_doubled, Relaxed);
        self.set_trouble(None);
        Ok(())
    }

    async fn renew(&self) -> Result<(), Problem> {
        let key = self.folder.key()?;
        let (membership, revoked) = match &self.anchor {
            Some(anchor) => (anchor.own(&key, &self.name)?, None),
            None => {
                let joined = link::renew(&self.trust.membership(), &key).await?;
                (joined.membership, joined.revoked)
            }
        };
        {
            let _changing = self.trust.changing();
            // A hello may have been answered meanwhile, and have begun a new life.
            let incarnation = membership.incarnation.max(self.trust.presence().incarnation);
            let membership = Membership { incarnation, ..membership };
            self.trust.become_again(membership.clone())?;
            self.folder.keep_membership(&membership)?;
        }
        tracing::info!("the certificate for the fleet was renewed");
        match revoked {
            Some(list) => self.learn_list(list.bytes()).await,
            None => Ok(()),
        }
    }

    /// On an anchor: as [`Anchor::revise`], and everybody hears of it.
    async fn revise(&self) -> Result<(), Problem> {
        let Some(anchor) = self.anchor.clone() else { return Ok(()) };
        let list = spawn_blocking(move || anchor.revise()).await.map_err(|error| failed(&error))??;
        let Some(list) = list else { return Ok(()) };
        tracing::info!("the list of revoked nodes was of a time to come, and is made anew");
        self.learn_list(list.bytes()).await
    }
}

/// Why nothing more is heard of a node.
pub fn revoked(node: &NodeId) -> Problem {
    Problem::new(Code::NodeRevoked, format!("the node {node} was taken out of the fleet"))
}

/// Serves members that connect: one link for each node. A newer one takes the place of the older.
async fn accept(active: Arc<Active>, mut arrivals: mpsc::Receiver<MemberArrival>) {
    let mut links = JoinSet::new();
    let mut of_node: BTreeMap<NodeId, AbortHandle> = BTreeMap::new();
    loop {
        let arrival = tokio::select! {
            Some(arrival) = arrivals.recv() => arrival,
            Some(_) = links.join_next() => continue,
            else => return,
        };
        of_node.retain(|_, link| !link.is_finished());
        if arrival.stream.get_ref().1.alpn_protocol() == Some(link::ANCHOR) {
            links.spawn(asked(active.clone(), arrival));
            continue;
        }
        let MemberArrival { peer, stream } = arrival;
        let node = peer.node;
        if of_node.len() >= LINKS_IN_MAX && !of_node.contains_key(&node) {
            continue;
        }
        let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let is_anchor = leaf.is_some_and(|leaf| active.trust.is_anchor(leaf));
        let active = active.clone();
        let link = links.spawn(async move {
            if let Err(problem) = talk(&active, peer, stream, is_anchor).await {
                tracing::debug!(%node, %problem, "a link ended");
            }
        });
        of_node.insert(node, link).inspect(AbortHandle::abort);
    }
}

/// Renews the certificate in time, looks where this node is reached, and writes down what is known of others: soon,
/// because a node that loses its power finds only those again that it has written down.
async fn keep(active: Arc<Active>) {
    let (mut renewed, mut revised): (Option<Instant>, Option<Instant>) = (None, None);
    // Anchors that do not answer keep one waiting for minutes.
    let (mut renewing, mut warned): (JoinSet<()>, Option<Instant>) = Default::default();
    loop {
        active.look_again();
        if revised.is_none_or(|at| at.elapsed() >= REVISE_EVERY) {
            revised = Some(Instant::now());
            if let Err(problem) = active.revise().await {
                tracing::warn!("the list of revoked nodes was not made anew: {} {}", problem.code, problem.detail);
            }
        }
        if warned.is_none_or(|at| at.elapsed() >= WARN_EVERY)
            && let Some(problem) = active.ending()
        {
            warned = Some(Instant::now());
            tracing::warn!("{} {}", problem.code, problem.detail);
        }
        while renewing.try_join_next().is_some() {}
        let is_due = renewing.is_empty() && renewed.is_none_or(|at| at.elapsed() >= RENEW_PAUSE);
        if is_due && active.trust.wants_renewal() {
            renewed = Some(Instant::now());
            renewing.spawn(renew(active.clone()));
        }
        if active.has_news.swap(false, Relaxed) {
            let (kept, folder) = (Kept::new(active.rows()), active.folder.clone());
            let written = spawn_blocking(move || kept.write(&folder)).await.map_err(|error| failed(&error));
            if let Err(problem) = written.flatten() {
                tracing::warn!("{} {}", problem.code, problem.detail);
            }
        }
        sleep(WRITE_PAUSE).await;
        let _ = timeout(KEEP_EVERY, active.news.notified()).await;
    }
}

async fn renew(active: Arc<Active>) {
    if let Err(problem) = active.renew().await {
        tracing::warn!("the certificate for the fleet was not renewed: {} {}", problem.code, problem.detail);
    }
}

pub(crate) fn failed(error: &tokio::task::JoinError) -> Problem {
    Problem::new(Code::Internal, format!("a step of the fleet failed: {error}"))
}
