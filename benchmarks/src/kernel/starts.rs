//! How long a unit takes to be there, and to answer.

use super::{call, kinds, linux_starts, prepare, runtime};
use crate::report::{Figures, Table, number, quantile};
use crate::run::Bench;
use anyhow::{Context as _, ensure};
use std::time::{Duration, Instant};
use unit_metal::qemu::Machine;
use unit_microvm::measure::{Bed, Source};
use unit_microvm::{KERNEL, MicrovmKind};

/// Between two calls: the machine of the one before is made anew meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    images(figures);
    let runtime = runtime()?;
    runtime.block_on(async {
        let columns = ["", "p50 ms", "p90", "p99", "max"];
        let mut table = Table::new("One unit, hello", &columns);
        let mut row = |name: String, times: &[f64]| {
            let cells = [0.5, 0.9, 0.99, 1.0].map(|share| number(quantile(times, share)));
            table.row([name].into_iter().chain(cells));
        };
        let (artefact, boots, links) = link(bench)?;
        figures.set("kernel_boot_ms", quantile(&boots, 0.5));
        row("microvm: kernel boot, no snapshot".into(), &boots);
        row("microvm: linking a component, once".into(), &links);
        for (source, from) in [(Source::Stock, "a machine of the stock"), (Source::Nothing, "nothing")] {
            let (starts, replies) = starts(bench, &artefact, source).await?;
            row(format!("microvm: from {from} to the first instruction"), &starts);
            row(format!("microvm: from {from} to the first reply"), &replies);
            let name = match source {
                Source::Stock => "microvm_start_p50_ms",
                Source::Nothing => "microvm_start_from_nothing_p50_ms",
            };
            figures.set(name, quantile(&starts, 0.5));
        }
        for kind in kinds()? {
            let class = kind.isolation().as_str();
            let fresh = prepare(bench, &*kind, "hello", |_| {})?;
            let times = calls(bench, &fresh, PAUSE).await?;
            row(format!("{class}: call of a fresh unit"), &times);
            let warm = prepare(bench, &*kind, "hello", |function| function.units.reuse_calls = 1_000_000)?;
            let rested = calls(bench, &warm, PAUSE).await?;
            row(format!("{class}: call of a warm unit, one every 5 ms"), &rested);
            // Nobody's processor has fallen asleep: the difference is what waking two of them takes.
            let again = calls(bench, &warm, Duration::ZERO).await?;
            row(format!("{class}: call of a warm unit, one after another"), &again);
            if class == "microvm" {
                figures.set("microvm_fresh_call_p50_ms", quantile(&times, 0.5));
                figures.set("microvm_fresh_call_p99_ms", quantile(&times, 0.99));
                figures.set("microvm_warm_call_p50_ms", quantile(&again, 0.5));
            }
        }
        table.print();
        anyhow::Ok(())
    })?;
    crate::node::container(bench, figures).context("crun")?;
    linux_starts::measure(bench).context("Linux in QEMU microvm")
}

/// Every kernel there is; the largest counts.
fn images(figures: &mut Figures) {
    let mut table = Table::new("Kernel images, stripped", &["", "kB"]);
    let boards = Machine::ALL.map(|machine| (machine.as_str(), unit_metal::kernel(machine).len()));
    let mut largest = 0;
    for (name, bytes) in [("for KVM", KERNEL.len())].into_iter().chain(boards) {
        table.row([name.to_owned(), number(bytes as f64 / 1e3)]);
        largest = largest.max(bytes);
    }
    table.print();
    figures.set("kernel_image_kb", largest as f64 / 1e3);
}

/// An artefact, and milliseconds of boots and links.
fn link(bench: &Bench) -> anyhow::Result<(Vec<u8>, Vec<f64>, Vec<f64>)> {
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
    Ok((artefact, boots, links))
}

/// Milliseconds from asking for a unit to its first instruction, and to its first reply.
async fn starts(bench: &Bench, artefact: &[u8], source: Source) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let bed = Bed::new(&MicrovmKind::new()?, artefact, 64 << 20)?;
    let (mut starts, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..bench.pick(300, 2_000) {
        if source == Source::Stock {
            bed.fill().await;
        }
        tokio::time::sleep(PAUSE).await;
        starts.push(ms(bed.first_instruction(source).await?));
        tokio::time::sleep(PAUSE).await;
        let began = Instant::now();
        let mut held = bed.start(source).await?;
        let reply = held.call(b"world").await?;
        replies.push(ms(began.elapsed()));
        ensure!(reply.starts_with(b"hello"), "another reply");
    }
    Ok((starts, replies))
}

/// Milliseconds of calls with a pause between them.
async fn calls(
    bench: &Bench,
    prepared: &std::sync::Arc<dyn unit::Prepared>,
    pause: Duration,
) -> anyhow::Result<Vec<f64>> {
    prepared.clone().try_start().await?;
    let mut times = Vec::new();
    for turn in 0..bench.pick(500, 5_000) + 20 {
        let (took, reply) = call(prepared, "world").await?;
        ensure!(reply.trim() == "hello, world", "another reply: {reply}");
        if turn >= 20 {
            times.push(ms(took));
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(times)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
