//! Deployments: what they change, and that nothing else notices.

use crate::support::{Node, fixture, hash, send, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;

fn versions(node: &Node, function: &str) -> (u64, Vec<u64>) {
    let info = node.api("GET", &format!("/v1/functions/{function}"), &[]).json();
    let versions = info["versions"].as_array().unwrap().iter().map(|version| version["version"].as_u64().unwrap());
    (info["version"].as_u64().unwrap(), versions.collect())
}

#[test]
fn a_deployed_function_answers_at_its_route_and_through_the_api() {
    let node = Node::start();
    let hello = json!({ "image": node.upload("hello"), "http": { "route": "/hi/*", "reply_type": "text/plain" } });
    let web = json!({ "image": node.upload("hello-http"), "http": "/web" });
    let reply = node.api(
        "POST",
        "/v1/deployments",
        json!({ "function": { "hello": hello, "web": web } }).to_string().as_bytes(),
    );
    let steps: Vec<Value> = reply.lines().into_iter().map(|line| line["step"].clone()).collect();
    let each = ["compiling", "compiled", "started"];
    let expected: Vec<&str> = ["checked", "checked"].into_iter().chain(each).chain(each).chain(["done"]).collect();
    assert_eq!(steps, expected);

    let reply = node.get("/hi/there?name=you");
    assert_eq!((reply.status, reply.text().as_str()), (200, "hello, you\n"));
    assert_eq!(reply.headers["content-type"], "text/plain");
    assert!(
        reply.headers["server-timing"].starts_with("queue;dur=0.000, start;dur="),
        "{}",
        reply.headers["server-timing"]
    );
    assert!(!reply.headers["x-request-id"].is_empty());
    assert_eq!(node.get("/web").text(), "hello, world\n");
    assert_eq!(node.call("hello", "api").text(), "hello, api\n");
    assert_eq!(node.call("web", "").text(), "hello, world\n");
    let own = send("GET", &format!("{}/hi", node.gate), &[("x-request-id", "mine-7")], &[]);
    assert_eq!(own.headers["x-request-id"], "mine-7");
}

#[test]
fn versions_are_kept_rolled_back_and_removed() {
    let node = Node::start();
    for number in 1..=6 {
        node.deploy_one("f", "hello", json!({ "config": { "number": number.to_string() } }));
    }
    assert_eq!(versions(&node, "f"), (6, vec![6, 5, 4, 3, 2]));
    // The same again changes nothing.
    node.deploy_one("f", "hello", json!({ "config": { "number": "6" } }));
    assert_eq!(versions(&node, "f"), (6, vec![6, 5, 4, 3, 2]));

    assert_eq!(node.api("POST", "/v1/functions/f/rollback", &[]).status, 200);
    assert_eq!(versions(&node, "f").0, 5);
    assert_eq!(node.api("POST", "/v1/functions/f/rollback", b"{\"version\":2}").json()["version"], 2);
    assert_eq!(node.api("POST", "/v1/functions/f/rollback", b"{\"version\":1}").code(), "L2002");
    assert_eq!(node.get("/f").status, 200);

    assert_eq!(node.api("DELETE", "/v1/functions/f", &[]).status, 204);
    assert_eq!(node.get("/f").code(), "L4001");
    assert_eq!(node.call("f", "").code(), "L2001");
    assert_eq!(node.api("DELETE", "/v1/functions/f", &[]).code(), "L2001");
}

#[test]
fn a_restart_keeps_functions_versions_state_and_tokens() {
    let node = Node::start();
    node.deploy_one("counter", "counter", json!({ "grants": { "stores": ["counters"] } }));
    node.deploy_one("f", "hello", json!({}));
    node.deploy_one("f", "hello", json!({ "config": { "changed": "yes" } }));
    node.api("POST", "/v1/functions/f/rollback", &[]);
    assert_eq!(node.call("counter", "").text(), "1\n");
    let (token, data) = (node.token.clone(), node.data.clone());
    let folder = node.stop();

    let node = Node::start_in(&data, &[]);
    assert_eq!(node.token, token);
    assert_eq!(node.call("counter", "").text(), "2\n");
    assert_eq!(versions(&node, "f"), (1, vec![2, 1]));
    assert_eq!(node.get("/f").text(), "hello, world\n");
    // The next number is a new one, not that of a version somebody has seen already.
    node.deploy_one("f", "hello", json!({ "config": { "changed": "again" } }));
    assert_eq!(versions(&node, "f").0, 3);
    drop((node, folder));
}

#[test]
fn all_functions_of_a_manifest_change_or_none_does() {
    let node = Node::start();
    node.deploy_one("a", "hello", json!({}));
    let good = json!({ "image": node.upload("counter"), "http": "/a" });
    let core = b"\0asm\x01\0\0\0";
    node.api("PUT", &format!("/v1/images/{}", hash(core)), core);
    let last = node.deploy(json!({ "a": good, "b": { "image": hash(core), "http": "/b" } }));
    assert_eq!((&last["step"], &last["problem"]["code"]), (&json!("failed"), &json!("L2004")));
    assert_eq!(versions(&node, "a"), (1, vec![1]));
    assert_eq!(node.get("/a").text(), "hello, world\n");
    assert_eq!(node.call("b", "").code(), "L2001");
}

#[test]
fn bad_deployments_are_refused_each_with_its_code_and_change_nothing() {
    let node = Node::start();
    node.deploy_one("taken", "hello", json!({}));
    let hello = node.upload("hello");
    let upload = |bytes: &[u8]| {
        node.api("PUT", &format!("/v1/images/{}", hash(bytes)), bytes);
        hash(bytes)
    };
    let truncated = upload(&fixture("hello")[..2_000]);
    let text = upload(b"#!/bin/sh");
    // An empty component: sound, but it exports nothing.
    let empty = upload(b"\0asm\x0d\0\x01\0");
    for (function, code) in [
        (json!({ "image": text }), "L2004"),
        (json!({ "image": truncated }), "L2004"),
        (json!({ "image": empty }), "L2007"),
        (json!({ "image": "0".repeat(64) }), "L2003"),
        (json!({ "image": "hello.wasm" }), "L1004"),
        (json!({ "image": hello, "http": "/taken" }), "L2010"),
        (json!({ "image": hello, "grants": { "secrets": ["NOT_SET"] } }), "L4014"),
        // This node does not listen for boards.
        (json!({ "image": hello, "isolation": "metal" }), "L6102"),
    ] {
        let last = node.deploy(json!({ "new": function }));
        assert_eq!(last["problem"]["code"], code, "{function}: {last}");
        assert!(last["problem"]["hint"].is_string() || code == "L2010", "{last}");
    }
    for (manifest, code) in [
        ("{", "L1004"),
        ("{}", "L1004"),
        (r#"{"function":{"Bad Name":{"image":"x"}}}"#, "L1004"),
        (r#"{"function":{"f":{"image":"x","limit":{}}}}"#, "L1003"),
        (r#"{"function":{"f":{"image":"x","limits":{"time_ms":0}}}}"#, "L1004"),
    ] {
        let reply = node.api("POST", "/v1/deployments", manifest.as_bytes());
        assert_eq!((reply.status, reply.code().as_str()), (400, code), "{manifest}");
    }
    let big = vec![b' '; (16 << 20) + 1];
    assert_eq!(node.api("POST", "/v1/deployments", &big).code(), "L3006");
    let functions = node.api("GET", "/v1/functions", &[]).json();
    assert_eq!(functions.as_array().unwrap().len(), 1);
}

#[test]
fn bad_images_are_refused_each_with_its_code() {
    let node = Node::start_with(&["--image-bytes-max", "100000"]);
    let hello = fixture("hello");
    let put = |hash: &str, bytes: &[u8]| node.api("PUT", &format!("/v1/images/{hash}"), bytes).code();
    assert_eq!(put(&hash(b"other"), &hello), "L2006");
    assert_eq!(put("not-a-hash", &hello), "L4009");
    assert_eq!(put(&hash(&[0; 100_001]), &[0; 100_001]), "L2005");
    assert_eq!(node.api("HEAD", &format!("/v1/images/{}", hash(&hello)), &[]).status, 404);
    assert_eq!(put(&hash(&hello), &hello), "");
    assert_eq!(node.api("HEAD", &format!("/v1/images/{}", hash(&hello)), &[]).status, 200);
    assert_eq!(node.api("GET", &format!("/v1/images/{}", hash(&hello)), &[]).body, hello);
}

#[test]
fn no_request_is_dropped_while_versions_are_swapped() {
    let node = Arc::new(Node::start());
    node.deploy_one("f", "hello", json!({}));
    let (done, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (node, done, calls) = (node.clone(), done.clone(), calls.clone());
            thread::spawn(move || {
                while !done.load(SeqCst) {
                    let reply = node.get("/f?name=x");
                    assert_eq!((reply.status, reply.text().as_str()), (200, "hello, x\n"), "{}", reply.text());
                    calls.fetch_add(1, SeqCst);
                }
            })
        })
        .collect();
    for number in 0..10 {
        node.deploy_one("f", "hello", json!({ "config": { "number": number.to_string() } }));
        assert_eq!(node.api("POST", "/v1/functions/f/rollback", &[]).status, 200);
    }
    done.store(true, SeqCst);
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert!(calls.load(SeqCst) > 100, "{calls:?} calls");
}

#[test]
fn two_deployments_of_one_function_do_not_mix() {
    let node = Arc::new(Node::start());
    let image = node.upload("hello");
    let deploy = |number: usize| {
        let (node, image) = (node.clone(), image.clone());
        thread::spawn(move || {
            let function = json!({ "image": image, "config": { "number": number.to_string() } });
            node.api("POST", "/v1/deployments", json!({ "function": { "f": function } }).to_string().as_bytes())
        })
    };
    let replies: Vec<_> = (0..8).map(deploy).collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect();
    let done = replies.iter().filter(|reply| reply.status == 200).count();
    assert!(done >= 1);
    assert!(replies.iter().all(|reply| reply.status == 200 || reply.code() == "L2012"));
    assert_eq!(versions(&node, "f").0, done as u64);
}

#[test]
fn a_corrupt_artefact_is_made_again_from_its_image() {
    let node = Node::start();
    node.deploy_one("f", "hello", json!({}));
    let data = node.data.clone();
    let folder = node.stop();
    let damaged = damage(&data.join("warehouse/artefacts"));
    assert_eq!(damaged, 1);

    let node = Node::start_in(&data, &[]);
    assert_eq!(node.get("/f").text(), "hello, world\n");
    let metrics = node.api("GET", "/metrics", &[]).text();
    assert!(metrics.contains("\nlighter_artefacts_rebuilt_total 1\n"), "{metrics}");
    let logs = node.api("GET", "/v1/functions/f/logs", &[]).text();
    assert!(logs.contains("compiling the image again"), "{logs}");
    drop((node, folder));
}

#[test]
fn a_restart_compiles_nothing_again_unless_the_engine_is_another() {
    let node = Node::start();
    node.deploy_one("f", "hello", json!({}));
    let data = node.data.clone();
    let folder = node.stop();
    let compiled = |node: &Node, times: u32| {
        assert_eq!(node.get("/f").text(), "hello, world\n");
        let metrics = node.api("GET", "/metrics", &[]).text();
        for line in
            [format!("lighter_artefacts_rebuilt_total {times}"), format!("lighter_compile_seconds_count {times}")]
        {
            assert!(metrics.lines().any(|have| have == line), "{line} is not in {metrics}");
        }
    };
    let node = Node::start_in(&data, &["--access-log"]);
    compiled(&node, 0);
    let words = " INFO access: method=\"GET\" path=\"/f\" status=200 ";
    wait_for("the line of the request", || {
        node.said.lock().unwrap().iter().any(|line| line.contains(words)).then_some(())
    });
    node.stop();

    // What an artefact was made for is the name of the shelf it lies on.
    let shelves = data.join("warehouse/artefacts");
    let names = || -> Vec<String> {
        let entries = fs::read_dir(&shelves).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        entries.filter(|name| name.starts_with("wasm-")).collect()
    };
    let [current] = names().try_into().unwrap();
    fs::rename(shelves.join(&current), shelves.join("wasm-0123456789abcdef")).unwrap();
    let node = Node::start_in(&data, &[]);
    compiled(&node, 1);
    assert!(names().contains(&current), "{:?}", names());
    node.stop();
    compiled(&Node::start_in(&data, &[]), 0);
    drop(folder);
}

/// Turns a bit in every file below the folder; returns how many there were.
fn damage(folder: &Path) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            files += damage(&entry.path());
            continue;
        }
        let mut bytes = fs::read(entry.path()).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        // A new file: the old one may be mapped by whoever made it.
        fs::remove_file(entry.path()).unwrap();
        fs::write(entry.path(), bytes).unwrap();
        files += 1;
    }
    files
}

