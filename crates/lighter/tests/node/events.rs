//! Queued events, from the push to what they leave in the store.

use crate::support::{Node, Reply};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

impl Node {
    pub fn deployed(&self, manifest: Value) {
        let last = self.deploy_manifest(manifest);
        assert_eq!(last["step"], "done", "{last}");
    }

    pub fn push(&self, queue: &str, query: &str, data: &str) -> Reply {
        self.api("POST", &format!("/v1/queues/{queue}/events?{query}"), data.as_bytes())
    }

    pub fn pushed(&self, queue: &str, query: &str, data: &str) {
        let reply = self.push(queue, query, data);
        assert_eq!(reply.status, 201, "{}", reply.text());
    }

    pub fn queue(&self, queue: &str) -> Value {
        let reply = self.api("GET", &format!("/v1/queues/{queue}"), &[]);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Waits until the queue is as wanted.
    pub fn queue_is(&self, queue: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let since = Instant::now();
        loop {
            let info = self.queue(queue);
            if wanted(&info) {
                return info;
            }
            assert!(since.elapsed() < PATIENCE, "queue {queue} stays {info}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until all is handled, or dead.
    pub fn drained(&self, queue: &str) -> Value {
        self.queue_is(queue, |info| ["ready", "delayed", "leased"].iter().all(|part| info[part] == 0))
    }

    pub fn dead(&self, queue: &str) -> Vec<Value> {
        let reply = self.api("GET", &format!("/v1/queues/{queue}/events?part=dead&limit=1000"), &[]);
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["events"].as_array().unwrap().clone()
    }

    /// What the function `counter` has counted under the key, this look among it.
    pub fn count(&self, key: &str) -> u64 {
        self.call("counter", key).text().trim().parse().unwrap()
    }
}

pub fn counter(node: &Node) -> Value {
    json!({ "image": node.upload("counter"), "queue": "counts", "grants": { "stores": ["counters"] } })
}

pub fn attack(node: &Node, queue: &str) -> Value {
    json!({
        "image": node.upload("attack"), "queue": queue,
        "retry": { "attempts": 3, "pause": "10ms", "pause_max": "20ms" }, "limits": { "time_ms": 20_000, "cpu_ms": 100 },
    })
}

#[test]
fn an_event_that_was_pushed_is_handled_once() {
    let node = Node::start();
    node.deployed(json!({ "function": { "counter": counter(&node) } }));
    let reply = node.push("counts", "id=mine&subject=s", "a");
    assert_eq!(reply.json(), json!({ "queue": "counts", "ids": ["mine"], "duplicates": 0 }));
    node.pushed("counts", "count=9", "a");
    let info = node.drained("counts");
    assert_eq!((&info["acked"], &info["dead"]), (&json!(10), &json!(0)));
    assert_eq!(info["handler"]["name"], "counter");
    assert_eq!(node.count("a"), 11);
    node.queue_is("counts", |info| info["handler"]["workers"] == 0);
}

#[test]
fn a_function_with_a_trigger_has_a_queue_of_its_own_name() {
    let node = Node::start();
    let function =
        json!({ "image": node.upload("counter"), "every": [{ "period": "1d" }], "grants": { "stores": ["counters"] } });
    node.deployed(json!({ "function": { "counter": function } }));
    assert_eq!(node.api("POST", "/v1/functions/counter/events", b"k").json()["queue"], "counter");
    node.drained("counter");
    assert_eq!(node.count("k"), 2);
    let info = node.api("GET", "/v1/functions/counter", &[]).json();
    assert_eq!((&info["queue"], &info["triggers"]), (&json!("counter"), &json!(["every 1d"])));
}

#[test]
fn a_queue_that_deduplicates_takes_an_id_once() {
    let node = Node::start();
    node.deployed(json!({ "function": { "counter": counter(&node) }, "queue": { "counts": { "deduplicate": "1h" } } }));
    let duplicates = [0, 1].map(|_| node.push("counts", "id=x", "d").json()["duplicates"].clone());
    assert_eq!(duplicates, [0, 1]);
    node.drained("counts");
    assert_eq!(node.push("counts", "id=x", "d").json()["duplicates"], 1);
    assert_eq!(node.count("d"), 2);
}

#[test]
fn a_cloud_event_is_taken_as_it_is_and_what_is_none_is_refused() {
    let node = Node::start();
    node.deployed(json!({ "function": { "counter": counter(&node) } }));
    let token = format!("Bearer {}", node.token);
    let url = format!("{}/v1/queues/counts/events", node.api);
    let send = |headers: &[(&str, &str)], body: &str| {
        let headers: Vec<_> = [("authorization", token.as_str())].into_iter().chain(headers.iter().copied()).collect();
        crate::support::send("POST", &url, &headers, body.as_bytes())
    };
    let batch = r#"[{"specversion":"1.0","id":"1","source":"/s","type":"t","data":"c"},
                    {"specversion":"1.0","id":"2","source":"/s","type":"t","data":"c"}]"#;
    let reply = send(&[("content-type", "application/cloudevents-batch+json")], batch);
    assert_eq!((reply.status, &reply.json()["ids"]), (201, &json!(["1", "2"])), "{}", reply.text());
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "3"),
        ("ce-source", "/s"),
        ("ce-type", "t"),
        ("content-type", "text/plain"),
    ];
    assert_eq!(send(&binary, "c").status, 201);
    assert_eq!(send(&binary[..3], "c").code(), "L7003");
    assert_eq!(node.push("none", "", "x").code(), "L7001");
    assert_eq!(node.push("counts", "nonsense=1", "x").code(), "L4009");
    let info = node.drained("counts");
    assert_eq!(info["pushed"], 3);
}

#[test]
fn what_fails_is_tried_again_later_and_then_a_dead_letter_that_can_be_replayed() {
    let node = Node::start();
    node.deployed(json!({ "function": { "attack": attack(&node, "hits") } }));
    for data in ["retry", "unreachable", "loop", "invalid", "fatal"] {
        node.pushed("hits", &format!("id={data}"), data);
    }
    let info = node.drained("hits");
    assert_eq!((&info["dead"], &info["acked"], &info["retried"]), (&json!(5), &json!(0), &json!(6)));
    let mut dead: Vec<(String, u64, String)> = node
        .dead("hits")
        .iter()
        .map(|letter| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let code = text(&letter["reason"]).split(':').next().unwrap().to_owned();
            (text(&letter["event"]["id"]), letter["tries"].as_u64().unwrap(), code)
        })
        .collect();
    dead.sort();
    let wanted = [
        ("fatal", 1, "L6005"),
        ("invalid", 1, "L6003"),
        ("loop", 3, "L3002"),
        ("retry", 3, "L6004"),
        ("unreachable", 3, "L6001"),
    ];
    assert_eq!(dead, wanted.map(|(id, attempt, code)| (id.to_owned(), attempt, code.to_owned())));
    let log = node.api("GET", "/v1/functions/attack/logs", &[]).text();
    assert!(log.contains("event \\\"fatal\\\" from") && log.contains("is a dead letter"), "{log}");

