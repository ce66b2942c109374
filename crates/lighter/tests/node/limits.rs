//! Functions that misbehave: each gets its error, and its neighbours do not notice.

use crate::support::{Node, send, wait_for};
use serde_json::json;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

fn attacked() -> Node {
    let node = Node::start();
    let limits = json!({
        "time_ms": 50_000, "cpu_ms": 100, "memory_bytes": 16 << 20, "body_bytes": 100_000,
        "concurrency": 4, "waiting": 0, "log_bytes": 4_096,
    });
    node.deploy_one("attack", "attack", json!({ "limits": limits, "grants": { "stores": ["attack"] } }));
    node.deploy_one("hello", "hello", json!({}));
    node
}

#[test]
fn every_attack_ends_with_its_code() {
    let node = attacked();
    for (attack, status, code) in [
        ("loop", 504, "L3002"),
        ("memory", 500, "L3003"),
        ("recurse", 500, "L3005"),
        ("unreachable", 500, "L6001"),
        ("panic", 500, "L6001"),
        ("invalid", 422, "L6003"),
        ("retry", 503, "L6004"),
        ("fatal", 500, "L6005"),
        ("big-reply 200000", 500, "L3011"),
    ] {
        let reply = node.call("attack", attack);
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{attack}: {}", reply.text());
    }
    let too_much = "x".repeat(100_001);
    assert_eq!(node.call("attack", &too_much).code(), "L3006");
    assert_eq!(node.call("attack", "store-set").text(), "written");
    assert_eq!(node.call("hello", "").text(), "hello, world\n");
    let stats = node.api("GET", "/v1/stats", &[]).json();
    let attack = stats.as_array().unwrap().iter().find(|one| one["function"] == "attack").unwrap();
    assert_eq!(
        (&attack["errors"]["L3002"], &attack["errors"]["L3006"], &attack["calls"]),
        (&json!(1), &json!(1), &json!(11))
    );
    node.call("attack", "log-flood 100");
    for limit in ["cpu_ms", "memory_bytes", "stack", "reply_bytes", "body_bytes"] {
        assert_eq!(exceeded(&node, "attack", limit), 1, "{limit}");
    }
    assert!(metric(&node, "lighter_log_bytes_dropped_total{function=\"attack\"}") > 10_000);
    assert_eq!(metric(&node, "lighter_log_bytes_dropped_total{function=\"hello\"}"), 0);
}

/// Calls of the function that ended at the limit.
fn exceeded(node: &Node, function: &str, limit: &str) -> u64 {
    metric(node, &format!("lighter_limits_exceeded_total{{function=\"{function}\",limit=\"{limit}\"}}"))
}

fn metric(node: &Node, name: &str) -> u64 {
    let page = node.api("GET", "/metrics", &[]).text();
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {page}"))
}

