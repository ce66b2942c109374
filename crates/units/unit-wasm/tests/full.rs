//! Units that hold all the host lets them hold: the process stays within the node's budget.
//!
//! One unit with 20,000 sets of full header fields took 2.4 GB of the node, with no grant and a limit of 64 MiB.
//!
//! A program of its own, because it measures the memory of its process.

#[path = "all/stage/mod.rs"]
mod stage;

use budget::{Budget, Purpose};
use handling::{Call, Content, Reply, Work};
use http_body_util::BodyExt;
use problem::{Code, Problem};
use stage::{empty, image, stage_within};
use std::fs;
use std::time::{Duration, Instant};
use unit_wasm::{Config, WasmClass};

fn class() -> WasmClass {
    // Of WASI 0.3 there are half as many.
    WasmClass::new(Config { units_max: 40 }).unwrap()
}

const BUDGET_BYTES: u64 = 256 << 20;
const UNITS: usize = 12;

/// Bytes of this process that are in RAM.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

const HTTP: [&str; 4] = ["/full/fields", "/full/requests", "/full/bodies", "/full/mixed"];
const TASKS: [&str; 6] = [
    "/full/streams?count=3000",
    "/full/timers?count=9000",
    "/full/fields?count=900",
    "/full/requests?count=500",
    "/full/bodies?count=900",
    "/full/errors?count=1000",
];
const STORE: [&str; 5] = ["/full/values", "/full/swaps", "/full/buckets", "/full/pollables", "/full/store"];

/// Why a unit ended. One that found no room in the node for what it writes is told so, and may say so.
async fn ended_by(handled: Result<Reply, Problem>) -> Problem {
    let response = match handled.map(|reply| reply.content) {
        Err(problem) => return problem,
        Ok(Content::Http(response)) => response,
        Ok(Content::Bytes(_)) => panic!("a wasi:http function replies with a response"),
    };
    let said = response.into_body().collect().await.unwrap().to_bytes();
    let said = String::from_utf8(said.to_vec()).unwrap();
    assert!(said.contains("host_calls do not fit"), "{said}");
    Problem::new(Code::MemoryFull, said)
}

// One test, for its figure is the whole process's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_resources_of_every_kind_stay_within_the_budget() {
    let of = |name: &'static str, paths: &'static [&'static str]| paths.iter().map(move |path| (name, path));
    for (name, path) in
        of("attack-http.wasm", &HTTP).chain(of("drafts-http.wasm", &STORE)).chain(of("attack-http03.wasm", &TASKS))
    {
        let image = image(name);
        let budget = Budget::new(BUDGET_BYTES);
        let stage = stage_within(name, &image, &budget, |function| {
            function.limits.concurrency = 100;
            function.grants.stores = vec!["default".to_owned()];
        });
        // The compiler's own memory is not what is looked at.
        let before = resident_bytes();
        let calls: Vec<_> = (0..UNITS)
            .map(|_| {
                let request = http::Request::get(format!("http://localhost{path}")).body(empty()).unwrap();
                let (handler, prepared, ended) = (stage.handler.clone(), stage.prepared.clone(), stage.ended.clone());
                let deadline = Instant::now() + Duration::from_secs(8);
                let call = Call { request_id: "test".into(), work: Work::Http(request), deadline, lease: None };
                tokio::spawn(async move { ended_by(handler.handle(prepared, call, ended).await).await })
            })
            .collect();
        let (mut most, mut held) = (before, 0);
        while !calls.iter().all(tokio::task::JoinHandle::is_finished) {
            most = most.max(resident_bytes());
            held = held.max(budget.used_bytes(Purpose::HostCalls));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut why = String::new();
        for call in calls {
            let problem = call.await.unwrap();
            // All it may have, more than that, or all the handles there are.
            let ends = [Code::TimeExceeded, Code::MemoryExceeded, Code::MemoryFull, Code::UnitTrapped];
            assert!(ends.contains(&problem.code), "{path}: {problem}");
            why = problem.to_string();
        }
        let grown = most - before;
        println!("{path}: {} MiB more in RAM, {} MiB counted for host calls; {why}", grown >> 20, held >> 20);
        assert!(grown < BUDGET_BYTES, "{path}: {grown} bytes more than before");
        assert!(held > 0, "{path}: what the host keeps is counted");
        stage.is_empty().await;
        assert_eq!(budget.total_bytes(), 0, "{path}: all is given back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_find_no_room_in_a_node_that_has_none() {
    let image = image("hello-http.wasm");
    let budget = Budget::new(1 << 20);
    let stage = stage_within("hello-http.wasm", &image, &budget, |_| {});
    assert_eq!(stage.fails("/", Duration::from_secs(5)).await, Code::MemoryFull, "it never will have room");
    assert!(budget.refused_count(Purpose::Units) > 0);
    assert_eq!(budget.total_bytes(), 0);

    // Another function has all memory for a while. Events of this one have not been tried meanwhile, and while each
    // look at them counted as a try, they were dead letters after seconds.
    let budget = Budget::new(64 << 20);
    let stage = stage_within("hello-http.wasm", &image, &budget, |_| {});
    let part = budget.part_bytes(Purpose::Units);
    for left in [100 << 10, 700 << 10] {
        let others = budget.take(Purpose::Units, part - left).unwrap();
        assert_eq!(stage.fails("/", Duration::from_secs(5)).await, Code::NodeFull, "{left} bytes are left");
        assert_eq!(budget.total_bytes(), others.bytes());
    }
}
