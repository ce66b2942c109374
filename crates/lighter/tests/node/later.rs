//! Calls that are answered later, with the real node.

use crate::support::{Node, Reply, send};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Deploys a fixture under the async route `/NAME`.
fn deploy(node: &Node, name: &str, image: &str, more: Value, queue: Value) {
    let mut function = json!({
        "image": node.upload(image),
        "http": { "route": format!("/{name}"), "async": true, "reply_type": "text/plain" },
        "retry": { "attempts": 3, "pause": "10ms", "pause_max": "20ms" },
    });
    for (key, value) in more.as_object().unwrap() {
        function[key] = value.clone();
    }
    let last = node.deploy_manifest(json!({ "function": { name: function }, "queue": { name: queue } }));
    assert_eq!(last["step"], "done", "{last}");
}

fn post(node: &Node, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    send("POST", &format!("{}{path}", node.gate), headers, body.as_bytes())
}

fn location(reply: &Reply) -> String {
    assert_eq!(reply.status, 202, "{}", reply.text());
    reply.headers["location"].clone()
}

/// Asks until the call has ended.
fn result(node: &Node, location: &str) -> Reply {
    let since = Instant::now();
    loop {
        let reply = node.get(location);
        if reply.status != 202 {
            return reply;
        }
        assert_eq!((reply.headers["retry-after"].as_str(), &reply.json()["state"]), ("1", &json!("pending")));
        assert!(since.elapsed() < PATIENCE, "{location} is still pending");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_request_is_taken_at_once_and_its_reply_read_later() {
    let node = Node::start();
    deploy(&node, "hello", "hello", json!({}), json!({}));
    let taken = post(&node, "/hello", &[], "later");
    let location = location(&taken);
    assert!(location.starts_with("/hello/results/") && location.len() == "/hello/results/".len() + 32, "{location}");
    assert_eq!(taken.json(), json!({ "results": [location] }));
    let reply = result(&node, &location);
    assert_eq!((reply.status, reply.text().as_str()), (200, "hello, later\n"));
    assert_eq!(reply.headers["content-type"], "text/plain");
    assert_eq!(node.get(&location).text(), "hello, later\n");

    let other = post(&node, "/hello?name=query", &[], "");
    assert_eq!(result(&node, &self::location(&other)).text(), "hello, query\n");
    assert_eq!(node.get("/hello/results/00000000000000000000000000000000").code(), "L7006");
    assert_eq!(node.get("/hello/results/x").code(), "L7006");
    assert_eq!(post(&node, &location, &[], "").code(), "L4002");
}

#[test]
fn a_wasi_http_function_answers_later_as_it_would_have_at_once() {
    let node = Node::start();
    deploy(&node, "web", "hello-http", json!({ "http": [{ "route": "/web", "async": true }, "/now"] }), json!({}));
    let now = node.get("/now?name=x");
    let later = result(&node, &location(&post(&node, "/web?name=x", &[], "")));
    assert_eq!((later.status, later.text()), (now.status, now.text()));
    assert_eq!(later.headers.get("content-type"), now.headers.get("content-type"));
}

#[test]
fn a_call_that_fails_says_why_once_its_tries_are_used_up() {
    let node = Node::start();
    deploy(&node, "attack", "attack", json!({}), json!({}));
    for (word, code, status) in
        [("invalid", "L6003", 422), ("fatal", "L6005", 500), ("retry", "L6004", 503), ("unreachable", "L6001", 500)]
    {
        let reply = result(&node, &location(&post(&node, "/attack", &[], word)));
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{word}: {}", reply.text());
    }
    let reply = result(&node, &location(&post(&node, "/attack", &[], "big-reply 2000000")));
    assert_eq!(reply.code(), "L3011");
    assert_eq!(node.api("GET", "/v1/queues/attack", &[]).json()["dead"], 4);
}

#[test]
fn a_request_that_is_sent_again_is_taken_once_where_the_queue_remembers() {
    let node = Node::start();
    let count = json!({ "grants": { "stores": ["counters"] } });
    deploy(&node, "once", "counter", count.clone(), json!({ "deduplicate": "1h" }));
    deploy(&node, "each", "counter", count, json!({}));
    let key = [("idempotency-key", "order-7")];
    let first = location(&post(&node, "/once", &key, "a"));
    assert_eq!(result(&node, &first).text(), "1\n");
    assert_eq!(location(&post(&node, "/once", &key, "a")), first);
    assert_eq!(result(&node, &first).text(), "1\n");
    let event = [("ce-specversion", "1.0"), ("ce-id", "7"), ("ce-source", "/s"), ("ce-type", "t")];
    let third = location(&post(&node, "/once", &event, "a"));
    assert_eq!(result(&node, &third).text(), "2\n");
    assert_eq!(location(&post(&node, "/once", &event, "a")), third);

    let [one, two] = [(); 2].map(|()| location(&post(&node, "/each", &key, "b")));
    assert_ne!(one, two);
    let mut counts = [result(&node, &one).text(), result(&node, &two).text()];
    counts.sort();
    assert_eq!(counts, ["1\n", "2\n"]);
    assert_eq!(post(&node, "/each", &[("idempotency-key", "")], "b").code(), "L7003");
}

#[test]
fn a_batch_has_a_result_for_each_of_its_events_or_none_at_all() {
    let node = Node::start();
    deploy(&node, "hello", "hello", json!({}), json!({ "events_max": 2 }));
    let event = |id: &str| json!({ "specversion": "1.0", "id": id, "source": "/s", "type": "t", "datacontenttype": "text/plain", "data": id });
    let batch = |events: &[Value]| {
        let body = json!(events).to_string();
        post(&node, "/hello", &[("content-type", "application/cloudevents-batch+json")], &body)
    };
    let taken = batch(&[event("a"), event("b")]);
    assert!(!taken.headers.contains_key("location"));
    let results = taken.json()["results"].clone();
    let texts: Vec<String> =
        results.as_array().unwrap().iter().map(|one| result(&node, one.as_str().unwrap()).text()).collect();
    assert_eq!(texts, ["hello, a\n", "hello, b\n"]);
    assert_eq!(batch(&[event("a"), event("b"), event("c")]).code(), "L7002");
    let broken = batch(&[event("a"), json!({ "specversion": "1.0", "id": "b", "source": "/s" })]);
    assert_eq!((broken.status, broken.code().as_str()), (400, "L7003"));
    assert!(broken.text().contains("event 1") && broken.text().contains("type"), "{}", broken.text());
}

#[test]
fn what_was_taken_is_answered_after_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = Node::start_in(&data, &[]);
    deploy(
        &node,
        "count",
        "counter",
        json!({ "grants": { "stores": ["counters"] }, "units": { "maximum": 0 } }),
        json!({}),
    );
    let taken: Vec<String> = (0..20).map(|_| location(&post(&node, "/count", &[], "k"))).collect();
    assert_eq!(node.get(&taken[0]).status, 202);
    node.kill();

    let node = Node::start_in(&data, &[]);
    deploy(&node, "count", "counter", json!({ "grants": { "stores": ["counters"] } }), json!({}));
    result(&node, &taken[3]);
    node.kill();

    let node = Node::start_in(&data, &[]);
    let mut counts: Vec<u32> = taken.iter().map(|one| result(&node, one).text().trim().parse().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=20).collect::<Vec<u32>>(), "each was handled once, and its own reply kept");
}

