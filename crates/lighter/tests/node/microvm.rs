//! microvm functions on a real node: the images of the wasm class, in machines of their own, with all that hosts give.
//!
//! Skipped where KVM does not work; a line then says so.

use crate::receiver::Receiver;
use crate::support::{Node, send};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

/// A node whose machine has KVM.
pub fn start() -> Option<Node> {
    let node = Node::start();
    let last = node.deploy(json!({ "probe": { "image": node.upload("hello"), "isolation": "microvm" } }));
    match last["problem"]["code"].as_str() {
        None => Some(node),
        Some("L6010") => {
            println!("skipped: kvm: microvm functions on a node: {}", last["problem"]["detail"]);
            None
        }
        Some(_) => panic!("{last}"),
    }
}

fn deploy(node: &Node, name: &str, image: &str, more: Value) {
    let mut function = json!({ "isolation": "microvm" });
    function.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    node.deploy_one(name, image, function);
}

fn logs(node: &Node, name: &str) -> String {
    node.api("GET", &format!("/v1/functions/{name}/logs"), &[]).text()
}

#[test]
fn a_function_is_called_over_http_and_keeps_what_it_stored() {
    let Some(node) = start() else { return };
    deploy(&node, "counter", "counter", json!({ "grants": { "stores": ["counters"] } }));
    for count in 1..=3 {
        let reply = send("POST", &format!("{}/counter", node.gate), &[], b"k");
        assert_eq!((reply.status, reply.text()), (200, format!("{count}\n")));
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..25).for_each(|_| assert_eq!(node.call("counter", "k").status, 200)));
        }
    });
    let data = node.data.clone();
    let _folder = node.kill();
    // The artefact is a snapshot by now, and what was counted is durable: the first call of another process goes on.
    let node = Node::start_in(&data, &[]);
    assert_eq!(node.call("counter", "k").text(), "104\n");
    // The same image in the class `wasm`: the same bucket.
    node.deploy_one("plain", "counter", json!({ "grants": { "stores": ["counters"] } }));
    assert_eq!(node.call("plain", "k").text(), "105\n");
    node.stop();
}

/// A tender may not even write to a socket, and so could not pass on what a signal says.
#[test]
fn a_signal_for_the_node_never_comes_to_a_tender() {
    let Some(mut node) = start() else { return };
    let tasks = fs::read_dir(format!("/proc/{}/task", node.pid())).unwrap().flatten().map(|task| task.path());
    let is_tender = |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "tender");
    let tenders: Vec<_> = tasks.filter(is_tender).collect();
    assert!(!tenders.is_empty(), "a deployment has started one");
    for tender in tenders {
        let status = fs::read_to_string(tender.join("status")).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        let blocked = u64::from_str_radix(blocked, 16).unwrap();
        for signal in [Signal::INT, Signal::TERM, Signal::CHILD].map(Signal::as_raw) {
            assert!(blocked & (1 << (signal - 1)) != 0, "signal {signal}: {blocked:x}");
        }
    }
    assert!(Command::new("kill").arg(node.pid().to_string()).status().unwrap().success());
    assert!(node.wait(), "it ends well");
}

#[test]
fn a_handling_is_one_transaction() {
    let Some(node) = start() else { return };
    let attack = json!({
        "grants": { "push": ["attacked"], "pop": ["attacked"], "stores": ["attack"] },
        "image": node.upload("attack"), "isolation": "microvm",
    });
    let relay = json!({
        "queue": "in", "config": { "to": "attacked", "count": "relayed" },
        "grants": { "push": ["attacked"], "stores": ["counters"] },
        "image": node.upload("relay"), "isolation": "microvm",
    });
    let counter = json!({ "image": node.upload("counter"), "grants": { "stores": ["counters"] } });
    let functions = json!({ "attack": attack, "relay": relay, "counter": counter });
    let last = node.deploy_manifest(json!({ "function": functions, "queue": { "attacked": { "cycle": true } } }));
    assert_eq!(last["step"], "done", "{last}");
    // What a failed handling pushed and wrote never was.
    assert_eq!(node.call("attack", "push-then-trap 3").code(), "L6001");
    assert_eq!(node.call("attack", "push-then-retry 3").code(), "L6004");
    assert_eq!(node.call("attack", "pop").text(), "nothing");
    assert_eq!(node.call("attack", "push 2").text(), "pushed");
    assert_eq!(node.call("attack", "pop-then-trap").code(), "L6001");
    assert_eq!(node.call("attack", "pop").text(), "1");
    assert_eq!(node.call("attack", "pop").text(), "2");
    // Ack, push and count of each event are one.
    assert_eq!(node.push("in", "count=50", "e").status, 201);
    node.drained("in");
    assert_eq!(node.queue("attacked")["ready"], 50);
    assert_eq!(node.call("counter", "relayed").text(), "51\n");
    node.stop();
}

