//! The first request to each function after the node was restarted, and how long the restart itself takes.

use crate::lighter::{Project, variant};
use crate::process::Cores;
use crate::report::{Figures, Table, median, number, quantile};
use crate::run::Bench;
use std::time::Instant;

const FUNCTIONS: u32 = 100;

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let image = bench.guest("hello-http")?;
    let mut project = Project::new(bench.folder("cold"))?;
    for number in 0..FUNCTIONS {
        project.add(&format!("f{number}"), &variant(&image, number), "")?;
    }
    let mut node = bench.node("cold", Cores::All)?;
    node.deploy(project.folder()?)?;

    let (mut first, mut second, mut ready) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.pick(3, 10) {
        node = node.restart(Cores::All)?;
        ready.push(node.ready.as_secs_f64() * 1e3);
        for latencies in [&mut first, &mut second] {
            for number in 0..FUNCTIONS {
                let path = format!("/f{number}");
                let begin = Instant::now();
                node.request("GET", &path, b"")?;
                latencies.push(begin.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    node.process.stop()?;

    let title = format!(
        "After a restart, {FUNCTIONS} functions with images of their own; connecting included; page cache warm"
    );
    let mut table = Table::new(&title, &["request", "p50 ms", "p90", "p99", "max", "requests"]);
    for (name, latencies) in [("first to each function", &first), ("second to each function", &second)] {
        let cells = [0.5, 0.9, 0.99, 1.0].map(|share| number(quantile(latencies, share)));
        table.row([name.to_owned()].into_iter().chain(cells).chain([latencies.len().to_string()]));
    }
    table.print();
    println!(
        "Start to ready with {FUNCTIONS} functions: median {} ms, worst {} ms of {}",
        number(median(&ready)),
        number(quantile(&ready, 1.0)),
        ready.len()
    );
    figures.set("cold_first_request_p99_ms", quantile(&first, 0.99));
    figures.set("ready_100_functions_ms", median(&ready));
    Ok(())
}
