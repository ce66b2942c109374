//! The five workloads and the CO2 workflow, an event at a time, from the publish to where it ends.

use crate::client::Probed;
use crate::lighter::Node;
use crate::process::{self, Cores, run_to_end};
use crate::report::{Figures, Table, number, quantile};
use crate::run::Bench;
use std::path::Path;

/// An example, and the secret that holds the webhook's address.
const WORKLOADS: [(&str, Option<&str>); 6] = [
    ("lights", None),
    ("health", None),
    ("alert", Some("SIREN_URL")),
    ("fridge", None),
    ("fibonacci", None),
    ("co2", Some("SLACK_URL")),
];
/// As in the paper.
const EVENTS: usize = 100;
/// Of the CO2 workflow, so that its 99th percentile is more than one event.
const EVENTS_CO2: usize = 1_000;

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let mut table = Table::new(
        "One event at a time on an idle node, each hop durable: from the publish to the end, in ms",
        &["workload", "p50", "p90", "p99", "max", "standard deviation", "publish confirmed p50", "events"],
    );
    for (name, secret) in WORKLOADS {
        let events = if name == "co2" { bench.pick(300, EVENTS_CO2) } else { EVENTS };
        let probed = probe(bench, name, secret, events)?;
        let through = &probed.through_ms;
        let at = |share| quantile(through, share);
        let cells = [at(0.5), at(0.9), at(0.99), at(1.0), deviation(through), quantile(&probed.confirmed_ms, 0.5)];
        table.row([name.to_owned()].into_iter().chain(cells.map(number)).chain([through.len().to_string()]));
        if name == "co2" {
            figures.set("co2_p50_ms", at(0.5));
            figures.set("co2_p99_ms", at(0.99));
        }
    }
    table.print();
    println!(
        "The paper's figures for the CO2 workflow: 192.6 ms an event, variance 20.8, on its own hardware.\n\
         health ends where its event is acked, which is asked for over HTTP and so seen a little late."
    );
    Ok(())
}

fn probe(bench: &Bench, name: &str, secret: Option<&str>, events: usize) -> anyhow::Result<Probed> {
    let broker = process::free_address()?;
    let data = bench.folder(&format!("{name}-data"));
    let arguments = ["--mqtt".to_owned(), broker.to_string()];
    let node = Node::start_with(&bench.lighter, &data, Cores::All, &arguments)?;
    let mut client = process::command(std::env::current_exe()?, Cores::All);
    client.args(["client", "probe", &broker.to_string(), name, "--events", &events.to_string()]);
    client.args(["--api", &node.api.to_string(), "--header", &node.authorization()?]);
    if let Some(secret) = secret {
        let webhook = process::free_address()?;
        node.set_secret(secret, &format!("http://{webhook}/"))?;
        client.args(["--webhook", &webhook.to_string()]);
    }
    node.deploy(&Path::new("examples").join(name))?;
    let output = run_to_end(client)?;
    node.process.stop()?;
    Ok(serde_json::from_slice(&output)?)
}

fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
}
