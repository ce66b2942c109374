//! How cost grows: with the number of functions, and with the number of connections.

use crate::generator::{Contestant, side_by_side};
use crate::lighter::{Node, Project, variant};
use crate::load::LoadOptions;
use crate::process::{Cores, LOAD_CORE, SERVER_CORE};
use crate::report::{Figures, Table, median, number};
use crate::run::Bench;
use std::thread;
use std::time::{Duration, Instant};

const COUNTS: [u32; 4] = [1, 10, 100, 1_000];
const CONNECTIONS: u32 = 32;
/// After so long a function without a call has given back what it can.
const RESTED: Duration = Duration::from_secs(12);
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
    project.add("f0", &variant(&image, 0), "")?;
    node.deploy(project.folder()?)?;
    // With one function that was called, the node has in memory what it needs to serve any.
    node = node.restart(Cores::All)?;
    let one = called_once(&node, 1)?;
    let mut deployed = 1;
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
    figures.set("functions_1000_vs_1", functions_in_turn(bench, &node)?);

    figures.set("connections_1000_p99_over_p50", connections_beside_each_other(bench, &node, seconds)?);

    // A node of its own, so that no load has left anything behind.
    node = node.restart(Cores::All)?;
    let all = called_once(&node, COUNTS[3])?;
    let kilobytes = (all as f64 - one as f64) / 1e3 / f64::from(COUNTS[3] - 1);
    println!("\nResident memory that each function adds after the first, called once: {} KB", number(kilobytes));
    figures.set("rss_per_function_kb", kilobytes);
    Ok(())
}

/// Resident bytes of the node once each of its functions was called, and it has rested.
fn called_once(node: &Node, functions: u32) -> anyhow::Result<u64> {
    for number in 0..functions {
        node.request("GET", &format!("/f{number}"), b"")?;
    }
    thread::sleep(RESTED);
    Ok(node.process.resident_bytes()?)
}

/// How far the tail of 1,000 connections is from their median.
fn connections_beside_each_other(bench: &Bench, node: &Node, seconds: f64) -> anyhow::Result<f64> {
    let mut connections = Table::new(
        "Growth with connections, one function",
        &["connections", "requests/s", "p50 us", "p90", "p99", "p99.9", "max"],
    );
    let mut spreads = Vec::new();
    // The last row again and again: its tail is one of the figures.
    for count in COUNTS.into_iter().chain((1..bench.pick(3, 5)).map(|_| COUNTS[3])) {
        let outcome = LoadOptions::get(node.url("/f0"), count, seconds).run_well(LOAD)?;
        let latency = outcome.latency_us;
        if count == COUNTS[3] {
            spreads.push(latency.p99 / latency.p50);
        }
        let cells =
            [outcome.replies_per_s, latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(number);
        connections.row([count.to_string()].into_iter().chain(cells));
    }
    connections.print();
    Ok(median(&spreads))
}

/// The rate of requests to all functions in turn, over that of requests to the first one. Measured in turns on one
/// node, which has all of them in both.
fn functions_in_turn(bench: &Bench, node: &Node) -> anyhow::Result<f64> {
    let load =
        |functions| LoadOptions { functions, ..LoadOptions::get(node.url("/f{}"), CONNECTIONS, bench.pick(1.5, 4.0)) };
    let contestant = |name, functions| Contestant { name, process: &node.process, load: load(functions) };
    let contestants = [contestant("one function", 1), contestant("1,000 functions in turn", COUNTS[3])];
    let standings = side_by_side(&contestants, bench.pick(3, 5), LOAD);
    for standing in &standings {
        if let Some(why) = standing.failure() {
            anyhow::bail!("{}: {why:#}", standing.name);
        }
        let rate = number(standing.median(|outcome| outcome.replies_per_s));
        println!("{}: {rate} requests/s, {} us of CPU each", standing.name, number(standing.cpu_us()));
    }
    Ok(standings[1].ratio_to(&standings[0]))
}
