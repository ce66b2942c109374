//! Nodes of a real fleet whose anchor becomes three, each with a real server: through certificates, tunnels and rights.

use crate::town::{launcher, set, until};
use facts::{Facts as _, Key};
use fleet_agent::{Agent, Part, Settings};
use fleet_nats::{Anchoring, EngineState, FleetEngine, Standing, find};
use fleet_trust::Clock;
use fleet_trust::office::Estate;
use parking_lot::Mutex;
use problem::Code;
use std::future::ready;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinHandle;

type Kept = Arc<Mutex<Option<Arc<FleetEngine>>>>;

/// A node that takes its part in the fleet anew when it has become an anchor.
struct Node {
    agent: Arc<Agent>,
    engine: Kept,
    folder: PathBuf,
    changing: JoinHandle<()>,
}

impl Node {
    async fn start(folder: &Path, name: &str, listen: SocketAddr) -> Self {
        let folder = folder.join(name);
        let agent = Arc::new(Agent::new(Settings {
            folder: folder.clone(),
            listen,
            address: None,
            name: Some(name.to_owned()),
            version: "0.1.0".to_owned(),
            clock: Clock::system(0),
            seek: Some(Vec::new()),
            outward: fleet_agent::outward,
        }));
        let engine = Kept::default();
        let (kept, data) = (engine.clone(), folder.clone());
        agent.on_part(move |Part { trust, anchor, engine: arrivals, .. }| {
            let find = || find(None, "/nowhere".as_ref(), std::env::var_os("PATH").as_deref());
            let anchoring = Anchoring { folder: data.clone(), find: Arc::new(find), launcher: launcher() };
            let started = FleetEngine::start(Standing { trust, anchor, arrivals }, anchoring, None);
            *kept.lock() = Some(Arc::new(started.expect("it may be had")));
            Box::pin(ready(()))
        });
        agent.open().await.unwrap();
        let (role, again, kept) = (agent.role(), Arc::downgrade(&agent), engine.clone());
        let changing = tokio::spawn(async move {
            loop {
                role.changed().await;
                let Some(agent) = again.upgrade() else { return };
                let before = kept.lock().take();
                if let Some(before) = before {
                    before.end().await;
                }
                agent.again().await.unwrap();
            }
        });
        Self { agent, engine, folder, changing }
    }

    fn engine(&self) -> Option<Arc<FleetEngine>> {
        self.engine.lock().clone()
    }

    fn process(&self) -> Option<u32> {
        match self.engine()?.report().server {
            Some(EngineState::Up { process, .. }) => Some(process),
            _ => None,
        }
    }

    fn is_connected(&self) -> bool {
        self.engine().is_some_and(|engine| engine.report().is_connected)
    }

    async fn is_read(&self, key: &Key) -> bool {
        let Some(engine) = self.engine() else { return false };
        engine.node().get(key).await.is_ok_and(|fact| fact.is_some())
    }

    async fn end(self) -> SocketAddr {
        let own = self.agent.status().unwrap().rows.remove(0);
        self.changing.abort();
        if let Some(engine) = self.engine() {
            engine.end().await;
        }
        self.agent.end();
        own.record.address.unwrap().to_string().parse().unwrap()
    }
}

/// A fleet of these, of which the first is its anchor.
async fn fleet(home: &Path, names: &[&str]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(Node::start(home, name, ([127, 0, 0, 1], 0).into()).await);
    }
    nodes[0].agent.found("campus").await.unwrap();
    let token = nodes[0].agent.invite(names.len() as u32 - 1, 3_600).await.unwrap();
    for node in &nodes[1..] {
        node.agent.join(&token).await.unwrap();
    }
    let all_heard = || nodes[0].agent.status().unwrap().rows.iter().all(|row| row.heard.is_some());
    until("all are heard of", async || all_heard()).await;
    nodes
}

/// One loses what its engine kept, and another one is away before that has been given to it again: the third may not
/// have what these two agreed on, and agrees on nothing alone. With the empty one it agrees only if it has led the
/// three and still does: then it has all of it.
pub async fn one_is_wiped_and_another_goes() {
    let home = tempfile::tempdir().unwrap();
    let mut nodes = fleet(home.path(), &["a", "b", "c"]).await;
    nodes[0].agent.appoint(&["b", "c"].map(str::to_owned), Estate::default()).await.unwrap();
    until("three servers", async || nodes.iter().all(|node| node.process().is_some())).await;
    until("all are connected", async || nodes.iter().all(Node::is_connected)).await;
    until("all vote in eleven groups", async || nodes.iter().all(|node| raft_groups(&node.folder) == 11)).await;
    let token = nodes[1].agent.invite(1, 3_600).await.unwrap();

    let wiped = nodes.pop().unwrap();
    let folder = wiped.folder.clone();
    let of_wiped = wiped.end().await;
    std::fs::remove_dir_all(folder.join("js")).unwrap();
    let of_away = nodes.remove(0).end().await;
    // It is busy where it waits for the others itself, with something else, and this has no turn meanwhile.
    let alone = nodes[0].agent.invite(1, 3_600).await.unwrap_err().code;
    assert!(matches!(alone, Code::AnchorsAway | Code::AnchorBusy), "{alone:?}");
    nodes.push(Node::start(home.path(), "c", of_wiped).await);
    until("its server is up", async || nodes[1].process().is_some()).await;

    nodes.push(Node::start(home.path(), "a", of_away).await);
    let began = Instant::now();
    for node in &nodes {
        until("each invites", async || node.agent.invite(1, 3_600).await.is_ok()).await;
    }
    println!("one was wiped and another one is back: all invite after {:.1?}", began.elapsed());
    until("the wiped one votes in eleven groups", async || raft_groups(&folder) == 11).await;
    let joining = Node::start(home.path(), "pi-7", ([127, 0, 0, 1], 0).into()).await;
    joining.agent.join(&token).await.unwrap();
    nodes.push(joining);
    for node in nodes {
        node.end().await;
    }
}

