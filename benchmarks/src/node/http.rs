//! Requests a second on one core, beside servers that do the same job.

use crate::generator::{Contestant, Standing, side_by_side};
use crate::lighter::Project;
use crate::load::LoadOptions;
use crate::peers::Server;
use crate::process::{Cores, LOAD_CORE, SERVER_CORE, run_to_end};
use crate::report::{Figures, Table, number};
use crate::run::Bench;
use anyhow::{Context as _, Error};
use std::fs;
use std::process::Command;

/// Connections of the comparisons.
const CONNECTIONS: u32 = 32;
const SERVER: Cores = Cores::Only(SERVER_CORE);
const LOAD: Cores = Cores::Only(LOAD_CORE);
/// Calls that one unit serves where reuse is switched on.
const REUSE: &str = "units.reuse_calls = 1000";
/// Calls among which the longest is looked for.
const TAIL_CALLS: u64 = 100_000;

/// The Rust components: `wasi:http` beside `wasmtime serve` and hyper, `lighter:unit` beside hyper.
pub fn rust(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let mut project = Project::new(bench.folder("http"))?;
    project.add("hello-http", &bench.guest("hello-http")?, "")?;
    project.add("hello-http-reuse", &bench.guest("hello-http")?, REUSE)?;
    project.add("hello", &bench.guest("hello")?, "")?;
    let node = bench.node("http", SERVER)?;
    node.deploy(project.folder()?)?;
    let body = text(node.request("GET", "/hello-http", b"")?.body)?;

    let hyper = bench.peers.hyper(&body, SERVER, bench.work())?;
    let wasmtime = bench.peers.wasmtime_serve(&bench.guest_path("hello-http"), SERVER, bench.work());
    let seconds = bench.pick(2.0, 6.0);
    let load = |url: String| LoadOptions { expect: Some(body.clone()), ..LoadOptions::get(url, CONNECTIONS, seconds) };
    let ours = |name, path: &str| {
        let load = LoadOptions { stage: vec!["start".to_owned()], ..load(node.url(path)) };
        Contestant { name, process: &node.process, load }
    };
    let mut contestants = vec![
        Contestant { name: HYPER, process: &hyper.process, load: load(hyper.url()) },
        ours(RUST, "/hello-http"),
        ours(UNIT, "/hello"),
        ours("lighter, wasi:http, reuse on", "/hello-http-reuse"),
    ];
    if let Ok(wasmtime) = &wasmtime {
        contestants.push(Contestant { name: WASMTIME, process: &wasmtime.process, load: load(wasmtime.url()) });
    }
    let standings = side_by_side(&contestants, bench.pick(3, 5), LOAD);
    print("HTTP, server on one core, load on another, 32 connections", &standings);
    compare(figures, "http_rust_vs_hyper", &standings, RUST, HYPER, None);
    compare(figures, "http_unit_vs_hyper", &standings, UNIT, HYPER, None);
    compare(figures, "http_rust_vs_wasmtime_serve", &standings, RUST, WASMTIME, wasmtime.as_ref().err());
    start_times(bench, &contestants[1..3], figures)?;
    check_generator(bench, &hyper, &standings[0]);
    Ok(())
}

const HYPER: &str = "hyper, bare";
const RUST: &str = "lighter, wasi:http";
const UNIT: &str = "lighter, lighter:unit";
const WASMTIME: &str = "wasmtime serve, fresh instance";
const JS: &str = "lighter, JavaScript";
const JS_REUSE: &str = "lighter, JavaScript, reuse on";
const WORKERD: &str = "workerd (always reuses)";