#[test]
fn neighbours_of_an_attacker_are_served() {
    let node = Arc::new(attacked());
    let done = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = (0..6)
        .map(|_| {
            let (node, done) = (node.clone(), done.clone());
            thread::spawn(move || {
                while !done.load(SeqCst) {
                    let code = node.call("attack", "loop").code();
                    assert!(["L3002", "L3007"].contains(&code.as_str()), "{code}");
                }
            })
        })
        .collect();
    let since = Instant::now();
    let mut slowest = Duration::ZERO;
    while since.elapsed() < Duration::from_secs(2) {
        let began = Instant::now();
        assert_eq!(node.get("/hello").status, 200);
        slowest = slowest.max(began.elapsed());
    }
    done.store(true, SeqCst);
    attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
    // Generous, for a machine that is busy with other things; a neighbour that starved would take seconds.
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

#[test]
fn every_attack_through_the_gate_has_its_answer_and_neighbours_do_not_notice() {
    let node = Node::start();
    let limits = |time_ms: u32, cpu_ms: u32| json!({ "time_ms": time_ms, "cpu_ms": cpu_ms, "memory_bytes": 32 << 20, "body_bytes": 100_000, "log_bytes": 4_096 });
    // Some go on until a limit of time ends them, the others end by another limit first, however slow the machine.
    let (hasty, patient) = (limits(600_000, 100), limits(600_000, 60_000));
    let attack = |limits: &serde_json::Value, route: &str| {
        let grants = json!({ "stores": ["attack"], "push": ["attacked"], "pop": ["attacked"] });
        json!({ "image": node.upload("attack"), "http": route, "limits": limits, "grants": grants })
    };
    let web = |limits: &serde_json::Value, routes: &[&str]| json!({ "image": node.upload("attack-http"), "http": routes, "limits": limits });
    let last = node.deploy_manifest(json!({ "queue": { "attacked": { "cycle": true } }, "function": {
        "hasty": attack(&hasty, "/hasty"),
        "patient": attack(&patient, "/patient"),
        "web": web(&patient, &["/*"]),
        "web-hasty": web(&hasty, &["/loop", "/early-then-loop", "/endless"]),
        "web-short": web(&limits(300, 60_000), &["/sleep", "/early-then-sleep"]),
        "hello": { "image": node.upload("hello"), "http": "/hello" },
        "counter": { "image": node.upload("counter"), "http": "/counter", "grants": { "stores": ["counters"] } },
    } }));
    assert_eq!(last["step"], "done", "{last}");
    let served = AtomicU32::new(0);
    let neighbours = || {
        assert_eq!(node.get("/hello?name=you").text(), "hello, you\n");
        let count = node.get("/counter").text().trim().parse().unwrap();
        assert_eq!(served.swap(count, SeqCst), count - 1, "nothing is lost and nothing done twice");
    };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let meanwhile = scope.spawn(|| {
            while !done.load(SeqCst) {
                neighbours();
            }
        });
        // An assertion below ends the thread too.
        let until = Done(&done);
        for (path, data, status, answer) in [
            ("/hasty", "loop", 504, "L3002"),
            ("/hasty", "log-flood", 504, "L3002"),
            ("/hasty", "clock-loop", 504, "L3002"),
            ("/patient", "recurse", 500, "L3005"),
            ("/patient", "memory", 500, "L3003"),
            ("/patient", "log-flood 10000", 200, ""),
            ("/patient", "log-line-big 8000000", 200, ""),
            ("/patient", "log-line-big 99000000", 500, "L3003"),
            ("/patient", "panic", 500, "L6001"),
            ("/patient", "unreachable", 500, "L6001"),
            ("/patient", "out-of-bounds", 500, "L6001"),
            ("/patient", "big-reply 200000", 500, "L3011"),
            ("/patient", "random-huge", 500, "L6001"),
            ("/patient", "remember", 200, "1"),
            ("/patient", "remember", 200, "1"),
            ("/patient", "store-flood", 500, "L6005"),
            ("/patient", "store-set", 200, "written"),
            ("/patient", "store-set-then-trap", 500, "L6001"),
            ("/patient", "invalid", 422, "L6003"),
            ("/patient", "retry", 503, "L6004"),
            ("/patient", "fatal", 500, "L6005"),
            ("/patient", "failure-big 8000000", 500, "L6005"),
            ("/patient", "push-then-trap 9", 500, "L6001"),
            ("/patient", "push-then-retry 9", 503, "L6004"),
            ("/patient", "push-big 9000000", 500, "L6005"),
            ("/patient", "push-flood", 500, "L6005"),
            ("/patient", "pop", 200, "nothing"),
            ("/patient", "push 2", 200, "pushed"),
            ("/patient", "pop-then-trap", 500, "L6001"),
            ("/patient", "pop", 200, "1"),
            ("/patient", "no such word", 422, "L6003"),
            ("/silent", "", 500, "L6002"),
            ("/error", "", 502, "L6006"),
            ("/loop", "", 504, "L3002"),
            ("/early-then-loop", "", 200, "early\n"),
            ("/half", "", 502, "L6006"),
            ("/too-much", "", 502, "L6006"),
            ("/trap", "", 500, "L6001"),
            ("/trap-in-body", "", 500, "L6001"),
            ("/set-twice", "", 500, "L6001"),
            ("/sleep", "", 504, "L3001"),
            ("/early-then-sleep", "", 200, "early\n"),
            ("/bad-header", "", 500, "L6001"),
            ("/bad-status", "", 500, "L6001"),
            ("/many-headers", "", 500, "L6001"),
            ("/keep-resources", "", 500, "L6001"),
            ("/stdout", "", 200, "done\n"),
        ] {
            let reply = send("POST", &format!("{}{path}", node.gate), &[], data.as_bytes());
            let said = if status < 300 { reply.text() } else { reply.code() };
            assert_eq!((reply.status, said.as_str()), (status, answer), "{path} {data}: {}", reply.text());
        }
        // What streams has begun well: its end is broken off, and cannot be taken for a whole one.
        let mut endless = ureq::get(format!("{}/endless", node.gate)).call().unwrap();
        assert!(io::copy(&mut endless.body_mut().as_reader(), &mut io::sink()).is_err());
        drop(until);
        meanwhile.join().unwrap();
    });
    neighbours();
    wait_for("the end of every unit", || (node.api("GET", "/v1/units", &[]).json() == json!([])).then_some(()));
    let errors = |function: &str| {
        let stats = node.api("GET", "/v1/stats", &[]).json();
        stats.as_array().unwrap().iter().find(|one| one["function"] == function).unwrap()["errors"].clone()
    };
    // Those that answered early are counted when they end.
    wait_for("three of too much CPU time", || (errors("web-hasty") == json!({ "L3002": 3 })).then_some(()));
    wait_for("two of too much time", || (errors("web-short") == json!({ "L3001": 2 })).then_some(()));
    assert_eq!([errors("hello"), errors("counter")], [json!({}), json!({})]);
    let metrics = node.api("GET", "/metrics", &[]).text();
    assert!(metrics.contains("\nlighter_request_bodies_bytes 0\n"), "{metrics}");
}

