//! Process functions on a real node: deployed as bundles, called, killed with their node.
//!
//! Skipped where the system cannot make jails or has no Python with numpy; a line then says so.

use crate::receiver::Receiver;
use crate::support::{Node, send};
use problem::Problem;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use unit_process::bundle::{About, Bundle, Contract, Runtime};
use unit_process::{Config, ProcessClass};

/// A node with an interpreter that has numpy; none where there is no such thing, or no jail.
fn start() -> Option<Node> {
    start_with(&[])
}

pub fn start_with(options: &[&str]) -> Option<Node> {
    let Some(python) = python() else {
        println!("skipped: python-packages: process functions on a node: there is no Python with numpy");
        return None;
    };
    let python = python.display().to_string();
    let node = Node::start_with(&[&["--allow-weaker-jail", "--python", &python], options].concat());
    let info = node.api("GET", "/v1/node", &[]).json();
    let missing = info["missing_protections"].as_array().unwrap();
    match missing.iter().find(|missing| missing["protection"] == "jail") {
        None => Some(node),
        Some(missing) => {
            println!("skipped: jail: process functions on a node: {}", missing["why"]);
            None
        }
    }
}

/// The interpreter of the base that all tests share, beside the build: installing numpy takes longer than all of them.
fn python() -> Option<PathBuf> {
    static PYTHON: OnceLock<Option<PathBuf>> = OnceLock::new();
    PYTHON.get_or_init(|| make().inspect_err(|problem| println!("{problem}")).ok().and_then(|()| made())).clone()
}

fn make() -> Result<(), Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _within = runtime.enter();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bases");
    let (python, java, jail) = (None, None, Vec::new());
    ProcessClass::new(Config { folder, python, java, allow_weaker: true, units_bytes_max: 8 << 30, jail })?.make_base()
}

