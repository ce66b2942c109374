//! How long a unit takes to be there, and to answer.

use super::{call, kinds, prepare, runtime};
use crate::report::{Figures, Table, number, quantile};
use crate::run::Bench;
use anyhow::{Context as _, ensure};
use std::time::{Duration, Instant};
use unit_microvm::measure::Bed;
use unit_microvm::{KERNEL, MicrovmKind};

/// Between two calls: the machine of the one before is made anew meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    figures.set("kernel_image_kb", KERNEL.len() as f64 / 1e3);
    let runtime = runtime()?;
    runtime.block_on(async {
        let columns = ["", "p50 ms", "p90", "p99", "max"];
        let mut table = Table::new("One unit, hello", &columns);
        let mut row = |name: String, times: &[f64]| {
            let cells = [0.5, 0.9, 0.99, 1.0].map(|share| number(quantile(times, share)));
            table.row([name].into_iter().chain(cells));
        };
        let (boots, links, starts, replies) = from_nothing(bench).await?;
        figures.set("kernel_boot_ms", quantile(&boots, 0.5));
        figures.set("microvm_start_p50_ms", quantile(&starts, 0.5));
        row("microvm: kernel boot, no snapshot".into(), &boots);
        row("microvm: linking a component, once".into(), &links);
        row("microvm: start, from nothing to ready".into(), &starts);
        row("microvm: start and reply, from nothing".into(), &replies);
        for kind in kinds()? {
            let class = kind.isolation().as_str();
            let fresh = prepare(bench, &*kind, "hello", |_| {})?;
            let times = calls(bench, &fresh).await?;
            row(format!("{class}: call of a fresh unit"), &times);
            let warm = prepare(bench, &*kind, "hello", |function| function.units.reuse_calls = 1_000_000)?;
            let again = calls(bench, &warm).await?;
            row(format!("{class}: call of a warm unit"), &again);
            if class == "microvm" {
                figures.set("microvm_fresh_call_p50_ms", quantile(&times, 0.5));
                figures.set("microvm_fresh_call_p99_ms", quantile(&times, 0.99));
                figures.set("microvm_warm_call_p50_ms", quantile(&again, 0.5));
            }
        }
        table.print();
        anyhow::Ok(())
    })?;
    crate::node::container(bench, figures).context("crun")
}

/// Milliseconds of boots, links, starts, and of starts with the first reply.
async fn from_nothing(bench: &Bench) -> anyhow::Result<(Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>)> {
    let kind = MicrovmKind::new()?;
    let hello = bench.guest("hello")?;
    let (mut boots, mut links) = (Vec::new(), Vec::new());
    let mut artefact = Vec::new();
    for _ in 0..bench.pick(20, 50) {
        let (made, times) = kind.link(&hello)?;
        boots.push(ms(times.boot));
        links.push(ms(times.link));
        artefact = made;
    }
    let bed = Bed::new(&kind, &artefact, 64 << 20)?;
    let (mut starts, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..bench.pick(300, 2_000) {
        let began = Instant::now();
        let mut held = bed.start().await?;
        starts.push(ms(began.elapsed()));
        let reply = held.call(b"world").await?;
        replies.push(ms(began.elapsed()));
        ensure!(reply.starts_with(b"hello"), "another reply");
        drop(held);
        tokio::time::sleep(PAUSE).await;
    }
    Ok((boots, links, starts, replies))
}

async fn calls(bench: &Bench, prepared: &std::sync::Arc<dyn unit::Prepared>) -> anyhow::Result<Vec<f64>> {
    prepared.clone().try_start().await?;
    let mut times = Vec::new();
    for turn in 0..bench.pick(500, 5_000) + 20 {
        let (took, reply) = call(prepared, "world").await?;
        ensure!(reply.trim() == "hello, world", "another reply: {reply}");
        if turn >= 20 {
            times.push(ms(took));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(times)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
