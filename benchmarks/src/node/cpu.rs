//! The paper's CPU workload: the same naive Fibonacci, native and in a unit.

use crate::lighter::Project;
use crate::process::Cores;
use crate::report::{Figures, Table, median, number, quantile};
use crate::run::Bench;
use anyhow::{Context as _, ensure};
use std::hint::black_box;
use std::time::Instant;

/// Large enough that a call costs tens of milliseconds, beside which starting and encoding vanish.
const N: u64 = 35;

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let mut project = Project::new(bench.folder("cpu"))?;
    project.add("fibonacci", &bench.guest("fibonacci")?, "")?;
    let node = bench.node("cpu", Cores::All)?;
    node.deploy(project.folder()?)?;

    let (mut native, mut unit, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.pick(15, 60) {
        let begin = Instant::now();
        let result = black_box(fibonacci(black_box(N)));
        native.push(begin.elapsed().as_secs_f64() * 1e3);
        let answer = node.request("POST", "/fibonacci", N.to_string().as_bytes())?;
        ensure!(
            answer.body == format!("{result}\n").into_bytes(),
            "the unit says {:?}",
            String::from_utf8_lossy(&answer.body)
        );
        unit.push(answer.stage("run").context("the reply has no `run` in its Server-Timing")?.as_secs_f64() * 1e3);
        ratios.push(native[native.len() - 1] / unit[unit.len() - 1]);
    }
    let title = format!("Fibonacci({N}), in turns, {} times", native.len());
    let mut table = Table::new(&title, &["", "p50 ms", "p10", "p90"]);
    for (name, times) in [("native Rust", &native), ("lighter, lighter:unit (run stage)", &unit)] {
        table.row([name.to_owned()].into_iter().chain([0.5, 0.1, 0.9].map(|share| number(quantile(times, share)))));
    }
    table.print();
    figures.set("fib_vs_native", median(&ratios));
    Ok(())
}

/// The guest's function, word for word; wrapping, because the guest is built without overflow checks.
#[inline(never)]
fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n.wrapping_sub(1)).wrapping_add(fibonacci(n.wrapping_sub(2))) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_native_function_counts_right() {
        assert_eq!([0, 1, 2, 3, 10, 20].map(super::fibonacci), [0, 1, 1, 2, 55, 6_765]);
    }
}
