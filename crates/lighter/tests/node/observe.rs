//! What can be seen of a node: logs, numbers, itself.

use crate::receiver::Receiver;
use crate::support::{Node, send, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

#[test]
fn logs_tell_who_said_what_and_can_be_followed() {
    let node = Node::start();
    node.deploy_one("attack", "attack", json!({}));
    node.call("attack", "log-flood 3");
    let lines = node.api("GET", "/v1/functions/attack/logs?tail=2", &[]).lines();
    assert_eq!(lines.len(), 2);
    assert!(lines[1]["message"].as_str().unwrap().starts_with("line 2 of a flood"), "{}", lines[1]);
    assert_eq!(
        (&lines[1]["function"], &lines[1]["version"], &lines[1]["stream"]),
        (&json!("attack"), &json!(1), &json!("log"))
    );
    assert!(!lines[1]["request_id"].as_str().unwrap().is_empty());
    assert_eq!(node.api("GET", "/v1/functions/none/logs", &[]).code(), "L2001");
    assert_eq!(node.api("GET", "/v1/functions/attack/logs?tial=2", &[]).code(), "L4009");

    let request = ureq::get(format!("{}/v1/functions/attack/logs?follow=true&tail=1", node.api));
    let response = request.header("authorization", format!("Bearer {}", node.token)).call().unwrap();
    let mut following = BufReader::new(response.into_body().into_reader()).lines().map(Result::unwrap);
    assert!(following.next().unwrap().contains("line 2 of a flood"));
    node.call("attack", "log-flood 1");
    assert!(following.next().unwrap().contains("line 0 of a flood"));
    node.stop();
    assert!(following.next().is_none());
}

#[test]
fn who_follows_logs_or_the_audit_reads_as_long_as_the_token_is_there() {
    let node = Node::start();
    node.deploy_one("attack", "attack", json!({}));
    let request = json!({ "name": "reader", "scope": "admin" });
    let token = node.api("POST", "/v1/tokens", request.to_string().as_bytes()).json()["token"].clone();
    let follow = |path: &str| {
        let request = ureq::get(format!("{}{path}", node.api));
        let response = request.header("authorization", format!("Bearer {}", token.as_str().unwrap())).call().unwrap();
        BufReader::new(response.into_body().into_reader()).lines().map(Result::unwrap)
    };
    let mut logs = follow("/v1/functions/attack/logs?follow=true&tail=0");
    let mut audit = follow("/v1/audit?follow=true&limit=1");
    assert!(audit.next().unwrap().contains("reader"));
    node.call("attack", "log-flood 1");
    let line = logs.next().unwrap();
    assert!(line.contains("line 0 of a flood"), "{line}");
    assert_eq!(node.api("DELETE", "/v1/tokens/reader", &[]).status, 204);
    node.call("attack", "log-flood 1");
    assert_eq!((logs.next(), audit.next()), (None, None));
}

#[test]
fn a_trap_is_explained_in_the_log_and_kept_as_a_dump_when_asked_for() {
    let node = Node::start();
    node.deploy_one("attack", "attack", json!({}));
    node.call("attack", "unreachable");
    assert_eq!(node.api("GET", "/v1/functions/attack/dump", &[]).code(), "L2017");
    node.deploy_one("attack", "attack", json!({ "units": { "dump": true } }));
    node.call("attack", "unreachable");
    let dump = node.api("GET", "/v1/functions/attack/dump", &[]);
    assert!(dump.body.starts_with(b"\0asm"), "{}", dump.text());
    let logs = node.api("GET", "/v1/functions/attack/logs", &[]).text();
    assert!(logs.contains("unreachable"), "{logs}");
}

#[test]
fn numbers_are_counted_for_people_and_for_prometheus() {
    let node = Node::start();
    node.deploy_one("hello", "hello", json!({}));
    for _ in 0..10 {
        node.get("/hello");
    }
    node.get("/nowhere");
    let stats = node.api("GET", "/v1/stats", &[]).json();
    assert_eq!((&stats[0]["function"], &stats[0]["calls"]), (&json!("hello"), &json!(10)));
    assert!(stats[0]["total_us"]["p50"].as_f64().unwrap() > 0.0);
    let metrics = node.api("GET", "/metrics", &[]);
    assert!(metrics.headers["content-type"].starts_with("text/plain"));
    let metrics = metrics.text();
    for line in [
        "lighter_calls_total{function=\"hello\",outcome=\"ok\"} 10",
        "lighter_call_seconds_count{function=\"hello\",part=\"total\"} 10",
        "lighter_requests_refused_total{code=\"L4001\"} 1",
        "lighter_functions 1",
        "lighter_compile_seconds_count 1",
    ] {
        assert!(metrics.lines().any(|have| have == line), "{line} is not in {metrics}");
    }
    let info = node.api("GET", "/v1/node", &[]).json();
    assert_eq!((&info["functions"], &info["isolation"]), (&json!(1), &json!(["wasm", "process", "microvm", "metal"])));
    assert_eq!(info["gate"], node.gate);
    assert_eq!(node.api("GET", "/v1/units", &[]).json(), json!([]));
}

#[test]
fn a_log_for_machines_is_json_line_by_line_with_every_request_in_it() {
    let node = Node::start_with(&["--log-format", "json", "--log", "info", "--access-log", "--log-units"]);
    node.deploy_one("attack", "attack", json!({}));
    let url = format!("{}/attack?secret=sesame", node.gate);
    let reply = send("POST", &url, &[("x-request-id", "mine-7")], b"log-flood 1");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(send("POST", &url, &[("x-request-id", "mine-8")], b"nonsense").code(), "L6003");
    assert_eq!(send("GET", &format!("{}/nowhere", node.gate), &[("x-request-id", "mine-9")], &[]).code(), "L4001");
    let said = node.said.clone();
    node.stop();
    wait_for("the last word", || {
        said.lock().unwrap().iter().any(|line| line.contains("lighter has stopped")).then_some(())
    });

    let text = said.lock().unwrap().join("\n");
    assert!(!text.contains("sesame"), "a query holds secrets: {text}");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
    let lines: Vec<Value> = text.lines().map(parse).collect();
    for line in &lines {
        assert!(["timestamp", "level", "target"].iter().all(|field| line[field].is_string()), "{line}");
    }
    let access = |id: &str| {
        let of = |line: &&Value| line["target"] == "access" && line["request_id"] == id;
        lines.iter().find(of).unwrap_or_else(|| panic!("{id} is not in {text}"))
    };
    for (id, method, path, status, function, bytes) in [
        ("mine-7", "POST", "/attack", 200, "attack", 11),
        ("mine-8", "POST", "/attack", 422, "attack", 8),
        ("mine-9", "GET", "/nowhere", 404, "-", 0),
    ] {
        let line = access(id);
        let of_it =
            ["method", "path", "status", "function", "bytes_in", "whole", "tls"].map(|field| line[field].clone());
        assert_eq!(json!(of_it), json!([method, path, status, function, bytes, true, false]), "{line}");
        assert!(line["duration_us"].is_u64() && line["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
        assert_eq!(line["bytes_out"] == 0, id == "mine-7", "{line}");
    }
    assert!(lines.iter().any(|line| line["path"] == "/v1/deployments" && line["target"] == "access"), "{text}");
    let unit = lines.iter().find(|line| line["target"] == "unit" && line["request"] == "mine-7").unwrap();
    assert!(unit["message"].as_str().unwrap().starts_with("line 0 of a flood"), "{unit}");
    assert_eq!((&unit["function"], &unit["level"]), (&json!("attack"), &json!("INFO")));
}

#[test]
fn an_event_may_be_sent_whole_as_a_frame() {
    let node = Node::start();
    node.deploy_one("hello", "hello", json!({}));
    let event =
        event::Event { kind: "greeting".into(), data: b"frame".to_vec(), attempt: 1, ..event::Event::default() };
    let encoded = frame::encode_event(&event, frame::Checksum::Front, &frame::Limits::default()).unwrap().to_vec();
    let token = format!("Bearer {}", node.token);
    let url = format!("{}/v1/functions/hello/call", node.api);
    let headers = [("authorization", token.as_str()), ("content-type", frame::MEDIA_TYPE)];
    assert_eq!(send("POST", &url, &headers, &encoded).text(), "hello, frame\n");
    assert_eq!(send("POST", &url, &headers, b"nonsense").code(), "L4009");
}

#[test]
fn traces_carry_the_callers_id_to_the_receiver() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", receiver.local_addr().unwrap());
    let received = thread::spawn(move || {
        let (mut connection, _) = receiver.accept().unwrap();
        let mut reader = BufReader::new(connection.try_clone().unwrap());
        let mut head = Vec::new();
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {
            head.push(std::mem::take(&mut line).to_lowercase());
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length:")).unwrap();
        let mut body = vec![0; length.trim().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        (head.swap_remove(0), body)
    });
    let node = Node::start_with(&["--otlp", &url]);
    node.deploy_one("hello", "hello", json!({}));
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    assert_eq!(send("GET", &format!("{}/hello", node.gate), &[("traceparent", traceparent)], &[]).status, 200);
    node.stop();
    let (line, body) = received.join().unwrap();
    assert!(line.starts_with("post /v1/traces "), "{line}");
    let holds = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
    assert!(holds(&[0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c]));
    for word in ["lighter", "hello", "queue", "start", "run", "faas.version"] {
        assert!(holds(word.as_bytes()), "{word} is not in the spans");
    }
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLERS: [(&str, &str); 2] =
    [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", "vendor=1")];

/// What functions of both contracts sent to `receiver` as parts of a trace, when they were called with these headers.
fn traced(node: &Node, receiver: &Receiver, headers: &[(&str, &str)]) -> [[String; 2]; 2] {
    let hosts = json!([receiver.url.strip_prefix("http://").unwrap()]);
    // In one unit, which is to forget the trace of its last call.
    let function = json!({ "grants": { "hosts": hosts }, "units": { "reuse_calls": 100 } });
    node.deploy_one("fetch", "fetch", function.clone());
    node.deploy_one("fetch-http", "fetch-http", function);
    let through_wasi = format!("{}/fetch-http?url={}/x", node.gate, receiver.url);
    let calls = [("POST", format!("{}/fetch", node.gate), receiver.url.as_bytes()), ("GET", through_wasi, &[][..])];
    calls.map(|(method, url, body)| {
        let reply = send(method, &url, headers, body);
        assert_eq!(reply.status, 200, "{url}: {}", reply.text());
        let request = receiver.next();
        ["traceparent", "tracestate"].map(|name| request.header(name).to_owned())
    })
}

#[test]
fn what_a_function_sends_belongs_to_the_trace_of_its_call() {
    let receiver = Receiver::start(|_, _| Some("200 OK".to_owned()));
    // A node that keeps no traces passes its caller's on, and begins none.
    let node = Node::start();
    let callers = CALLERS.map(|(_, value)| value.to_owned());
    assert_eq!(traced(&node, &receiver, &CALLERS), [callers.clone(), callers]);
    assert_eq!(traced(&node, &receiver, &[]), [["", ""]; 2]);

    // One that does names the span of the call as the parent.
    let spans = Receiver::start(|_, _| Some("200 OK".to_owned()));
    let node = Node::start_with(&["--otlp", &spans.url]);
    let sent = traced(&node, &receiver, &CALLERS);
    let begun = traced(&node, &receiver, &CALLERS[1..]);
    node.stop();
    let spans: Vec<u8> = std::iter::once(spans.next()).chain(spans.rest()).flat_map(|batch| batch.body).collect();
    let is_a_span = |hexadecimal: &str| {
        let bytes: Vec<u8> = (0..8).map(|at| u8::from_str_radix(&hexadecimal[2 * at..][..2], 16).unwrap()).collect();
        spans.windows(8).any(|window| window == bytes)
    };
    for (sent, state) in sent.iter().map(|sent| (sent, "vendor=1")).chain(begun.iter().map(|sent| (sent, ""))) {
        let [parent, sent_state] = sent;
        let parts: Vec<&str> = parent.split('-').collect();
        assert_eq!((parts.len(), parts[0], parts[3]), (4, "00", "01"), "{parent}");
        assert_eq!((parts[1] == TRACE, sent_state.as_str()), (!state.is_empty(), state), "{parent}");
        assert!(parts[2] != "b7ad6b7169203331" && is_a_span(parts[2]), "{parent} is the span of no call");
    }
}

#[test]
fn a_missing_grant_is_named_in_the_log_of_the_function() {
    let node = Node::start();
    node.deploy_one("denied", "fetch-http", json!({}));
    let reply = node.get("/denied?url=https://example.org/x");
    assert_eq!((reply.status, reply.text().as_str()), (502, "ErrorCode::HttpRequestDenied\n"));
    let line = node.api("GET", "/v1/functions/denied/logs?tail=1", &[]).lines().remove(0);
    assert_eq!((&line["level"], &line["stream"]), (&json!("warn"), &json!("node")), "{line}");
    let message = line["message"].as_str().unwrap();
    assert!(message.contains("no grant covers example.org:443") && message.contains("grants.hosts"), "{message}");
}

/// An alert about a metric that does not exist never comes, and nobody notices.
#[test]
fn every_metric_that_is_drawn_alerted_or_documented_is_one_that_a_node_has() {
    let node = Node::start_with(&["--mqtt", "127.0.0.1:0"]);
    node.deploy_one("f", "hello", json!({ "queue": "f" }));
    let metrics = node.api("GET", "/metrics", &[]).text();
    let families: BTreeSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let mut named = 0;
    for file in
        ["packaging/monitoring/lighter.rules.yml", "packaging/monitoring/lighter-dashboard.json", "docs/operating.md"]
    {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap();
        let words = text.split(|one: char| !(one.is_ascii_alphanumeric() || one == '_'));
        for word in words.filter(|word| word.starts_with("lighter_") || word.starts_with("process_")) {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            // A name cut short stands for a folder.
            if word != "lighter_" {
                assert!(families.contains(family), "{file} names {word}, which no node has");
                named += 1;
            }
        }
    }
    assert!(named > 50, "{named}");
}

#[test]
fn functions_are_ready_before_their_first_calls_once_the_node_has_started_again() {
    let node = Node::start();
    for name in ["one", "two", "three"] {
        node.deploy_one(name, "hello", json!({}));
    }
    let data = node.data.clone();
    let _folder = node.kill();
    let node = Node::start_in(&data, &[]);
    // More than the one by which a node tries itself out. Those that readiness does not wait for follow.
    wait_for("all functions to be loaded", || {
        let page = node.api("GET", "/metrics", &[]).text();
        page.lines().any(|line| line == "lighter_functions_loaded 3").then_some(())
    });
    node.stop();
}