    // Repaired, and replayed: first one, then all that are left.
    let mut repaired = attack(&node, "hits");
    repaired["image"] = node.upload("relay").into();
    node.deployed(json!({ "function": { "attack": repaired } }));
    let first = node.dead("hits")[0]["sequence"].clone();
    let replay = |body: Value| {
        node.api("POST", "/v1/queues/hits/replay", body.to_string().as_bytes()).json()["replayed"].clone()
    };
    assert_eq!(replay(json!({ "sequences": [first] })), 1);
    assert_eq!(replay(json!({})), 4);
    let info = node.drained("hits");
    assert_eq!((&info["dead"], &info["acked"]), (&json!(0), &json!(5)));
}

#[test]
fn dead_letters_are_shown_and_replayed_by_reason_or_with_other_data_and_not_for_ever() {
    let node = Node::start();
    node.deployed(json!({ "function": { "attack": attack(&node, "hits") } }));
    for data in ["invalid", "fatal"] {
        node.pushed("hits", &format!("id={data}"), data);
    }
    node.drained("hits");
    let shown = node.api("GET", "/v1/queues/hits/events?part=dead&reason=L6003", &[]).json();
    assert_eq!((shown["events"].as_array().unwrap().len(), &shown["events"][0]["event"]["id"]), (1, &json!("invalid")));
    let replay = |body: &Value| node.api("POST", "/v1/queues/hits/replay", body.to_string().as_bytes()).json();
    // A dry run changes nothing.
    assert_eq!(replay(&json!({ "reason": "L6003", "dry_run": true }))["replayed"], 1);
    assert_eq!(node.queue("hits")["dead"], 2);
    // It dies again each time, until it stays.
    for time in 1..=6 {
        let reply = replay(&json!({ "reason": "L6003" }));
        assert_eq!(
            (reply["replayed"].clone(), reply["stayed"].clone()),
            if time <= 5 { (json!(1), json!(0)) } else { (json!(0), json!(1)) }
        );
        node.drained("hits");
    }
    let letter = node.dead("hits").into_iter().find(|letter| letter["event"]["id"] == "invalid").unwrap();
    assert_eq!(letter["event"]["replays"], "5");
    // Other data is for one alone.
    assert_eq!(replay(&json!({ "data": "fatal" }))["code"], "L4009");
    let mended = json!({ "sequences": [letter["sequence"]], "data": "fatal", "force": true });
    assert_eq!(replay(&mended)["replayed"], 1);
    node.drained("hits");
    let codes: Vec<Value> = node.dead("hits").iter().map(|letter| letter["reason"].clone()).collect();
    assert!(codes.iter().all(|reason| reason.as_str().unwrap().starts_with("L6005")), "{codes:?}");
}

