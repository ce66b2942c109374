//! `kill -9` at any moment: the node starts again with the old or the new version, and with all it acknowledged.

use crate::support::Node;
use serde_json::json;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const ROUNDS: u64 = 20;

#[test]
fn a_kill_during_deployments_leaves_the_old_or_the_new_version() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = Node::start_in(&data, &[]);
    let images = [node.upload("hello"), node.upload("counter")];
    node.kill();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let node = Node::start_in(&data, &[]);
        let begun = Arc::new(AtomicU64::new(acknowledged));
        let done = Arc::new(AtomicU64::new(acknowledged));
        let killer = {
            let pid = node.pid();
            // Spread over the whole of a deployment, which takes some tens of milliseconds.
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(5 + round * 7));
                assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
            })
        };
        deploy_until_killed(&node, &images, &begun, &done);
        killer.join().unwrap();
        node.kill();

        let node = Node::start_in(&data, &[]);
        let (begun, done) = (begun.load(SeqCst), done.load(SeqCst));
        let number = deployed_number(&node);
        assert!(
            (done..=begun).contains(&number),
            "round {round}: {number} runs, {done} was acknowledged, {begun} begun"
        );
        if number > 0 {
            let reply = node.call("f", "");
            assert_eq!(reply.status, 200, "round {round}: {}", reply.text());
        }
        acknowledged = number;
        node.kill();
    }
    assert!(acknowledged > 0, "no deployment came through in {ROUNDS} rounds");
}

/// The number the function that runs was deployed with; 0 if there is none.
fn deployed_number(node: &Node) -> u64 {
    let info = node.api("GET", "/v1/functions/f", &[]).json();
    let Some(version) = info["version"].as_u64() else { return 0 };
    let versions = info["versions"].as_array().unwrap();
    let current = versions.iter().find(|one| one["version"] == version).unwrap();
    current["function"]["config"]["number"].as_str().unwrap().parse().unwrap()
}

fn deploy_until_killed(node: &Node, images: &[String; 2], begun: &AtomicU64, done: &AtomicU64) {
    loop {
        let number = begun.fetch_add(1, SeqCst) + 1;
        let function = json!({
            "image": images[(number % 2) as usize], "http": "/f",
            "config": { "number": number.to_string() }, "grants": { "stores": ["counters"] },
        });
        let manifest = json!({ "function": { "f": function } }).to_string();
        match std::panic::catch_unwind(|| node.api("POST", "/v1/deployments", manifest.as_bytes())) {
            Ok(reply) if reply.text().contains("\"step\":\"done\"") => done.store(number, SeqCst),
            // The connection broke: the node is gone.
            _ => return,
        }
    }
}

#[test]
fn a_kill_during_rollbacks_leaves_the_old_or_the_new_version() {
    const VERSIONS: u64 = 4;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut node = Node::start_in(&data, &[]);
    let images = ["hello", "counter"];
    for version in 1..=VERSIONS {
        let image = images[(version % 2) as usize];
        node.deploy_one(
            "f",
            image,
            json!({ "config": { "number": version.to_string() }, "grants": { "stores": ["counters"] } }),
        );
    }
    // Each goes to the version after that of the one before it, in a circle.
    let mut version = VERSIONS;
    let (mut done, mut changed) = (0, 0);
    for round in 0..ROUNDS {
        let pid = node.pid();
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(2 + round * 3));
            assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        });
        let new = loop {
            let new = version % VERSIONS + 1;
            let body = json!({ "version": new }).to_string();
            match std::panic::catch_unwind(|| node.api("POST", "/v1/functions/f/rollback", body.as_bytes())) {
                Ok(reply) if reply.status == 200 => (version, done) = (new, done + 1),
                // The connection broke: the node is gone.
                _ => break new,
            }
        };
        killer.join().unwrap();
        node.kill();

        node = Node::start_in(&data, &[]);
        let info = node.api("GET", "/v1/functions/f", &[]).json();
        let now = info["version"].as_u64().unwrap();
        assert!([version, new].contains(&now), "round {round}: {now} runs, {version} did, {new} was begun");
        assert_eq!(info["versions"].as_array().unwrap().len() as u64, VERSIONS, "round {round}");
        assert_eq!(deployed_number(&node), now, "round {round}");
        assert_eq!((node.call("f", "").status, node.get("/f").status), (200, 200), "round {round}");
        changed += u64::from(now == new);
        version = now;
    }
    println!("{done} rollbacks were acknowledged, {changed} were done and not acknowledged");
    assert!(done > 0, "no rollback came through in {ROUNDS} rounds");
}

#[test]
fn a_second_node_on_the_same_folder_is_refused_and_told_why() {
    let node = Node::start();
    let said = Node::try_start(&node.data, &[]).err().unwrap();
    assert!(said.contains("L5001") && said.contains(&node.pid().to_string()), "{said}");
    assert_eq!(node.api("GET", "/v1/node", &[]).status, 200);
}
