//! Workers outside of the node: they lease events by the API and say what became of each.

use crate::support::{Node, Reply, send, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Worker {
    api: String,
    token: String,
}

impl Worker {
    /// With a token of its own for these queues.
    fn new(node: &Node, name: &str, queues: &[&str]) -> Self {
        let request = json!({ "name": name, "scope": "work", "queues": queues });
        let reply = node.api("POST", "/v1/tokens", request.to_string().as_bytes());
        assert_eq!(reply.status, 201, "{}", reply.text());
        Self { api: node.api.clone(), token: reply.json()["token"].as_str().unwrap().to_owned() }
    }

    fn ask(&self, queue: &str, verb: &str, request: Value) -> Reply {
        self.send("POST", &format!("/v1/queues/{queue}/{verb}"), request.to_string().as_bytes())
    }

    fn send(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let token = format!("Bearer {}", self.token);
        send(method, &format!("{}{path}", self.api), &[("authorization", &token)], body)
    }

    fn leases(&self, queue: &str, request: Value) -> Vec<Value> {
        let reply = self.ask(queue, "lease", request);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["leases"].as_array().unwrap().clone()
    }

    /// One event, waited for.
    fn lease(&self, queue: &str, lease_ms: u64) -> Value {
        let lease = || self.leases(queue, json!({ "lease_ms": lease_ms, "wait_ms": 1_000 })).pop();
        wait_for("an event", lease)
    }

    fn settle(&self, queue: &str, verb: &str, leased: &Value) -> Reply {
        self.ask(queue, verb, json!({ "lease": leased["lease"] }))
    }
}

fn with_jobs() -> (Node, Worker) {
    let node = Node::start();
    deploy(&node);
    let worker = Worker::new(&node, "worker", &["jobs"]);
    (node, worker)
}

fn deploy(node: &Node) {
    let queues = json!({ "jobs": { "dead_to": "given-up" }, "others": {}, "given-up": {} });
    let last = node.deploy_manifest(json!({ "queue": queues }));
    assert_eq!(last["step"], "done", "{last}");
}

fn pushed(node: &Node, query: &str, data: &str) {
    assert_eq!(node.push("jobs", query, data).status, 201);
}

#[test]
fn an_event_is_leased_with_all_it_is_and_gone_when_it_is_acked() {
    let (node, worker) = with_jobs();
    assert_eq!(worker.leases("jobs", json!({})), Vec::<Value>::new(), "it does not wait unless it is asked to");
    pushed(&node, "id=a&subject=s&type=t", "21");
    let leased = worker.leases("jobs", json!({ "count": 5 })).pop().unwrap();
    assert_eq!((&leased["attempt"], &leased["lease_ms"]), (&json!(1), &json!(30_000)));
    assert_eq!((&leased["event"]["id"], &leased["event"]["subject"]), (&json!("a"), &json!("s")));
    assert_eq!(node.queue("jobs")["leased"], 1);
    assert!(worker.leases("jobs", json!({})).is_empty(), "it is leased to one");
    assert_eq!(worker.ask("jobs", "renew", json!({ "lease": leased["lease"], "lease_ms": 60_000 })).status, 204);
    assert_eq!(worker.settle("jobs", "ack", &leased).status, 204);
    let info = node.queue("jobs");
    assert_eq!((&info["leased"], &info["ready"], &info["acked"]), (&json!(0), &json!(0), &json!(1)));
    for verb in ["ack", "fail", "renew"] {
        assert_eq!(worker.settle("jobs", verb, &leased).code(), "L7005", "{verb} of what is acked");
    }
}

#[test]
fn nobody_settles_the_lease_of_another() {
    let (node, worker) = with_jobs();
    let thief = Worker::new(&node, "thief", &["jobs", "others"]);
    pushed(&node, "", "x");
    let leased = worker.lease("jobs", 600_000);
    for verb in ["ack", "fail", "renew"] {
        assert_eq!(thief.settle("jobs", verb, &leased).code(), "L7005", "{verb} by another token");
        assert_eq!(thief.settle("others", verb, &leased).code(), "L7005", "{verb} by another queue");
        assert_eq!(worker.settle("others", verb, &leased).code(), "L4006", "{verb} beyond its queues");
        assert_eq!(worker.ask("jobs", verb, json!({ "lease": "00" })).code(), "L7005", "{verb} of no lease");
    }
    assert_eq!(node.queue("jobs")["leased"], 1);
    assert_eq!(worker.settle("jobs", "ack", &leased).status, 204);
}

#[test]
fn a_lease_that_ends_gives_the_event_to_the_next_and_the_first_cannot_ack_it_any_more() {
    let (node, worker) = with_jobs();
    pushed(&node, "id=a", "x");
    let slow = worker.lease("jobs", 1_000);
    // The long poll hears of it by itself.
    let next = worker.lease("jobs", 600_000);
    assert_eq!((&next["event"]["id"], &next["attempt"]), (&json!("a"), &json!(2)));
    assert_ne!(next["lease"], slow["lease"]);
    for verb in ["ack", "fail", "renew"] {
        assert_eq!(worker.settle("jobs", verb, &slow).code(), "L7005", "{verb}");
    }
    assert_eq!(worker.settle("jobs", "ack", &next).status, 204);
    assert_eq!(node.queue("jobs")["acked"], 1);
}

#[test]
fn what_fails_is_tried_again_with_a_pause_or_goes_where_the_queue_says() {
    let (node, worker) = with_jobs();
    pushed(&node, "id=a", "x");
    let leased = worker.lease("jobs", 60_000);
    let failed = worker.ask("jobs", "fail", json!({ "lease": leased["lease"], "reason": "no camera" }));
    assert!(failed.json()["again_ms"].as_u64() > leased["pushed_ms"].as_u64(), "{}", failed.text());
    let delayed = node.api("GET", "/v1/queues/jobs/events?part=delayed", &[]).json();
    assert_eq!(delayed["events"][0]["reason"], "L6004: no camera");
    let again = worker.lease("jobs", 60_000);
    assert_eq!(again["attempt"], 2);
    let dead = worker.ask("jobs", "fail", json!({ "lease": again["lease"], "reason": "never", "dead": true }));
    assert_eq!(dead.json()["again_ms"], Value::Null);
    let on = node.api("GET", "/v1/queues/given-up/events", &[]).json();
    let event = &on["events"][0]["event"];
    assert_eq!(
        (&event["id"], &event["deadqueue"], &event["deadreason"]),
        (&json!("a"), &json!("jobs"), &json!("L6005: never"))
    );
}

#[test]
fn a_request_that_waits_is_answered_when_an_event_comes_or_its_time_is_over() {
    let (node, worker) = with_jobs();
    let since = Instant::now();
    assert!(worker.leases("jobs", json!({ "wait_ms": 300 })).is_empty());
    assert!(since.elapsed() >= Duration::from_millis(300));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| worker.leases("jobs", json!({ "wait_ms": 60_000 })));
        pushed(&node, "id=late", "x");
        assert_eq!(waiting.join().unwrap()[0]["event"]["id"], "late");
    });
    let paused = |verb| node.api("POST", &format!("/v1/{verb}"), br#"{"queues":["jobs"]}"#).status;
    assert_eq!(paused("pause"), 200);
    pushed(&node, "id=paused", "x");
    assert!(worker.leases("jobs", json!({})).is_empty(), "a paused queue gives nothing");
    assert_eq!(paused("resume"), 200);
    assert_eq!(worker.lease("jobs", 60_000)["event"]["id"], "paused");
}

