//! Attaching to units that work: where they are, their memory, and that neighbours and the unit itself go on.

use crate::process;
use crate::receiver::Receiver;
use crate::support::{Node, PROGRAM, Reply, send, wait_for};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use unit_process::bundle::Contract;

/// The unit of a function that serves a call.
fn at_work(node: &Node, function: &str) -> u64 {
    wait_for("a unit at work", || {
        let units = node.api("GET", "/v1/units", &[]).json();
        let unit =
            units.as_array()?.iter().find(|unit| unit["function"] == function && !unit["request_id"].is_null())?;
        unit["unit"].as_u64()
    })
}

fn attach(node: &Node, function: &str, unit: u64, query: &str) -> Reply {
    node.api("POST", &format!("/v1/functions/{function}/units/{unit}/attach{query}"), &[])
}

/// What was seen, and the core after it.
fn seen(reply: &Reply) -> (Value, &[u8]) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let end = reply.body.iter().position(|byte| *byte == b'\n').expect("a line of JSON");
    (serde_json::from_slice(&reply.body[..end]).unwrap(), &reply.body[end + 1..])
}

/// All that was seen, as text.
fn text(seen: &Value) -> String {
    let log = seen["log"].as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap());
    log.chain(seen["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()))
        .collect::<Vec<_>>()
        .join("\n")
}

fn audited(node: &Node, target: &str) -> Vec<String> {
    let entries = node.api("GET", "/v1/audit", &[]).json();
    let attached =
        entries.as_array().unwrap().iter().filter(|one| one["action"] == "attach" && one["target"] == target);
    attached.map(|one| one["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_wasm_unit_says_where_it_is_goes_on_and_gives_its_core_at_its_end() {
    let node = Node::start();
    let limits = json!({ "limits": { "time_ms": 60_000, "cpu_ms": 60_000 } });
    node.deploy_one("attack", "attack", limits);
    node.deploy_one("hello", "hello", json!({}));
    thread::scope(|scope| {
        let looping = scope.spawn(|| node.call("attack", "loop"));
        let unit = at_work(&node, "attack");
        for _ in 0..3 {
            let reply = attach(&node, "attack", unit, "");
            let (seen, core) = seen(&reply);
            assert!(core.is_empty() && seen["core_bytes"].is_null());
            assert!(text(&seen).contains("attack::spin"), "{seen}");
            // Neighbours are served while it is looked at, and it goes on.
            assert_eq!(node.call("hello", "").status, 200);
            assert_eq!(at_work(&node, "attack"), unit);
        }
        let output = Command::new(PROGRAM)
            .args(["debug", "--attach", &unit.to_string()])
            .env("LIGHTER_DATA", &node.data)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("attack::spin"), "{output:?}");

        let reply = attach(&node, "attack", unit, "?core=true");
        let (seen, core) = seen(&reply);
        assert!(core.starts_with(b"\0asm") && seen["core_bytes"] == core.len(), "{seen}");
        let ended = looping.join().unwrap();
        assert_eq!(ended.code(), "L6001", "{}", ended.text());
        assert!(ended.text().contains("was ended by whoever attached"), "{}", ended.text());
        assert_eq!(audited(&node, &format!("attack#{unit}")), ["done"; 5]);
    });
    assert_eq!(node.call("attack", "remember").status, 200, "another unit is well");
}

#[test]
fn who_cannot_be_attached_to_is_said_with_what_helps() {
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = is_asked.clone();
    let receiver = Receiver::start(move |_, _| {
        asked.store(true, Relaxed);
        thread::sleep(Duration::from_secs(4));
        Some("200 OK".to_owned())
    });
    let host = receiver.url.strip_prefix("http://").unwrap();
    let node = Node::start();
    node.deploy_one("fetch", "fetch", json!({ "grants": { "hosts": [host] } }));
    assert_eq!(attach(&node, "none", 1, "").code(), "L2001");
    assert_eq!(attach(&node, "fetch", 1_000_000, "").code(), "L2034");
    assert_eq!(attach(&node, "fetch", 1, "?cor=true").code(), "L4009");
    let token = node.api("POST", "/v1/tokens", br#"{"name": "caller", "scope": "call"}"#).json();
    let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
    let url = format!("{}/v1/functions/fetch/units/1/attach", node.api);
    assert_eq!(send("POST", &url, &[("authorization", &bearer)], &[]).code(), "L4006");
    thread::scope(|scope| {
        // It waits for an answer for longer than whoever attaches waits for it.
        let waiting = scope.spawn(|| node.call("fetch", &receiver.url));
        let unit = at_work(&node, "fetch");
        wait_for("its question", || is_asked.load(Relaxed).then_some(()));
        let began = Instant::now();
        let reply = attach(&node, "fetch", unit, "");
        assert_eq!(reply.code(), "L2036", "{}", reply.text());
        assert!(!reply.json()["hint"].as_str().unwrap().is_empty());
        assert!(began.elapsed() < Duration::from_secs(20), "nobody waits for ever");
        waiting.join().unwrap();
        assert_eq!(audited(&node, &format!("fetch#{unit}")), [reply.code()]);
    });
    let output = Command::new(PROGRAM)
        .args(["debug", "--attach", "many#words"])
        .env("LIGHTER_DATA", &node.data)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("L1101"), "{output:?}");
}

#[test]
fn python_in_a_process_says_where_it_is_and_goes_on() {
    let Some(node) = process::start_with(&[]) else { return };
    let source = "import time\n\
        def wait_for_it(until):\n    while time.monotonic() < until: sum(range(1000))\n    return 'done'\n\
        def work(event):\n    return wait_for_it(time.monotonic() + 4)\n";
    let image = node.upload_bytes(&process::bundle(Contract::Event, "", source));
    let last = node.deploy(json!({ "slow": { "image": image, "isolation": "process" } }));
    assert_eq!(last["step"], "done", "{last}");
    thread::scope(|scope| {
        let working = scope.spawn(|| node.call("slow", ""));
        let unit = at_work(&node, "slow");
        // It may just have been handed its event.
        thread::sleep(Duration::from_millis(500));
        let reply = attach(&node, "slow", unit, "");
        let (seen, _) = seen(&reply);
        let said = text(&seen);
        assert!(said.contains("wait_for_it") && said.contains("app.py\", line 3"), "{said}");
        assert!(said.contains("gdb -p "), "{said}");
        assert_eq!(attach(&node, "slow", unit, "?core=true").code(), "L2036");
        assert_eq!(working.join().unwrap().text(), "done", "it went on");
    });
}

#[test]
fn a_machine_is_stopped_for_its_registers_and_goes_on() {
    let node = Node::start();
    let limits = json!({ "time_ms": 8_000, "cpu_ms": 60_000 });
    let last = node.deploy(json!({ "spin": {
        "image": node.upload("attack"), "isolation": "microvm", "limits": limits,
    } }));
    if last["problem"]["code"] == "L6010" {
        println!("skipped: kvm: attaching to a microvm: {}", last["problem"]["detail"]);
        return;
    }
    assert_eq!(last["step"], "done", "{last}");
    thread::scope(|scope| {
        let looping = scope.spawn(|| node.call("spin", "loop"));
        let unit = at_work(&node, "spin");
        for _ in 0..3 {
            let reply = attach(&node, "spin", unit, "");
            let said = text(&seen(&reply).0);
            let next = if cfg!(target_arch = "x86_64") { "rip=0x" } else { "pc=0x" };
            assert!(said.contains(next) && said.contains("sp=0x"), "{said}");
        }
        let reply = attach(&node, "spin", unit, "?core=true");
        let (_, core) = seen(&reply);
        assert!(core.starts_with(b"\x7fELF"));
        assert_eq!(at_work(&node, "spin"), unit, "it goes on, core or not");
        assert_eq!(audited(&node, &format!("spin#{unit}")), ["done"; 4]);
        assert_eq!(looping.join().unwrap().code(), "L3001", "its own limit ends it");
    });
}