fn made() -> Option<PathBuf> {
    let bases = fs::read_dir(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bases")).ok()?;
    bases.flatten().map(|entry| entry.path().join("venv/bin/python")).find(|python| python.exists())
}

pub fn bundle(contract: Contract, python: &str, source: &str) -> Vec<u8> {
    let requires = vec!["numpy==2.0.0".into()];
    let about = About { python: python.into(), requires, ..About::new(contract, "app:work", Runtime::Python) };
    let files = BTreeMap::from([("app.py".to_owned(), source.as_bytes())]);
    Bundle { about, files }.pack().unwrap()
}

fn deploy(node: &Node, name: &str, image: &[u8]) -> serde_json::Value {
    let image = node.upload_bytes(image);
    node.deploy(json!({ name: { "image": image, "isolation": "process", "grants": { "stores": ["s"] } } }))
}

#[test]
fn events_and_calls_are_answered_and_nothing_outlives_the_node() {
    let Some(node) = start() else { return };
    let count = "from lighterage.unit import store\ndef work(event): return str(store.increment('s', 'count', 1))";
    assert_eq!(deploy(&node, "count", &bundle(Contract::Event, "", count))["step"], "done");
    assert_eq!(deploy(&node, "add", &bundle(Contract::Call, "", "def work(a, b): return a + b"))["step"], "done");
    for number in 1..=3 {
        assert_eq!(node.call("count", "").text(), number.to_string());
    }
    let list = frame::Value::List(vec![frame::Value::I64(40), frame::Value::I64(2)]);
    let body = frame::Value::Map(vec![("args", list), ("kwargs", frame::Value::Map(Vec::new()))]);
    let call =
        frame::Frame { kind: frame::Kind::Call, id: 0, body }.encode(frame::Checksum::Front, &frame::Limits::default());
    let reply = node.api("POST", "/v1/functions/add/call", &call.unwrap().to_vec());
    assert_eq!(reply.headers["content-type"], frame::MEDIA_TYPE);
    assert!(reply.headers["server-timing"].contains("decode;dur="), "{:?}", reply.headers);
    assert_eq!(frame::Frame::decode(&reply.body, &frame::Limits::default()).unwrap().body, frame::Value::I64(42));
    let info = node.api("GET", "/v1/node", &[]).json();
    assert!(info["python"]["speed"].as_f64().unwrap() > 0.0 && !info["python"]["numpy"].as_str().unwrap().is_empty());

    let units = below(node.pid());
    assert!(!units.is_empty());
    let data = node.data.clone();
    let _folder = node.kill();
    let began = Instant::now();
    while units.iter().any(|unit| is_running(*unit)) {
        assert!(began.elapsed() < Duration::from_secs(10), "units outlive a node that was killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let node = Node::start_in(&data, &["--allow-weaker-jail", "--python", &python().unwrap().display().to_string()]);
    assert_eq!(node.call("count", "").text(), "4");
    node.stop();
}

#[test]
fn a_bundle_for_another_python_is_refused_when_it_is_deployed() {
    let Some(node) = start() else { return };
    let last = deploy(&node, "old", &bundle(Contract::Call, "2.7", "def work(): ..."));
    assert_eq!(last["problem"]["code"], "L2015", "{last}");
    let last = deploy(&node, "unlucky", &bundle(Contract::Event, "", "raise ValueError('no luck')"));
    assert_eq!(last["problem"]["code"], "L2013", "{last}");
    assert!(last["problem"]["detail"].as_str().unwrap().contains("no luck"), "{last}");
    assert!(!last["problem"]["hint"].as_str().unwrap_or_default().contains("lighter logs"), "{last}");
    let last = deploy(&node, "broken", &bundle(Contract::Event, "", "def work(event): return 1/0"));
    assert_eq!(last["step"], "done");
    let reply = node.call("broken", "");
    assert_eq!((reply.status, reply.code().as_str()), (500, "L6001"), "{}", reply.text());
    assert!(reply.text().contains("ZeroDivisionError"), "{}", reply.text());
}

#[test]
fn what_a_process_function_sends_belongs_to_the_trace_of_its_call_unless_it_sets_another() {
    let Some(node) = start() else { return };
    let receiver = Receiver::start(|_, _| Some("200 OK".to_owned()));
    let source = "from lighterage.unit import http\n\
        def work(event):\n  url = event.data.decode()\n  http.send('GET', url)\n\
        \x20 http.send('GET', url, headers=[('traceparent', 'own')])\n  return 'sent'";
    let image = node.upload_bytes(&bundle(Contract::Event, "", source));
    let grants = json!({ "hosts": [receiver.url.strip_prefix("http://").unwrap()] });
    let function = json!({ "image": image, "isolation": "process", "http": "/fetch", "grants": grants });
    assert_eq!(node.deploy(json!({ "fetch": function }))["step"], "done");
    let callers = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("traceparent", callers), ("tracestate", "vendor=1")];
    let reply = send("POST", &format!("{}/fetch", node.gate), &headers, receiver.url.as_bytes());
    assert_eq!(reply.text(), "sent");
    let sent = [receiver.next(), receiver.next()];
    let sent = sent.each_ref().map(|request| [request.header("traceparent"), request.header("tracestate")]);
    assert_eq!(sent, [[callers, "vendor=1"], ["own", ""]]);
}

#[test]
fn a_call_that_starts_too_many_processes_is_counted_under_that_limit() {
    let Some(node) = start() else { return };
    let info = node.api("GET", "/v1/node", &[]).json();
    if info["missing_protections"].as_array().unwrap().iter().any(|missing| missing["protection"] == "process-limit") {
        println!("skipped: process-limit: a call that starts too many processes");
        return;
    }
    let source = "import os, time\ndef work(event):\n  while os.fork(): pass\n  time.sleep(50)";
    let image = node.upload_bytes(&bundle(Contract::Event, "", source));
    let function = json!({ "image": image, "isolation": "process", "limits": { "processes": 8 } });
    assert_eq!(node.deploy(json!({ "forks": function }))["step"], "done");
    let reply = node.call("forks", "");
    assert_eq!(reply.code(), "L3012", "{}", reply.text());
    let metrics = node.api("GET", "/metrics", &[]).text();
    assert!(metrics.contains("lighter_limits_exceeded_total{function=\"forks\",limit=\"processes\"} 1\n"), "{metrics}");
}

/// A module that leaves something at work in its zygote takes from the machine, or from the node, what no call's limits
/// count.
#[test]
fn what_works_beside_its_calls_is_ended_and_neighbours_do_not_notice() {
    const SPIN: &str = "def beside():\n  while True: pass\n";
    const SAY: &str =
        "def beside():\n  while flag[0] == 0: time.sleep(0.01)\n  while True: control.send(b'exited 63 0')\n";
    const PRINT: &str = "def beside():\n  while True: os.write(1, bytes(65536))\n";
    let Some(node) = start() else { return };
    // A byte that zygote and children share says when a call waits.
    let source = |beside: &str| {
        format!(
            "import mmap, os, socket, threading, time\nflag = mmap.mmap(-1, 1)\n\
             control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=os.dup(0))\n{beside}\
             threading.Thread(target=beside, daemon=True).start()\n\
             def work(event):\n  flag[0] = event.data == b'wait'\n  time.sleep(55 * flag[0])\n  return b'here'"
        )
    };
    let deploy = |name: &str, source: &str| {
        let image = node.upload_bytes(&bundle(Contract::Event, "", source));
        let function = json!({ "image": image, "isolation": "process", "limits": { "time_ms": 600_000 } });
        assert_eq!(node.deploy(json!({ name: function }))["step"], "done");
    };
    deploy("neighbour", "def work(event): return 'here'");
    assert_eq!(node.call("neighbour", "").text(), "here");
    for (name, beside) in [("spin", SPIN), ("say", SAY)] {
        deploy(name, &source(beside));
        let waiting = node.call(name, "wait");
        assert_eq!((waiting.status, waiting.code().as_str()), (500, "L6011"), "{name}: {}", waiting.text());
        let log = node.api("GET", &format!("/v1/functions/{name}/logs"), &[]).text();
        assert!(log.contains("error[L6011]"), "{name}: {log}");
        assert_eq!(node.call("neighbour", "").text(), "here");
        assert_eq!(node.call(name, "").text(), "here", "{name} is started again when it is called");
        assert_eq!(node.api("DELETE", &format!("/v1/functions/{name}"), &[]).status, 204);
    }
    deploy("print", &source(PRINT));
    assert_eq!(node.call("print", "").text(), "here");
    let (began, before) = (Instant::now(), cpu_ticks(node.pid()));
    while began.elapsed() < Duration::from_secs(3) {
        assert_eq!(node.call("neighbour", "").text(), "here");
        std::thread::sleep(Duration::from_millis(100));
    }
    let ticks = cpu_ticks(node.pid()) - before;
    assert!(ticks < 150, "the node took {ticks} ticks of 10 ms in 3 s to read what is printed");
    assert_eq!(node.call("print", "").text(), "here");
    assert_eq!(node.api("DELETE", "/v1/functions/print", &[]).status, 204);

    let began = Instant::now();
    let left = || below(node.pid()).into_iter().filter(|process| is_running(*process)).count();
    // The keeper of the neighbour's jail, its zygote and its spares.
    while left() > 4 {
        assert!(began.elapsed() < Duration::from_secs(30), "{} processes are left", left());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn warm_units_are_there_without_a_call_and_again_when_one_was_killed_or_the_node_was() {
    let Some(node) = start() else { return };
    let image = node.upload_bytes(&bundle(Contract::Event, "", "def work(event): return 'here'"));
    let function = json!({ "image": image, "isolation": "process", "place": { "warm": 4 } });
    assert_eq!(node.deploy(json!({ "greet": function }))["step"], "done");
    let running =
        |node: &Node| -> Vec<u32> { below(node.pid()).into_iter().filter(|process| is_running(*process)).collect() };
    // The keeper of the jail, its zygote, and those that are kept ready: two more than without a word. Six for a moment
    // may be five and one that is about to end.
    let until_ready = |node: &Node| {
        let began = Instant::now();
        loop {
            let before = running(node);
            std::thread::sleep(Duration::from_millis(200));
            if before.len() == 6 && before == running(node) {
                return before;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{} processes", before.len());
        }
    };
    until_ready(&node);
    assert_eq!(node.call("greet", "").text(), "here");
    let youngest = until_ready(&node).into_iter().max().unwrap();
    assert!(Command::new("kill").args(["-9", &youngest.to_string()]).status().unwrap().success());
    until_ready(&node);

    let data = node.data.clone();
    let _folder = node.kill();
    let python = python().unwrap().display().to_string();
    let node = Node::start_in(&data, &["--allow-weaker-jail", "--python", &python]);
    until_ready(&node);
    assert_eq!(node.call("greet", "").text(), "here");
}

/// CPU time a process has used, in hundredths of a second.
fn cpu_ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Processes below this one.
fn below(process: u32) -> Vec<u32> {
    let children = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten().flat_map(|thread| {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<u32>>()
    });
    children.flat_map(|child| [vec![child], below(child)].concat()).collect()
}

fn is_running(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// The metrics said nothing of process units: a node whose memory they had used up showed that it held none.
#[test]
fn memory_of_process_units_is_in_the_metrics() {
    let Some(node) = start() else { return };
    let source =
        "import time\ndef work(event):\n    held = b'x' * (40 << 20)\n    time.sleep(2)\n    return str(len(held))";
    deploy(&node, "fat", &bundle(Contract::Event, "", source));
    let read = || {
        let metrics = node.api("GET", "/metrics", &[]).text();
        let value = |name: &str| -> Option<u64> {
            let line = format!("{name}{{for=\"process_units\"}} ");
            metrics.lines().find_map(|text| text.strip_prefix(&line)?.parse().ok())
        };
        Some((value("lighter_memory_bytes")?, value("lighter_memory_bytes_max")?))
    };
    let Some((before, bytes_max)) = read() else {
        return println!("skipped: memory-groups: the memory of process units in the metrics");
    };
    assert!(before > 0 && bytes_max > before, "{before} of {bytes_max}");
    let most = std::thread::scope(|scope| {
        let call = scope.spawn(|| assert_eq!(node.call("fat", "").status, 200));
        let mut most = 0;
        while !call.is_finished() {
            most = most.max(read().unwrap().0);
            std::thread::sleep(Duration::from_millis(50));
        }
        most
    });
    assert!(most >= before + (30 << 20), "{before} before, {most} at most");
}