#[test]
fn a_removed_token_takes_no_event_any_more_and_gives_back_what_it_has() {
    let (node, worker) = with_jobs();
    pushed(&node, "id=first", "x");
    assert_eq!(worker.lease("jobs", 3_600_000)["event"]["id"], "first");
    let other = Worker::new(&node, "other", &["jobs"]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| worker.ask("jobs", "lease", json!({ "wait_ms": 60_000, "count": 100 })));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(node.api("DELETE", "/v1/tokens/worker", &[]).status, 204);
        assert_eq!(waiting.join().unwrap().code(), "L4005");
    });
    let again = other.lease("jobs", 60_000);
    assert_eq!((&again["event"]["id"], &again["attempt"]), (&json!("first"), &json!(1)));
}

#[test]
fn a_token_for_work_does_nothing_else_and_one_for_calls_takes_no_events() {
    let (node, worker) = with_jobs();
    pushed(&node, "", "x");
    assert_eq!(worker.ask("others", "lease", json!({})).code(), "L4006");
    assert_eq!(worker.send("POST", "/v1/queues/jobs/events", b"x").code(), "L4006");
    assert_eq!(worker.send("GET", "/v1/queues/jobs/events", &[]).code(), "L4006");
    assert_eq!(worker.send("DELETE", "/v1/queues/jobs/events", &[]).code(), "L4006");
    assert_eq!(worker.send("GET", "/v1/units", &[]).code(), "L4006");
    assert_eq!(worker.send("GET", "/v1/queues", &[]).json().as_array().unwrap().len(), 1, "it sees its own");
    let caller = node.api("POST", "/v1/tokens", br#"{"name":"caller","scope":"call"}"#).json();
    let caller = Worker { api: node.api.clone(), token: caller["token"].as_str().unwrap().to_owned() };
    assert_eq!(caller.ask("jobs", "lease", json!({})).code(), "L4006");
    for request in
        [json!({ "name": "w", "scope": "work" }), json!({ "name": "w", "scope": "look", "queues": ["jobs"] })]
    {
        assert_eq!(node.api("POST", "/v1/tokens", request.to_string().as_bytes()).code(), "L4009", "{request}");
    }
}

#[test]
fn counts_and_times_are_bounded() {
    let (node, worker) = with_jobs();
    let bad = [
        json!({ "count": 0 }),
        json!({ "count": 101 }),
        json!({ "lease_ms": 999 }),
        json!({ "lease_ms": 3_600_001 }),
        json!({ "wait_ms": 60_001 }),
    ];
    for request in bad {
        assert_eq!(worker.ask("jobs", "lease", request.clone()).code(), "L4009", "{request}");
    }
    assert_eq!(worker.ask("jobs", "fail", json!({ "lease": "x", "after_ms": 86_400_001 })).code(), "L4009");
    assert_eq!(worker.ask("nobody", "lease", json!({})).code(), "L4006");
    pushed(&node, "count=1000", "x");
    pushed(&node, "id=one-more", "x");
    let taken: usize = (0..10).map(|_| worker.leases("jobs", json!({ "count": 100, "lease_ms": 600_000 })).len()).sum();
    assert_eq!(taken, 1_000);
    assert_eq!(worker.ask("jobs", "lease", json!({})).code(), "L7012");
    // What another token may take is not used up.
    assert_eq!(Worker::new(&node, "other", &["jobs"]).lease("jobs", 60_000)["event"]["id"], "one-more");
}

#[test]
fn leases_do_not_outlive_the_node_and_no_event_is_lost_or_acked_twice_though_it_is_killed() {
    const EVENTS: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let options = ["--short-runs-max", "0"];
    let node = Node::start_in(&data, &options);
    deploy(&node);
    let mut worker = Worker::new(&node, "worker", &["jobs"]);
    for number in 0..EVENTS {
        pushed(&node, &format!("id={number}"), "x");
    }
    let mut acked = BTreeSet::new();
    let held = worker.lease("jobs", 3_600_000);
    node.kill();
    for round in 0..4 {
        let node = Node::start_in(&data, &options);
        worker.api = node.api.clone();
        assert_eq!(worker.settle("jobs", "ack", &held).code(), "L7005", "it was a lease of another run");
        let pid = node.pid().to_string();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(40 + round * 30));
            assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        });
        // Until the connection breaks.
        while let Ok(leases) = std::panic::catch_unwind(|| worker.leases("jobs", json!({ "count": 2, "wait_ms": 100 })))
        {
            for leased in leases {
                let Ok(reply) = std::panic::catch_unwind(|| worker.settle("jobs", "ack", &leased)) else { break };
                assert_eq!(reply.status, 204, "{}", reply.text());
                let id = leased["event"]["id"].as_str().unwrap().to_owned();
                assert!(acked.insert(id), "what was acked came again: {leased}");
            }
        }
        killer.join().unwrap();
        node.kill();
    }
    let node = Node::start_in(&data, &options);
    worker.api = node.api.clone();
    while let Some(leased) = worker.leases("jobs", json!({ "wait_ms": 200 })).pop() {
        assert_eq!(worker.settle("jobs", "ack", &leased).status, 204);
        assert!(acked.insert(leased["event"]["id"].as_str().unwrap().to_owned()), "{leased}");
    }
    // Acks whose answer broke off with the node may have happened: one in each round at most.
    assert!(acked.len() <= EVENTS && acked.len() + 4 >= EVENTS, "{} of {EVENTS}", acked.len());
    let info = node.queue("jobs");
    assert_eq!((&info["ready"], &info["delayed"], &info["leased"]), (&json!(0), &json!(0), &json!(0)));
}