#[test]
fn a_function_that_does_not_start_says_why_though_its_log_goes_with_it() {
    let node = Node::start();
    let image = node.upload("start-trap");
    let problem = |last: &serde_json::Value| {
        let problem = last["problem"].clone();
        assert_eq!(problem["code"], "L2013", "{last}");
        // Where in the image it trapped.
        let detail = problem["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("unreachable") && detail.contains("it said:\n  0: "), "{detail}");
        problem["hint"].as_str().unwrap_or_default().to_owned()
    };
    let hint = problem(&node.deploy(json!({ "new": { "image": image } })));
    assert!(!hint.contains("lighter logs"), "there is none: {hint}");
    assert_eq!(node.api("GET", "/v1/functions/new/logs", &[]).code(), "L2001");

    node.deploy_one("old", "hello", json!({}));
    let hint = problem(&node.deploy(json!({ "old": { "image": image } })));
    assert!(hint.contains("`lighter logs old`"), "{hint}");
    assert!(node.api("GET", "/v1/functions/old/logs", &[]).text().contains("unreachable"));
    assert_eq!(node.call("old", "").status, 200);
}

#[test]
fn many_keys_are_deleted_by_one_request_and_no_more_than_it_may() {
    let node = Node::start();
    let lines: String = (0..1_200).map(|number| format!("{{\"key\":\"a{number:04}\",\"value\":\"1\"}}\n")).collect();
    let more = "{\"key\":\"b\",\"value\":\"1\"}\n{\"key\":\"c\",\"value\":\"1\"}\n";
    assert_eq!(node.api("POST", "/v1/buckets/many/import", (lines + more).as_bytes()).json()["keys"], 1_202);
    let delete = |what: serde_json::Value| node.api("POST", "/v1/buckets/many/delete", what.to_string().as_bytes());

    let first = delete(json!({ "prefix": "a" })).json();
    assert_eq!((first["deleted"].as_array().unwrap().len(), &first["more"]), (1_000, &json!(true)));
    let second = delete(json!({ "prefix": "a" })).json();
    assert_eq!((second["deleted"].as_array().unwrap().len(), &second["more"]), (200, &json!(false)));
    let named = delete(json!({ "keys": ["b", "gone"] })).json();
    assert_eq!((&named["deleted"], &named["missing"]), (&json!(["b"]), &json!(["gone"])));

    let too_many: Vec<String> = (0..1_001).map(|number| number.to_string()).collect();
    for bad in [json!({}), json!({ "keys": ["c"], "prefix": "c" }), json!({ "keys": too_many }), json!({ "key": "c" })]
    {
        assert_eq!(delete(bad.clone()).code(), "L4009", "{bad}");
    }
    assert_eq!(node.api("POST", "/v1/buckets/.results/delete", b"{\"prefix\":\"\"}").code(), "L4009");
    assert_eq!(node.api("GET", "/v1/buckets/many/keys", &[]).json()["keys"].as_array().unwrap().len(), 1);
}
