//! Three anchors of one fleet, each of which may go: what they agree on is in memory here, all else is real.

use crate::world::{Machine, is_heard, settings, until};
use fleet_agent::{Agent, Part, Settings, Status};
use fleet_trust::agreed::{Agree, Put};
use fleet_trust::ledger::Ledger;
use fleet_trust::office::{self, Estate};
use fleet_trust::{Anchor, Trust};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::future::ready;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

type Log = Arc<Mutex<Option<(Vec<u8>, u64)>>>;

/// An anchor's way to what anchors agree on.
struct Way {
    log: Log,
    trust: Arc<Trust>,
    anchor: Weak<Anchor>,
    runtime: Handle,
}

impl Agree for Way {
    fn head(&self) -> Result<Option<(Vec<u8>, u64)>, Problem> {
        Ok(self.log.lock().clone())
    }

    fn put(&self, bytes: &[u8], expected: Option<u64>) -> Result<Put, Problem> {
        let mut head = self.log.lock();
        if head.as_ref().map(|(_, revision)| *revision) != expected {
            return Ok(Put::Late);
        }
        *head = Some((bytes.to_vec(), expected.unwrap_or_default() + 1));
        Ok(Put::Done)
    }

    fn others(&self) -> Vec<Ledger> {
        let Some(anchor) = self.anchor.upgrade() else { return Vec::new() };
        let own = self.trust.node();
        let others = anchor.set().1.into_iter().filter(|(node, _)| *node != own);
        let asked = others.map(|(node, at)| self.runtime.block_on(office::ledger_of(&self.trust, &at, &node)));
        asked.filter_map(Result::ok).collect()
    }
}

/// A node that takes its part in the fleet anew when it is something else.
struct Node {
    machine: Machine,
    agent: Arc<Agent>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.agent.end();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn start(log: &Log, machine: Machine) -> Node {
    let seek = Some(Vec::new());
    let own = Settings { seek, ..settings(&machine.folder(), machine.listen, machine.name.clone()) };
    let agent = Arc::new(Agent::new(own));
    let log = log.clone();
    agent.on_part(move |Part { trust, anchor, .. }| {
        if let Some(anchor) = anchor {
            let runtime = Handle::current();
            let way = Way { log: log.clone(), trust, anchor: Arc::downgrade(&anchor), runtime };
            anchor.agree_by(Some(Arc::new(way)));
            tokio::spawn(follow(Arc::downgrade(&anchor)));
        }
        Box::pin(ready(()))
    });
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while let Err(problem) = agent.open().await {
        assert!(problem.code == Code::ListenFailed && std::time::Instant::now() < deadline, "{problem}");
        sleep(Duration::from_millis(20)).await;
    }
    let (role, again) = (agent.role(), Arc::downgrade(&agent));
    let changing = tokio::spawn(async move {
        loop {
            role.changed().await;
            let Some(agent) = again.upgrade() else { return };
            agent.again().await.unwrap();
        }
    });
    Node { machine, agent, tasks: vec![changing] }
}

async fn follow(anchor: Weak<Anchor>) {
    while let Some(anchor) = anchor.upgrade() {
        // It says when it cannot: then it is tried again.
        let _ = spawn_blocking(move || anchor.follow()).await.unwrap();
        sleep(Duration::from_millis(50)).await;
    }
}

/// A fleet of so many nodes, named `a`, `b`, …; the first is its anchor.
async fn fleet(log: &Log, names: &[&str]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(start(log, Machine::new(name)).await);
    }
    nodes[0].agent.found("campus").await.unwrap();
    let token = nodes[0].agent.invite(names.len() as u32, 3_600).await.unwrap();
    for node in &nodes[1..] {
        node.agent.join(&token).await.unwrap();
    }
    for node in &mut nodes {
        node.machine.stays(&node.agent);
        until(&node.agent, |status| status.rows.len() == names.len() && status.rows.iter().all(is_heard)).await;
    }
    nodes
}

fn anchors(status: &Status) -> Vec<&str> {
    let anchors = status.rows.iter().filter(|row| row.is_anchor).map(|row| row.record.name.as_str());
    let mut anchors: Vec<&str> = anchors.collect();
    anchors.sort_unstable();
    anchors
}

