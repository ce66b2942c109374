//! `bench kernel`: what a microvm unit costs, beside the other classes and a container.
//!
//! Calls go through a running node. What happens inside of one, a machine's boot or a unit's first instruction, no
//! client can see: there the class runs in this process, and so do the sessions of boards.

mod board;
mod called;
mod compute;
mod linux_starts;
mod live;
mod machines;
mod starts;
mod steps;
mod versus;

use crate::report::{Bar, Promise};
use crate::run::{self, Options, Part};

const PROMISES: [Promise; 17] = [
    Promise {
        name: "microvm_start_p50_ms",
        bar: Bar::AtMost(0.6),
        says: "a unit in a machine that was nobody's: asked for until its first instruction has told so",
    },
    Promise {
        name: "microvm_start_from_nothing_p50_ms",
        bar: Bar::AtMost(0.8),
        says: "the same where no machine waits: thread, filter, VM and all",
    },
    Promise {
        name: "microvm_fresh_call_p50_ms",
        bar: Bar::AtMost(0.15),
        says: "a call to a fresh unit through a node, request to reply",
    },
    Promise { name: "microvm_fresh_call_p99_ms", bar: Bar::AtMost(4.0), says: "the same" },
    Promise {
        name: "microvm_warm_call_p50_ms",
        bar: Bar::AtMost(0.05),
        says: "calls through a node to a unit that is used again, one after another",
    },
    Promise {
        name: "microvm_compute_vs_wasm",
        bar: Bar::AtLeast(0.95),
        says: "calls through a node: time of the wasm class / time in the guest, the worst of three kernels",
    },
    Promise { name: "microvm_private_mb", bar: Bar::AtMost(2.0), says: "memory that one more live hello unit takes" },
    Promise { name: "microvm_500_units_mb", bar: Bar::AtMost(1_500.0), says: "memory that 500 live units take" },
    Promise {
        name: "kernel_image_kb",
        bar: Bar::AtMost(1_000.0),
        says: "the largest of the stripped kernels: for KVM, qemu-arm, qemu-x86, raspi3b",
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
        says: "MD5 on the processor, through a node: CPU time of a Linux process / of a microvm unit, the worst row",
    },
    Promise {
        name: "virt_beacon_ms",
        bar: Bar::AtMost(1_000.0),
        says: "board `qemu-arm`, emulated: QEMU starts, its first beacon is heard",
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
