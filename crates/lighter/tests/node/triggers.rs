//! The policy `triggers`, as UniFaaS has it, and the bounds of whole workflows, on a running node.

use crate::support::{Node, wait_for};
use serde_json::{Value, json};

/// A handler that loops when it is told to, for as long as the test takes.
fn looping(node: &Node, queue: &str, units: Value) -> Value {
    json!({
        "image": node.upload("attack"), "queue": queue, "units": units,
        "limits": { "time_ms": 600_000, "cpu_ms": 600_000 }, "retry": { "attempts": 1 },
    })
}

fn triggers(maximum: u32, threshold: u32, grace: &str) -> Value {
    json!({ "policy": "triggers", "maximum": maximum, "threshold": threshold, "grace": grace })
}

fn deployed(node: &Node, manifest: Value) {
    let last = node.deploy_manifest(manifest);
    assert_eq!(last["step"], "done", "{last}");
}

fn pushed(node: &Node, queue: &str, query: &str, data: &str) {
    let reply = node.push(queue, query, data);
    assert_eq!(reply.status, 201, "{}", reply.text());
}

fn workers(node: &Node, queue: &str) -> u64 {
    node.queue(queue)["handler"]["workers"].as_u64().unwrap()
}

#[test]
fn the_first_event_and_the_threshold_start_a_unit_each_until_the_grace_period_or_the_maximum() {
    let node = Node::start();
    let held = looping(&node, "held", triggers(3, 3, "10m"));
    let free = looping(&node, "free", triggers(3, 3, "0ms"));
    deployed(&node, json!({ "function": { "held": held, "free": free } }));
    for queue in ["held", "free"] {
        pushed(&node, queue, "", "loop");
        node.queue_is(queue, |info| info["leased"] == 1);
        // Two wait, the threshold is three.
        pushed(&node, queue, "count=2", "loop");
        assert_eq!(workers(&node, queue), 1);
        pushed(&node, queue, "count=9", "loop");
        node.queue_is(queue, |info| info["leased"].as_u64() >= Some(2));
    }
    node.queue_is("free", |info| info["leased"] == 3);
    pushed(&node, "free", "count=9", "loop");
    pushed(&node, "held", "count=9", "loop");
    assert_eq!((workers(&node, "free"), workers(&node, "held")), (3, 2), "the maximum, and the grace period");
}

/// The grace period used to last on after its unit had ended: an event that came meanwhile waited for the rest of it.
#[test]
fn a_unit_that_ends_sets_the_grace_period_to_zero() {
    let node = Node::start();
    let counter = json!({
        "image": node.upload("counter"), "queue": "counts", "grants": { "stores": ["counters"] },
        "limits": { "time_ms": 600_000 }, "units": triggers(2, 10, "10m"),
    });
    deployed(&node, json!({ "function": { "counter": counter } }));
    for _ in 0..5 {
        pushed(&node, "counts", "", "k");
        node.drained("counts");
        node.queue_is("counts", |info| info["handler"]["workers"] == 0);
    }
    assert_eq!(node.queue("counts")["acked"], 5);
}

#[test]
fn units_end_with_the_queue_and_hung_and_idle_ones_are_ended() {
    let node = Node::start();
    let mut hung = looping(&node, "hung", triggers(1, 10, "1s"));
    hung["limits"] = json!({ "time_ms": 60_000, "cpu_ms": 100 });
    hung["units"]["reuse_calls"] = 100.into();
    hung["units"]["reuse_idle_ms"] = 50.into();
    deployed(&node, json!({ "function": { "hung": hung } }));
    pushed(&node, "hung", "", "loop");
    pushed(&node, "hung", "count=3", "remember");
    let info = node.drained("hung");
    assert_eq!((&info["dead"], &info["acked"]), (&json!(1), &json!(3)));
    let dead = node.api("GET", "/v1/queues/hung/events?part=dead", &[]).json();
    assert!(dead["events"][0]["reason"].as_str().unwrap().starts_with("L3002"), "{dead}");
    node.queue_is("hung", |info| info["handler"]["workers"] == 0);
    let units = || node.api("GET", "/v1/units", &[]).json();
    wait_for("the end of the idle unit", || {
        units().as_array().unwrap().iter().all(|unit| unit["function"] != "hung").then_some(())
    });
}

