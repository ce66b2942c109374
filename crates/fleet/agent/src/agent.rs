//! What people and the node ask of a fleet: found one, join one, let others in, take them out, list them.

use crate::active::{ARRIVALS_MAX, Active, ApiPlace, Parts, failed};
use crate::knock::ShownDigits;
use crate::known::Kept;
use crate::office::Office;
use crate::places::{self, Reach, with_id};
use crate::table::{Record, Row};
use fleet_trust::folder::Folder;
use fleet_trust::ledger::Ledger;
use fleet_trust::serve::{Arrivals, MemberArrival};
use fleet_trust::{
    Address, Anchor, Clock, FleetId, Membership, NodeId, NodeKey, Token, Trust, check_name,
    link::{self, Joined},
};
use parking_lot::RwLock;
use problem::{Code, Problem};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Mutex, mpsc};
use tokio::task::spawn_blocking;

/// Characters of an id that name a node, if no other id begins with them.
const ID_CHARS_MIN: usize = 4;

/// What a node's part in a fleet needs to be told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder `fleet` in the data folder. It is made when the node joins a fleet.
    pub folder: PathBuf,
    /// Where to listen for other nodes, once there is a fleet.
    pub listen: SocketAddr,
    /// What others are told instead, as behind a router.
    pub address: Option<Address>,
    /// The node's name in a fleet. None: that of the machine.
    pub name: Option<String>,
    /// The program's.
    pub version: String,
    pub clock: Clock,
    /// Whom a node asks by the beacon for anchors. None: all networks that it is in.
    pub seek: Option<Vec<SocketAddr>>,
    /// What says which address this machine has: [`crate::outward`].
    pub outward: fn() -> Option<IpAddr>,
}

/// What a node's part in a fleet gives to all that stands on it.
pub struct Part {
    pub trust: Arc<Trust>,
    /// If this node is one.
    pub anchor: Option<Arc<Anchor>>,
    pub directory: Directory,
    /// Members that have connected for calls.
    pub calls: mpsc::Receiver<MemberArrival>,
    /// Members that have connected for the fleet's engine. None come to a node that is no anchor.
    pub engine: mpsc::Receiver<MemberArrival>,
}

/// Who is in the fleet, as this node knows it now. Clones are one. Empty by default, and once the node has no part in
/// it any more.
#[derive(Clone, Default)]
pub struct Directory(Weak<Active>);

impl Directory {
    /// What this node is called; empty once it has no part in the fleet any more.
    pub fn own_name(&self) -> String {
        self.0.upgrade().map(|active| active.name.clone()).unwrap_or_default()
    }

    /// What is known of one other member.
    pub fn record(&self, node: &NodeId) -> Option<Record> {
        self.0.upgrade()?.with_table(|table| table.record(node).cloned())
    }

    /// The other members.
    pub fn others(&self) -> Vec<Row> {
        let rows = self.0.upgrade().map(|active| active.rows()).unwrap_or_default();
        rows.into_iter().filter(|row| !row.is_this_node).collect()
    }
}

type OnPart = Box<dyn Fn(Part) -> Began + Send + Sync>;
/// Ready when the node takes its part.
pub type Began = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the top of this file.
pub struct Agent {
    settings: Settings,
    on_part: OnceLock<OnPart>,
    active: RwLock<Option<Arc<Active>>>,
    /// Once it listens.
    api: Arc<OnceLock<ApiPlace>>,
    /// Held by whoever makes this node a member.
    joining: Mutex<()>,
    /// Digits that this node shows.
    pub(crate) waiting: parking_lot::Mutex<Option<ShownDigits>>,
    office: Arc<Office>,
    /// Where it listened last: a part in the fleet that begins again listens there.
    listened: parking_lot::Mutex<Option<SocketAddr>>,
}

