//! Copies of a function in a fleet of real nodes: near to somebody, and as many as load asks for.

use crate::deployments::{Campus, NAMES, functions};
use crate::fleet::{ANY, address, done, heard, lighter, start, until};
use crate::proxy::Proxy;
use crate::support::{Node, fixture, send};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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
    let ways = [1, 2].map(|_| Proxy::long(Duration::from_millis(350)));
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

    // Nobody has measured anything yet: the order waits for that, though not longer than 12 seconds.
    let begun = Instant::now();
    deploy(folder.path(), &anchor, "near = \"pi-7\"\nwithin = \"20s\"");
    assert!(having(&nodes) == [0, 1, 2] || begun.elapsed() >= Duration::from_secs(12), "{:?}", having(&nodes));

    // Where server-1 asked first, it knows only the long way to pi-7 until pi-7 has asked too, by the short one.
    until("a copy at the two that are near", || {
        deploy(folder.path(), &anchor, "near = \"pi-7\"\nwithin = \"450ms\"");
        having(&nodes) == [0, 1]
    });
    let why: Value = serde_json::from_str(&done(&one, &["fleet", "why", "hello", "--json"])).unwrap();
    let placed = &why["placed"];
    assert_eq!((&placed["near"], &placed["within_ms"], &placed["copies"]), (&json!("pi-7"), &json!(450), &json!(null)));
    let way = |name: &str| {
        let all = placed["nodes"].as_array().unwrap();
        all.iter().find(|node| node["name"] == name).and_then(|node| node["round_trip_ms"].as_f64())
    };
    assert!(way("pi-7") == Some(0.0) && way("server-1").is_some_and(|ms| ms > 0.0 && ms <= 450.0), "{placed}");
    until("word of it at the far node", || lighter(&other.data, &["fleet", "why", "hello"]).is_done);
    let said = done(&other, &["fleet", "why", "hello"]);
    assert!(said.contains("the deployment app has it at ") && said.contains("pi-7 (0 ms from pi-7)"), "{said}");
    assert!(said.contains("by its place: near pi-7, within 450 ms"), "{said}");

    // The nearest of those that may have it; one that is too far says how far.
    let bridge = "near = \"pi-7\"\nwhere = [\"!harbour\"]\ncopies = 2";
    deploy(folder.path(), &other, bridge);
    assert_eq!(having(&nodes), [0, 1], "what has it keeps it");
    let words = app(folder.path(), "near = \"pi-8\"\nwithin = \"450ms\"\nwhere = [\"kvm-of-another-world\"]");
    let said = lighter(&one.data, &words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!said.is_done && said.err.contains("error[L9110]"), "{}", said.err);
    assert!(said.err.contains("pi-7 lacks kvm-of-another-world and place.within of 450 ms (pi-8 is "), "{}", said.err);
}

/// Callers, each of which calls without a break or with a pause.
struct Callers {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<String>>>,
}

impl Callers {
    /// One for each of these gates: the route `/fib` with this number.
    fn start(gates: &[&str], number: &'static str, pause: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let call = |gate: &&str| {
            let (is_over, url) = (is_over.clone(), format!("{gate}/fib"));
            thread::spawn(move || {
                let mut failed = Vec::new();
                while !is_over.load(Relaxed) {
                    let reply = send("POST", &url, &[], number.as_bytes());
                    if reply.status != 200 {
                        failed.push(format!("{} {}", reply.status, reply.text()));
                    }
                    thread::sleep(pause);
                }
                failed
            })
        };
        let threads = gates.iter().map(call).collect();
        Self { is_over, threads }
    }

    /// Ends them, and says what failed.
    fn end(self) -> Vec<String> {
        self.is_over.store(true, Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    }
}

/// What the seventh number is, at the gate of a node.
fn ask(node: &Node) -> String {
    send("POST", &format!("{}/fib", node.gate), &[], b"7").text()
}

fn why(node: &Node) -> Value {
    serde_json::from_str(&done(node, &["fleet", "why", "fib", "--json"])).unwrap()
}

/// Load that enters at one node makes a second copy elsewhere; quiet takes one away, and no call fails; the copy that
/// is left is made elsewhere when its node is killed.
#[test]
fn copies_follow_load_and_no_call_fails() {
    let campus = Campus::new();
    fs::write(campus.app().join("fibonacci.wasm"), fixture("fibonacci")).unwrap();
    let text = "[function.fib]\nimage = \"fibonacci.wasm\"\nhttp = \"/fib\"\nlimits.concurrency = 1\n\
                [function.fib.place]\nwhere = [\"site\"]\ncopies = \"1..2\"\nquiet = \"3s\"\n";
    fs::write(campus.app().join("lighter.toml"), text).unwrap();
    campus.deploy(&campus.anchor);
    let has = |node: &Node| functions(node) == ["fib"];
    let count = || [&campus.one, &campus.other].into_iter().filter(|node| has(node)).count();
    assert_eq!(count(), 1, "the fewest, at first");
    let gate = campus.anchor.gate.as_str();
    until("an answer at any node", || ask(&campus.anchor) == "13\n");
    let crowd = Callers::start(&[gate; 3], "32", Duration::ZERO);
    until("a second copy", || count() == 2);
    until("calls of both", || why(&campus.anchor)["forecasts"].as_array().unwrap().len() == 2);
    assert_eq!(crowd.end(), Vec::<String>::new());
    let placed = why(&campus.other)["placed"].clone();
    assert_eq!((&placed["copies"], placed["nodes"].as_array().unwrap().len()), (&json!("1..2"), 2), "{placed}");
    assert!(placed["scaled"].as_str().unwrap().starts_with("1 was used to "), "{placed}");
    let said = done(&campus.one, &["fleet", "why", "fib"]);
    assert!(said.contains("copies 1..2") && said.contains("as many as that, because 1 was used to "), "{said}");

    let gates = [gate, campus.one.gate.as_str(), campus.other.gate.as_str()];
    let few = Callers::start(&gates, "1", Duration::from_millis(100));
    until("one copy less", || count() == 1);
    // Others believe for some seconds more that it is there.
    until("word of it", || why(&campus.anchor)["forecasts"].as_array().unwrap().len() == 1);
    assert_eq!(few.end(), Vec::<String>::new());
    let audit = done(&campus.anchor, &["audit"]);
    assert!(audit.contains("app fib: 2 copies, comes to pi-") && audit.contains("because 1 was used to "), "{audit}");
    assert!(audit.contains("app fib: one copy, leaves pi-"), "{audit}");

    let Campus { anchor, one, other, folder } = campus;
    let (with, without) = if has(&one) { (one, other) } else { (other, one) };
    with.kill();
    until("a copy elsewhere", || has(&without));
    let audit = done(&anchor, &["audit"]);
    assert!(audit.contains("leaves pi-") && audit.contains("some are away, or not as near"), "{audit}");
    until("an answer at any node", || ask(&anchor) == "13\n");
    drop(folder);
}
