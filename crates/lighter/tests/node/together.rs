//! Events of one function that are handled together: `units.batch`.

use crate::events::{attack, counter, effects_happen_once_though_the_node_is_killed};
use crate::support::Node;
use serde_json::{Value, json};

/// One worker that takes as many events as it may.
fn batched(mut function: Value, reuse_calls: u64) -> Value {
    function["units"] = json!({ "batch": 32, "reuse_calls": reuse_calls, "maximum": 1 });
    function
}

impl Node {
    /// Pushes while nobody handles, so that all of it waits when somebody begins.
    fn waiting(&self, queue: &str, pushes: &[(&str, &str)]) {
        assert_eq!(self.api("POST", "/v1/pause", json!({ "queues": [queue] }).to_string().as_bytes()).status, 200);
        pushes.iter().for_each(|(query, data)| self.pushed(queue, query, data));
        assert_eq!(self.api("POST", "/v1/resume", json!({ "queues": [queue] }).to_string().as_bytes()).status, 200);
    }
}

#[test]
fn each_event_of_a_batch_has_its_effect_once_and_counts_as_a_call() {
    let node = Node::start();
    for (reuse_calls, before) in [(1, 0), (1_000, 401)] {
        node.deployed(json!({ "function": { "counter": batched(counter(&node), reuse_calls) } }));
        // How long a handling takes is known from the first ones.
        node.pushed("counts", "count=100", "all");
        node.drained("counts");
        node.waiting("counts", &[("count=300", "all")]);
        let info = node.drained("counts");
        assert_eq!((&info["dead"], &info["retried"]), (&json!(0), &json!(0)));
        assert_eq!(node.count("all"), before + 401);
    }
    let stats = node.api("GET", "/v1/stats", &[]).json();
    let calls = stats.as_array().unwrap().iter().map(|function| function["calls"].as_u64().unwrap());
    assert_eq!(calls.sum::<u64>(), 802, "{stats}");
}

#[test]
fn what_fails_in_a_batch_is_decided_alone_and_costs_its_neighbours_nothing() {
    let node = Node::start();
    let mut attacker = batched(attack(&node, "hits"), 1_000);
    attacker["grants"] = json!({ "stores": ["attack"], "push": ["attacked"] });
    node.deployed(json!({ "function": { "attack": attacker }, "queue": { "attacked": {} } }));
    node.pushed("hits", "count=50", "count");
    node.drained("hits");
    // A trap, a failure, a limit and a promise to retry, each in the middle of others.
    let between: &[(&str, &str)] = &[
        ("count=40", "count"),
        ("id=trap", "push-then-trap 3"),
        ("count=10", "count"),
        ("id=invalid", "invalid"),
        ("count=10", "count"),
        ("id=loop", "loop"),
        ("id=retry", "push-then-retry 2"),
        ("count=10", "count"),
        ("id=write", "store-set-then-trap"),
        ("count=10", "push 1"),
    ];
    node.waiting("hits", between);
    let info = node.drained("hits");
    assert_eq!(node.call("attack", "count").text(), "121", "each of those that went well counted once");
    assert_eq!(node.queue("attacked")["ready"], 10, "what failed pushed nothing");
    assert_eq!((&info["acked"], &info["dead"]), (&json!(130), &json!(5)));
    let tries: Vec<(Value, Value)> =
        node.dead("hits").iter().map(|dead| (dead["event"]["id"].clone(), dead["tries"].clone())).collect();
    for (id, expected) in [("trap", 3), ("invalid", 1), ("loop", 3), ("retry", 3), ("write", 3)] {
        assert!(tries.contains(&(json!(id), json!(expected))), "{id}: a try together with others is none: {tries:?}");
    }
}

#[test]
fn one_that_takes_long_holds_up_nobody_behind_it() {
    let node = Node::start();
    let mut attacker = batched(attack(&node, "hits"), 1_000);
    attacker["grants"] = json!({ "stores": ["attack"] });
    attacker["limits"] = json!({ "time_ms": 60_000, "cpu_ms": 60_000 });
    attacker["units"]["maximum"] = json!(2);
    node.deployed(json!({ "function": { "attack": attacker } }));
    node.pushed("hits", "count=50", "count");
    node.drained("hits");
    node.waiting("hits", &[("count=20", "count"), ("id=long", "loop"), ("count=20", "count")]);
    node.queue_is("hits", |info| info["acked"] == 90 && info["leased"] == 1);
    assert_eq!(node.call("attack", "count").text(), "91");
}

#[test]
fn a_conflict_with_a_call_repeats_no_effect() {
    let node = Node::start();
    let mut function = batched(counter(&node), 1_000);
    function["http"] = json!([{ "route": "/count" }]);
    node.deployed(json!({ "function": { "counter": function } }));
    node.pushed("counts", "count=100", "both");
    node.drained("counts");
    node.waiting("counts", &[("count=1000", "both")]);
    let mut called = 0;
    while node.queue("counts")["acked"] != 1_100 {
        // One that lost every time says so, and has done nothing.
        called += u64::from(node.api("POST", "/v1/functions/counter/call", b"both").status == 200);
    }
    assert_eq!(node.count("both"), 1_101 + called);
    assert_eq!(node.queue("counts")["dead"], 0);
}

/// What a step does is seen in its order by what it pushes.
#[test]
fn events_of_one_key_are_handled_in_their_order() {
    let node = Node::start();
    let relay = json!({
        "image": node.upload("relay"), "queue": "in", "config": { "to": "out", "count": "relayed" },
        "grants": { "push": ["out"], "stores": ["counters"] },
        "units": { "batch": 32, "reuse_calls": 1_000, "maximum": 3 },
    });
    node.deployed(json!({ "function": { "relay": relay }, "queue": { "in": { "order": "key" }, "out": {} } }));
    node.pushed("in", "count=60&key=first", "x");
    node.drained("in");
    let queries: Vec<String> = (0..90).map(|number| format!("key=k{0}&subject={0}-{number}", number % 3)).collect();
    let pushes: Vec<(&str, &str)> = queries.iter().map(|query| (query.as_str(), "x")).collect();
    node.waiting("in", &pushes);
    node.drained("in");
    let reply = node.api("GET", "/v1/queues/out/events?limit=1000", &[]).json();
    let subject = |event: &Value| event["event"]["subject"].as_str().unwrap_or_default().to_owned();
    let out: Vec<String> = reply["events"].as_array().unwrap().iter().map(subject).collect();
    for key in 0..3 {
        let lead = format!("{key}-");
        let numbers: Vec<u32> = out.iter().filter_map(|subject| subject.strip_prefix(&lead)?.parse().ok()).collect();
        assert_eq!(numbers.len(), 30, "{out:?}");
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}

#[test]
fn every_acknowledged_event_has_its_effect_exactly_once_though_the_node_is_killed_in_batches() {
    effects_happen_once_though_the_node_is_killed(&json!({ "batch": 32, "reuse_calls": 1_000 }));
}
