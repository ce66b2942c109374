//! Three real anchors, of which one is killed and one loses its disk: calls, mail, joins and deployments go on.

use crate::fleet::{ANY, address, done, heard, lighter, refused, start, until};
use crate::fleet_engine::{is_connected, nats_server};
use crate::support::{Node, fixture};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const NAMES: [&str; 5] = ["server-1", "server-2", "server-3", "pi-7", "pi-8"];

/// The names of the anchors, as a node knows them.
fn anchors(node: &Node) -> Vec<String> {
    let reply = node.api("GET", "/v1/fleet", &[]);
    // It has no fleet for a moment while it takes its part anew.
    let nodes = (reply.status == 200).then(|| reply.json()["nodes"].as_array().unwrap().clone()).unwrap_or_default();
    let anchors = nodes.iter().filter(|one| one["anchor"] == true);
    let mut names: Vec<String> = anchors.map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    names.sort_unstable();
    names
}

/// Makes two members anchors.
fn three_anchors(nodes: &[Node]) {
    assert_eq!(refused(&nodes[3], &["fleet", "anchor", "add", "pi-8"]), "L9118");
    assert_eq!(refused(&nodes[0], &["fleet", "anchor", "add", "server-2"]), "L1101");
    let said = lighter(&nodes[0].data, &["fleet", "anchor", "add", "server-2", "server-3"]);
    assert!(said.is_done && said.err.contains("server-2, server-3"), "{}", said.err);
    for node in nodes {
        until("three anchors", || anchors(node) == NAMES[..3]);
        until("a way to the engine", || is_connected(node));
    }
    let audit = nodes[0].api("GET", "/v1/audit", &[]).text();
    assert!(audit.contains("fleet anchor add") && audit.contains("server-2 server-3"), "{audit}");
    let table = done(&nodes[4], &["fleet"]);
    assert_eq!(table.lines().filter(|line| line.contains(" yes ")).count(), 3, "{table}");
}

fn app(folder: &Path, image: &str) -> PathBuf {
    let app = folder.join("app");
    fs::create_dir_all(&app).unwrap();
    fs::write(app.join("f.wasm"), fixture(image)).unwrap();
    let text = "[function.hello]\nimage = \"f.wasm\"\nhttp = \"/hello\"\nplace.where = [\"site=bridge\"]\n";
    fs::write(app.join("lighter.toml"), text).unwrap();
    app
}

fn deploy(node: &Node, app: &Path, key: &Path) -> Value {
    let words = ["deploy", app.to_str().unwrap(), "--fleet", "--json", "--deployer", key.to_str().unwrap()];
    serde_json::from_str(&done(node, &words)).unwrap()
}

fn arrived(node: &Node) -> usize {
    let page = node.api("GET", "/v1/queues/readings/events?limit=1000", &[]).json();
    page["events"].as_array().map_or(0, Vec::len)
}

/// Joins by an invitation of this anchor.
fn joins(anchor: &Node, folder: &Path, name: &str) -> Node {
    let token = done(anchor, &["fleet", "invite"]);
    let node = start(&folder.join(name), name, ANY, &["--join", token.trim()]);
    until("who joined is heard of", || heard(anchor).contains(&name.to_owned()));
    node
}

#[test]
fn one_of_three_anchors_is_killed_and_one_is_wiped_and_all_goes_on() {
    if nats_server().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |number: usize, listen: &str| {
        let site: &[&str] = if number == 4 { &["--label", "site=bridge"] } else { &[] };
        start(&folder.path().join(NAMES[number]), NAMES[number], listen, site)
    };
    let mut nodes: Vec<Node> = (0..5).map(|number| at(number, ANY)).collect();
    done(&nodes[0], &["fleet", "new", "campus"]);
    let token = done(&nodes[0], &["fleet", "invite", "--times", "4"]);
    nodes[1..].iter().for_each(|node| drop(done(node, &["fleet", "join", token.trim()])));
    nodes.iter().for_each(|node| until("a fleet of five", || heard(node).len() == 5));
    three_anchors(&nodes);
    let key = folder.path().join("deployer.key");
    fs::copy(folder.path().join("server-1/fleet/deployer.key"), &key).unwrap();
    deploy(&nodes[3], &app(folder.path(), "hello-http"), &key);
    for node in &nodes[3..] {
        let last = node.deploy_manifest(json!({ "queue": { "readings": { "home": "pi-8" } } }));
        assert_eq!(last["step"], "done", "{last}");
    }
    until("a call over the hop", || nodes[3].get("/hello").status == 200);

    let (is_over, calls) = (AtomicBool::new(false), AtomicU32::new(0));
    let (gate, listen) = (format!("{}/hello", nodes[3].gate), address(&nodes[0]));
    let mut nodes = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                assert_eq!(crate::support::send("GET", &gate, &[], &[]).status, 200, "a call");
                calls.fetch_add(1, Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        nodes.remove(0).kill();
        let went_on = without_the_founder(&nodes, folder.path(), &key);
        is_over.store(true, Relaxed);
        nodes.push(went_on);
        nodes
    });
    assert!(calls.load(Relaxed) > 20, "{calls:?}");
    // It is back, and knows what it has missed.
    let founder = at(0, &listen);
    until("who joined meanwhile", || heard(&founder).contains(&"pi-9".to_owned()));
    until("what was deployed", || done(&founder, &["fleet", "deployments"]).contains("app   2"));
    nodes.insert(0, founder);
    a_disk_is_lost(nodes, folder.path());
}

/// Joins, mail and a deployment while the founder is away. The node that has joined.
fn without_the_founder(nodes: &[Node], folder: &Path, key: &Path) -> Node {
    until("another anchor invites", || lighter(&nodes[0].data, &["fleet", "invite"]).is_done);
    let joined = joins(&nodes[0], folder, "pi-9");
    for number in 0..20 {
        assert_eq!(nodes[2].push("readings", "", &number.to_string()).status, 201);
    }
    until("mail", || arrived(&nodes[3]) == 20);
    let deployed = deploy(&nodes[2], &app(folder, "hello-http"), key);
    assert_eq!(deployed["revision"], 2, "{deployed}");
    until("each node has a way to the engine", || nodes.iter().all(is_connected));
    joined
}

/// The third anchor loses its disk: it is taken out, and a member takes its place.
fn a_disk_is_lost(mut nodes: Vec<Node>, folder: &Path) {
    let lost = nodes.remove(2);
    let data = lost.data.clone();
    lost.kill();
    fs::remove_dir_all(&data).unwrap();
    until("it is taken out", || lighter(&nodes[1].data, &["fleet", "anchor", "rm", "server-3"]).is_done);
    assert_eq!(anchors(&nodes[1]), ["server-1", "server-2"]);
    until("another one", || lighter(&nodes[1].data, &["fleet", "anchor", "add", "pi-8"]).is_done);
    for node in &nodes {
        until("three anchors again", || anchors(node) == ["pi-8", "server-1", "server-2"]);
        until("a way to the engine", || is_connected(node));
    }
    until("the new one invites", || lighter(&nodes[3].data, &["fleet", "invite"]).is_done);
    // And one that is none any more has no key of the CA.
    done(&nodes[3], &["fleet", "anchor", "rm", "server-1"]);
    let ca = folder.join("server-1/fleet/ca.key");
    until("its key is deleted", || !ca.exists());
    until("it is a member", || anchors(&nodes[0]) == ["pi-8", "server-2"]);
    assert_eq!(arrived(&nodes[3]), 20, "nothing was lost or came twice");
}