/// Starts of units, one request after the other: under full load the clock would also count waiting for the core.
fn start_times(bench: &Bench, ours: &[Contestant<'_>], figures: &mut Figures) -> anyhow::Result<()> {
    let mut table = Table::new(
        "Start of a fresh unit, one connection",
        &["", "p50 us", "p90", "p99", "p99.9", "request p50", "p99"],
    );
    let mut slowest: f64 = 0.0;
    for contestant in ours {
        let load = LoadOptions { connections: 1, seconds: bench.pick(1.5, 5.0), ..contestant.load.clone() };
        let outcome = load.run_well(LOAD)?;
        let start = outcome.stages_us["start"];
        anyhow::ensure!(
            start.count == outcome.replies,
            "{} of {} replies told their start",
            start.count,
            outcome.replies
        );
        slowest = slowest.max(start.p50);
        let request = outcome.latency_us;
        let cells = [start.p50, start.p90, start.p99, start.p999, request.p50, request.p99].map(number);
        table.row([contestant.name.to_owned()].into_iter().chain(cells));
    }
    table.print();
    // The slower of the two kinds of component is the one that is promised.
    figures.set("unit_start_p50_us", slowest);
    Ok(())
}

/// JavaScript: a fresh unit each beside `wasmtime serve`, and with reuse beside workerd.
pub fn javascript(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let component = bench.peers.program("hello-js")?;
    let image = fs::read(component)?;
    let mut project = Project::new(bench.folder("javascript"))?;
    project.add("js", &image, "")?;
    project.add("js-reuse", &image, REUSE)?;
    let node = bench.node("javascript", SERVER)?;
    node.deploy(project.folder()?)?;
    let body = text(node.request("GET", "/js", b"")?.body)?;

    let seconds = bench.pick(2.0, 6.0);
    let load = |url: String| LoadOptions { expect: Some(body.clone()), ..LoadOptions::get(url, CONNECTIONS, seconds) };
    let wasmtime = bench.peers.wasmtime_serve(component, SERVER, bench.work());
    let workerd = bench.peers.workerd(&body, SERVER, bench.work());
    let mut contestants = vec![
        Contestant { name: JS, process: &node.process, load: load(node.url("/js")) },
        Contestant { name: JS_REUSE, process: &node.process, load: load(node.url("/js-reuse")) },
    ];
    if let Ok(server) = &wasmtime {
        contestants.push(Contestant { name: WASMTIME, process: &server.process, load: load(server.url()) });
    }
    if let Ok(server) = &workerd {
        contestants.push(Contestant { name: WORKERD, process: &server.process, load: load(server.url()) });
    }
    let standings = side_by_side(&contestants, bench.pick(3, 5), LOAD);
    print("JavaScript hello, server on one core, load on another, 32 connections", &standings);
    compare(figures, "http_js_vs_wasmtime_serve", &standings, JS, WASMTIME, wasmtime.as_ref().err());
    compare(figures, "http_js_reuse_vs_workerd", &standings, JS_REUSE, WORKERD, workerd.as_ref().err());
    figures.set("http_js_reuse_max_ms", longest(&contestants[1])?);
    Ok(())
}

/// The longest of [`TAIL_CALLS`] calls in milliseconds: under full load, one round after the other until there were as
/// many.
fn longest(contestant: &Contestant<'_>) -> anyhow::Result<f64> {
    let (mut calls, mut longest) = (0, 0.0_f64);
    while calls < TAIL_CALLS {
        let outcome = contestant.load.run_well(LOAD)?;
        calls += outcome.replies;
        longest = longest.max(outcome.latency_us.max / 1e3);
    }
    println!("{}: the longest of {calls} calls took {} ms", contestant.name, number(longest));
    Ok(longest)
}

/// Notes our replies a second divided by a peer's, or why there is no such number. `missing` says why the peer could
/// not be started.
fn compare(
    figures: &mut Figures,
    figure: &str,
    standings: &[Standing],
    ours: &str,
    peer: &str,
    missing: Option<&Error>,
) {
    let find = |name| standings.iter().find(|standing| standing.name == name);
    let (Some(ours), Some(peer)) = (find(ours), find(peer)) else {
        let unknown = anyhow::anyhow!("{ours} and {peer} were not both measured");
        return figures.miss(&[figure], missing.unwrap_or(&unknown));
    };
    if let Some(why) = ours.failure().or(peer.failure()) {
        return figures.miss(&[figure], why);
    }
    figures.set(figure, ours.ratio_to(peer));
    // A peer that is held back makes us look good, and only that is worth a warning.
    if let Some(why) = peer.doubt() {
        let by_cpu = number(peer.cpu_us() / ours.cpu_us());
        figures.doubt(figure, format!("{why}; by CPU time for each request the ratio is {by_cpu}"));
    }
}

fn print(title: &str, standings: &[Standing]) {
    let columns = [
        "",
        "requests/s",
        "of the first",
        "p50 us",
        "p90",
        "p99",
        "p99.9",
        "max",
        "server CPU us/request",
        "core used",
    ];
    let mut table = Table::new(title, &columns);
    for standing in standings {
        let cells = [
            standing.median(|outcome| outcome.replies_per_s),
            standing.ratio_to(&standings[0]),
            standing.median(|outcome| outcome.latency_us.p50),
            standing.median(|outcome| outcome.latency_us.p90),
            standing.median(|outcome| outcome.latency_us.p99),
            standing.median(|outcome| outcome.latency_us.p999),
            standing.median(|outcome| outcome.latency_us.max),
            standing.cpu_us(),
            standing.busy(),
        ];
        table.row([standing.name.to_owned()].into_iter().chain(cells.map(number)));
    }
    table.print();
    for standing in standings {
        if let Some(why) = standing.failure() {
            println!("{} was given up: {why:#}", standing.name);
        }
    }
}

/// Prints what wrk makes of the fastest server, to show that our generator is not what limits it.
fn check_generator(bench: &Bench, hyper: &Server, standing: &Standing) {
    let wrk = || {
        let mut command: Command = crate::process::command(bench.peers.program("wrk")?, LOAD);
        command.args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{}s", bench.pick(2, 6)), &hyper.url()]);
        let output = text(run_to_end(command)?)?;
        let rate = output.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
        rate.and_then(|rate| rate.trim().parse::<f64>().ok()).context("wrk printed no rate")
    };
    let ours = number(standing.median(|outcome| outcome.replies_per_s));
    match wrk() {
        Ok(rate) => {
            println!("Check of the generator: bare hyper gives {} requests/s to wrk, {ours} to ours", number(rate))
        }
        Err(why) => println!("Check of the generator: not done: {why:#}"),
    }
}

fn text(bytes: Vec<u8>) -> anyhow::Result<String> {
    String::from_utf8(bytes).context("the reply is not text")
}
