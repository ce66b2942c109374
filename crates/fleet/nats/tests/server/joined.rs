//! Nodes of a real fleet, each with its engine as the program has it: through certificates, tunnel and rights.

use crate::process::kill;
use crate::town::{Stage, launcher, next_message, set, until};
use facts::{Facts as _, Heard, Key, NotSet, Post as _};
use fleet_agent::{Agent, Part, Settings};
use fleet_nats::{Anchoring, EngineState, FleetEngine, Program, Standing, find};
use fleet_trust::Clock;
use parking_lot::Mutex;
use problem::{Code, Problem};
use rustix::process::Signal;
use std::future::ready;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// A node that may belong to a fleet.
struct Node {
    agent: Agent,
    engine: Arc<Mutex<Option<Arc<FleetEngine>>>>,
}

impl Node {
    fn start(
        folder: &Path,
        name: &str,
        find: impl Fn() -> Result<Program, Problem> + Clone + Send + Sync + 'static,
    ) -> Self {
        let folder = folder.join(name);
        let agent = Agent::new(Settings {
            folder: folder.clone(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            address: None,
            name: Some(name.to_owned()),
            version: "0.1.0".to_owned(),
            clock: Clock::system(0),
            seek: Some(Vec::new()),
            outward: fleet_agent::outward,
        });
        let engine = Arc::<Mutex<Option<Arc<FleetEngine>>>>::default();
        let kept = engine.clone();
        agent.on_part(move |Part { trust, anchor, engine: arrivals, .. }| {
            let anchoring = Anchoring { folder: folder.clone(), find: Arc::new(find.clone()), launcher: launcher() };
            let started = FleetEngine::start(Standing { trust, anchor, arrivals }, anchoring, None);
            *kept.lock() = Some(Arc::new(started.expect("it may be had")));
            Box::pin(ready(()))
        });
        Self { agent, engine }
    }

    fn engine(&self) -> Arc<FleetEngine> {
        self.engine.lock().clone().expect("it belongs to a fleet")
    }

    /// The process of its server.
    fn process(&self) -> Option<u32> {
        match self.engine().report().server {
            Some(EngineState::Up { process, .. }) => Some(process),
            _ => None,
        }
    }
}

fn in_path() -> Result<Program, Problem> {
    find(None, "/nowhere".as_ref(), std::env::var_os("PATH").as_deref())
}

pub async fn until_it_is_taken_out() {
    let folder = tempfile::tempdir().unwrap();
    let (anchor, pi) = (Node::start(folder.path(), "anchor", in_path), Node::start(folder.path(), "pi-7", in_path));
    anchor.agent.found("campus").await.unwrap();
    let invitation = anchor.agent.invite(1, 3_600).await.unwrap();
    pi.agent.join(&invitation).await.unwrap();
    let [of_anchor, of_pi] = [&anchor, &pi].map(|node| node.engine().node());
    let [anchors, own] = [&anchor, &pi].map(|node| node.engine().name().clone());

    // Its own record it writes, and no other one.
    let record = Key::new(&format!("node.{own}")).unwrap();
    set(&of_pi, &record).await;
    let fact = of_anchor.get(&record).await.unwrap().unwrap();
    assert_eq!(fact.value, b"1");
    assert_eq!(of_pi.set(&Key::new("fn.plate").unwrap(), None, Some(b"1")).await, Err(NotSet::Refused));
    until("it is sent", async || of_anchor.send(&own, b"hello").await.is_ok()).await;
    assert_eq!(next_message(&of_pi).await, Heard::Message { from: anchors, bytes: b"hello".into() });

    // Another process, at another port: the way there is found again, and nothing is gone.
    let process = anchor.process().expect("it is up");
    kill(process, Signal::KILL);
    until("another process runs", async || anchor.process().is_some_and(|other| other != process)).await;
    until("the fact is read", async || of_pi.get(&record).await == Ok(Some(fact.clone()))).await;

    until("both are back", async || [&anchor, &pi].iter().all(|node| node.engine().report().is_connected)).await;
    anchor.agent.remove("pi-7").await.unwrap();
    until("it has lost the engine", async || !pi.engine().report().is_connected).await;
    let why = || pi.engine().report().trouble.map(|trouble| trouble.code);
    until("it is told why", async || why() == Some(Code::NodeRevoked)).await;
    assert!(of_pi.get(&record).await.is_err());

    let server = anchor.process().expect("it is up");
    anchor.engine().end().await;
    assert!(!Path::new(&format!("/proc/{server}")).exists(), "it has ended before the node goes on");
    pi.engine().end().await;
}

pub async fn start_is_no_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let may_start = Arc::new(AtomicBool::new(false));
    let waits = may_start.clone();
    let anchor = Node::start(folder.path(), "anchor", move || {
        while !waits.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        in_path()
    });
    anchor.agent.found("campus").await.unwrap();
    let report = || {
        let report = anchor.engine().report();
        assert_eq!(report.trouble, None, "{:?}", report.server);
        report
    };
    // Long enough for the client's first tries, which find nobody.
    for _ in 0..40 {
        assert!(!report().is_connected);
        sleep(Duration::from_millis(20)).await;
    }
    may_start.store(true, Ordering::Relaxed);
    until("it is connected", async || report().is_connected).await;
    anchor.engine().end().await;
}

pub async fn program_comes_late(stage: &Stage) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let looked_for = data.clone();
    let anchor = Node::start(folder.path(), "anchor", move || find(None, &looked_for, None));
    anchor.agent.found("campus").await.unwrap();
    let trouble = || anchor.engine().report().trouble;
    until("it is missing", async || trouble().is_some_and(|trouble| trouble.code == Code::EngineMissing)).await;
    assert!(trouble().unwrap().hint.contains("tools/nats-server"));
    let node = anchor.engine().node();
    assert!(node.get(&Key::new("fn.plate").unwrap()).await.is_err(), "it is answered all the same");
    std::fs::create_dir_all(data.join("bin")).unwrap();
    std::os::unix::fs::symlink(stage.program().path, data.join("bin/nats-server")).unwrap();
    until("it is up", async || anchor.process().is_some()).await;
    set(&node, &Key::new("fn.plate").unwrap()).await;
    anchor.engine().end().await;
}
