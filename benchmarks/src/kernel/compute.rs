//! The same component in the classes `wasm` and `microvm`, called through a node: how long three kernels take.

use super::called::{CLASSES, Called};
use crate::report::{Figures, Table, number, quantile};
use crate::run::Bench;
use anyhow::ensure;

/// Kernels, with rounds that take some hundred milliseconds.
const KERNELS: [&str; 3] = ["integer 1500000", "float 600", "memory 60000000"];
/// As long as the slowest of them may take on a slow machine.
const LIMITS: &str = "limits.cpu_ms = 60_000\nlimits.time_ms = 60_000";

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let of = |class: &str| (class.to_owned(), format!("isolation = \"{class}\"\n{LIMITS}"));
    let mut node = Called::start(bench, "arithmetic", &CLASSES.map(of))?;
    let columns = ["", "wasm ms", "microvm ms", "wasm / microvm"];
    let mut table = Table::new("Compute, median of the rounds", &columns);
    let mut worst = f64::INFINITY;
    for kernel in KERNELS {
        let mut times = [Vec::new(), Vec::new()];
        let mut ratios = Vec::new();
        for _ in 0..bench.pick(7, 21) {
            let mut replies = Vec::new();
            for (class, times) in CLASSES.iter().zip(&mut times) {
                let (took, reply) = node.call(class, kernel)?;
                times.push(took.as_secs_f64() * 1e3);
                replies.push(reply);
            }
            ensure!(replies[0] == replies[1], "the classes do not agree: {replies:?}");
            ratios.push(times[0][times[0].len() - 1] / times[1][times[1].len() - 1]);
        }
        let ratio = quantile(&ratios, 0.5);
        worst = worst.min(ratio);
        let cells = [quantile(&times[0], 0.5), quantile(&times[1], 0.5), ratio].map(number);
        table.row([kernel.to_owned()].into_iter().chain(cells));
    }
    table.print();
    figures.set("microvm_compute_vs_wasm", worst);
    Ok(())
}