fn has(status: &Status, name: &str) -> bool {
    status.rows.iter().any(|row| row.record.name == name && is_heard(row))
}

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_of_three_anchors_may_go_and_another_one_takes_its_place() {
    let log = Log::default();
    let mut nodes = fleet(&log, &["a", "b", "c", "d", "e"]).await;
    nodes[0].agent.appoint(&named(&["b", "c"]), Estate::default()).await.unwrap();
    for node in &nodes {
        until(&node.agent, |status| anchors(status) == ["a", "b", "c"]).await;
    }
    let folder = |node: &Node| node.machine.folder();
    assert!(folder(&nodes[1]).join("ca.key").exists() && !folder(&nodes[3]).join("ca.key").exists());

    // The one that founded it goes. Joins go on, at both of the others, and all hear of who joined.
    let a = nodes.remove(0);
    let machine = Machine { listen: a.machine.listen, home: tempfile::tempdir().unwrap(), ..Machine::new("a") };
    copy(&a.machine, &machine);
    drop(a);
    for (at, name) in [(0, "f"), (1, "g")] {
        let token = nodes[at].agent.invite(1, 60).await.unwrap();
        let joining = start(&log, Machine::new(name)).await;
        joining.agent.join(&token).await.unwrap();
        let late = start(&log, Machine::new("late")).await;
        assert_eq!(late.agent.join(&token).await.unwrap_err().code, Code::InvitationUsed);
        nodes.push(joining);
        for node in &nodes {
            until(&node.agent, |status| has(status, name)).await;
        }
    }
    // It is back, and knows all of that.
    let a = start(&log, machine).await;
    until(&a.agent, |status| has(status, "f") && has(status, "g") && anchors(status) == ["a", "b", "c"]).await;

    // The disk of another one is lost: it is taken out, and a member takes its place.
    let c = nodes.remove(1);
    std::fs::remove_dir_all(folder(&c)).unwrap();
    drop(c);
    a.agent.dismiss("c").await.unwrap();
    a.agent.appoint(&named(&["d"]), Estate::default()).await.unwrap();
    nodes.push(a);
    for node in &nodes {
        until(&node.agent, |status| anchors(status) == ["a", "b", "d"]).await;
    }
    let token = nodes[1].agent.invite(1, 60).await;
    assert!(token.is_ok_and(|token| token.anchors.len() == 3), "the new one invites, too");
}

fn copy(from: &Machine, to: &Machine) {
    std::fs::create_dir(to.folder()).unwrap();
    for file in std::fs::read_dir(from.folder()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.folder().join(file.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_anchor_that_is_none_any_more_has_no_key_of_the_ca() {
    let log = Log::default();
    let nodes = fleet(&log, &["a", "b", "c"]).await;
    nodes[0].agent.appoint(&named(&["b", "c"]), Estate::default()).await.unwrap();
    for node in &nodes {
        until(&node.agent, |status| anchors(status) == ["a", "b", "c"]).await;
    }
    // Even the one that founded the fleet.
    nodes[2].agent.dismiss("a").await.unwrap();
    for node in &nodes {
        until(&node.agent, |status| anchors(status) == ["b", "c"] && status.is_anchor == is_one(status)).await;
    }
    let folder = nodes[0].machine.folder();
    assert!(!folder.join("ca.key").exists() && !folder.join("ledger.json").exists());
    assert_eq!(nodes[0].agent.invite(1, 60).await.unwrap_err().code, Code::NotAnchor);
    nodes[1].agent.invite(1, 60).await.unwrap();
}

/// It has heard of it, and was off before anybody could tell it to give its keys up.
#[tokio::test(flavor = "multi_thread")]
async fn an_anchor_that_was_off_when_it_was_made_none_starts_as_what_it_is() {
    let log = Log::default();
    let mut nodes = fleet(&log, &["a", "b", "c"]).await;
    nodes[0].agent.appoint(&named(&["b", "c"]), Estate::default()).await.unwrap();
    for node in &nodes {
        until(&node.agent, |status| anchors(status) == ["a", "b", "c"]).await;
    }
    let c = nodes.pop().unwrap();
    let off = |from: &Machine| {
        let machine = Machine { listen: from.listen, home: tempfile::tempdir().unwrap(), ..Machine::new("c") };
        copy(from, &machine);
        machine
    };
    let (dismissed, removed) = (off(&c.machine), off(&c.machine));
    drop(c);
    let hears = |machine: &Machine| {
        let ledger = "ledger.json";
        std::fs::copy(nodes[0].machine.folder().join(ledger), machine.folder().join(ledger)).unwrap();
    };

    nodes[0].agent.dismiss("c").await.unwrap();
    hears(&dismissed);
    let c = start(&log, dismissed).await;
    until(&c.agent, |status| !status.is_anchor && anchors(status) == ["a", "b"] && has(status, "a")).await;
    assert_eq!(c.agent.invite(1, 60).await.unwrap_err().code, Code::NotAnchor);
    drop(c);

    nodes[0].agent.remove("c").await.unwrap();
    hears(&removed);
    let c = start(&log, removed).await;
    until(&c.agent, |status| status.trouble.as_ref().is_some_and(|trouble| trouble.code == Code::NodeRevoked)).await;
}

fn is_one(status: &Status) -> bool {
    status.rows.iter().any(|row| row.is_this_node && row.is_anchor)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_an_anchor_says_why_and_nothing_changes() {
    let log = Log::default();
    let nodes = fleet(&log, &["a", "b", "c", "d"]).await;
    nodes[2].agent.may_anchor(|| Err(Problem::new(Code::EngineMissing, "there is no nats-server")));
    let refused = async |names: &[&str]| nodes[0].agent.appoint(&named(names), Estate::default()).await.unwrap_err();
    let missing = refused(&["b", "c"]).await;
    assert!(missing.code == Code::EngineMissing && missing.detail.starts_with("c: "), "{missing:?}");
    assert_eq!(refused(&["b"]).await.code, Code::Usage);
    assert_eq!(refused(&["b", "nobody"]).await.code, Code::MemberUnknown);
    assert_eq!(refused(&["a", "b"]).await.code, Code::Usage);
    assert_eq!(nodes[1].agent.appoint(&named(&["a"]), Estate::default()).await.unwrap_err().code, Code::NotAnchor);
    for node in &nodes {
        until(&node.agent, |status| anchors(status) == ["a"]).await;
        assert_eq!(node.machine.folder().join("ca.key").exists(), node.machine.name.as_deref() == Some("a"));
    }
}
