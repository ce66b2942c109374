//! The life of a server: it is started again, it never outlives its node, and it is for its owner only.

use crate::name;
use crate::town::{Stage, free_address, launcher, secret_for, set, until};
use facts::{Facts as _, Key};
use fleet_nats::{Engine, EngineConfig, EngineState, FleetKeys, find};
use nkeys::{KeyPair, KeyPairType};
use problem::Code;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

pub fn kill(process: u32, signal: Signal) {
    let process = Pid::from_raw(process.cast_signed()).expect("it is a number");
    kill_process(process, signal).expect("it runs");
}

pub async fn started_again(stage: &Stage) {
    let mut town = stage.town(1).await;
    let engine = town.engines[0].take().expect("it runs");
    let EngineState::Up { process, .. } = engine.state() else { panic!("{:?}", engine.state()) };
    let anchor = town.way(&name("anchor"), true);
    let key = Key::new("fn.a").unwrap();
    set(&anchor, &key).await;
    kill(process, Signal::KILL);
    let is_another = || matches!(engine.state(), EngineState::Up { process: other, .. } if other != process);
    until("another process runs", async || is_another()).await;
    until("it knows the fact", async || anchor.get(&key).await.is_ok_and(|fact| fact.is_some())).await;
}

fn keys() -> Arc<FleetKeys> {
    Arc::new(FleetKeys::derived(secret_for))
}

fn alone(folder: &Path) -> EngineConfig {
    EngineConfig {
        node: name("alone"),
        folder: folder.join("fleet"),
        listen: free_address(),
        monitor: free_address(),
        routes: None,
        tls: None,
        file_bytes_max: 1 << 20,
        set: 0,
    }
}

/// A node that has an engine and does nothing: with the word `node`, and a folder.
pub fn be_a_node(mut words: impl Iterator<Item = OsString>) -> ! {
    let folder = PathBuf::from(words.next().expect("a folder"));
    let program = find(None, &folder, std::env::var_os("PATH").as_deref()).expect("there is one");
    let engine = Engine::start(alone(&folder), keys(), move || Ok(program.clone()), launcher()).expect("it may run");
    println!("{}", engine.wait_up(crate::town::SOON).expect("it runs"));
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}

pub async fn ends_with_its_node(_: &Stage) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut node = command.arg("node").arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let status = PathBuf::from(format!("/proc/{}/status", line.trim()));
    let is_there =
        || fs::read_to_string(&status).is_ok_and(|said| said.contains("nats-server") && !said.contains("zombie"));
    assert!(is_there(), "{line}");
    node.kill().unwrap();
    node.wait().unwrap();
    until("the server has ended with its node", async || !is_there()).await;
}

pub async fn for_its_owner_only(stage: &Stage) {
    let town = stage.town(1).await;
    let folder = &town.config(0).folder;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(folder), mode(&folder.join("nats.conf"))), (0o700, 0o600));
    let config = fs::read_to_string(folder.join("nats.conf")).unwrap();
    for (kind, purpose) in [(KeyPairType::Operator, "operator"), (KeyPairType::Account, "account")] {
        let secret = secret_for(&format!("lighterage engine {purpose} 1"));
        let seed = KeyPair::new_from_raw(kind, secret).unwrap().seed().unwrap();
        assert!(!config.contains(&seed), "no secret key is in it");
    }
}

pub async fn named_if_it_cannot_run(stage: &Stage) {
    let folder = tempfile::tempdir().unwrap();
    let config = alone(folder.path());
    let _taken = TcpListener::bind(config.listen).unwrap();
    let open = EngineConfig { listen: "0.0.0.0:4222".parse().unwrap(), ..config.clone() };
    let program = stage.program();
    let start = |config| {
        Engine::start(
            config,
            keys(),
            {
                let program = program.clone();
                move || Ok(program.clone())
            },
            launcher(),
        )
    };
    let refused = start(open).err().expect("without TLS it must not listen there");
    assert_eq!(refused.code, Code::EngineUnsound);
    let engine = start(config).expect("it may run");
    let why = || match engine.state() {
        EngineState::Resting(problem) => Some(problem),
        _ => None,
    };
    until("it rests", async || why().is_some_and(|why| why.detail.contains("address already in use"))).await;
}
