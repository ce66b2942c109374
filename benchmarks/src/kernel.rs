//! `bench kernel`: what a microvm unit costs, beside the other classes and a container.
//!
//! The classes run in this process, called as the node calls them, without HTTP and dispatcher around them.

mod compute;
mod linux_starts;
mod live;
mod machines;
mod starts;
mod steps;
mod versus;

use crate::report::{Bar, Promise};
use crate::run::{self, Bench, Options, Part};
use anyhow::Context as _;
use event::Event;
use manifest::{Function, Name};
use problem::Problem;
use state::State;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit::{Artefact, Call, Content, Contract, Deployed, Ended, LogLine, LogSink, Prepared, UnitKind, Watch, Work};
use unit_microvm::MicrovmKind;
use unit_wasm::WasmKind;

const PROMISES: [Promise; 17] = [
    Promise {
        name: "microvm_start_p50_ms",
        bar: Bar::AtMost(0.6),
        says: "a unit in a machine that was nobody's: asked for until its first instruction has told so",
    },
    Promise {
        name: "microvm_start_from_nothing_p50_ms",
        bar: Bar::AtMost(2.0),
        says: "the same where no machine waits: thread, filter, VM and all",
    },
    Promise {
        name: "microvm_fresh_call_p50_ms",
        bar: Bar::AtMost(1.0),
        says: "a call to a fresh unit, request to reply",
    },
    Promise { name: "microvm_fresh_call_p99_ms", bar: Bar::AtMost(4.0), says: "the same" },
    Promise {
        name: "microvm_warm_call_p50_ms",
        bar: Bar::AtMost(0.2),
        says: "calls to a unit that is used again, one after another",
    },
    Promise {
        name: "microvm_compute_vs_wasm",
        bar: Bar::AtLeast(0.95),
        says: "time of the wasm class / time in the guest, the worst of three kernels",
    },
    Promise { name: "microvm_private_mb", bar: Bar::AtMost(2.0), says: "memory that one more live hello unit takes" },
    Promise { name: "microvm_500_units_mb", bar: Bar::AtMost(1_500.0), says: "memory that 500 live units take" },
    Promise {
        name: "kernel_image_kb",
        bar: Bar::AtMost(1_000.0),
        says: "the largest of the stripped kernels: for KVM, virt, microvm, raspi3b",
    },
    Promise { name: "kernel_boot_ms", bar: Bar::AtMost(5.0), says: "from nothing to a kernel that waits for code" },
    Promise {
        name: "md5_cpu_vs_linux",
        bar: Bar::AtLeast(0.5),
        says: "MD5 in QEMU, emulated: CPU time of a Linux process / of a component on our board, the worst row",
    },
    Promise {
        name: "md5_time_vs_linux",
        bar: Bar::AtLeast(0.8),
        says: "the same from request to answer: a process started / a component linked and run",
    },
    Promise {
        name: "udp_echo_vs_linux",
        bar: Bar::AtLeast(1.0),
        says: "a datagram's way there and back in QEMU, emulated: Linux / our board, p50, the worst size",
    },
    Promise {
        name: "md5_cpu_vs_process",
        bar: Bar::AtLeast(0.8),
        says: "MD5 on the processor: CPU time of a Linux process / of a microvm unit, the worst row",
    },
    Promise {
        name: "virt_beacon_ms",
        bar: Bar::AtMost(1_000.0),
        says: "board `virt` in QEMU, emulated: QEMU starts, its first beacon is heard",
    },
    Promise {
        name: "virt_beacon_to_result_ms",
        bar: Bar::AtMost(1_000.0),
        says: "attested, brought the code, linked, run: from the beacon to the first result",
    },
    Promise { name: "md5_time_vs_process", bar: Bar::AtLeast(0.8), says: "the same from request to answer" },
];

const PARTS: [Part; 5] = [
    (
        "starts",
        starts::measure,
        &[
            "microvm_start_p50_ms",
            "microvm_start_from_nothing_p50_ms",
            "microvm_fresh_call_p50_ms",
            "microvm_fresh_call_p99_ms",
            "microvm_warm_call_p50_ms",
            "kernel_image_kb",
            "kernel_boot_ms",
        ],
    ),
    ("steps", steps::measure, &["virt_beacon_ms", "virt_beacon_to_result_ms"]),
    ("compute", compute::measure, &["microvm_compute_vs_wasm"]),
    ("live", live::measure, &["microvm_private_mb", "microvm_500_units_mb"]),
    (
        "linux",
        versus::measure,
        &["md5_cpu_vs_linux", "md5_time_vs_linux", "udp_echo_vs_linux", "md5_cpu_vs_process", "md5_time_vs_process"],
    ),
];

/// Measures everything and prints the report; its last line is one JSON object.
///
/// # Errors
/// This is no machine to measure on.
pub fn run(options: &Options) -> anyhow::Result<()> {
    run::run(options, &PROMISES, &PARTS)
}

/// A runtime as the node's.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// The two classes that run components.
fn kinds() -> anyhow::Result<[Arc<dyn UnitKind>; 2]> {
    let microvm = MicrovmKind::new()?;
    microvm.available()?;
    let wasm = WasmKind::new(unit_wasm::Config { units_max: 100 })?;
    Ok([Arc::new(wasm), Arc::new(microvm)])
}

/// A function of one class, deployed on nothing.
fn prepare(
    bench: &Bench,
    kind: &dyn UnitKind,
    guest: &str,
    change: impl FnOnce(&mut Function),
) -> anyhow::Result<Arc<dyn Prepared>> {
    let number = Instant::now();
    let folder = bench
        .folder(&format!("{}-{guest}-{:?}", kind.isolation().as_str(), number).replace([' ', '{', '}', ':', ','], ""));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("artefact");
    std::fs::write(&path, kind.compile(&bench.guest(guest)?)?)?;
    let mut function = Function::new("function");
    change(&mut function);
    let deployed = Deployed {
        name: Name::try_from("function".to_owned()).map_err(|error| anyhow::anyhow!("{error:?}"))?,
        version: 1,
        function: Arc::new(function),
        contract: Contract::Unit,
        secrets: Arc::default(),
        state: State::open(&folder.join("state"), state::Options::default())?,
        log: Arc::new(Nobody),
        budget: budget::Budget::unbounded(),
    };
    let file = std::fs::File::open(&path)?;
    Ok(kind.load(Artefact { path, file }, deployed)?)
}

/// One call; how long it took, and the reply.
async fn call(prepared: &Arc<dyn Prepared>, data: &str) -> anyhow::Result<(Duration, String)> {
    let event = Event { kind: "bench".into(), data: data.into(), attempt: 1, ..Event::default() };
    let began = Instant::now();
    let call = Call {
        request_id: "bench".into(),
        work: Work::Event(event),
        deadline: began + Duration::from_secs(120),
        watch: Box::new(Nobody),
        lease: None,
    };
    let reply = prepared.clone().call(call).await.map_err(|problem: Problem| anyhow::anyhow!("{problem}"))?;
    let took = began.elapsed();
    let Content::Bytes(bytes) = reply.content else { anyhow::bail!("a reply that is no bytes") };
    Ok((took, String::from_utf8(bytes.to_vec()).context("a reply that is no text")?))
}

struct Nobody;

impl LogSink for Nobody {
    fn write(&self, _: LogLine<'_>) {}
}

impl Watch for Nobody {
    fn ended(self: Box<Self>, _: Ended) {}
}
