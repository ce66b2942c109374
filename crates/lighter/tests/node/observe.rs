//! What can be seen of a node: logs, numbers, itself.

use crate::support::{Node, send};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
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
