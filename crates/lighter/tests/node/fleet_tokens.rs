//! Tokens that count at every node of a fleet, and what a device is told that has one.

use crate::fleet::{ANY, done, heard, refused, start, until};
use crate::support::{Node, Reply, hash, send, wait_for};
use api_types::identity::Identity;
use serde_json::{Value, json};
use std::path::Path;

const NAMES: [&str; 3] = ["server-1", "pi-7", "pi-8"];

fn campus(folder: &Path) -> [Node; 3] {
    let nodes = NAMES.map(|name| start(&folder.join(name), name, ANY, &[]));
    done(&nodes[0], &["fleet", "new", "campus"]);
    let token = done(&nodes[0], &["fleet", "invite", "--times", "2"]);
    nodes[1..].iter().for_each(|node| drop(done(node, &["fleet", "join", token.trim()])));
    nodes.iter().for_each(|node| until("a fleet of three", || heard(node).len() == 3));
    nodes
}

fn with(token: &str, method: &str, node: &Node, path: &str) -> Reply {
    let bearer = format!("Bearer {}", token.trim());
    send(method, &format!("{}{path}", node.api), &[("authorization", &bearer)], b"x")
}

/// The names of the nodes that a device is told of by this one, in order, and the functions that they have.
fn places(token: &str, node: &Node) -> Option<Vec<(String, Vec<String>)>> {
    let reply = with(token, "GET", node, "/v1/fleet/places");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let functions = |place: &Value| place["functions"].as_array().unwrap().iter().map(text).collect();
    let places = (reply.status == 200).then(|| reply.json()["places"].as_array().unwrap().clone())?;
    let mut told: Vec<_> = places.iter().map(|place| (text(&place["name"]), functions(place))).collect();
    assert!(places[0]["this_node"] == json!(true) && places[0]["api"] == json!(node.api), "{places:?}");
    told.sort_unstable();
    Some(told)
}

#[test]
fn a_token_of_the_fleet_opens_all_its_nodes_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let [anchor, one, other] = campus(folder.path());
    for node in [&anchor, &one] {
        node.deploy_one("hello", "hello", json!({}));
        node.deploy_one("plate", "hello-http", json!({}));
    }
    assert_eq!(refused(&one, &["fleet", "token", "create", "phone"]), "L9118");
    assert_eq!(refused(&anchor, &["fleet", "token", "create", "phone", "--scope", "admin"]), "L4009");
    let token = done(&anchor, &["fleet", "token", "create", "phone", "--scope", "call"]);
    assert_eq!(refused(&anchor, &["fleet", "token", "create", "phone"]), "L4009");
    let bound = done(&anchor, &["fleet", "token", "create", "watch", "--function", "hello"]);
    let names = |number: usize| if number == 2 { vec![] } else { vec!["hello".to_owned(), "plate".to_owned()] };
    let all: Vec<_> = [1, 2, 0].map(|number| (NAMES[number].to_owned(), names(number))).to_vec();
    for node in [&anchor, &one, &other] {
        until("word of the token and of all nodes", || places(&token, node).as_ref() == Some(&all));
        let some = places(&bound, node).unwrap();
        assert!(some.iter().all(|(_, functions)| functions.iter().all(|name| name == "hello")), "{some:?}");
        assert_eq!(with(&token, "GET", node, "/v1/tokens").code(), "L4006", "it is not for that");
    }
    assert_eq!(with(&token, "POST", &one, "/v1/functions/plate/call").status, 200);
    assert_eq!(with(&bound, "POST", &one, "/v1/functions/plate/call").code(), "L4006");
    assert!(done(&one, &["fleet", "token", "ls"]).contains("phone"));
    assert!(!done(&one, &["fleet", "token", "ls", "--json"]).contains(token.trim()), "it is shown once");

    // A node that starts while no anchor is there knows it from its own disk; it is told of none that are away.
    let listen = crate::fleet::address(&one);
    drop((anchor.kill(), one.kill()));
    let anchor = |listen: &str| start(&folder.path().join("server-1"), "server-1", listen, &[]);
    let one = start(&folder.path().join("pi-7"), "pi-7", &listen, &[]);
    wait_for("the token, without an anchor", || places(&token, &one));
    let anchor = anchor(ANY);
    done(&anchor, &["fleet", "token", "rm", "phone"]);
    assert_eq!(with(&token, "GET", &anchor, "/v1/fleet/places").code(), "L4005");
    assert_eq!(refused(&anchor, &["fleet", "token", "rm", "phone"]), "L4013");
    let audit = done(&anchor, &["audit", "--json"]);
    assert!(audit.contains("fleet token add") && audit.contains("fleet token rm") && !audit.contains(token.trim()));
}

#[test]
fn a_removed_token_closes_at_the_other_nodes_and_with_the_fleet() {
    let folder = tempfile::tempdir().unwrap();
    let [anchor, one, other] = campus(folder.path());
    let [token, kept] = ["phone", "watch"].map(|name| done(&anchor, &["fleet", "token", "create", name]));
    let crew = done(&anchor, &["fleet", "token", "create", "crew", "--scope", "work", "--queue", "jobs"]);
    until("word of the tokens", || [&one, &other].into_iter().all(|node| places(&kept, node).is_some()));
    // What it has leased was nobody's until the lease ended.
    one.deployed(json!({ "queue": { "jobs": {} } }));
    one.pushed("jobs", "", "x");
    let lease = || {
        let bearer = format!("Bearer {}", crew.trim());
        let url = format!("{}/v1/queues/jobs/lease", one.api);
        send("POST", &url, &[("authorization", &bearer)], br#"{"lease_ms":3600000}"#)
    };
    until("a lease", || lease().status == 200 && one.queue("jobs")["leased"] == 1);
    done(&anchor, &["fleet", "token", "rm", "crew"]);
    until("the event again", || one.queue("jobs")["ready"] == 1 && one.queue("jobs")["leased"] == 0);
    done(&anchor, &["fleet", "token", "rm", "phone"]);
    for node in [&one, &other] {
        until("word that it is gone", || with(&token, "GET", node, "/v1/fleet/places").status == 401);
        assert_eq!(with(&kept, "GET", node, "/v1/fleet/places").status, 200);
    }
    done(&other, &["fleet", "leave"]);
    assert_eq!(with(&kept, "GET", &other, "/v1/node").code(), "L4005", "it is no node of the fleet");
}

#[test]
fn a_node_proves_that_it_knows_a_token_before_it_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let [anchor, one, _] = campus(folder.path());
    let token = done(&anchor, &["fleet", "token", "create", "phone"]);
    until("word of the token", || places(&token, &one).is_some());
    let (digest, nonce) = (hash(token.trim().as_bytes()), "ab".repeat(32));
    let ask = |start: &str| send("GET", &format!("{}/v1/identity?nonce={nonce}&token={start}", one.api), &[], &[]);
    let proof = ask(&digest[..16]).json()["proof"].as_str().unwrap().to_owned();
    assert!(Identity::new(&digest, &one.api).is_proven(&nonce, &proof), "by its own address");
    assert!(!Identity::new(&digest, &anchor.api).is_proven(&nonce, &proof));
    for wrong in ["", "0", &digest, &"0".repeat(16), "zzzzzzzzzzzzzzzz"] {
        assert_eq!(ask(wrong).code(), "L4013", "{wrong:?}");
    }
}
