//! Webhooks with the real node and a real receiver.

use crate::receiver::Receiver;
use crate::support::{Node, send};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn ok(_: usize, _: &crate::receiver::Request) -> Option<String> {
    Some("204 Done".to_owned())
}

/// A sink for the queue `out` whose tries follow each other closely.
fn sink(webhook: Value) -> Value {
    json!({ "sink": { "hook": {
        "queue": "out", "webhook": webhook, "retry": { "attempts": 4, "pause": "20ms", "pause_max": "40ms" },
    } } })
}

fn deploy(node: &Node, webhook: Value) {
    let last = node.deploy_manifest(sink(webhook));
    assert_eq!(last["step"], "done", "{last}");
}

fn push(node: &Node, id: &str, data: &str) {
    let token = format!("Bearer {}", node.token);
    let headers = [
        ("authorization", token.as_str()),
        ("ce-specversion", "1.0"),
        ("ce-id", id),
        ("ce-source", "/test"),
        ("ce-type", "reading"),
        ("ce-subject", "K%C3%BCche"),
        ("content-type", "application/json"),
    ];
    let reply = send("POST", &format!("{}/v1/queues/out/events", node.api), &headers, data.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.text());
}

fn queue(node: &Node) -> Value {
    node.api("GET", "/v1/queues/out", &[]).json()
}

