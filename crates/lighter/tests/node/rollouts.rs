//! New forms of a fleet's deployment go to one of three real nodes first, and on, or back by themselves.

use crate::deployments::{Campus, NAMES, image};
use crate::fleet::{Said, address, done, lighter, start, until};
use crate::support::{Node, Reply, fixture, send};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::thread::{self, JoinHandle};

/// Writes the app: one function, that goes in a step of one node which is watched for so long.
fn write(campus: &Campus, fixture_name: &str, watch: &str) {
    let app = campus.app();
    fs::write(app.join("hello.wasm"), fixture(fixture_name)).unwrap();
    let text = format!(
        "[function.hello]\nimage = \"hello.wasm\"\nhttp = {{ route = \"/hello\", methods = [\"POST\"] }}\n\
         place.rollout = {{ steps = [\"1\"], watch = \"{watch}\" }}\n"
    );
    fs::write(app.join("lighter.toml"), text).unwrap();
}

/// Deploys the app from the data folder of a node, beside the test.
fn deploy(campus: &Campus, node: &Node) -> JoinHandle<Said> {
    let (data, app, key) = (node.data.clone(), campus.app(), campus.key());
    thread::spawn(move || {
        let words = ["deploy", app.to_str().unwrap(), "--fleet", "--deployer", key.to_str().unwrap()];
        lighter(&data, &words)
    })
}

/// What the attacking image traps at, and the other one answers.
fn ask(node: &Node) -> Reply {
    send("POST", &format!("{}/hello", node.gate), &[], b"unreachable")
}

fn listed(node: &Node) -> Value {
    let all: Value = serde_json::from_str(&done(node, &["fleet", "deployments", "--json"])).unwrap();
    all["deployments"][0].clone()
}

#[test]
fn a_form_that_fails_reaches_one_node_and_goes_back_while_the_others_answer() {
    let campus = Campus::new();
    let nodes = [&campus.anchor, &campus.one, &campus.other];
    write(&campus, "hello", "2s");
    let first = deploy(&campus, &campus.one).join().unwrap();
    assert!(first.is_done, "{}", first.err);
    let before = image(&campus.one, "hello");
    // It is not watched to the end, however slow the machine is.
    write(&campus, "attack", "1h");
    let deploying = deploy(&campus, &campus.one);
    let mut with_new = BTreeSet::new();
    while !deploying.is_finished() {
        for (name, node) in NAMES.iter().zip(nodes) {
            // What was here before and after the call is what was called.
            let was_new = image(node, "hello") != before;
            let reply = ask(node);
            let is_new = image(node, "hello") != before;
            if was_new || is_new {
                with_new.insert(*name);
            } else {
                assert_eq!(reply.status, 200, "{name}: {}", reply.text());
            }
        }
    }
    let said = deploying.join().unwrap();
    assert!(!said.is_done && said.err.contains("error[L9138]"), "{}{}", said.out, said.err);
    assert!(said.err.contains("back from revision 2 to 1") && said.err.contains("runs failed"), "{}", said.err);
    assert_eq!(with_new.len(), 1, "{with_new:?}");
    for node in nodes {
        until("the form before", || image(node, "hello") == before && ask(node).status == 200);
    }
    let shown = listed(&campus.other);
    assert_eq!((shown["revision"].as_u64(), shown["returned"]["revision"].as_u64()), (Some(1), Some(2)), "{shown}");
    let log = campus.anchor.said.lock().unwrap().join("\n");
    assert!(log.contains("back from revision 2") && log.contains("runs failed"), "{log}");
    let audit = done(&campus.anchor, &["audit", "--json"]);
    assert!(audit.contains("fleet rollout"), "{audit}");
}

#[test]
fn a_form_that_does_not_fail_reaches_all_nodes_though_the_anchor_is_killed_in_between() {
    let campus = Campus::new();
    write(&campus, "hello", "2s");
    let first = deploy(&campus, &campus.one).join().unwrap();
    assert!(first.is_done, "{}", first.err);
    let before = image(&campus.one, "hello");
    write(&campus, "echo-http", "2s");
    let deploying = deploy(&campus, &campus.one);
    until("the first step", || listed(&campus.anchor)["rollout"]["step"] == 1);
    let Campus { folder, anchor, one, other } = campus;
    let listen = address(&anchor);
    anchor.kill();
    let anchor = start(&folder.path().join(NAMES[0]), NAMES[0], &listen, &[]);
    // The command may have been told of the order by then, or not: the order stands.
    let said = deploying.join().unwrap();
    assert!(said.is_done || said.err.contains("error[L9105]"), "{}{}", said.out, said.err);
    for node in [&anchor, &one, &other] {
        until("the new form", || image(node, "hello") != before && ask(node).status == 200);
    }
    until("the end of the steps", || listed(&one)["rollout"].is_null());
    let shown = listed(&one);
    assert!(shown["rollout"].is_null() && shown["returned"].is_null() && shown["revision"] == 2, "{shown}");
}
