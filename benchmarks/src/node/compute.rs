//! Eight kernels that only compute, native and in a unit: one source, compiled for both.

use crate::lighter::Project;
use crate::process::Cores;
use crate::report::{Figures, Table, median, number, quantile};
use crate::run::Bench;
use anyhow::{Context as _, ensure};
use std::hint::black_box;
use std::time::Instant;

/// Kernels, with rounds that take some tens of milliseconds: beside those starting and encoding vanish.
const KERNELS: [(&str, u32); 8] = [
    ("fibonacci", 600),
    ("matrix", 120),
    ("sha256", 350),
    ("nbody", 400),
    ("json", 80),
    ("sort", 30),
    ("regex", 800),
    ("image", 3_000),
];

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let mut project = Project::new(bench.folder("compute"))?;
    project.add("compute", &bench.guest("compute")?, "")?;
    let node = bench.node("compute", Cores::All)?;
    node.deploy(project.folder()?)?;

    let rounds = bench.pick(9, 31);
    let title = format!("Eight kernels, in turns, {rounds} times each");
    let mut table = Table::new(&title, &["", "native ms", "in a unit (run stage)", "native / unit", "p10", "p90"]);
    let mut all = Vec::new();
    for (kernel, turns) in KERNELS {
        let (mut native, mut unit, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let begin = Instant::now();
            let result = black_box(guest_kernels::run(black_box(kernel), black_box(turns)));
            native.push(begin.elapsed().as_secs_f64() * 1e3);
            let result = result.context("there is no such kernel")?.to_string();
            let answer = node.request("POST", "/compute", format!("{kernel} {turns}").as_bytes())?;
            ensure!(answer.body == result.as_bytes(), "{kernel}: {:?} and not {result}", answer.body);
            unit.push(answer.stage("run").context("the reply has no `run` in its Server-Timing")?.as_secs_f64() * 1e3);
            ratios.push(native[native.len() - 1] / unit[unit.len() - 1]);
        }
        all.push(median(&ratios));
        let cells = [median(&native), median(&unit), median(&ratios), quantile(&ratios, 0.1), quantile(&ratios, 0.9)];
        table.row([kernel.to_owned()].into_iter().chain(cells.map(number)));
    }
    table.print();
    figures.set("compute_vs_native_median", median(&all));
    figures.set("compute_vs_native_worst", quantile(&all, 0.0));
    Ok(())
}