pub async fn one_becomes_three() {
    let home = tempfile::tempdir().unwrap();
    let mut nodes = fleet(home.path(), &["a", "b", "c", "pi-7"]).await;
    let began = Instant::now();
    nodes[0].agent.appoint(&["b", "c"].map(str::to_owned), Estate::default()).await.unwrap();
    until("three servers", async || nodes[..3].iter().all(|node| node.process().is_some())).await;
    until("all are connected", async || nodes.iter().all(Node::is_connected)).await;
    let key = Key::new("fn.three").unwrap();
    set(&nodes[1].engine().unwrap().node(), &key).await;
    println!("three anchors after {:.1?}", began.elapsed());
    until("the member reads it", async || nodes[3].is_read(&key).await).await;
    // Facts, eight of mail, and the servers' own: 16 are what there may be.
    until("it votes in eleven groups", async || raft_groups(&nodes[1].folder) == 11).await;

    // The ledger is one: an invitation that the second made lets in one, wherever it is shown.
    let token = nodes[1].agent.invite(1, 3_600).await.unwrap();
    assert_eq!(token.anchors.len(), 3);
    let joining = Node::start(home.path(), "pi-8", ([127, 0, 0, 1], 0).into()).await;
    joining.agent.join(&token).await.unwrap();
    let late = Node::start(home.path(), "late", ([127, 0, 0, 1], 0).into()).await;
    assert_eq!(late.agent.join(&token).await.unwrap_err().code, Code::InvitationUsed);

    // The one that founded the fleet goes, with its server. All goes on, and it catches up when it is back.
    let at = nodes.remove(0).end().await;
    let began = Instant::now();
    until("an invitation", async || nodes[0].agent.invite(1, 3_600).await.is_ok()).await;
    println!("the founder is away: an invitation after {:.1?}", began.elapsed());
    until("the member is connected", async || nodes[2].is_connected()).await;
    let token = nodes[1].agent.invite(1, 3_600).await.unwrap();
    late.agent.join(&token).await.unwrap();
    let founder = Node::start(home.path(), "a", at).await;
    let knows = |node: &Node| {
        let rows = node.agent.status().map(|status| status.rows).unwrap_or_default();
        rows.iter().any(|row| row.record.name == "late")
    };
    until("it knows who came", async || knows(&founder)).await;
    until("its server is with the others", async || founder.is_read(&key).await).await;
    nodes.extend([joining, late]);
    another_takes_its_place(nodes, founder).await;
}

/// The third anchor goes for good: the other two agree that it does, and a member takes its place.
async fn another_takes_its_place(mut nodes: Vec<Node>, founder: Node) {
    nodes.remove(1).end().await;
    let began = Instant::now();
    until("it is dismissed", async || founder.agent.dismiss("c").await.is_ok()).await;
    let another = ["pi-7".to_owned()];
    until("another one", async || founder.agent.appoint(&another, Estate::default()).await.is_ok()).await;
    until("an invitation", async || nodes[1].agent.invite(1, 3_600).await.is_ok()).await;
    println!("another one has taken the place of a third after {:.1?}", began.elapsed());
    for node in [&nodes[0], &nodes[1], &founder] {
        until("its server is with the others", async || node.process().is_some() && node.is_connected()).await;
    }
    until("the new one votes in eleven groups", async || raft_groups(&nodes[1].folder) == 11).await;
    for node in nodes.into_iter().chain([founder]) {
        node.end().await;
    }
}

/// What a server keeps of each group that it votes in.
fn raft_groups(folder: &Path) -> usize {
    let within = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let sets: Vec<PathBuf> = within(folder.join("js")).collect();
    assert!(sets.len() <= 1, "nothing is left of the set before: {sets:?}");
    let accounts = sets.into_iter().flat_map(|set| within(set.join("jetstream")));
    let groups = accounts.filter_map(|account| std::fs::read_dir(account.join("_js_")).ok());
    groups.map(Iterator::count).sum()
}
