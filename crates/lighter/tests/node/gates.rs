//! What senders may say of their events and what only gates may; what strangers learn of failures.

use crate::support::{Node, Reply, send, wait_for};
use serde_json::{Value, json};

const EVENT: [(&str, &str); 3] = [("ce-specversion", "1.0"), ("ce-id", "g1"), ("ce-type", "reading")];

fn post(node: &Node, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    send("POST", &format!("{}{path}", node.gate), headers, body)
}

fn event<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut headers = EVENT.to_vec();
    if !more.iter().any(|(name, _)| *name == "ce-source") {
        headers.push(("ce-source", "/x"));
    }
    headers.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
    headers.extend(more);
    headers
}

fn token(node: &Node, name: &str, scope: &str) -> String {
    let asked = json!({ "name": name, "scope": scope }).to_string();
    let reply = node.api("POST", "/v1/tokens", asked.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text());
    format!("Bearer {}", reply.json()["token"].as_str().unwrap())
}

fn push(node: &Node, token: &str, headers: &[(&str, &str)]) -> Reply {
    let mut headers = headers.to_vec();
    headers.push(("authorization", token));
    send("POST", &format!("{}/v1/queues/held/events", node.api), &headers, b"x")
}

fn peek(node: &Node) -> Vec<Value> {
    let reply = node.api("GET", "/v1/queues/held/events?limit=1000", &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["events"].as_array().unwrap().iter().map(|info| info["event"].clone()).collect()
}

/// A function that handles nothing, so that what is queued can be looked at.
fn deploy_held(node: &Node, queue: Value) {
    let function = json!({ "image": node.upload("hello"), "http": { "route": "/held", "async": true }, "units": { "maximum": 0 } });
    let last = node.deploy_manifest(json!({ "function": { "held": function }, "queue": { "held": queue } }));
    assert_eq!(last["step"], "done", "{last}");
}

/// Finding P1: an event of the type `http.request`, sent to a public async route, was handed over as whatever request
/// its attributes named, guarded paths among them.
#[test]
fn no_event_reaches_a_path_that_its_sender_may_not_call() {
    let node = Node::start();
    let routes = json!([{ "route": "/guard/head", "async": true }, { "route": "/head", "auth": "token" }]);
    node.deploy_one("guard", "echo-http", json!({ "http": routes }));
    let forged = event(&[("ce-type", "http.request"), ("ce-httpmethod", "DELETE"), ("ce-httppath", "/head")]);
    let reply = post(&node, "/guard/head", &forged, b"");
    assert_eq!((reply.status, reply.code().as_str()), (400, "L7003"), "{}", reply.text());
    assert!(reply.json()["hint"].as_str().unwrap().contains("token that may deploy"), "{}", reply.text());

    // Nor does one that says nothing of a path: it comes to where it was sent, not to `/`.
    let taken = post(&node, "/guard/head", &event(&[("ce-type", "t")]), b"body");
    assert_eq!(taken.status, 202, "{}", taken.text());
    let location = taken.headers["location"].clone();
    let reply = wait_for("the reply", || Some(node.get(&location)).filter(|reply| reply.status != 202));
    assert_eq!((reply.status, reply.text().as_str()), (200, "body"), "it went to /guard/head, which echoes");
}

/// Finding R19, for wasi:http: what a function reads in `ce-gate` is the node's word or nothing.
#[test]
fn a_request_says_nothing_of_its_gate() {
    let node = Node::start();
    node.deploy_one("head", "echo-http", json!({ "http": "/head" }));
    let reply = send("GET", &format!("{}/head", node.gate), &[("ce-gate", "mqtt"), ("ce-own", "1")], &[]);
    assert!(reply.text().contains("ce-own") && !reply.text().contains("ce-gate"), "{}", reply.text());
}

/// Finding R19: anonymous requests and holders of a `call` token made events that no function could tell from those of
/// a device.
#[test]
fn what_gates_say_of_events_is_theirs_alone() {
    let node = Node::start();
    deploy_held(&node, json!({}));
    let (call, deploy) = (token(&node, "caller", "call"), token(&node, "deployer", "deploy"));
    for forged in [
        ("ce-source", "mqtt://meter-7"),
        ("ce-source", "MQTT://meter-7"),
        ("ce-source", "/function/threshold"),
        ("ce-source", "/timer/report"),
        ("ce-type", "mqtt.publish"),
        ("ce-type", "http.request"),
        ("ce-type", "timer.tick"),
        ("ce-mqttuser", "admin"),
        ("ce-mqttqos", "1"),
        ("ce-httppath", "/admin"),
        ("ce-gate", "mqtt"),
        ("ce-resultid", "0123456789abcdef0123456789abcdef"),
    ] {
        assert_eq!(post(&node, "/held", &event(&[forged]), b"x").code(), "L7003", "{forged:?} at the gate");
        assert_eq!(push(&node, &call, &event(&[forged])).code(), "L7003", "{forged:?} with a call token");
    }
    let json = json!({ "specversion": "1.0", "id": "1", "source": "/s", "type": "t", "mqttuser": "admin" });
    for (kind, body) in [("", json.clone()), ("-batch", json!([json]))] {
        let kind = [("content-type", format!("application/cloudevents{kind}+json"))];
        let kind = [(kind[0].0, kind[0].1.as_str())];
        assert_eq!(post(&node, "/held", &kind, body.to_string().as_bytes()).code(), "L7003");
    }
    let query = "/v1/queues/held/events?source=mqtt://meter-7";
    let pushed = send("POST", &format!("{}{query}", node.api), &[("authorization", &call)], b"x");
    assert_eq!(pushed.code(), "L7003");
    assert_eq!(peek(&node), [] as [Value; 0]);

    // Whoever may deploy decides what runs, and may pass on the events of another node. The gate is still the API.
    assert_eq!(push(&node, &deploy, &event(&[("ce-mqttuser", "admin"), ("ce-gate", "mqtt")])).status, 201);
    assert_eq!(push(&node, &call, &event(&[])).status, 201);
    assert_eq!(post(&node, "/held", &event(&[]), b"x").status, 202);
    assert_eq!(post(&node, "/held?q=1", &[("x-a", "b")], b"x").status, 202);
    let gates: Vec<_> = peek(&node).iter().map(|event| event["gate"].as_str().unwrap().to_owned()).collect();
    assert_eq!(gates, ["api", "api", "http", "http"]);
    assert_eq!(peek(&node)[0]["mqttuser"], "admin");
}

/// Finding R19: with `deduplicate` an anonymous request that used a device's id made the device's own event a
/// duplicate.
#[test]
fn an_id_belongs_to_the_gate_and_the_sender_who_gave_it() {
    let node = Node::start();
    deploy_held(&node, json!({ "deduplicate": "1h" }));
    let [one, two] = ["one", "two"].map(|name| token(&node, name, "call"));
    assert_eq!(post(&node, "/held", &event(&[]), b"forged").status, 202);
    let duplicates = |token: &str| push(&node, token, &event(&[])).json()["duplicates"].as_u64().unwrap();
    assert_eq!([&one, &two, &one, &two].map(|token| duplicates(token)), [0, 0, 1, 1]);
    assert_eq!(post(&node, "/held", &event(&[]), b"again").status, 202);
    assert_eq!(peek(&node).len(), 3);
}

/// Finding R21: an exception's message, which may hold a secret, went to whoever called.
#[test]
fn strangers_learn_that_a_call_failed_and_not_why() {
    let node = Node::start();
    node.deploy_one("brief", "attack", json!({ "http": ["/brief", { "route": "/later", "async": true }] }));
    node.deploy_one("full", "attack", json!({ "errors": "full" }));
    let call = token(&node, "caller", "call");
    for (word, code) in [("fatal", "L6005"), ("invalid", "L6003"), ("retry", "L6004"), ("panic", "L6001")] {
        let stranger = post(&node, "/brief", &[], word.as_bytes());
        assert_eq!(stranger.code(), code);
        assert!(!stranger.text().contains("asked to"), "{}", stranger.text());
        assert_eq!(stranger.json()["detail"], stranger.json()["title"]);
        assert!(stranger.headers.contains_key("x-request-id"));
        let with_wrong_token = post(&node, "/brief", &[("authorization", "Bearer lighter_00")], word.as_bytes());
        assert!(!with_wrong_token.text().contains("asked to"), "{}", with_wrong_token.text());
        for told in [
            post(&node, "/brief", &[("authorization", &call)], word.as_bytes()),
            post(&node, "/full", &[], word.as_bytes()),
            node.call("brief", word),
        ] {
            assert_eq!(told.code(), code);
            assert!(told.text().contains("asked to") || word == "panic", "{}", told.text());
            assert_ne!(told.json()["detail"], told.json()["title"]);
        }
        let taken = post(&node, "/later", &[], word.as_bytes());
        let location = taken.headers["location"].clone();
        if word == "fatal" {
            let stranger = wait_for("the end", || Some(node.get(&location)).filter(|reply| reply.status != 202));
            assert!(stranger.code() == code && !stranger.text().contains("asked to"), "{}", stranger.text());
            let told = send("GET", &format!("{}{location}", node.gate), &[("authorization", &call)], &[]);
            assert!(told.text().contains("asked to be fatal"), "{}", told.text());
        }
    }
    let log = node.api("GET", "/v1/functions/brief/logs", &[]).text();
    assert!(log.contains("asked to be fatal"), "the log keeps what strangers do not learn: {log}");
    // What speaks of nothing but the request itself is for everybody.
    let broken = post(&node, "/later", &[("ce-id", "7")], b"");
    assert!(broken.code() == "L7003" && broken.text().contains("specversion"), "{}", broken.text());
}

/// Finding P2: one event of deep JSON made its queue impossible to look into, and the task that answered panicked.
#[test]
fn whatever_the_data_of_an_event_is_its_queue_can_be_looked_into() {
    let node = Node::start();
    deploy_held(&node, json!({}));
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let json = [("content-type", "application/json")];
    for data in
        [nested(64), nested(65), nested(124), nested(200), nested(100_000), "1e999".into(), "\"\\ud800\"".into()]
    {
        assert_eq!(post(&node, "/held", &json, data.as_bytes()).status, 202);
    }
    let events = peek(&node);
    assert_eq!(events.len(), 7);
    assert!(events[0]["data"].is_array(), "{}", events[0]);
    for event in &events[1..] {
        assert!(event["data_base64"].is_string() && event["data"].is_null(), "{event}");
    }
}
