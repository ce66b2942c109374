//! Events that go to another node, while nodes are killed: each arrives once. And a fleet without its anchor.

use crate::fleet::{ANY, address, done, fleet, heard, start, until};
use crate::support::Node;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Kills of either node, or of both.
const ROUNDS: usize = 6;
/// Events of one round.
const EVENTS: usize = 150;

/// The data of all events of a queue, in their order.
pub fn data(node: &Node, queue: &str) -> Vec<usize> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = node.api("GET", &format!("/v1/queues/{queue}/events?limit=1000{after}"), &[]).json();
        let Some(next) = page["next"].as_str() else { return all };
        after = format!("&after={next}");
        let listed = page["events"].as_array().unwrap();
        // Digits alone are a number in JSON too.
        all.extend(
            listed.iter().map(|one| one["event"]["data"].to_string().trim_matches('"').parse::<usize>().unwrap()),
        );
    }
}

/// Pushes one event after the other; each is durable when the next one goes.
pub fn push(node: &Node, queue: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let reply = node.api("POST", &format!("/v1/queues/{queue}/events"), number.to_string().as_bytes());
        assert_eq!(reply.status, 201, "{}", reply.text());
    }
}

pub fn waiting(node: &Node) -> u64 {
    let nodes = fleet(node)["nodes"].as_array().unwrap().clone();
    nodes.iter().map(|one| one["mail_waiting"].as_u64().unwrap()).sum()
}

pub fn ready(node: &Node, queue: &str) -> u64 {
    node.api("GET", &format!("/v1/queues/{queue}"), &[]).json()["ready"].as_u64().unwrap()
}

/// How many others a node has written down.
fn known(data: &Path) -> usize {
    let bytes = std::fs::read(data.join("fleet/nodes.json")).unwrap_or_default();
    serde_json::from_slice::<Value>(&bytes).ok().and_then(|kept| Some(kept["nodes"].as_array()?.len())).unwrap_or(0)
}

/// Only the home hears of it from elsewhere.
fn at_home(home: &str) -> Value {
    json!({ "queue": { "readings": { "home": home } } })
}

/// Nodes of one fleet, of which the first is the anchor, at addresses that they keep.
fn campus(folder: &Path, names: &[&str]) -> Vec<(Node, PathBuf, String)> {
    let mut nodes: Vec<(Node, PathBuf, String)> = Vec::new();
    for name in names {
        let data = folder.join(name);
        let node = start(&data, name, ANY, &[]);
        match nodes.first() {
            None => _ = done(&node, &["fleet", "new", "campus"]),
            Some((anchor, ..)) => {
                let token = done(anchor, &["fleet", "invite"]);
                done(&node, &["fleet", "join", token.trim()]);
            }
        }
        let listen = address(&node);
        nodes.push((node, data, listen));
    }
    nodes
}

#[test]
fn what_functions_push_arrives_once_whichever_node_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = campus(folder.path(), &["meter", "home"]);
    let (mut home, home_data, home_listen) = nodes.pop().unwrap();
    let (mut meter, meter_data, meter_listen) = nodes.pop().unwrap();
    home.deploy_manifest(at_home("home"));
    let relay = json!({
        "image": meter.upload("relay"), "queue": "in", "config": { "to": "readings" },
        "grants": { "push": ["readings"] }, "units": { "maximum": 1 },
    });
    let queues = json!({ "readings": { "home": "home" }, "in": { "order": "key" } });
    meter.deploy_manifest(json!({ "function": { "relay": relay }, "queue": queues }));
    for round in 0..ROUNDS {
        push(&meter, "in", round * EVENTS..(round + 1) * EVENTS);
        if round % 3 != 0 {
            meter.kill();
            meter = start(&meter_data, "meter", &meter_listen, &[]);
        }
        if round % 3 != 1 {
            home.kill();
            home = start(&home_data, "home", &home_listen, &[]);
        }
    }
    let all = ROUNDS * EVENTS;
    until("all events at home", || ready(&home, "readings") >= all as u64);
    until("an empty outbox", || waiting(&meter) == 0 && ready(&meter, "readings") == 0);
    // An event that the function had when its node was killed is handled again after those behind it.
    let mut arrived = data(&home, "readings");
    arrived.sort_unstable();
    assert_eq!(arrived, (0..all).collect::<Vec<_>>());
    let listed = done(&meter, &["queue", "ls"]);
    assert!(listed.contains("node home"), "{listed}");
}