/// Says so when it is dropped.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn rate_and_concurrency_are_kept_to() {
    let node = Arc::new(Node::start());
    let slow = json!({ "time_ms": 50_000, "cpu_ms": 500, "concurrency": 1, "waiting": 0 });
    node.deploy_one("slow", "attack", json!({ "limits": slow }));
    node.deploy_one("often", "hello", json!({ "limits": { "rate_per_second": 1 } }));
    // Eight at once are too many for a second, unless the machine takes seconds for them.
    let since = Instant::now();
    let (mut served, mut refused) = (false, None);
    while !served || refused.is_none() {
        assert!(since.elapsed() < Duration::from_secs(30), "served: {served}, refused: {}", refused.is_some());
        let replies = thread::scope(|scope| {
            let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| node.get("/often"))).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect::<Vec<_>>()
        });
        for reply in replies {
            match reply.status {
                200 => served = true,
                _ => refused = Some(reply),
            }
        }
    }
    let refused = refused.unwrap();
    assert_eq!((refused.status, refused.code().as_str()), (429, "L3008"));
    assert!(refused.headers.contains_key("retry-after"));
    assert!(exceeded(&node, "often", "rate_per_second") > 0);

    // It may itself be refused, while one of the calls below has the only place.
    let running = thread::spawn({
        let node = node.clone();
        move || std::iter::repeat_with(|| node.call("slow", "loop").code()).find(|code| code != "L3007").unwrap()
    });
    let since = Instant::now();
    while node.call("slow", "").code() != "L3007" {
        assert!(since.elapsed() < Duration::from_secs(10), "the first call was never seen running");
    }
    assert_eq!(running.join().unwrap(), "L3002");
    assert!(exceeded(&node, "slow", "concurrency") > 0);
}

#[test]
fn calls_that_wait_too_long_are_counted_by_what_they_waited_for() {
    let node = Node::start_with(&["--units-max", "1"]);
    let call = |function: &str| node.api("POST", &format!("/v1/functions/{function}/call?method=GET&path=/sleep"), &[]);
    node.deploy_one("late", "attack-http", json!({ "limits": { "time_ms": 1 } }));
    assert_eq!(call("late").code(), "L3001");
    assert_eq!(exceeded(&node, "late", "time_ms"), 1);

    let limits = json!({ "time_ms": 600_000, "concurrency": 1, "waiting": 1, "wait_ms": 2_000 });
    node.deploy_one("sleeps", "attack-http", json!({ "limits": limits }));
    node.deploy_one("other", "hello", json!({ "limits": { "wait_ms": 1 } }));
    // Sleeps for as long as its caller is there.
    let address = node.api.strip_prefix("http://").unwrap();
    let mut caller = TcpStream::connect(address).unwrap();
    let head = "POST /v1/functions/sleeps/call?method=GET&path=/sleep HTTP/1.1\r\ncontent-length: 0\r\n";
    write!(caller, "{head}host: {address}\r\nauthorization: Bearer {}\r\n\r\n", node.token).unwrap();
    let since = Instant::now();
    while !node.api("GET", "/v1/units", &[]).text().contains("sleeps") {
        assert!(since.elapsed() < Duration::from_secs(30), "the call was never seen running");
    }
    assert_eq!((call("sleeps").code(), node.call("other", "").code()), ("L3009".into(), "L3010".into()));
    assert_eq!((exceeded(&node, "sleeps", "wait_ms"), exceeded(&node, "other", "units_max")), (1, 1));
}