#[test]
fn log_random_clock_and_outgoing_requests_work_from_inside() {
    let Some(node) = start() else { return };
    deploy(&node, "attack", "attack", json!({ "limits": { "time_ms": 20_000, "cpu_ms": 200 } }));
    assert_eq!(node.call("attack", "log-flood 3").status, 200);
    assert!(logs(&node, "attack").contains("line 2 of a flood"));
    let [first, second] = [0, 1].map(|_| node.call("attack", "random-huge 16").body);
    assert!(first.len() == 16 && first != second, "another call, other random bytes");
    assert_eq!(node.call("attack", "clock-loop").code(), "L3002");

    let receiver = Receiver::start(|_, _| Some("201 Made".to_owned()));
    let host = receiver.url.strip_prefix("http://").unwrap();
    deploy(&node, "fetch", "fetch", json!({ "grants": { "hosts": [host] } }));
    let trace = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let url = format!("{}/hello", receiver.url);
    assert!(send("POST", &format!("{}/fetch", node.gate), &[trace], url.as_bytes()).text().starts_with("201\n"));
    let request = receiver.next();
    assert!(request.line.starts_with("GET /hello "), "{}", request.line);
    assert_eq!(request.header("traceparent"), trace.1);
    deploy(&node, "denied", "fetch", json!({}));
    let reply = node.call("denied", &receiver.url);
    assert!(reply.code() == "L6005" && reply.text().contains("no grant covers http.send"), "{}", reply.text());
    assert!(receiver.rest().is_empty());
    node.stop();
}

#[test]
fn crashes_and_limits_are_those_of_every_class_and_neighbours_do_not_notice() {
    let Some(node) = start() else { return };
    let limits = json!({ "limits": { "memory_bytes": 16 << 20, "cpu_ms": 200 }, "units": { "dump": true } });
    deploy(&node, "attack", "attack", limits);
    for (data, code) in [("loop", "L3002"), ("memory", "L3003"), ("recurse", "L3005"), ("unreachable", "L6001")] {
        assert_eq!(node.call("attack", data).code(), code, "{data}");
        assert_eq!(node.call("probe", "you").text().trim(), "hello, you");
    }
    assert!(logs(&node, "attack").contains("guests/attack/src/lib.rs:"), "a trap names its line");
    let dump = node.api("GET", "/v1/functions/attack/dump", &[]);
    assert!(dump.status == 200 && dump.body.starts_with(b"\x7fELF"), "{}", dump.status);
    if has_gdb() {
        let file = node.data.join("core");
        fs::write(&file, &dump.body).unwrap();
        let commands = ["-ex", "info registers rip rsp", "-ex", "x/1gx 0x100000", "-ex", "info threads"];
        let said = Command::new("gdb").args(["-q", "-nx", "-batch", "-c"]).arg(&file).args(commands).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        // Its boot page begins with a word of ours.
        assert!(said.contains("signal SIGSEGV") && said.contains("0x007265746867696c"), "{said}");
        assert!(said.contains("rip ") && said.contains("* 1 "), "{said}");
    }
    node.stop();
}

fn has_gdb() -> bool {
    let has = Command::new("gdb").arg("--version").output().is_ok();
    if !has {
        println!("skipped: gdb: the debugger of microvm functions");
    }
    has
}

#[test]
fn a_call_is_debugged_in_its_machine() {
    let Some(node) = start().filter(|_| has_gdb()) else { return };
    deploy(&node, "attack", "attack", json!({}));
    let lighter = |arguments: &[&str]| {
        let mut line = Command::new("timeout");
        line.args(["100", env!("CARGO_BIN_EXE_lighter"), "debug", "attack", "--batch", "--data"]).args(arguments);
        let output = line.arg("--data-folder").arg(&node.data).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        (output.status.code(), said)
    };
    let (status, said) = lighter(&["push 1", "--break", "attack::push"]);
    assert!(said.contains("Breakpoint 1, attack::push") && said.contains("#1 ") && said.contains("L6005"), "{said}");
    assert_eq!(status, Some(1), "no grant");
    let (status, said) = lighter(&["log-flood 1", "--break", "attack::flood_log"]);
    assert!(status == Some(0) && said.contains("Breakpoint 1, attack::flood_log"), "{said}");
    node.stop();
}

#[test]
fn what_the_kernel_does_not_offer_is_refused_at_deploy() {
    let Some(node) = start() else { return };
    for (image, code, named) in
        [("unknown-import", "L2008", "guests:unknown-import/oracle"), ("wrong-world", "L2007", "exports")]
    {
        let last = node.deploy(json!({ "odd": { "image": node.upload(image), "isolation": "microvm" } }));
        assert_eq!((&last["step"], &last["problem"]["code"]), (&json!("failed"), &json!(code)), "{last}");
        assert!(last["problem"]["detail"].as_str().unwrap().contains(named), "{last}");
    }
    node.stop();
}

/// The image of the class `wasm` that takes requests, and what its store, its bodies and its own requests do.
#[test]
fn requests_are_served_in_machines() {
    let Some(node) = start() else { return };
    deploy(&node, "hello", "hello-http", json!({}));
    deploy(&node, "echo", "echo-http", json!({}));
    let grants = json!({ "stores": ["default"] });
    deploy(&node, "kv", "kv-http", json!({ "grants": grants, "http": "/keys/*" }));
    let reply = send("GET", &format!("{}/hello", node.gate), &[], b"");
    assert_eq!((reply.status, reply.text()), (200, "hello, world\n".into()));
    let large = vec![b'x'; 300_000];
    let reply = send("POST", &format!("{}/echo", node.gate), &[], &large);
    assert!(reply.status == 200 && reply.text().len() == large.len());
    assert_eq!(send("PUT", &format!("{}/keys/a", node.gate), &[], b"1").status, 200);
    // The same image in the class `wasm`: the same bucket.
    node.deploy_one("kv", "kv-http", json!({ "grants": grants, "http": "/keys/*" }));
    assert_eq!(send("GET", &format!("{}/keys/a", node.gate), &[], b"").text(), "1");
    node.stop();
}
