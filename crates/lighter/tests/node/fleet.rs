//! Three real nodes become a fleet, lose one of them, and are still a fleet after all of them were killed.

use crate::support::{Node, PROGRAM, send, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

pub struct Said {
    pub is_done: bool,
    pub out: String,
    pub err: String,
}

/// A command on the node of a data folder.
pub fn lighter(data: &Path, words: &[&str]) -> Said {
    let mut command = Command::new("timeout");
    command.args(["600", PROGRAM]).args(words).env("LIGHTER_DATA", data).stdin(Stdio::null());
    let output = command.env_remove("LIGHTER_NODE").env_remove("LIGHTER_TOKEN").output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Said { is_done: output.status.success(), out, err }
}

#[track_caller]
pub fn done(node: &Node, words: &[&str]) -> String {
    let said = lighter(&node.data, words);
    assert!(said.is_done, "{words:?}: {}{}", said.out, said.err);
    said.out
}

/// The code with which a command is refused.
#[track_caller]
pub fn refused(node: &Node, words: &[&str]) -> String {
    let said = lighter(&node.data, &[words, &["--json"]].concat());
    assert!(!said.is_done, "{words:?}: {}", said.out);
    let problem: Value = serde_json::from_str(said.err.lines().last().unwrap_or_default()).unwrap();
    assert!(!problem["hint"].as_str().unwrap().is_empty(), "{problem}");
    problem["code"].as_str().unwrap().to_owned()
}

pub fn fleet(node: &Node) -> Value {
    let reply = node.api("GET", "/v1/fleet", &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// The names of the nodes that a node has heard of in the last seconds, and its own.
pub fn heard(node: &Node) -> Vec<String> {
    let fleet = fleet(node);
    let nodes = fleet["nodes"].as_array().unwrap();
    let heard = nodes.iter().filter(|one| one["heard_ms"].as_u64().is_some_and(|ms| ms < 20_000));
    let mut names: Vec<String> = heard.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}

fn trouble(node: &Node) -> String {
    fleet(node)["trouble"]["code"].as_str().unwrap_or_default().to_owned()
}

pub fn start(data: &Path, name: &str, listen: &str, more: &[&str]) -> Node {
    Node::start_in(data, &[&["--node-name", name, "--fleet-listen", listen], more].concat())
}

pub fn address(node: &Node) -> String {
    fleet(node)["nodes"][0]["address"].as_str().unwrap().to_owned()
}

/// Waits until it is so.
#[track_caller]
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// An address that nobody connects from, so that its ports are free when a node starts again.
pub const ANY: &str = "127.0.77.1:0";

#[test]
fn three_nodes_are_a_fleet_until_one_is_taken_out_and_after_all_were_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["server-1", "pi-7", "pi-8"].map(|name| folder.path().join(name));
    let anchor = start(&data[0], "server-1", ANY, &[]);
    assert_eq!(refused(&anchor, &["fleet"]), "L9116");
    done(&anchor, &["fleet", "new", "campus"]);
    let token = done(&anchor, &["fleet", "invite", "--times", "2", "--for", "8h"]);
    // One joins when it starts, the other while it runs.
    let one = start(&data[1], "pi-7", ANY, &["--join", token.trim()]);
    let other = start(&data[2], "pi-8", ANY, &[]);
    done(&other, &["fleet", "join", token.trim()]);
    for node in [&anchor, &one, &other] {
        until("a fleet of three", || heard(node) == ["pi-7", "pi-8", "server-1"]);
        let table = done(node, &["fleet"]);
        assert!(table.starts_with("ID ") && table.lines().count() == 4, "{table}");
    }
    assert_eq!(refused(&one, &["fleet", "invite"]), "L9118");
    let made = anchor.api("POST", "/v1/tokens", json!({ "name": "ci", "scope": "deploy" }).to_string().as_bytes());
    let bearer = format!("Bearer {}", made.json()["token"].as_str().unwrap());
    for (method, path) in [("POST", "/v1/fleet/invitations"), ("DELETE", "/v1/fleet/nodes/pi-7")] {
        let reply = send(method, &format!("{}{path}", anchor.api), &[("authorization", &bearer)], &[]);
        assert_eq!(reply.code(), "L4006", "{method} {path}");
    }
    assert_eq!(refused(&one, &["fleet", "new", "village"]), "L9117");
    assert_eq!(refused(&anchor, &["fleet", "rm", "pi-70"]), "L9119");

    // All are killed, and the anchor starts last. Its address and theirs are the same as before.
    let listen = [&anchor, &one, &other].map(address);
    [anchor, one, other].into_iter().for_each(|node| drop(node.kill()));
    let one = start(&data[1], "pi-7", &listen[1], &["--join", token.trim()]);
    let other = start(&data[2], "pi-8", &listen[2], &[]);
    let anchor = start(&data[0], "server-1", &listen[0], &[]);
    for node in [&anchor, &one, &other] {
        until("a fleet of three", || heard(node) == ["pi-7", "pi-8", "server-1"]);
    }

    done(&anchor, &["fleet", "rm", "pi-7", "--stolen"]);
    assert_eq!(fleet(&anchor)["nodes"].as_array().unwrap().len(), 2);
    until("word of its revocation", || trouble(&one) == "L9111");
    until("the list of the revoked", || fleet(&other)["nodes"].as_array().unwrap().len() == 2);
    let audit = done(&anchor, &["audit", "--json"]);
    assert!(audit.contains("fleet rm --stolen") && audit.contains("fleet invite"), "{audit}");
    assert!(!audit.contains(token.trim()), "an invitation is a secret");
}

#[test]
fn a_node_leaves_its_fleet_and_goes_on_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [anchor, pi] = ["server-1", "pi-7"].map(|name| start(&folder.path().join(name), name, ANY, &[]));
    assert_eq!(refused(&pi, &["fleet", "leave"]), "L9116");
    done(&anchor, &["fleet", "new", "campus"]);
    done(&pi, &["fleet", "join", done(&anchor, &["fleet", "invite"]).trim()]);
    pi.deploy_one("hello", "hello", json!({}));
    assert_eq!(refused(&anchor, &["fleet", "leave"]), "L9117");
    // The other one can call it, until it has left.
    until("a call of the other node's function", || anchor.get("/hello").status == 200);
    done(&pi, &["fleet", "leave"]);
    assert_eq!((refused(&pi, &["fleet"]), pi.data.join("fleet").exists()), ("L9116".to_owned(), false));
    assert_eq!(fleet(&anchor)["nodes"].as_array().unwrap().len(), 1);
    until("word that it is gone", || anchor.get("/hello").status != 200);
    assert_eq!(pi.get("/hello").status, 200);
    assert!(done(&pi, &["audit", "--json"]).contains("fleet leave"));
    // As a new node.
    done(&pi, &["fleet", "join", done(&anchor, &["fleet", "invite"]).trim()]);
    until("a fleet of two", || heard(&anchor) == ["pi-7", "server-1"]);
}

#[test]
fn a_node_that_cannot_join_does_not_start_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let anchor = start(&folder.path().join("server-1"), "server-1", ANY, &[]);
    let wait = |seconds: u64| json!({ "times": 1, "seconds": seconds }).to_string();
    done(&anchor, &["fleet", "new", "campus"]);
    let invite = |seconds| {
        let reply = anchor.api("POST", "/v1/fleet/invitations", wait(seconds).as_bytes());
        reply.json()["token"].as_str().unwrap().to_owned()
    };
    let used = invite(3_600);
    let first = start(&folder.path().join("pi-7"), "pi-7", ANY, &["--join", &used]);
    let short = invite(1);
    thread::sleep(Duration::from_millis(2_100));
    let data = folder.path().join("pi-8");
    let try_join = |token: &str| Node::try_start(&data, &["--fleet-listen", ANY, "--join", token]).err().unwrap();
    assert!(try_join(&used).contains("error[L9109]"));
    assert!(try_join(&used[..used.len() - 3]).contains("error[L9106]"));
    assert!(try_join("hello").contains("error[L9106]"));
    assert!(try_join(&short).contains("error[L9108]"));
    // Of another fleet.
    let village = start(&folder.path().join("village"), "server-2", ANY, &[]);
    done(&village, &["fleet", "new", "village"]);
    let token = done(&village, &["fleet", "invite"]);
    assert_eq!(refused(&first, &["fleet", "join", token.trim()]), "L9117");
    anchor.kill();
    assert!(try_join(&used).contains("error[L9105]"));
}

#[test]
fn a_lone_node_opens_no_socket_for_a_fleet() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    // It does not even try.
    let node = Node::start_with(&["--fleet-listen", &listen]);
    assert!(!node.data.join("fleet").exists());
    assert_eq!(refused(&node, &["fleet", "new", "campus"]), "L9004");
    assert_eq!(refused(&node, &["fleet", "join", "lighter-join-1.AAAA"]), "L9106");
    assert_eq!(refused(&node, &["fleet", "invite"]), "L9116");
    assert_eq!(refused(&node, &["fleet", "new", "No Name"]), "L1101");
}