#[test]
fn a_delayed_event_waits_and_can_be_seen_and_purged() {
    let node = Node::start();
    node.deployed(json!({ "function": { "counter": counter(&node) } }));
    node.pushed("counts", "delay_ms=3600000&id=later&type=t&key=k", "x");
    let since = Instant::now();
    node.pushed("counts", "delay_ms=300", "soon");
    node.queue_is("counts", |info| info["acked"] == 1);
    assert!(since.elapsed() >= Duration::from_millis(300) && since.elapsed() < Duration::from_secs(5));
    let page = node.api("GET", "/v1/queues/counts/events?part=delayed", &[]).json();
    let event = &page["events"][0]["event"];
    assert_eq!((&event["id"], &event["type"], &event["partitionkey"]), (&json!("later"), &json!("t"), &json!("k")));
    assert_eq!(node.api("DELETE", "/v1/queues/counts/events?part=delayed", &[]).json()["removed"], 1);
    assert_eq!(node.queue("counts")["delayed"], 0);
}

#[test]
fn a_full_queue_refuses_and_its_neighbours_do_not_notice() {
    let node = Node::start();
    let mut paused = counter(&node);
    paused["queue"] = "small".into();
    paused["units"] = json!({ "maximum": 0 });
    let manifest = json!({
        "function": { "counter": counter(&node), "paused": paused }, "queue": { "small": { "events_max": 3 } },
    });
    node.deployed(manifest);
    node.pushed("small", "count=3", "x");
    let reply = node.push("small", "", "x");
    assert_eq!((reply.status, reply.code().as_str()), (503, "L7002"), "{}", reply.text());
    assert_eq!(node.push("small", "count=2", "x").code(), "L7002");
    let info = node.queue("small");
    assert_eq!((&info["ready"], &info["handler"]["workers"]), (&json!(3), &json!(0)));
    node.pushed("counts", "", "free");
    node.drained("counts");
}