#[test]
fn calls_that_run_may_end_when_the_node_stops() {
    // Long enough for a machine that is busy with other things.
    let mut node = Node::start_with(&["--drain-seconds", "50"]);
    node.deploy_one("slow", "attack", json!({ "limits": { "time_ms": 50_000, "cpu_ms": 700 } }));
    let (api, token) = (node.api.clone(), format!("Bearer {}", node.token));
    let call = thread::spawn(move || {
        send("POST", &format!("{api}/v1/functions/slow/call"), &[("authorization", &token)], b"loop")
    });
    let since = Instant::now();
    while !node.api("GET", "/v1/units", &[]).text().contains("slow") {
        assert!(since.elapsed() < Duration::from_secs(10), "the call was never seen running");
    }
    assert_eq!(node.api("POST", "/v1/stop", &[]).status, 202);
    assert_eq!(call.join().unwrap().code(), "L3002");
    assert!(node.wait());
    assert!(!node.data.join("node.json").exists());
}

#[test]
fn bodies_of_the_api_count_among_all_bodies() {
    let node = Node::start_with(&["--bodies-bytes-max", "1048576"]);
    node.deploy_one("hello", "hello", json!({}));
    assert_eq!(node.deploy_manifest(json!({ "queue": { "log": {} } }))["step"], "done");
    let large = vec![b'x'; 2 << 20];
    let queue = "/v1/queues/log/events";
    // Alone too large for the room: there is no use in trying again.
    let never = node.api("POST", queue, &large);
    assert_eq!((never.status, never.code().as_str()), (413, "L3006"), "{}", never.text());
    assert!(never.json()["hint"].as_str().unwrap().contains("bodies_bytes_max"), "{}", never.text());
    let token = format!("Bearer {}", node.token);
    let headers = [("authorization", token.as_str()), ("content-type", "application/vnd.lighter.frame")];
    let framed = send("POST", &format!("{}/v1/functions/hello/call", node.api), &headers, &large);
    assert_eq!(framed.code(), "L3006", "{}", framed.text());
    // Of an import what is not durable yet: here a line that does not end, and is too large with its last bytes.
    let import = |body: &[u8]| node.api("POST", "/v1/buckets/b/import", body);
    let line = format!("{{\"key\":\"k\",\"value\":\"{}\"}}\n", "v".repeat(100));
    let refused = import(&[line.as_bytes(), &large[..1 << 20]].concat());
    assert_eq!(refused.code(), "L3006", "{}", refused.text());
    assert!(refused.text().contains("0 lines are imported"), "{}", refused.text());
    let imported = import(line.repeat(20_000).as_bytes());
    assert_eq!((imported.status, &imported.json()["keys"]), (200, &json!(20_000)), "a long one holds little at once");
    assert_eq!(node.api("POST", queue, b"small").status, 201);
    let metrics = node.api("GET", "/metrics", &[]).text();
    assert!(metrics.contains("lighter_request_bodies_bytes 0\n"), "all room is given back");
}

#[test]
fn failures_say_where_their_time_went_too() {
    let node = attacked();
    for attack in ["unreachable", "loop", "fatal"] {
        let reply = node.call("attack", attack);
        let timing = reply.headers.get("server-timing").unwrap_or_else(|| panic!("{attack}: {:?}", reply.headers));
        let run = timing.split(", ").find_map(|part| part.strip_prefix("run;dur=")).unwrap();
        let least = if attack == "loop" { 50.0 } else { 0.0 };
        assert!(run.parse::<f64>().unwrap() > least, "{attack}: {timing}");
    }
}

#[test]
fn tables_grow_to_their_limit_and_what_ends_there_is_named_after_it() {
    let node = Node::start();
    // It grows its table until that is refused, and goes on.
    let limited = |elements: u32| json!({ "limits": { "table_elements": elements, "cpu_ms": 5_000 } });
    node.deploy_one("grows", "table-grow", limited(5_000));
    assert_eq!(node.call("grows", "").text(), "refused\n");
    // Without room for the table it begins with, there is no unit.
    let mut function = limited(0);
    function["image"] = node.upload("table-grow").into();
    let last = node.deploy(json!({ "none": function }));
    assert_eq!(last["problem"]["code"], "L3004", "{last}");
    assert_eq!(node.api("GET", "/v1/functions/none", &[]).code(), "L2001");
    assert_eq!(node.call("grows", "").text(), "refused\n");
}