/// Results of all functions once shared one room, which one public route could fill.
#[test]
fn a_flood_of_results_fills_the_share_of_its_own_function_alone() {
    const REPLY_BYTES: usize = 900_000;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let node = Node::start_in(&data, &[]);
    deploy(&node, "hello", "hello", json!({}), json!({}));
    let earlier = location(&post(&node, "/hello", &[], "earlier"));
    assert_eq!(result(&node, &earlier).status, 200);
    deploy(&node, "attack", "attack", json!({}), json!({}));
    let flood = || post(&node, "/attack", &[], &format!("big-reply {REPLY_BYTES}"));
    let fit = (64 << 20) / REPLY_BYTES;
    let taken: Vec<String> = (0..fit).map(|_| location(&flood())).collect();
    for one in &taken {
        assert_eq!(result(&node, one).status, 200);
    }
    let full = result(&node, &location(&flood()));
    assert_eq!((full.status, full.code().as_str()), (503, "L7010"), "its work is done, its reply has no room");
    // To the last byte, as far as replies of all lengths can.
    for bytes in [400_000, 200_000, 100_000, 50_000, 20_000, 10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50, 20, 10] {
        while let reply @ Reply { status: 202, .. } = post(&node, "/attack", &[], &format!("big-reply {bytes}")) {
            if result(&node, &location(&reply)).status != 200 {
                break;
            }
        }
    }
    let refused = post(&node, "/attack", &[], "count");
    assert_eq!((refused.status, refused.code().as_str()), (503, "L7010"), "{}", refused.text());
    let later = location(&post(&node, "/hello", &[], "later"));
    assert_eq!(result(&node, &later).text(), "hello, later\n");
    node.kill();

    let node = Node::start_in(&data, &[]);
    let refused = post(&node, "/attack", &[], "count");
    assert_eq!(refused.code(), "L7010", "{}", refused.text());
    assert_eq!(result(&node, &earlier).text(), "hello, earlier\n");
    let third = location(&post(&node, "/hello", &[], "third"));
    assert_eq!(result(&node, &third).text(), "hello, third\n");
    assert_eq!(node.api("DELETE", "/v1/functions/attack", &[]).status, 204);
    deploy(&node, "attack", "attack", json!({}), json!({}));
    assert_eq!(result(&node, &taken[0]).status, 200, "what comes back finds its results");
    assert_eq!(post(&node, "/attack", &[], "count").code(), "L7010");
}

#[test]
fn a_route_with_a_token_keeps_its_results_to_holders_of_one() {
    let node = Node::start();
    let http = json!({ "route": "/jobs/*", "async": true, "auth": "token" });
    deploy(&node, "hello", "hello", json!({ "http": http }), json!({}));
    let token = format!("Bearer {}", node.token);
    let taken = post(&node, "/jobs/a/b", &[("authorization", &token)], "x");
    let location = location(&taken);
    assert!(location.starts_with("/jobs/results/"), "{location}");
    assert_eq!(node.get(&location).code(), "L4004");
    assert_eq!(post(&node, "/jobs/a", &[], "x").code(), "L4004");
    let read = || send("GET", &format!("{}{location}", node.gate), &[("authorization", &token)], &[]);
    let since = Instant::now();
    while read().status == 202 {
        assert!(since.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(read().text(), "hello, x\n");

    let taken = json!({ "image": node.upload("hello"), "http": "/jobs/results/*" });
    assert_eq!(node.deploy(json!({ "other": taken }))["problem"]["code"], "L2010");
}