/// A fleet, as this node sees it.
#[derive(Debug, Clone)]
pub struct Status {
    pub name: String,
    pub fleet: FleetId,
    pub is_anchor: bool,
    /// This node first.
    pub rows: Vec<Row>,
    /// What keeps this node from its fleet.
    pub trouble: Option<Problem>,
    /// Another machine had this node's key, and was refused, in the last hour.
    pub is_doubled: bool,
}

impl Agent {
    pub fn new(settings: Settings) -> Self {
        let (on_part, active, api) = (OnceLock::new(), RwLock::default(), Arc::default());
        let (joining, waiting, office, listened) = Default::default();
        Self { settings, on_part, active, api, joining, waiting, office, listened }
    }

    /// Says where the node's API is, once it listens: other nodes tell it to devices.
    pub fn tell_api(&self, api: ApiPlace) {
        self.api.set(api).ok();
    }

    /// Says what is called each time this node has become a part of a fleet, on a tokio runtime. Without it members'
    /// connections for calls and for the engine are closed.
    pub fn on_part(&self, begin: impl Fn(Part) -> Began + Send + Sync + 'static) {
        // The first one counts: there is one node.
        self.on_part.set(Box::new(begin)).ok();
    }

    /// Goes on with the fleet that this node belongs to, if it does.
    ///
    /// # Errors
    /// [`Code::DataUnusable`]; [`Code::ListenFailed`].
    pub async fn open(&self) -> Result<(), Problem> {
        let has = |name: &str| self.settings.folder.join(name).exists();
        if !has("member.json") && !has("authority.json") {
            return Ok(());
        }
        let _joining = self.joining.lock().await;
        let listener = self.bind().await?;
        self.start(listener).await
    }

    /// Founds a fleet, of which this node is the anchor.
    ///
    /// # Errors
    /// [`Code::FleetAlready`], [`Code::Usage`]: the name is none; as [`Agent::open`].
    pub async fn found(&self, name: &str) -> Result<Status, Problem> {
        check_name(name)?;
        self.check_own_name()?;
        let _joining = self.joining.lock().await;
        if let Some(active) = &*self.active.read() {
            return Err(already(active));
        }
        let listener = self.bind().await?;
        let (path, name) = (self.settings.folder.clone(), name.to_owned());
        blocking(move || Folder::open(&path)?.found(&name)).await?;
        self.start(listener).await?;
        self.status()
    }

    /// Joins a fleet by an invitation. A node that is a member of it already stays one; if another machine has its key,
    /// from now on this one is the node.
    ///
    /// # Errors
    /// [`Code::FleetAlready`]: it is in another fleet. As [`link::join`] and [`Agent::open`].
    pub async fn join(&self, token: &Token) -> Result<Status, Problem> {
        self.check_own_name()?;
        let _joining = self.joining.lock().await;
        let before = self.active.read().clone();
        if let Some(active) = before {
            if active.trust.fleet() != token.fleet() {
                return Err(already(&active));
            }
            if active.trouble().is_some_and(|trouble| trouble.code == Code::NodeDoubled) {
                self.join_again(&active, token).await?;
            }
            return self.status();
        }
        // First of all: an invitation is not used up by a node that then cannot listen.
        let listener = self.bind().await?;
        let (folder, key) = self.own_key().await?;
        let (joined, name) = self.ask_to_join(token, &key).await?;
        self.become_member(folder, name, joined, listener).await
    }

    /// The folder, and this node's key in it.
    pub(crate) async fn own_key(&self) -> Result<(Folder, NodeKey), Problem> {
        let path = self.settings.folder.clone();
        blocking(move || {
            let folder = Folder::open(&path)?;
            let key = folder.key()?;
            Ok((folder, key))
        })
        .await
    }

