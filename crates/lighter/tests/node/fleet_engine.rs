//! The engine of a fleet of real nodes: started by its anchor, found by the others, ended with the anchor, and missed.

use crate::fleet::{ANY, address, done, fleet, lighter, start, until};
use crate::support::{Node, PROGRAM, wait_for};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The nats-server in PATH. None, and a word that the test is skipped: there is none that is new enough.
pub fn nats_server() -> Option<PathBuf> {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("nats-server"))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: nats-server: a fleet's engine");
    }
    found
}

fn engine(node: &Node) -> Value {
    fleet(node)["engine"].clone()
}

pub fn is_connected(node: &Node) -> bool {
    engine(node)["connected"] == true
}

fn process(node: &Node) -> u64 {
    wait_for("an engine that is up", || engine(node)["process"].as_u64())
}

fn runs(process: u64) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.contains("nats-server") && !status.contains("zombie")
}

#[test]
fn an_anchor_runs_the_engine_for_all_and_the_others_go_on_without_it() {
    if nats_server().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = ["server-1", "pi-7"].map(|name| folder.path().join(name));
    let anchor = start(&data[0], "server-1", ANY, &[]);
    assert_eq!(done(&anchor, &["fleet", "new", "campus"]), "");
    let first = process(&anchor);
    let token = done(&anchor, &["fleet", "invite"]);
    let pi = start(&data[1], "pi-7", ANY, &["--join", token.trim()]);
    for node in [&anchor, &pi] {
        until("a way to the engine", || is_connected(node));
    }
    assert!(engine(&pi)["process"].is_null(), "only anchors run one");
    // It is for nobody beyond this machine.
    let config = std::fs::read_to_string(data[0].join("fleet/nats.conf")).unwrap();
    assert!(config.contains("listen: \"127.0.0.1:-1\""), "{config}");

    // The anchor is killed: its engine does not outlive it, and the other node starts without both.
    let listen = [&anchor, &pi].map(address);
    anchor.kill();
    until("the end of the engine", || !runs(first));
    until("a node without an engine", || !is_connected(&pi));
    pi.stop();
    let pi = start(&data[1], "pi-7", &listen[1], &[]);
    assert!(!is_connected(&pi));
    until("a word on it", || engine(&pi)["trouble"]["code"] == "L9105");
    let anchor = start(&data[0], "server-1", &listen[0], &[]);
    until("a way to the engine", || is_connected(&pi) && is_connected(&anchor));
    let second = process(&anchor);
    anchor.stop();
    assert!(!runs(second), "a node that has stopped has left nothing behind");
}

/// A backup leaves out what the engine keeps. The events of the second half are in no backup at all.
#[test]
fn a_restored_anchor_makes_its_engine_anew_and_no_event_is_lost() {
    if nats_server().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = ["server-1", "pi-7", "pi-8", "restored"].map(|name| folder.path().join(name));
    let anchor = start(&data[0], "server-1", ANY, &[]);
    done(&anchor, &["fleet", "new", "campus"]);
    process(&anchor);
    let token = done(&anchor, &["fleet", "invite", "--times", "2"]);
    let [near, away] = [1, 2].map(|at| start(&data[at], ["", "pi-7", "pi-8"][at], ANY, &["--join", token.trim()]));
    for node in [&anchor, &near, &away] {
        until("a way to the engine", || is_connected(node));
        let last = node.deploy_manifest(json!({ "queue": { "readings": { "home": "pi-8" } } }));
        assert_eq!(last["step"], "done", "{last}");
    }
    let listen = [&anchor, &near, &away].map(address);
    away.kill();
    let push = |node: &Node, numbers: std::ops::Range<u32>| {
        for number in numbers {
            assert_eq!(node.push("readings", "", &number.to_string()).status, 201);
        }
    };
    push(&anchor, 0..10);
    push(&near, 10..20);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("passphrase"), "open sesame\n").unwrap();
    done(&anchor, &["backup", &path("node.backup"), "--passphrase-file", &path("passphrase")]);
    push(&near, 20..30);
    assert!(data[0].join("fleet/js").is_dir());
    anchor.kill();

    let said = lighter(&data[3], &["restore", &path("node.backup"), "--passphrase-file", &path("passphrase")]);
    assert!(said.is_done, "{}", said.err);
    assert!(!data[3].join("fleet/js").exists(), "what the engine keeps is in no backup");
    let anchor = start(&data[3], "server-1", &listen[0], &[]);
    until("an engine made anew", || is_connected(&anchor) && is_connected(&near));
    assert!(data[3].join("fleet/js").is_dir());
    let away = start(&data[2], "pi-8", &listen[2], &[]);
    let arrived = || {
        let page = away.api("GET", "/v1/queues/readings/events?limit=1000", &[]).json();
        let events = page["events"].as_array().unwrap().clone();
        let number = |one: &Value| one["event"]["data"].to_string().trim_matches('"').parse::<u32>().unwrap();
        let mut numbers: Vec<u32> = events.iter().map(number).collect();
        numbers.sort_unstable();
        numbers
    };
    until("each event, once", || arrived() == (0..30).collect::<Vec<_>>());
}

#[test]
fn an_anchor_without_an_engine_says_so_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str, options: &[&str]| {
        let mut program = Command::new(PROGRAM);
        program.env("PATH", folder.path());
        let options = [&["--node-name", name, "--fleet-listen", ANY], options].concat();
        Node::try_start_by(&mut program, &folder.path().join(name), &options)
    };
    let anchor = start("server-1", &[]).unwrap();
    let said = lighter(&anchor.data, &["fleet", "new", "campus"]);
    assert!(
        said.is_done && said.err.contains("L9103: ") && said.err.contains("hint: `tools/nats-server"),
        "{}",
        said.err
    );
    assert!(lighter(&anchor.data, &["fleet"]).err.contains("L9103: "));
    let logged = || anchor.said.lock().unwrap().iter().filter(|line| line.contains("L9103")).count();
    until("a line in the log", || logged() == 1);
    // The fleet is there all the same.
    let token = done(&anchor, &["fleet", "invite"]);
    let pi = start("pi-7", &["--join", token.trim()]).unwrap();
    until("a fleet of two", || fleet(&pi)["nodes"].as_array().unwrap().len() == 2);
    let why = || engine(&pi)["trouble"].clone();
    until("a word on it", || why()["code"] == "L9103");
    assert!(why()["hint"].as_str().unwrap().contains("on that anchor"));
    if let Some(program) = nats_server() {
        std::fs::create_dir_all(anchor.data.join("bin")).unwrap();
        std::os::unix::fs::symlink(program, anchor.data.join("bin/nats-server")).unwrap();
        until("the engine that has come", || is_connected(&anchor) && is_connected(&pi));
    }
    assert_eq!(logged(), 1, "it is said once");
}

#[test]
fn what_is_said_of_a_cluster_is_checked_before_the_node_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("town.creds");
    std::fs::write(&file, "nothing of use").unwrap();
    let file = file.to_str().unwrap();
    let refused = |options: &[&str]| Node::try_start(&folder.path().join("data"), options).err().unwrap();
    for options in [
        &["--nats", "tls://nats.example.org"][..],
        &["--nats-creds", file],
        &["--nats", "tls://nats.example.org", "--nats-creds", "/nowhere"],
        &["--nats", "tls://nats.example.org", "--nats-creds", file],
    ] {
        let said = refused(options);
        assert!(said.contains("error[L9003]"), "{options:?}: {said}");
    }
    assert!(!Path::new(&folder.path().join("data/fleet")).exists());
}
