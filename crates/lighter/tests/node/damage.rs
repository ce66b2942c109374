//! What is left of a damaged disk, and what very many idle connections leave for the state.

use crate::support::{Node, PROGRAM};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const EVENTS: usize = 6_000;

fn lighter(data: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(words).env("LIGHTER_DATA", data).env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN");
    command.output().unwrap()
}

#[track_caller]
fn works(data: &Path, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = lighter(data, words);
    assert!(status.success(), "{words:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// Every file below `folder` and what is in it.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    found.sort();
    found
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn flip_in_the_middle(table: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(table).unwrap();
    let (offset, mut byte) = (file.metadata().unwrap().len() / 2, [0]);
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 4], offset).unwrap();
}

/// The story: one bit of one table, and there was no way to get at the rest but an older backup.
#[test]
fn what_can_be_read_is_salvaged_and_taken_in_again() {
    let node = Node::start();
    let data = node.data.clone();
    node.deploy_one("hello", "hello", json!({}));
    assert_eq!(node.deploy_manifest(json!({ "queue": { "food": {} } }))["step"], "done");
    let text = "x".repeat(1_000);
    works(&data, &["push", "food", "--data", &text, "--count", &EVENTS.to_string(), "--id", "e"]);
    works(&data, &["store", "set", "settings", "colour", "--data", "green"]);
    let busy = lighter(&data, &["salvage", "--json", "nowhere"]);
    assert!(String::from_utf8_lossy(&busy.stderr).contains("L5001"), "a node uses the folder");
    let _folder = node.stop();
    let tables = fs::read_dir(data.join("state/keyspaces/3/tables")).unwrap().map(|entry| entry.unwrap().path());
    let table = tables.max_by_key(|path| fs::metadata(path).unwrap().len()).expect("a table");
    flip_in_the_middle(&table);
    let before = contents(&data);

    let out = data.parent().unwrap().join("rescued");
    let said: Value = serde_json::from_str(&works(&data, &["salvage", "--json", out.to_str().unwrap()])).unwrap();
    assert_eq!(contents(&data), before, "the damaged folder is as it was");
    let damage = said["damage"].as_array().unwrap();
    assert_eq!(damage.len(), 1, "{said}");
    assert!(damage[0].as_str().unwrap().contains(table.to_str().unwrap()), "{said}");
    let events = lines(&out.join("queues/food.jsonl"));
    let doubtful = lines(&out.join("doubtful/queues/food.jsonl"));
    let ids: BTreeSet<&str> = events.iter().chain(&doubtful).map(|event| event["id"].as_str().unwrap()).collect();
    // What the damaged block held may be in the journal still.
    assert!((EVENTS - 20..=EVENTS).contains(&ids.len()), "{} of {EVENTS}", ids.len());
    assert!(events.iter().all(|event| event["data"] == text.as_str()));
    assert_eq!(lines(&out.join("buckets/settings.jsonl")), [json!({ "key": "colour", "value": "green" })]);
    assert_eq!(lines(&out.join("functions.jsonl"))[0]["name"], "hello");

    // The damaged folder itself goes on, around what is lost.
    let node = Node::start_in(&data, &[]);
    assert_eq!(node.deploy_manifest(json!({ "queue": { "other": {} } }))["step"], "done");
    works(&data, &["push", "other", "--data", &text, "--count", &EVENTS.to_string()]);
    assert_eq!(node.api("GET", "/readyz", &[]).status, 200);
    works(&data, &["queue", "purge", "food"]);
    let info = node.api("GET", "/v1/queues/food", &[]).json();
    assert_eq!((&info["ready"], &info["damaged"], &info["bytes"]), (&json!(0), &json!(0), &json!(0)), "{info}");
    node.stop();

    let node = Node::start();
    assert_eq!(node.deploy_manifest(json!({ "queue": { "food": {} } }))["step"], "done");
    works(&node.data, &["push", "food", "--events", out.join("queues/food.jsonl").to_str().unwrap()]);
    works(&node.data, &["store", "import", "settings", "--file", out.join("buckets/settings.jsonl").to_str().unwrap()]);
    assert_eq!(node.api("GET", "/v1/queues/food", &[]).json()["ready"], events.len());
    assert_eq!(works(&node.data, &["store", "get", "settings", "colour"]).trim(), "green");
    let again = lighter(&node.data, &["salvage", out.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("not empty"), "a folder with something in it");
}

/// The story: idle connections took every file the node could open, and the first sync after that stopped all writes
/// until a restart.
#[test]
fn idle_connections_leave_files_for_the_state() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    for (files, connections) in [(256, 600), (1_024, 2_100)] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut program = Command::new("sh");
        program.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), PROGRAM]);
        let options = ["--mqtt", "127.0.0.1:0"];
        let node = Node::try_start_by(&mut program, &data, &options).unwrap_or_else(|said| panic!("{said}"));
        assert_eq!(node.deploy_manifest(json!({ "queue": { "food": {} } }))["step"], "done");
        let gate = node.gate.strip_prefix("http://").unwrap();
        let idle: Vec<TcpStream> = (0..connections)
            .map(|number| TcpStream::connect(if number % 2 == 0 { gate } else { &node.mqtt }).unwrap())
            .collect();
        // Enough for several tables and their merging.
        let text = "x".repeat(4_000);
        works(&data, &["push", "food", "--data", &text, "--count", "6000"]);
        assert_eq!(node.api("GET", "/readyz", &[]).status, 200);
        let metrics = node.api("GET", "/metrics", &[]).text();
        assert!(metrics.contains("lighter_state_stopped 0"), "{metrics}");
        drop(idle);
        works(&data, &["push", "food", "--data", "afterwards"]);
        node.stop();
    }
}