/// The handler hears of it when it pushes, and says "retry".
#[test]
fn an_event_whose_push_finds_a_full_queue_waits_and_no_try_is_counted() {
    let node = Node::start();
    let mut paused = counter(&node);
    paused["queue"] = "small".into();
    paused["units"] = json!({ "maximum": 0 });
    let relay = json!({
        "image": node.upload("relay"), "queue": "in", "config": { "to": "small" }, "grants": { "push": ["small"] },
        "retry": { "attempts": 1 },
    });
    let with = |events_max: u32| {
        json!({
            "function": { "relay": relay, "paused": paused }, "queue": { "small": { "events_max": events_max } },
        })
    };
    node.deployed(with(1));
    node.pushed("small", "", "x");
    node.pushed("in", "", "y");
    let waiting = node.queue_is("in", |info| info["handler"]["postponed"].as_u64() > Some(1) && info["ready"] == 1);
    assert_eq!((&waiting["dead"], &waiting["retried"]), (&json!(0), &json!(0)), "{waiting}");
    node.deployed(with(2));
    assert_eq!(node.drained("in")["acked"], 1);
    assert_eq!(node.queue("small")["ready"], 2);
}

#[test]
fn a_full_queue_ends_its_workflow_where_the_manifest_says_so_until_it_is_deployed_again() {
    let node = Node::start();
    let mut slow = attack(&node, "slow");
    slow["limits"]["time_ms"] = 60_000.into();
    slow["limits"]["cpu_ms"] = 60_000.into();
    slow["units"] = json!({ "maximum": 1 });
    let relay = json!({ "image": node.upload("relay"), "config": { "to": "slow" }, "grants": { "push": ["slow"] } });
    let with = |key: &str, value: &str| {
        let mut function = relay.clone();
        function[key] = value.into();
        function
    };
    let feeder = with("queue", "in");
    let manifest = json!({
        "function": { "slow": slow, "feeder": feeder },
        "queue": { "slow": { "events_max": 2, "when_full": "end" } },
    });
    node.deployed(manifest.clone());
    node.pushed("slow", "", "loop");
    node.queue_is("slow", |info| info["leased"] == 1);
    node.pushed("slow", "", "x");
    // The refusals go on until the shell has seen one.
    let since = Instant::now();
    let code = loop {
        let code = node.push("slow", "", "x").code();
        if code != "L7002" {
            break code;
        }
        assert!(since.elapsed() < PATIENCE);
    };
    assert_eq!(code, "L7008");
    assert_eq!(node.push("in", "", "x").code(), "L7008", "the whole workflow has ended");
    assert!(node.queue("in")["handler"]["ended"].as_str().unwrap().contains("was full"));
    // What functions push was taken, though nobody handled it.
    let functions = json!({ "door": with("http", "/door"), "later": with("queue", "later") });
    node.deployed(json!({ "function": functions, "queue": manifest["queue"] }));
    assert_eq!(node.call("door", "x").code(), "L7008");
    node.pushed("later", "", "x");
    let is_put_off = |info: &Value| info["handler"]["postponed"].as_u64() > Some(1) && info["ready"] == 1;
    let later = node.queue_is("later", is_put_off);
    assert_eq!((&later["dead"], &node.queue("slow")["ready"]), (&json!(0), &json!(1)));
    let data = node.data.clone();
    let folder = node.kill();
    let node = Node::start_in(&data, &[]);
    assert_eq!(node.push("in", "", "x").code(), "L7008", "a restart does not bring it back");
    assert_eq!(node.api("DELETE", "/v1/queues/slow/events", &[]).json()["removed"], 2);
    node.deployed(manifest);
    node.pushed("in", "", "x");
    node.drained("in");
    assert_eq!(node.drained("later")["acked"], 1, "it waited for the deployment, and no try was counted");
    drop((node, folder));
}

