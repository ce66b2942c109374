//! Where the copies of a function are in a fleet of real nodes: near to somebody.

use crate::deployments::{NAMES, functions};
use crate::fleet::{ANY, address, done, heard, lighter, start, until};
use crate::proxy::Proxy;
use crate::support::{Node, fixture};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Writes an app of one function with this `place`, and says the words that deploy it.
fn app(folder: &Path, place: &str) -> Vec<String> {
    let app = folder.join("app");
    fs::create_dir_all(&app).unwrap();
    fs::write(app.join("hello.wasm"), fixture("hello")).unwrap();
    let text =
        format!("[function.hello]\nimage = \"hello.wasm\"\nhttp = \"/hello\"\n[function.hello.place]\n{place}\n");
    fs::write(app.join("lighter.toml"), text).unwrap();
    let key = folder.join("server-1/fleet/deployer.key");
    let words = ["deploy", app.to_str().unwrap(), "--fleet", "--deployer", key.to_str().unwrap()];
    words.map(str::to_owned).into()
}

fn deploy(folder: &Path, node: &Node, place: &str) {
    let words = app(folder, place);
    done(node, &words.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The nodes that have the function, by their place in the list.
fn having(nodes: &[&Node]) -> Vec<usize> {
    (0..nodes.len()).filter(|at| functions(nodes[*at]) == ["hello"]).collect()
}

/// pi-7 and pi-8 are far from each other, whoever asks; server-1 is near to both.
#[test]
fn a_function_is_near_to_whom_it_is_to_be_near_and_the_fleet_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let ways = [1, 2].map(|_| Proxy::long(Duration::from_millis(200)));
    let at = |number: usize, more: &[&str]| start(&folder.path().join(NAMES[number]), NAMES[number], ANY, more);
    let anchor = at(0, &[]);
    let far = |number: usize| {
        let way = &ways[number - 1];
        // A node's own port is known when it listens, which it does once it has joined.
        let free = std::net::TcpListener::bind("127.0.77.1:0").unwrap().local_addr().unwrap().to_string();
        way.lead(&free);
        let (name, address) = (NAMES[number], way.address.to_string());
        start(&folder.path().join(name), name, &free, &["--fleet-address", &address])
    };
    let (one, other) = (far(1), far(2));
    done(&anchor, &["fleet", "new", "coast"]);
    let token = done(&anchor, &["fleet", "invite", "--times", "2"]);
    for node in [&one, &other] {
        done(node, &["fleet", "join", token.trim()]);
    }
    let nodes = [&anchor, &one, &other];
    for node in nodes {
        until("a fleet of three", || heard(node).len() == 3);
    }
    assert_eq!(address(&other), ways[1].address.to_string());

    // Nobody has measured anything yet: the order waits for that.
    deploy(folder.path(), &anchor, "near = \"pi-7\"\nwithin = \"150ms\"");
    assert_eq!(having(&nodes), [0, 1]);
    let why: Value = serde_json::from_str(&done(&one, &["fleet", "why", "hello", "--json"])).unwrap();
    let placed = &why["placed"];
    assert_eq!((&placed["near"], &placed["within_ms"], &placed["copies"]), (&json!("pi-7"), &json!(150), &json!(null)));
    let way = |name: &str| {
        let all = placed["nodes"].as_array().unwrap();
        all.iter().find(|node| node["name"] == name).and_then(|node| node["round_trip_ms"].as_f64())
    };
    assert!(way("pi-7") == Some(0.0) && way("server-1").is_some_and(|ms| ms > 0.0 && ms <= 150.0), "{placed}");
    let said = done(&other, &["fleet", "why", "hello"]);
    assert!(said.contains("the deployment app has it at ") && said.contains("pi-7 (0 ms from pi-7)"), "{said}");
    assert!(said.contains("by its place: near pi-7, within 150 ms"), "{said}");

    // The nearest of those that may have it; one that is too far says how far.
    let bridge = "near = \"pi-7\"\nwhere = [\"!harbour\"]\ncopies = 2";
    deploy(folder.path(), &other, bridge);
    assert_eq!(having(&nodes), [0, 1], "what has it keeps it");
    let words = app(folder.path(), "near = \"pi-8\"\nwithin = \"150ms\"\nwhere = [\"kvm-of-another-world\"]");
    let said = lighter(&one.data, &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!said.is_done && said.err.contains("error[L9110]"), "{}", said.err);
    assert!(said.err.contains("pi-7 lacks kvm-of-another-world and place.within of 150 ms (pi-8 is "), "{}", said.err);
}
