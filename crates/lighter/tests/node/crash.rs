//! `kill -9` at any moment: the node starts again with the old or the new version, and with all it acknowledged.

use crate::support::{Node, wait_for};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 20;

#[test]
fn a_kill_during_deployments_leaves_the_old_or_the_new_version() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = Node::start_in(&data, &[]);
    let images = [node.upload("hello"), node.upload("counter")];
    // Each in turn is new once, and is compiled; the next deployments find it there.
    let began = Instant::now();
    for image in &images {
        assert_eq!(node.deploy(json!({ "other": { "image": image } }))["step"], "done");
    }
    let deploying = began.elapsed();
    node.kill();
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let node = Node::start_in(&data, &[]);
        let begun = Arc::new(AtomicU64::new(acknowledged));
        let done = Arc::new(AtomicU64::new(acknowledged));
        let killer = {
            let pid = node.pid();
            // Spread over the whole of a deployment on this machine, and somewhat beyond.
            let delay = deploying.mul_f64((round + 1) as f64 / ROUNDS as f64);
            thread::spawn(move || {
                thread::sleep(delay);
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

/// One event that used up the machine's memory ended the node at every start, and for ever.
#[test]
fn an_event_that_ends_the_node_again_and_again_is_given_up_and_the_queues_wait_for_somebody_to_look() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let options = ["--short-runs-max", "3"];
    let node = Node::start_in(&data, &options);
    node.deploy_manifest(json!({ "function": { "f": {
        "image": node.upload("attack"), "queue": "q", "limits": { "time_ms": 60_000, "cpu_ms": 60_000 },
        "retry": { "attempts": 3, "pause": "10ms", "pause_max": "10ms" },
    } } }));
    assert_eq!(node.push("q", "id=poison", "loop").status, 201);
    let is_leased = |info: &Value| info["leased"] == 1;
    node.queue_is("q", is_leased);
    node.kill();
    for _ in 1..3 {
        let node = Node::start_in(&data, &options);
        assert_eq!(node.api("GET", "/readyz", &[]).text(), "ok\n");
        node.queue_is("q", |info| info["retried"] == 1 && is_leased(info));
        node.kill();
    }
    let node = Node::start_in(&data, &options);
    wait_for("the word that the queues are paused", || {
        let said = node.said.lock().unwrap().join("\n");
        said.contains("the queues are paused, because the node's last 3 runs ended within a minute").then_some(())
    });
    let ready = node.api("GET", "/readyz", &[]);
    assert!(ready.status == 200 && ready.text().starts_with("ok, and the queues are paused"), "{}", ready.text());
    assert_eq!(node.push("q", "id=later", "remember").status, 201, "pushes go on");
    thread::sleep(Duration::from_millis(100));
    let info = node.queue("q");
    assert_eq!((&info["paused"], &info["leased"], &info["acked"]), (&json!(true), &json!(0), &json!(0)));

    assert_eq!(node.api("POST", "/v1/resume", b"{}").json(), json!({ "all": false, "but": [] }));
    let info = node.drained("q");
    assert_eq!((&info["dead"], &info["acked"], &info["paused"]), (&json!(1), &json!(1), &json!(false)));
    let dead = node.api("GET", "/v1/queues/q/events?part=dead", &[]).json();
    let reason = "L7011: the node ended while it handled the event (try 3 of 3)";
    assert_eq!((&dead["events"][0]["event"]["id"], &dead["events"][0]["reason"]), (&json!("poison"), &json!(reason)));
    node.stop();
    assert_eq!(Node::start_in(&data, &options).api("GET", "/readyz", &[]).text(), "ok\n");
}

#[test]
fn a_paused_queue_stays_so_across_a_restart_and_a_node_can_be_started_with_all_of_them_paused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = Node::start_in(&data, &[]);
    node.deploy_one("f", "hello", json!({ "queue": "a" }));
    node.deploy_one("g", "hello", json!({ "queue": "b" }));
    assert_eq!(node.api("POST", "/v1/pause", br#"{ "queues": ["nothere"] }"#).code(), "L7001");
    assert_eq!(node.api("POST", "/v1/pause", br#"{ "queues": ["a"] }"#).json(), json!({ "all": false, "but": ["a"] }));
    node.push("a", "", "x");
    node.push("b", "", "x");
    assert_eq!(node.drained("b")["acked"], 1);
    assert_eq!(node.queue("a")["ready"], 1);
    node.kill();
    let node = Node::start_in(&data, &["--paused"]);
    node.push("b", "", "x");
    let waits = ["a", "b"].map(|queue| (node.queue(queue)["paused"].clone(), node.queue(queue)["ready"].clone()));
    assert_eq!(waits, [(json!(true), json!(1)), (json!(true), json!(1))]);
    node.api("POST", "/v1/resume", br#"{ "queues": ["b"] }"#);
    assert_eq!(node.drained("b")["acked"], 1);
    assert_eq!(node.queue("a")["ready"], 1);
    node.api("POST", "/v1/resume", b"{}");
    assert_eq!(node.drained("a")["acked"], 1);
}