fn wait_until(node: &Node, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let since = Instant::now();
    loop {
        let queue = queue(node);
        if is_so(&queue) {
            return queue;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: {queue}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn dead(node: &Node) -> Vec<Value> {
    node.api("GET", "/v1/queues/out/events?part=dead", &[]).json()["events"].as_array().unwrap().clone()
}

#[test]
fn an_event_arrives_in_each_format_and_is_acked() {
    for format in ["binary", "structured", "data"] {
        let receiver = Receiver::start(ok);
        let node = Node::start();
        deploy(
            &node,
            json!({ "url": format!("{}/in?a=b", receiver.url), "format": format, "headers": { "x-own": "yes" } }),
        );
        push(&node, "7 ü", "{\"t\":21.5}");
        let request = receiver.next();
        assert_eq!(request.line, "POST /in?a=b HTTP/1.1");
        assert_eq!((request.header("idempotency-key"), request.header("x-own")), ("7%20%C3%BC", "yes"));
        match format {
            "structured" => {
                let event: Value = serde_json::from_slice(&request.body).unwrap();
                assert_eq!(
                    (&event["id"], &event["subject"], &event["data"]),
                    (&json!("7 ü"), &json!("Küche"), &json!({ "t": 21.5 }))
                );
                assert_eq!(request.header("content-type"), "application/cloudevents+json");
            }
            _ => {
                assert_eq!(
                    (request.text().as_str(), request.header("content-type")),
                    ("{\"t\":21.5}", "application/json")
                );
                assert_eq!(request.header("ce-subject"), if format == "binary" { "K%C3%BCche" } else { "" });
            }
        }
        wait_until(&node, "acked", |queue| queue["acked"] == 1 && queue["ready"] == 0 && queue["leased"] == 0);
        assert!(receiver.rest().is_empty());
    }
}

#[test]
fn what_fails_for_now_is_tried_again_under_the_same_key_until_the_tries_are_used_up() {
    let receiver = Receiver::start(|number, request| match (request.text().as_str(), number) {
        ("breaks", number) if number < 2 => None,
        ("lives", number) if number < 5 => Some("503 Busy".to_owned()),
        ("dies", _) => Some("500 Broken".to_owned()),
        _ => Some("200 OK".to_owned()),
    });
    let node = Node::start();
    deploy(&node, json!({ "url": receiver.url }));
    for (event, tries) in [("breaks", 3), ("lives", 3), ("dies", 4)] {
        push(&node, event, event);
        for _ in 0..tries {
            assert_eq!(receiver.next().header("idempotency-key"), event);
        }
    }
    wait_until(&node, "one dead", |queue| queue["dead"] == 1);
    assert!(receiver.rest().is_empty());
    let dead = dead(&node);
    assert_eq!((&dead[0]["event"]["id"], &dead[0]["tries"]), (&json!("dies"), &json!(4)));
    assert!(dead[0]["reason"].as_str().unwrap().starts_with("L7009: the receiver answered 500"), "{}", dead[0]);
    assert_eq!(queue(&node)["acked"], 2);
}

#[test]
fn what_a_receiver_refuses_is_a_dead_letter_at_once_and_redirects_are_not_followed() {
    let elsewhere = Receiver::start(ok);
    let location = elsewhere.url.clone();
    let receiver = Receiver::start(move |_, request| {
        Some(match request.text().as_str() {
            "moved" => format!("302 Found\r\nlocation: {location}/"),
            status => format!("{status} No"),
        })
    });
    let node = Node::start();
    deploy(&node, json!({ "url": receiver.url }));
    let refused = ["400", "401", "404", "410", "422", "moved"];
    for (number, data) in refused.iter().enumerate() {
        push(&node, &number.to_string(), data);
        assert_eq!(receiver.next().text(), *data);
    }
    wait_until(&node, "all dead", |queue| queue["dead"] == refused.len());
    assert!(receiver.rest().is_empty() && elsewhere.rest().is_empty());
    assert!(dead(&node).iter().all(|letter| letter["tries"] == 1));
}

#[test]
fn a_receiver_may_ask_for_a_pause_and_a_slow_one_is_given_up() {
    let receiver = Receiver::start(|number, _| {
        if number == 1 {
            thread::sleep(Duration::from_millis(600));
        }
        Some(if number == 0 { "429 Slow down\r\nretry-after: 1" } else { "200 OK" }.to_owned())
    });
    let node = Node::start();
    deploy(&node, json!({ "url": receiver.url, "time_ms": 200 }));
    push(&node, "1", "x");
    let first = receiver.next();
    let second = receiver.next();
    let pause = second.at - first.at;
    assert!(pause >= Duration::from_millis(990), "{pause:?}");
    let third = receiver.next();
    assert_eq!(third.header("idempotency-key"), "1");
    wait_until(&node, "acked", |queue| queue["acked"] == 1);
}

#[test]
fn no_more_requests_run_at_once_than_the_sink_allows() {
    let receiver = Receiver::start(|_, _| {
        thread::sleep(Duration::from_millis(20));
        Some("200 OK".to_owned())
    });
    let node = Node::start();
    deploy(&node, json!({ "url": receiver.url, "concurrency": 2 }));
    assert_eq!(node.api("POST", "/v1/queues/out/events?count=30", b"x").status, 201);
    wait_until(&node, "all acked", |queue| queue["acked"] == 30);
    assert_eq!(receiver.at_once_max.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[test]
fn secrets_reach_the_receiver_and_nothing_else() {
    let receiver = Receiver::start(|number, _| Some(if number == 0 { "403 No" } else { "200 OK" }.to_owned()));
    let node = Node::start();
    let webhook = |host: &str| json!({ "url": format!("{host}/{{SECRET:PATH}}"), "headers": { "authorization": "Bearer {SECRET:KEY}" } });
    let last = node.deploy_manifest(sink(webhook(&receiver.url)));
    assert_eq!((&last["step"], &last["problem"]["code"]), (&json!("failed"), &json!("L4014")), "{last}");
    for (name, value) in [("PATH", "very-secret-path"), ("KEY", "very-secret-key")] {
        assert_eq!(node.api("PUT", &format!("/v1/secrets/{name}"), value.as_bytes()).status, 204);
    }
    deploy(&node, webhook(&receiver.url));
    push(&node, "1", "x");
    let request = receiver.next();
    assert_eq!(
        (request.line.as_str(), request.header("authorization")),
        ("POST /very-secret-path HTTP/1.1", "Bearer very-secret-key")
    );

    // A new value counts at once, without a deployment.
    assert_eq!(node.api("PUT", "/v1/secrets/KEY", b"very-secret-other").status, 204);
    push(&node, "2", "x");
    assert_eq!(receiver.next().header("authorization"), "Bearer very-secret-other");

    // Nobody listens there: the library's words would name the host.
    assert_eq!(node.api("PUT", "/v1/secrets/PATH", b"127.0.0.1:1/very-secret-host").status, 204);
    deploy(&node, json!({ "url": "http://{SECRET:PATH}" }));
    push(&node, "3", "x");
    wait_until(&node, "dead", |queue| queue["dead"] == 2);
    let shown = [dead(&node)[1].to_string(), queue(&node).to_string(), node.api("GET", "/metrics", &[]).text()];
    assert!(shown[0].contains("L7009: the receiver cannot be reached: connection refused"), "{}", shown[0]);
    assert!(shown.iter().all(|text| !text.contains("very-secret")), "{shown:?}");
}

#[test]
fn what_was_not_acked_is_sent_again_after_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let receiver = Receiver::start(|_, _| Some("200 OK".to_owned()));
    let node = Node::start_in(&data, &[]);
    deploy(&node, json!({ "url": receiver.url }));
    let mut got = std::collections::BTreeSet::new();
    assert_eq!(node.api("POST", "/v1/queues/out/events?count=500&id=n", b"x").status, 201);
    (0..20).for_each(|_| _ = got.insert(receiver.next().header("idempotency-key").to_owned()));
    node.kill();
    let node = Node::start_in(&data, &[]);
    wait_until(&node, "empty", |queue| queue["ready"] == 0 && queue["leased"] == 0 && queue["delayed"] == 0);
    got.extend(receiver.rest().iter().map(|request| request.header("idempotency-key").to_owned()));
    assert_eq!(got.len(), 500, "each at least once");
}

/// A certificate authority of our own, as PEM, and what a server named `localhost` shows that it signed.
fn authority() -> (String, rustls::ServerConfig) {
    let mut params = rcgen::CertificateParams::new([]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let server = builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key.into());
    (authority.pem(), server.unwrap())
}

#[test]
fn a_receiver_with_a_certificate_of_its_own_is_trusted_where_the_node_is_told_so() {
    let (authority, server) = authority();
    let receiver = Receiver::start_tls(server, ok);
    let stranger = Node::start();
    deploy(&stranger, json!({ "url": receiver.url }));
    push(&stranger, "e1", "1");
    wait_until(&stranger, "it is tried in vain", |queue| queue["dead"] == 1);
    assert!(receiver.rest().is_empty(), "nothing is sent to somebody who is not trusted");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, authority).unwrap();
    let node = Node::start_with(&["--webhook-ca", file.to_str().unwrap()]);
    deploy(&node, json!({ "url": receiver.url }));
    push(&node, "e2", "2");
    let request = receiver.next();
    assert_eq!((request.header("ce-id"), request.text().as_str()), ("e2", "2"));
    wait_until(&node, "it is acked", |queue| queue["ready"] == 0 && queue["leased"] == 0);
    assert!(dead(&node).is_empty());

    std::fs::write(&file, "no certificate").unwrap();
    let data = folder.path().join("data");
    let said = Node::try_start(&data, &["--webhook-ca", file.to_str().unwrap()]).err().unwrap();
    assert!(said.contains("L9003") && said.contains("webhook_ca"), "{said}");
}
