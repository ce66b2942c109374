//! What a function notices of another that attacks the node: its p99 under attack against its p99 in quiet.
//!
//! Requests to the victim leave on a fixed schedule, so that none is left out because the last one was late.

use crate::lighter::Project;
use crate::load::{LoadOptions, Outcome};
use crate::process::Cores;
use crate::report::{Figures, Table, median, number};
use crate::run::Bench;
use std::time::Instant;

const RATE: f64 = 200.0;
const CONNECTIONS: u32 = 8;
const ATTACKERS: u32 = 8;
/// What the attacking function is told to do, and what that is.
const ATTACKS: [(&str, &str); 3] =
    [("loop", "loops for ever"), ("memory", "takes memory until there is none"), ("log-flood", "floods its log")];

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let mut project = Project::new(bench.folder("neighbour"))?;
    project.add("victim", &bench.guest("hello")?, "")?;
    project.add("attack", &bench.guest("attack")?, "")?;
    let node = bench.node("neighbour", Cores::All)?;
    node.deploy(project.folder()?)?;

    let seconds = bench.pick(4.0, 20.0);
    let victim = LoadOptions {
        rate: Some(RATE),
        warmup_seconds: 1.0,
        ..LoadOptions::get(node.url("/victim"), CONNECTIONS, seconds)
    };
    let mut table = Table::new(
        &format!(
            "Neighbour: {RATE} requests/s to one function while {ATTACKERS} requests at a time attack through another"
        ),
        &[
            "attack",
            "p50 us",
            "p90",
            "p99",
            "max",
            "errors",
            "p99 / quiet",
            "replies to the attacker",
            "cores used by the node",
        ],
    );
    let row = |outcome: &Outcome| {
        let latency = outcome.latency_us;
        [latency.p50, latency.p90, latency.p99, latency.max, outcome.errors_total() as f64].map(number)
    };
    let mut quiet = Vec::new();
    let mut attacked = Vec::new();
    for (body, what) in ATTACKS {
        let calm = victim.run_well(Cores::All)?;
        table.row(["none, quiet".to_owned()].into_iter().chain(row(&calm)));
        quiet.push(calm.latency_us.p99);
        let attack = LoadOptions {
            method: "POST".to_owned(),
            body: body.to_owned(),
            status: 0,
            ..LoadOptions::get(node.url("/attack"), ATTACKERS, seconds + 2.0)
        };
        let running = attack.start(Cores::All)?;
        let (began, cpu_before) = (Instant::now(), node.process.cpu_time()?);
        let outcome = victim.run(Cores::All)?;
        let cores = (node.process.cpu_time()? - cpu_before).as_secs_f64() / began.elapsed().as_secs_f64();
        let answers = running.finish()?;
        let replies = answers.replies_with_warmup + answers.errors_total();
        attacked.push((what, outcome, replies, cores));
    }
    let quiet = median(&quiet);
    let mut worst: f64 = 0.0;
    for (what, outcome, replies, cores) in &attacked {
        // A request that failed waited for ever: it counts as slower than any.
        let ratio =
            if outcome.errors_total() * 100 > outcome.replies { f64::INFINITY } else { outcome.latency_us.p99 / quiet };
        worst = worst.max(ratio);
        let ends = [number(ratio), replies.to_string(), number(*cores)];
        table.row([(*what).to_owned()].into_iter().chain(row(outcome)).chain(ends));
    }
    table.print();
    anyhow::ensure!(worst.is_finite(), "more than one request in a hundred to the neighbour failed under attack");
    figures.set("neighbour_p99_ratio", worst);
    Ok(())
}
