//! On a machine that is busy with other things a call still gets what its limits promise, and its own error.
//!
//! Calls that run long are on threads of the idle class, which such a machine leaves next to nothing. A trap used to be
//! told as L3001 there: its source lines were looked up on such a thread, in the call's own time.
//!
//! A program of its own, because it wants every core for itself.

#[path = "all/stage/mod.rs"]
mod stage;

use event::Event;
use handling::{Call, Work};
use problem::Code;
use stage::{Stage, image, stage_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use unit_wasm::{Config, WasmClass};

fn class() -> WasmClass {
    WasmClass::new(Config { units_max: 20 }).unwrap()
}

/// Threads that want every core of the machine for themselves, three for each.
struct Busy {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn new() -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let spin = |_| {
            let done = done.clone();
            thread::spawn(move || while !done.load(Relaxed) {})
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self { threads: (0..3 * cores).map(spin).collect(), done: done.clone() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

async fn call(stage: &Stage, data: &str) -> Code {
    let event = Event { data: data.into(), attempt: 1, ..Event::default() };
    let deadline = Instant::now() + Duration::from_secs(60);
    let call = Call { request_id: "test".into(), work: Work::Event(event), deadline, lease: None };
    stage.handler.handle(stage.prepared.clone(), call, stage.ended.clone()).await.err().expect("it does not reply").code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_uses_up_its_cpu_time_and_a_trap_is_told_as_one_with_its_lines() {
    let stage = stage_of("attack", &image("attack.wasm"), |function| function.limits.cpu_ms = 300);
    let _busy = Busy::new();
    // So that the calls after them begin where the long ones run.
    for _ in 0..2 {
        assert_eq!(call(&stage, "loop").await, Code::CpuExceeded);
    }
    for (word, code) in [
        ("unreachable", Code::UnitTrapped),
        ("out-of-bounds", Code::UnitTrapped),
        ("panic", Code::UnitTrapped),
        ("recurse", Code::StackExceeded),
    ] {
        stage.log.0.lock().unwrap().clear();
        assert_eq!(call(&stage, word).await, code, "{word}");
        // A machine as busy as this one may have told the caller first.
        while !stage.log.0.lock().unwrap().iter().any(|line| line.contains("lib.rs:")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
