//! Functions that rest, and functions that have one slot in turn.

use super::stage::{Stage, image, stage, stage_beside, stage_in};
use budget::{Budget, Purpose};
use event::Event;
use handling::{Call, Content, Work};
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit_wasm::{Config, WasmClass};

async fn answer(stage: &Stage, data: &str) -> Vec<u8> {
    let event = Event { kind: "test".into(), attempt: 1, data: data.into(), ..Event::default() };
    let deadline = Instant::now() + Duration::from_secs(60);
    let call = Call { request_id: "test".into(), work: Work::Event(event), deadline, lease: None };
    match stage.handler.handle(stage.prepared.clone(), call, stage.ended.clone()).await.unwrap().content {
        Content::Bytes(bytes) => bytes.to_vec(),
        Content::Http(_) => panic!("a function that takes events replies with bytes"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_rested_answers_as_before() {
    let stage = stage("hello.wasm", |_| {});
    for _ in 0..3 {
        assert_eq!(answer(&stage, "you").await, b"hello, you\n");
        stage.prepared.rests();
        stage.prepared.rests();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_holds_nothing_of_the_function_that_had_it_before() {
    let class = WasmClass::new(Config { units_max: 1 }).unwrap();
    let first = stage_beside(&class, "first", &image("attack.wasm"), |_| {});
    let other = stage_beside(&class, "other", &image("hello.wasm"), |_| {});
    let mapped = stage_beside(&class, "mapped", &image("echo-http.wasm"), |_| {});
    for _ in 0..3 {
        assert_eq!(answer(&first, "remember").await, b"1");
        assert_eq!(answer(&other, "you").await, b"hello, you\n");
        assert_eq!(mapped.text("POST", "/", "echo").await.1, "echo");
    }
}

/// Two units that waited for the next calls of their function were all the slots there were: no other function could
/// have one, for a day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_unit_gives_way_to_a_call_that_finds_no_slot() {
    let class = WasmClass::new(Config { units_max: 2 }).unwrap();
    let keeps = stage_beside(&class, "keeps", &image("echo-http.wasm"), |function| {
        function.units.reuse_calls = 1_000;
        function.units.reuse_idle_ms = 86_400_000;
    });
    let other = stage_beside(&class, "other", &image("hello.wasm"), |_| {});
    let slow = || keeps.text("GET", "/slow?lines=3&pause-ms=100", "");
    tokio::join!(slow(), slow());
    while keeps.prepared.units().iter().filter(|unit| unit.request_id.is_none()).count() < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        assert_eq!(answer(&other, "you").await, b"hello, you\n");
    }
    assert_eq!(keeps.prepared.units().len(), 1, "one of them was enough");
    assert!(other.log.0.lock().unwrap().is_empty(), "nothing of it is told");
    assert_eq!(keeps.text("POST", "/", "echo").await.1, "echo");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_unit_gives_way_to_a_call_that_finds_no_memory() {
    let class = WasmClass::new(Config { units_max: 20 }).unwrap();
    let budget = Budget::new(64 << 20);
    let [keeps, other] = ["keeps", "other"].map(|name| {
        stage_in(&class, Arc::new(state::RealDisk), name, &image("hello-http.wasm"), &budget, |function| {
            function.units.reuse_calls = 1_000;
        })
    });
    assert_eq!(keeps.text("GET", "/", "").await.0, 200);
    keeps.end().await.unwrap();
    let left = budget.part_bytes(Purpose::Units) - budget.used_bytes(Purpose::Units);
    let _others = budget.take(Purpose::Units, left - (100 << 10)).unwrap();
    assert_eq!(other.text("GET", "/", "").await.0, 200);
    assert!(keeps.prepared.units().is_empty(), "its unit has gone");
}