/// Results of an async route stayed pending for a day where workers outside took the events.
#[test]
fn who_waits_for_a_result_hears_what_a_worker_outside_says() {
    let node = Node::start();
    let function = json!({
        "image": node.upload("hello"), "queue": "jobs", "units": { "maximum": 0 }, "retry": { "attempts": 1 },
        "http": { "route": "/jobs", "async": true, "reply_type": "text/plain" },
    });
    node.deployed(json!({ "function": { "jobs": function } }));
    let worker = Worker::new(&node, "worker", &["jobs"]);
    let asked = || send("POST", &format!("{}/jobs", node.gate), &[], b"x").headers["location"].clone();
    let result = |location: &str| {
        let reply = node.get(location);
        (reply.status, reply.code())
    };
    let [done, broken, late] = [(); 3].map(|()| asked());
    assert_eq!(worker.settle("jobs", "ack", &worker.lease("jobs", 60_000)).status, 204);
    assert_eq!(node.get(&done).text(), "");
    assert_eq!((result(&done).0, result(&broken).0), (200, 202));
    let lost = worker.ask("jobs", "fail", json!({ "lease": worker.lease("jobs", 60_000)["lease"], "reason": "no" }));
    assert_eq!(lost.status, 200, "{}", lost.text());
    assert_eq!(result(&broken), (503, "L6004".to_owned()));
    worker.lease("jobs", 1_000);
    wait_for("the end of the lease", || {
        assert!(worker.leases("jobs", json!({})).is_empty(), "it has had its try");
        (result(&late).0 != 202).then_some(())
    });
    assert_eq!(result(&late).1, "L7005");
}

/// Ended when the test is, however it ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn the_example_in_python_handles_what_comes_also_after_one_of_it_was_killed() {
    let (node, worker) = with_jobs();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/worker/worker.py");
    let start = || {
        let mut command = Command::new("python3");
        command.arg(&script).args([&node.api, "jobs"]).env("LIGHTER_TOKEN", &worker.token).stdout(Stdio::null());
        Process(command.spawn().unwrap())
    };
    let first = start();
    pushed(&node, "count=20", "hello");
    node.queue_is("jobs", |info| info["acked"].as_u64() > Some(0));
    drop(first);
    let _second = start();
    pushed(&node, "count=5", "hello");
    node.queue_is("jobs", |info| info["acked"] == 25);
}