#[test]
fn functions_of_a_workflow_share_its_maximum() {
    let node = Node::start();
    let function = |queue| looping(&node, queue, triggers(2, 1, "0ms"));
    let manifest = json!({
        "function": { "a": function("a"), "b": function("b") }, "workflow": { "both": { "units_max": 3 } },
    });
    deployed(&node, manifest.clone());
    for queue in ["a", "b"] {
        pushed(&node, queue, "count=5", "loop");
    }
    let both = || [workers(&node, "a"), workers(&node, "b")];
    wait_for("three units", || (both().iter().sum::<u64>() == 3).then_some(()));
    pushed(&node, "a", "count=5", "loop");
    pushed(&node, "b", "count=5", "loop");
    for _ in 0..20 {
        let both = both();
        assert!(both.iter().sum::<u64>() == 3 && both.iter().all(|workers| *workers <= 2), "{both:?}");
    }
    // The bounds go with the manifest that no longer has them, and what was held up begins.
    deployed(&node, json!({ "function": manifest["function"] }));
    wait_for("four units", || (both() == [2, 2]).then_some(()));
}

#[test]
fn one_unit_for_a_whole_workflow_is_handed_from_step_to_step_and_no_event_is_left() {
    let node = Node::start();
    let relay = json!({
        "image": node.upload("relay"), "queue": "in", "config": { "to": "counts" },
        "grants": { "push": ["counts"] }, "units": triggers(1, 10, "1s"),
    });
    let counter = json!({
        "image": node.upload("counter"), "queue": "counts", "grants": { "stores": ["counters"] },
        "units": { "maximum": 1 },
    });
    let manifest = json!({
        "function": { "relay": relay, "counter": counter }, "workflow": { "one": { "units_max": 1 } },
        // The second step has to come to its turn before the first has emptied its queue.
        "queue": { "counts": { "events_max": 4 } },
    });
    deployed(&node, manifest);
    pushed(&node, "in", "count=40", "k");
    node.drained("in");
    node.drained("counts");
    assert_eq!(node.call("counter", "k").text().trim(), "41");
}

#[test]
fn a_queue_that_goes_on_growing_ends_its_workflow_where_the_manifest_says_so() {
    let node = Node::start();
    let slow = looping(&node, "slow", triggers(1, 2, "100ms"));
    let calm = looping(&node, "calm", triggers(1, 2, "100ms"));
    let manifest = json!({
        "function": { "slow": slow, "calm": calm },
        "workflow": {
            "ends": { "functions": ["slow"], "on_overload": "end" },
            "sheds": { "functions": ["calm"] },
        },
    });
    deployed(&node, manifest.clone());
    let push = |queue: &str| node.push(queue, "", "loop").code();
    wait_for("the end of the workflow", || {
        assert_eq!(push("calm"), "", "it may grow until it is full");
        match push("slow").as_str() {
            "" => None,
            code => Some(assert_eq!(code, "L7008")),
        }
    });
    let ended = node.queue("slow")["handler"]["ended"].as_str().unwrap().to_owned();
    assert_eq!(ended, "queue \"slow\" went on growing while \"slow\" had all its units at work");
    wait_for("the line in the node's log", || {
        let said = node.said.lock().unwrap();
        said.iter().any(|line| line.contains("ERROR") && line.contains("went on growing")).then_some(())
    });
    assert_eq!(node.queue("calm")["handler"]["ended"], Value::Null);
    deployed(&node, manifest);
    assert_eq!(push("slow"), "", "it goes on");
}

#[test]
fn what_contradicts_itself_is_refused_with_what_helps() {
    let node = Node::start();
    let refused = |units: Value, workflow: Value, code: &str, hint: &str| {
        let function = json!({ "image": node.upload("attack"), "queue": "q", "units": units });
        let mut manifest = json!({ "function": { "f": function } });
        if !workflow.is_null() {
            manifest["workflow"] = json!({ "w": workflow });
        }
        let reply = node.api("POST", "/v1/deployments", manifest.to_string().as_bytes());
        assert_eq!(reply.code(), code, "{}", reply.text());
        assert!(reply.json()["hint"].as_str().unwrap().contains(hint), "{}", reply.text());
    };
    refused(triggers(1, 0, "1s"), Value::Null, "L1004", "1 starts a unit");
    refused(triggers(1, 1, "1h"), Value::Null, "L1005", "shorten `units.grace`");
    refused(triggers(3, 1, "1s"), json!({ "units_max": 2 }), "L1005", "raise units_max");
    refused(json!({}), json!({ "on_overload": "end" }), "L1005", "policy = \"triggers\"");
}