    /// An anchor has let this node in.
    pub(crate) async fn become_member(
        &self,
        folder: Folder,
        name: String,
        joined: Joined,
        listener: TcpListener,
    ) -> Result<Status, Problem> {
        let Joined { membership, revoked } = joined;
        blocking(move || {
            Kept { name, nodes: Vec::new() }.write(&folder)?;
            if let Some(list) = &revoked {
                folder.keep_revoked(list)?;
            }
            folder.keep_membership(&membership)
        })
        .await?;
        self.start(listener).await?;
        self.status()
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// [`Code::NoFleet`], [`Code::NotAnchor`]; as [`Anchor::invite`].
    pub async fn invite(&self, times: u32, seconds: u64) -> Result<Token, Problem> {
        let (_, anchor) = self.anchor()?;
        blocking(move || anchor.invite(times, seconds)).await
    }

    /// Takes a node out of the fleet, by its id, the beginning of its id, or its name. Its links here end before this
    /// returns.
    ///
    /// # Errors
    /// [`Code::NoFleet`], [`Code::NotAnchor`], [`Code::MemberUnknown`]; [`Code::Usage`]: it is this node. As
    /// [`Anchor::revoke_beside`].
    pub async fn remove(&self, which: &str) -> Result<(NodeId, String), Problem> {
        let (active, anchor) = self.anchor()?;
        let (node, name) = named(&anchor, which)?;
        if node == active.trust.node() {
            let problem = Problem::new(Code::Usage, "an anchor cannot take itself out of its fleet");
            return Err(problem.with_hint("name another node: `lighter fleet` lists them"));
        }
        let known = active.trust.revoked();
        let list = blocking(move || anchor.revoke_beside(known.as_deref(), &node)).await?;
        active.learn_list(list.bytes()).await?;
        Ok((node, name))
    }

    /// Leaves the fleet: this node's key is revoked, its part in the fleet ends, and the fleet's folder is deleted. A
    /// node that was taken out already forgets its fleet.
    ///
    /// # Errors
    /// [`Code::NoFleet`]; [`Code::FleetAlready`]: it is an anchor. [`Code::AnchorsAway`]: nothing has changed, unless
    /// an answer was lost; it may be asked again. As [`link::leave`].
    pub async fn leave(&self) -> Result<String, Problem> {
        let _joining = self.joining.lock().await;
        let active = self.active()?;
        let name = active.trust.membership().fleet_name;
        if active.anchor.is_some() {
            let problem =
                Problem::new(Code::FleetAlready, "an anchor cannot leave its fleet: without it there is none");
            return Err(problem.with_hint(
                "one of three: `lighter fleet anchor rm` first; the only one: stop it last, and delete its folder `fleet`",
            ));
        }
        let is_out = |problem: &Problem| problem.code == Code::NodeRevoked;
        if !active.trouble().is_some_and(|trouble| is_out(&trouble)) {
            match link::leave(&active.trust).await {
                Err(problem) if !is_out(&problem) => return Err(problem),
                _ => {}
            }
        }
        self.end();
        let folder = active.folder.clone();
        blocking(move || folder.forget()).await?;
        Ok(name)
    }

    /// # Errors
    /// [`Code::NoFleet`].
    pub fn status(&self) -> Result<Status, Problem> {
        let active = self.active()?;
        Ok(Status {
            name: active.trust.membership().fleet_name,
            fleet: active.trust.fleet(),
            is_anchor: active.anchor.is_some(),
            rows: active.rows(),
            trouble: active.trouble(),
            is_doubled: active.is_doubled(),
        })
    }

    /// Ends the listener and all links.
    pub fn end(&self) {
        if let Some(active) = self.active.write().take() {
            active.end();
        }
    }

    pub(crate) fn office(&self) -> Arc<Office> {
        self.office.clone()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Held by whoever makes this node a member.
    pub(crate) async fn joining(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.joining.lock().await
    }

    /// # Errors
    /// [`Code::FleetAlready`].
    pub(crate) fn check_alone(&self) -> Result<(), Problem> {
        self.active.read().as_ref().map_or(Ok(()), |active| Err(already(active)))
    }

    fn active(&self) -> Result<Arc<Active>, Problem> {
        self.active.read().clone().ok_or_else(|| Problem::new(Code::NoFleet, "this node belongs to no fleet"))
    }

    pub(crate) fn anchor(&self) -> Result<(Arc<Active>, Arc<Anchor>), Problem> {
        let active = self.active()?;
        let anchor = active.anchor.clone().ok_or_else(|| {
            let fleet = active.trust.membership().fleet_name;
            Problem::new(Code::NotAnchor, format!("this node is a member of {fleet}, and no anchor"))
        })?;
        Ok((active, anchor))
    }

    pub(crate) fn check_own_name(&self) -> Result<(), Problem> {
        self.settings.name.as_deref().map_or(Ok(()), check_name)
    }

    pub(crate) async fn bind(&self) -> Result<TcpListener, Problem> {
        let listen = self.listened.lock().unwrap_or(self.settings.listen);
        let failed = |error| {
            Problem::new(Code::ListenFailed, format!("{listen}, for nodes of the fleet: {error}"))
                .with_hint("if another program, perhaps a node, has the port, choose another one: --fleet-listen")
        };
        TcpListener::bind(listen).await.map_err(failed)
    }

    async fn start(&self, listener: TcpListener) -> Result<(), Problem> {
        let failed_to_listen = |error| Problem::new(Code::ListenFailed, format!("the fleet's listener: {error}"));
        let listening = listener.local_addr().map_err(failed_to_listen)?;
        let settings = self.settings.clone();
        let api = self.api.clone();
        *self.listened.lock() = Some(listening);
        let office = self.office.clone();
        let parts = blocking(move || prepare(settings, listening, (api, office))).await?;
        let on_part = self.on_part.get();
        let (members, arrivals) = mpsc::channel(ARRIVALS_MAX);
        let [(to_calls, calls), (to_engine, engine)] = [(); 2].map(|()| mpsc::channel(ARRIVALS_MAX));
        let [to_calls, to_engine] = [to_calls, to_engine].map(|to| on_part.map(|_| to));
        let beacon = match &parts.anchor {
            Some(_) => beacon(listening).await,
            None => None,
        };
        let to = Arrivals { members, calls: to_calls, engine: to_engine };
        let active = Active::start(parts, (listener, beacon), to, arrivals);
        *self.active.write() = Some(active.clone());
        if let Some(begin) = on_part {
            let directory = Directory(Arc::downgrade(&active));
            let (trust, anchor) = (active.trust.clone(), active.anchor.clone());
            begin(Part { trust, anchor, directory, calls, engine }).await;
        }
        Ok(())
    }

    /// Under its own name; where that is the machine's and another node has it, under one that nobody else has.
    async fn ask_to_join(&self, token: &Token, key: &NodeKey) -> Result<(Joined, String), Problem> {
        let name = self.settings.name.clone().unwrap_or_else(places::machine_name);
        match link::join(token, key, &name).await {
            Err(problem) if problem.code == Code::NotAdmitted && self.settings.name.is_none() => {
                let name = with_id(&name, &key.id());
                link::join(token, key, &name).await.map(|joined| (joined, name))
            }
            joined => joined.map(|joined| (joined, name)),
        }
    }

    async fn join_again(&self, active: &Active, token: &Token) -> Result<(), Problem> {
        let folder = active.folder.clone();
        let key = blocking(move || folder.key()).await?;
        let Joined { membership, revoked } = link::join(token, &key, &active.name).await?;
        let (folder, kept) = (active.folder.clone(), membership.clone());
        blocking(move || folder.keep_membership(&kept)).await?;
        active.trust.become_again(membership)?;
        active.set_trouble(None);
        match revoked {
            Some(list) => active.learn_list(list.bytes()).await,
            None => Ok(()),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a node that has the fleet's key is an anchor by its ledger, or founds its fleet. Others may have taken it
/// from among them, or out of the fleet, and then it was off before it could become a member.
fn has_office(ledger: &Ledger, own: &NodeId) -> bool {
    ledger.set() == 0 || ledger.member(own).is_ok_and(|member| member.is_anchor)
}

/// Reads the folder, and makes of it what the tasks share. An anchor certifies itself, each time it starts.
fn prepare(
    settings: Settings,
    listening: SocketAddr,
    (api, office): (Arc<OnceLock<ApiPlace>>, Arc<Office>),
) -> Result<Parts, Problem> {
    let Settings { folder: path, address, name, version, clock, outward, .. } = settings;
    let folder = Folder::open(&path)?;
    let key = folder.key()?;
    let kept = Kept::read(&folder)?;
    let reach = Reach::new(listening, address, outward);
    let own_name = || name.clone().unwrap_or_else(places::machine_name);
    let keys = folder.authority()?.map(|authority| Ok::<_, Problem>((authority, folder.ledger()?))).transpose()?;
    let (anchor, membership, name) = match keys.filter(|(_, ledger)| has_office(ledger, &key.id())) {
        Some((authority, ledger)) => {
            let name = name_in(&ledger, &key.id()).unwrap_or_else(own_name);
            let anchor = Anchor::new(authority, ledger, vec![reach.address()], clock.clone(), folder.clone());
            let mut membership = anchor.own(&key, &name)?;
            // The disk of this node knows its life at least as well as the ledger of several anchors.
            let before = folder.membership()?.map_or(0, |before| before.incarnation);
            membership.incarnation = membership.incarnation.max(before);
            folder.keep_membership(&membership)?;
            (Some(anchor), membership, name)
        }
        None => {
            let missing = || Problem::new(Code::DataUnusable, format!("{}: no membership", path.display()));
            let name = if kept.name.is_empty() { own_name() } else { kept.name.clone() };
            (None, folder.membership()?.ok_or_else(missing)?, name)
        }
    };
    let revoked = match &anchor {
        Some(anchor) => anchor.revoked(),
        None => folder.revoked(&membership)?,
    };
    let trust = Trust::new(key, membership, revoked, clock)?;
    Ok(Parts { folder, trust, anchor, name, version, reach, api, office, kept })
}

/// An anchor's socket for those who look for one. Without it they have to be told where it is.
async fn beacon(listening: SocketAddr) -> Option<UdpSocket> {
    let socket = UdpSocket::bind(listening).await;
    socket
        .inspect_err(|error| {
            tracing::warn!("new nodes do not find this anchor by themselves: UDP {listening}: {error}")
        })
        .ok()
}

fn name_in(ledger: &Ledger, node: &NodeId) -> Option<String> {
    ledger.member(node).ok().map(|member| member.name.clone())
}

/// The one member that is meant.
pub(crate) fn named(anchor: &Anchor, which: &str) -> Result<(NodeId, String), Problem> {
    let mut found: Vec<(NodeId, String)> = Vec::new();
    let mut exact = None;
    anchor.for_each_member(|(node, member)| {
        if member.name == which {
            exact = Some((*node, member.name.clone()));
        }
        if which.len() >= ID_CHARS_MIN && node.to_string().starts_with(which) {
            found.push((*node, member.name.clone()));
        }
    });
    match (exact, found.len()) {
        (Some(one), _) => Ok(one),
        (None, 1) => Ok(found.remove(0)),
        (None, 0) => {
            Err(Problem::new(Code::MemberUnknown, format!("no node of the fleet has the id or name {which:?}")))
        }
        (None, count) => Err(Problem::new(Code::MemberUnknown, format!("{count} ids begin with {which:?}"))),
    }
}

pub(crate) fn already(active: &Active) -> Problem {
    let Membership { fleet_name, .. } = active.trust.membership();
    Problem::new(Code::FleetAlready, format!("this node belongs to the fleet {fleet_name}"))
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    spawn_blocking(work).await.map_err(|error| failed(&error))?
}