#[test]
fn poison_time_outs_and_self_pushes_do_not_starve_others() {
    let node = Node::start();
    let mut attacker = attack(&node, "hits");
    attacker["retry"]["attempts"] = 2.into();
    let echo = json!({
        "image": node.upload("relay"), "queue": "echo", "config": { "to": "echo" }, "grants": { "push": ["echo"] },
    });
    let queues = json!({ "echo": { "cycle": true } });
    node.deployed(
        json!({ "function": { "attack": attacker, "echo": echo, "counter": counter(&node) }, "queue": queues }),
    );
    let victims = |prefix: &str| {
        let since = Instant::now();
        for number in 0..20 {
            node.pushed("counts", &format!("id={prefix}{number}"), "victim");
        }
        node.drained("counts");
        since.elapsed()
    };
    // What it takes on this machine, busy as it may be.
    let alone = victims("alone");
    node.pushed("echo", "count=50", "round");
    node.pushed("hits", "count=40", "unreachable");
    node.pushed("hits", "count=20", "loop");
    let beside_them = victims("n");
    assert!(beside_them < Duration::from_secs(10) + 10 * alone, "{beside_them:?}, and {alone:?} alone");
    assert_eq!(node.count("victim"), 41);
    let info = node.drained("hits");
    assert_eq!(info["dead"], 60);
    assert_eq!(node.queue("echo")["dead"], 0);
    assert!(node.queue("echo")["acked"].as_u64().unwrap() > 50);
}

#[test]
fn a_new_version_takes_over_while_events_are_in_flight_and_none_is_lost() {
    let node = Node::start();
    let version = |to: &str| {
        let image = node.upload("relay");
        let config = json!({ "to": to, "count": to });
        let grants = json!({ "push": ["old", "new"], "stores": ["counters"] });
        json!({ "image": image, "queue": "in", "config": config, "grants": grants, "units": { "maximum": 4 } })
    };
    let read = json!({ "image": node.upload("counter"), "grants": { "stores": ["counters"] } });
    let queues = json!({ "old": {}, "new": {} });
    node.deployed(json!({ "function": { "relay": version("old"), "counter": read }, "queue": queues }));
    for round in 0..10 {
        node.pushed("in", "count=100", "x");
        if round == 4 {
            node.deployed(json!({ "function": { "relay": version("new") }, "queue": queues }));
        }
    }
    node.drained("in");
    let ready = |queue: &str| node.queue(queue)["ready"].as_u64().unwrap();
    let (old, new) = (ready("old"), ready("new"));
    assert_eq!(old + new, 1_000);
    assert!(new >= 500, "{new} were handled by the new version");
    // The store and the queues tell the same story: a handling is of one version.
    assert_eq!((node.count("old"), node.count("new")), (old + 1, new + 1));
}

#[test]
fn a_handler_that_is_removed_leaves_its_queue_to_the_next_one() {
    let node = Node::start();
    node.deployed(json!({ "function": { "counter": counter(&node) } }));
    let mut paused = counter(&node);
    paused["units"] = json!({ "maximum": 0 });
    node.deployed(json!({ "function": { "counter": paused } }));
    node.pushed("counts", "count=5", "kept");
    assert_eq!(node.api("DELETE", "/v1/queues/counts", &[]).code(), "L1005");
    assert_eq!(node.api("DELETE", "/v1/functions/counter", &[]).status, 204);
    let info = node.queue("counts");
    assert_eq!((&info["ready"], &info["handler"]), (&json!(5), &Value::Null));
    node.deployed(json!({ "function": { "counter": counter(&node) } }));
    node.drained("counts");
    assert_eq!(node.count("kept"), 6);
    assert_eq!(node.api("DELETE", "/v1/functions/counter", &[]).status, 204);
    assert_eq!(node.api("DELETE", "/v1/queues/counts", &[]).status, 204);
    assert_eq!(node.api("GET", "/v1/queues/counts", &[]).code(), "L7001");
}

