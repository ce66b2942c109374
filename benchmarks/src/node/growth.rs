//! How cost grows: with the number of functions, and with the number of connections.

use crate::lighter::{Project, variant};
use crate::load::LoadOptions;
use crate::process::{Cores, LOAD_CORE, SERVER_CORE};
use crate::report::{Figures, Table, number};
use crate::run::Bench;
use std::thread;
use std::time::{Duration, Instant};

const COUNTS: [u32; 4] = [1, 10, 100, 1_000];
const CONNECTIONS: u32 = 32;
/// What a process settles in after it started or was called.
const SETTLE: Duration = Duration::from_millis(500);
const SERVER: Cores = Cores::Only(SERVER_CORE);
const LOAD: Cores = Cores::Only(LOAD_CORE);

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let image = bench.guest("hello")?;
    let seconds = bench.pick(1.5, 6.0);
    let mut functions = Table::new(
        "Growth with functions (lighter:unit, images of their own), 32 connections over all of them",
        &["functions", "requests/s", "p50 us", "p99", "server CPU us/request", "deployed in s"],
    );
    let mut project = Project::new(bench.folder("growth"))?;
    let mut node = bench.node("growth", Cores::All)?;
    thread::sleep(SETTLE);
    let empty = node.process.resident_bytes()?;
    let mut deployed = 0;
    for count in COUNTS {
        for number in deployed..count {
            project.add(&format!("f{number}"), &variant(&image, number), "")?;
        }
        deployed = count;
        // Deploying may use every core; only what is measured is kept to one.
        node = node.restart(Cores::All)?;
        let begin = Instant::now();
        node.deploy(project.folder()?)?;
        let deploy_seconds = begin.elapsed().as_secs_f64();
        node = node.restart(SERVER)?;
        let load = LoadOptions { functions: count, ..LoadOptions::get(node.url("/f{}"), CONNECTIONS, seconds) };
        let cpu_before = node.process.cpu_time()?;
        let outcome = load.run_well(LOAD)?;
        let cpu = (node.process.cpu_time()? - cpu_before).as_secs_f64() * 1e6 / outcome.replies_with_warmup as f64;
        let latency = outcome.latency_us;
        let cells = [outcome.replies_per_s, latency.p50, latency.p99, cpu, deploy_seconds].map(number);
        functions.row([count.to_string()].into_iter().chain(cells));
    }
    functions.print();

    let mut connections = Table::new(
        "Growth with connections, one function",
        &["connections", "requests/s", "p50 us", "p90", "p99", "p99.9", "max"],
    );
    for count in COUNTS {
        let outcome = LoadOptions::get(node.url("/f0"), count, seconds).run_well(LOAD)?;
        let latency = outcome.latency_us;
        let cells =
            [outcome.replies_per_s, latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(number);
        connections.row([count.to_string()].into_iter().chain(cells));
    }
    connections.print();

    // A node of its own, so that no load has left anything behind: started, then each function called once.
    node = node.restart(Cores::All)?;
    thread::sleep(SETTLE);
    let functions = f64::from(COUNTS[3]);
    let kilobytes = |bytes: u64| (bytes as f64 - empty as f64) / 1e3 / functions;
    let started = kilobytes(node.process.resident_bytes()?);
    for number in 0..COUNTS[3] {
        node.request("GET", &format!("/f{number}"), b"")?;
    }
    thread::sleep(SETTLE);
    let called = kilobytes(node.process.resident_bytes()?);
    println!(
        "\nResident memory for each of 1,000 functions: {} KB when deployed, {} KB when each was called once",
        number(started),
        number(called)
    );
    figures.set("rss_per_function_kb", called);
    Ok(())
}
