//! The timer gate with the real node: ticks over restarts and `kill -9`. The queue is paused, so that it holds every
//! tick.

use crate::support::Node;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

const PERIOD_MS: u64 = 100;

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Deploys a function whose ticks nobody takes.
fn deploy(node: &Node, triggers: Value) -> Value {
    let mut function = json!({ "image": node.upload("hello"), "units": { "maximum": 0 } });
    for (key, value) in triggers.as_object().unwrap() {
        function[key] = value.clone();
    }
    node.deploy(json!({ "f": function }))
}

/// All events of the queue, the oldest first.
fn ticks(node: &Node) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = node.api("GET", &format!("/v1/queues/f/events?limit=1000{after}"), &[]).json();
        let Some(next) = page["next"].as_str() else { return all };
        after = format!("&after={next}");
        all.extend(page["events"].as_array().unwrap().iter().map(|listed| listed["event"].clone()));
    }
}

fn wait_for(node: &Node, count: usize) -> Vec<Value> {
    let since = Instant::now();
    loop {
        let ticks = ticks(node);
        if ticks.len() >= count {
            return ticks;
        }
        assert!(since.elapsed() < PATIENCE, "only {} of {count} ticks", ticks.len());
        thread::sleep(Duration::from_millis(10));
    }
}

/// When a tick was due, in periods since 1970. The id says the time once more.
fn due(tick: &Value) -> u64 {
    let time = tick["scheduledtime"].as_str().unwrap();
    assert_eq!(tick["time"], time);
    assert_eq!(tick["id"], format!("{} {time}", tick["subject"].as_str().unwrap()));
    let at: jiff::Timestamp = time.parse().unwrap();
    let at_ms = u64::try_from(at.as_millisecond()).unwrap();
    assert_eq!(at_ms % PERIOD_MS, 0, "{time}");
    at_ms / PERIOD_MS
}

#[test]
fn no_tick_is_lost_or_doubled_by_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // All of these runs are short and end badly.
    let options = ["--short-runs-max", "0"];
    let node = Node::start_in(&data, &options);
    let last = deploy(&node, json!({ "every": { "period": "100ms", "catch_up": "all" } }));
    assert_eq!(last["step"], "done", "{last}");
    let mut seen = wait_for(&node, 3).len();
    node.kill();
    for round in 0..12 {
        let node = Node::start_in(&data, &options);
        seen = wait_for(&node, seen + 2).len();
        // At another place of the period each time.
        thread::sleep(Duration::from_millis(round * 17 % PERIOD_MS));
        node.kill();
    }
    let node = Node::start_in(&data, &options);
    let ticks: Vec<u64> = wait_for(&node, seen + 2).iter().map(due).collect();
    let expected: Vec<u64> = (ticks[0]..).take(ticks.len()).collect();
    assert_eq!(ticks, expected, "each time once, those of the downtimes too");
}

#[test]
fn after_a_restart_one_tick_stands_for_all_unless_the_trigger_says_skip() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = Node::start_in(&data, &[]);
    deploy(&node, json!({ "every": "100ms" }));
    let before = wait_for(&node, 2);
    node.stop();
    thread::sleep(Duration::from_millis(5 * PERIOD_MS));
    let node = Node::start_in(&data, &[]);
    let after = wait_for(&node, before.len() + 3);
    let missed: u64 = after.iter().map(|tick| tick["missed"].as_str().unwrap().parse::<u64>().unwrap()).sum();
    let span = due(after.last().unwrap()) - due(&after[0]) + 1;
    assert_eq!(after.len() as u64 + missed, span, "every time has a tick or is counted by one");
    assert!(missed >= 3, "{missed}");
    node.stop();
}

#[test]
fn a_trigger_that_is_gone_fires_no_more_and_a_changed_one_begins_anew() {
    let node = Node::start();
    deploy(&node, json!({ "every": ["100ms", "1d"], "cron": "* * * * * *" }));
    let ticks = wait_for(&node, 12);
    let subjects: std::collections::BTreeSet<&str> =
        ticks.iter().map(|tick| tick["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects.into_iter().collect::<Vec<_>>(), ["cron * * * * * * UTC", "every 100ms"]);
    assert_eq!((&ticks[0]["source"], &ticks[0]["type"]), (&json!("/timer/f"), &json!("timer.tick")));

    deploy(&node, json!({ "every": "300ms", "queue": "f" }));
    let before = wait_for(&node, 0).len();
    // One of the old ones may have been on its way.
    let after = wait_for(&node, before + 4);
    let new = &after[before + 1..];
    assert!(new.iter().all(|tick| tick["subject"] == "every 300ms" && tick["missed"] == "0"), "{new:?}");
}

#[test]
fn a_schedule_that_cannot_be_read_is_not_deployed() {
    let node = Node::start();
    for (cron, said) in [
        (json!("61 * * * *"), "61 * * * *"),
        (json!({ "schedule": "0 7 * * *", "zone": "Europe/Atlantis" }), "Europe/Atlantis"),
        (json!("0 0 30 2 *"), "no day ever"),
    ] {
        let last = deploy(&node, json!({ "cron": cron }));
        assert_eq!((&last["step"], &last["problem"]["code"]), (&json!("failed"), &json!("L1004")), "{last}");
        assert!(last["problem"]["detail"].as_str().unwrap().contains(said), "{last}");
    }
}

#[test]
fn ticks_wait_while_their_queue_is_full() {
    let node = Node::start();
    let function = json!({ "image": node.upload("hello"), "units": { "maximum": 0 }, "every": { "period": "100ms", "catch_up": "all" } });
    let last = node.deploy_manifest(json!({ "function": { "f": function }, "queue": { "f": { "events_max": 3 } } }));
    assert_eq!(last["step"], "done", "{last}");
    let first = wait_for(&node, 3);
    thread::sleep(Duration::from_millis(5 * PERIOD_MS));
    assert_eq!(ticks(&node), first);
    assert_eq!(node.api("DELETE", "/v1/queues/f/events", &[]).status, 200);
    let after: Vec<u64> = wait_for(&node, 3).iter().map(due).collect();
    assert_eq!(after[0], due(&first[2]) + 1, "nothing was lost while there was no room");
}