#[test]
fn two_manifests_cannot_have_one_queue() {
    let node = Node::start();
    node.deployed(json!({ "function": { "counter": counter(&node) }, "queue": { "counts": { "events_max": 5 } } }));
    let other = json!({ "image": node.upload("hello"), "queue": "counts" });
    let last = node.deploy_manifest(json!({ "function": { "other": other } }));
    assert_eq!((&last["step"], &last["problem"]["code"]), (&json!("failed"), &json!("L1005")), "{last}");
    assert!(last["problem"]["detail"].as_str().unwrap().contains("\"counter\""), "{last}");
    let pusher = json!({ "image": node.upload("relay"), "grants": { "push": ["counts"] } });
    let last =
        node.deploy_manifest(json!({ "function": { "pusher": pusher }, "queue": { "counts": { "events_max": 6 } } }));
    assert_eq!(last["problem"]["code"], "L1005", "{last}");
    assert_eq!(node.api("GET", "/v1/functions/pusher", &[]).code(), "L2001", "nothing of it was deployed");
    node.deployed(json!({ "function": { "counter": counter(&node) }, "queue": { "counts": { "events_max": 6 } } }));
    assert_eq!(node.queue("counts")["configuration"]["events_max"], 6);
}

#[test]
fn a_graceful_stop_lets_handlings_end_and_keeps_the_rest() {
    let node = Node::start();
    node.deployed(json!({ "function": { "counter": counter(&node) } }));
    node.pushed("counts", "count=1000", "many");
    node.pushed("counts", "count=1000", "many");
    let data = node.data.clone();
    let folder = node.stop();
    let node = Node::start_in(&data, &[]);
    node.drained("counts");
    assert_eq!(node.count("many"), 2_001);
    drop((node, folder));
}

#[test]
fn every_acknowledged_event_has_its_effect_exactly_once_though_the_node_is_killed() {
    effects_happen_once_though_the_node_is_killed(&json!({}));
}

/// Both functions have these `units`.
pub fn effects_happen_once_though_the_node_is_killed(units: &Value) {
    const ROUNDS: u64 = 6;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // All of these runs are short and end badly.
    let options = ["--short-runs-max", "0"];
    let mut acknowledged = 0;
    let mut begun = 0;
    for round in 0..ROUNDS {
        let node = Node::start_in(&data, &options);
        if round == 0 {
            // Each event goes through two queues and is counted at both.
            let relay = json!({
                "image": node.upload("relay"), "queue": "in", "config": { "to": "counts", "count": "relayed" },
                "grants": { "push": ["counts"], "stores": ["counters"] }, "units": units,
            });
            let mut counter = counter(&node);
            counter["units"] = units.clone();
            node.deployed(json!({ "function": { "relay": relay, "counter": counter } }));
        }
        let pid = node.pid().to_string();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150 + round * 90));
            assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        });
        loop {
            begun += 10;
            match std::panic::catch_unwind(|| node.push("in", "count=10", "all").status) {
                Ok(201) => acknowledged += 10,
                // The connection broke: the node is gone.
                _ => break,
            }
        }
        killer.join().unwrap();
        node.kill();
    }
    let node = Node::start_in(&data, &options);
    node.drained("in");
    node.drained("counts");
    let (relayed, counted) = (node.count("relayed") - 1, node.count("all") - 1);
    assert!(acknowledged > 0 && (acknowledged..=begun).contains(&counted), "{counted} of {acknowledged} to {begun}");
    assert_eq!(relayed, counted, "both effects of a handling, or none");
    assert_eq!((&node.queue("in")["dead"], &node.queue("counts")["dead"]), (&json!(0), &json!(0)));
}

/// A queue without workers got a new shell as soon as the first was gone, and went on leasing while the node ended.
#[test]
fn a_node_that_ends_leases_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut node = Node::start_in(&data, &[]);
    node.deploy_one("attack", "attack", json!({ "limits": { "time_ms": 3_000, "cpu_ms": 60_000 } }));
    node.deploy_one("f", "hello", json!({ "every": "100ms" }));
    node.queue_is("f", |queue| queue["acked"].as_u64() > Some(0));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| node.call("attack", "loop").code());
        // Until it runs.
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(node.api("POST", "/v1/stop", &[]).status, 202);
        assert_eq!(call.join().unwrap(), "L3001", "it keeps the node from its end for seconds");
    });
    assert!(node.wait());
    let node = Node::start_in(&data, &["--paused"]);
    let ready = node.queue("f")["ready"].as_u64().unwrap();
    assert!(ready >= 10, "{ready} ticks of three seconds wait");
}