#[test]
fn what_is_pushed_arrives_once_and_in_order_whichever_node_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = campus(folder.path(), &["meter", "home"]);
    let (mut home, home_data, home_listen) = nodes.pop().unwrap();
    let (mut meter, meter_data, meter_listen) = nodes.pop().unwrap();
    home.deploy_manifest(at_home("home"));
    meter.deploy_manifest(at_home("home"));
    for round in 0..ROUNDS {
        push(&meter, "readings", round * EVENTS..(round + 1) * EVENTS);
        if round % 3 != 0 {
            meter.kill();
            meter = start(&meter_data, "meter", &meter_listen, &[]);
        }
        if round % 3 != 1 {
            home.kill();
            home = start(&home_data, "home", &home_listen, &[]);
        }
    }
    let all = ROUNDS * EVENTS;
    until("all events at home", || ready(&home, "readings") >= all as u64);
    until("an empty outbox", || waiting(&meter) == 0 && ready(&meter, "readings") == 0);
    assert_eq!(data(&home, "readings"), (0..all).collect::<Vec<_>>(), "each once, and in order");
}

#[test]
fn what_waits_for_a_node_that_is_taken_out_is_a_dead_letter_for_the_next_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = campus(folder.path(), &["server", "one", "two"]);
    let (two, ..) = nodes.pop().unwrap();
    let (one, ..) = nodes.pop().unwrap();
    let (server, ..) = nodes.pop().unwrap();
    until("a fleet of three", || heard(&one) == ["one", "server", "two"]);
    one.deploy_manifest(at_home("two"));
    two.kill();
    push(&one, "readings", 0..250);
    until("mail in the outbox", || waiting(&one) == 250);
    done(&server, &["fleet", "rm", "two"]);
    let dead = || one.api("GET", "/v1/queues/readings/events?part=dead&reason=L9304&limit=1000", &[]).json();
    until("dead letters", || dead()["events"].as_array().unwrap().len() == 250);
    // What comes now meets the same.
    push(&one, "readings", 250..251);
    until("one more", || dead()["events"].as_array().unwrap().len() == 251);
    assert_eq!((ready(&one, "readings"), fleet(&one)["nodes"].as_array().unwrap().len()), (0, 2));

    let again = start(&folder.path().join("again"), "two", ANY, &[]);
    done(&again, &["fleet", "join", done(&server, &["fleet", "invite"]).trim()]);
    again.deploy_manifest(at_home("two"));
    until("a node of that name", || heard(&one) == ["one", "server", "two"]);
    done(&one, &["queue", "replay", "readings"]);
    until("all events there", || ready(&again, "readings") == 251);
    // Those that were on their way stand behind those that were not: a replay keeps no order.
    let mut arrived = data(&again, "readings");
    arrived.sort_unstable();
    assert_eq!(arrived, (0..251).collect::<Vec<_>>());
}

#[test]
fn without_their_anchor_nodes_start_call_each_other_and_send_mail() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = campus(folder.path(), &["server", "one", "two"]);
    for (node, ..) in &nodes {
        until("a fleet of three", || heard(node) == ["one", "server", "two"]);
    }
    for (_, data, _) in &nodes {
        until("the two others on disk", || known(data) == 2);
    }
    let (two, two_data, two_listen) = nodes.pop().unwrap();
    let (one, one_data, one_listen) = nodes.pop().unwrap();
    let (server, server_data, server_listen) = nodes.pop().unwrap();
    two.deploy_one("hello", "hello", json!({}));
    two.deploy_manifest(at_home("two"));
    server.deploy_manifest(json!({ "queue": { "reports": { "home": "server" } } }));
    one.deploy_manifest(json!({ "queue": { "readings": { "home": "two" }, "reports": { "home": "server" } } }));
    // All lose their power, and the anchor does not come back.
    server.kill();
    one.kill();
    two.kill();
    let one = start(&one_data, "one", &one_listen, &[]);
    push(&one, "readings", 0..10);
    push(&one, "reports", 0..10);
    let two = start(&two_data, "two", &two_listen, &[]);
    until("a call of the other node", || one.get("/hello").status == 200);
    until("mail between the two", || data(&two, "readings") == (0..10).collect::<Vec<_>>());
    until("mail for the anchor in the outbox", || waiting(&one) == 10);
    assert_eq!(fleet(&one)["trouble"]["code"], "L9105", "{}", fleet(&one));

    let server = start(&server_data, "server", &server_listen, &[]);
    until("mail for the anchor", || data(&server, "reports") == (0..10).collect::<Vec<_>>());
    until("a fleet of three", || heard(&one) == ["one", "server", "two"]);
    until("no trouble", || fleet(&one)["trouble"].is_null());
}
