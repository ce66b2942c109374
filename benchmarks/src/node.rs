//! `bench node`: how fast and how small the node is, beside its peers, in one run.
//!
//! Each part measures some of the promised figures and prints its own tables. A part that fails costs its figures,
//! which then are `null` with the reason, and no others. Percentiles and medians, never means; what is compared is
//! measured in turns, so that a noisy machine is equally noisy to all.

mod cold;
mod compute;
mod container;
mod cpu;
mod footprint;
mod growth;
mod http;
mod neighbour;

use crate::report::{Bar, Promise};
use crate::run::{self, Options, Part};

const PROMISES: [Promise; 19] = [
    Promise {
        name: "http_rust_vs_wasmtime_serve",
        bar: Bar::AtLeast(2.5),
        says: "requests/s, the same Rust wasi:http component, a fresh unit each",
    },
    Promise { name: "http_rust_vs_hyper", bar: Bar::AtLeast(0.4), says: "the same, against a bare hyper server" },
    Promise { name: "http_unit_vs_hyper", bar: Bar::AtLeast(0.5), says: "a lighter:unit component against bare hyper" },
    Promise { name: "http_js_vs_wasmtime_serve", bar: Bar::AtLeast(3.0), says: "JavaScript, a fresh unit each" },
    Promise {
        name: "http_js_reuse_vs_workerd",
        bar: Bar::AtLeast(1.0),
        says: "JavaScript, our reuse switched on; workerd always reuses",
    },
    Promise {
        name: "http_js_reuse_max_ms",
        bar: Bar::AtMost(50.0),
        says: "the same on 32 connections: the longest of 100,000 calls",
    },
    Promise {
        name: "cold_first_request_p99_ms",
        bar: Bar::AtMost(0.3),
        says: "first request to a function after a node restart, end to end",
    },
    Promise { name: "unit_start_p50_us", bar: Bar::AtMost(20.0), says: "start of a fresh unit, as Server-Timing says" },
    Promise { name: "fib_vs_native", bar: Bar::AtLeast(0.8), says: "naive Fibonacci, native time / time in a unit" },
    Promise {
        name: "compute_vs_native_median",
        bar: Bar::AtLeast(0.8),
        says: "eight kernels of one source, native time / time in a unit",
    },
    Promise { name: "compute_vs_native_worst", bar: Bar::AtLeast(0.6), says: "the same, the worst of the eight" },
    Promise { name: "idle_rss_mb", bar: Bar::AtMost(12.0), says: "resident memory of an idle node" },
    Promise {
        name: "rss_per_function_kb",
        bar: Bar::AtMost(40.0),
        says: "more resident memory for each of 1,000 functions, deployed and called",
    },
    Promise {
        name: "functions_1000_vs_1",
        bar: Bar::AtLeast(0.7),
        says: "requests/s to 1,000 functions in turn, over those to one of them",
    },
    Promise {
        name: "connections_1000_p99_over_p50",
        bar: Bar::AtMost(5.0),
        says: "latencies over 1,000 connections that all ask as fast as they can",
    },
    Promise {
        name: "rss_1000_units_mb",
        bar: Bar::AtMost(40.0),
        says: "more private memory with 1,000 live Rust units",
    },
    Promise { name: "binary_mb", bar: Bar::AtMost(40.0), says: "the stripped program" },
    Promise { name: "ready_100_functions_ms", bar: Bar::AtMost(150.0), says: "start to ready with 100 functions" },
    Promise {
        name: "neighbour_p99_ratio",
        bar: Bar::AtMost(2.0),
        says: "p99 of a function while another attacks the node, against quiet",
    },
];

const PARTS: [Part; 9] = [
    (
        "http",
        http::rust,
        &["http_rust_vs_wasmtime_serve", "http_rust_vs_hyper", "http_unit_vs_hyper", "unit_start_p50_us"],
    ),
    (
        "javascript",
        http::javascript,
        &["http_js_vs_wasmtime_serve", "http_js_reuse_vs_workerd", "http_js_reuse_max_ms"],
    ),
    ("cold", cold::measure, &["cold_first_request_p99_ms", "ready_100_functions_ms"]),
    ("container", container::measure, &[]),
    ("cpu", cpu::measure, &["fib_vs_native"]),
    ("compute", compute::measure, &["compute_vs_native_median", "compute_vs_native_worst"]),
    ("footprint", footprint::measure, &["idle_rss_mb", "rss_1000_units_mb", "binary_mb"]),
    ("growth", growth::measure, &["functions_1000_vs_1", "connections_1000_p99_over_p50", "rss_per_function_kb"]),
    ("neighbour", neighbour::measure, &["neighbour_p99_ratio"]),
];

/// What a container costs, for other benchmarks to stand beside.
///
/// # Errors
/// There is none to start.
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64")),
    expect(dead_code, reason = "`bench kernel` is not built")
)]
pub fn container(bench: &run::Bench, figures: &mut crate::report::Figures) -> anyhow::Result<()> {
    container::measure(bench, figures)
}

/// Measures everything and prints the report; its last line is one JSON object.
pub fn run(options: &Options) -> anyhow::Result<()> {
    run::run(options, &PROMISES, &PARTS)
}
