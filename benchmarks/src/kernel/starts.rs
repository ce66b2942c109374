//! How long a unit takes to be there, and to answer.

use super::called::{CLASSES, Called};
use super::{linux_starts, runtime};
use crate::report::{Figures, Table, number, quantile};
use crate::run::Bench;
use anyhow::{Context as _, ensure};
use std::time::{Duration, Instant};
use unit_metal::qemu::Machine;
use unit_microvm::measure::{Bed, Source};
use unit_microvm::{KERNEL, MicrovmClass};

/// Between two calls: the machine of the one before is made anew meanwhile.
const PAUSE: Duration = Duration::from_millis(5);
/// A unit serves all calls of a series.
const REUSE: &str = "units.reuse_calls = 1_000_000";

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    images(figures);
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut table = Table::new("One unit, hello, without a node", &COLUMNS);
        let mut row = |name: String, times: &[f64]| table.row([name].into_iter().chain(spread(times)));
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
        table.print();
        anyhow::Ok(())
    })?;
    through_a_node(bench, figures)?;
    crate::node::container(bench, figures).context("crun")?;
    linux_starts::measure(bench).context("Linux in QEMU microvm")
}

const COLUMNS: [&str; 5] = ["", "p50 ms", "p90", "p99", "max"];

fn spread(times: &[f64]) -> [String; 4] {
    [0.5, 0.9, 0.99, 1.0].map(|share| number(quantile(times, share)))
}

/// What a client sees: from the request to the reply.
fn through_a_node(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let of = |class: &str| {
        let isolation = format!("isolation = \"{class}\"");
        [(format!("{class}-fresh"), isolation.clone()), (format!("{class}-warm"), format!("{isolation}\n{REUSE}"))]
    };
    let mut node = Called::start(bench, "hello", &CLASSES.map(of).concat())?;
    let mut table = Table::new("Calls of hello through a node, over one connection", &COLUMNS);
    let mut row = |name: String, times: &[f64]| table.row([name].into_iter().chain(spread(times)));
    for class in CLASSES {
        let (fresh, warm) = (format!("{class}-fresh"), format!("{class}-warm"));
        let times = calls(bench, &mut node, &fresh, PAUSE)?;
        row(format!("{class}: call of a fresh unit"), &times);
        let rested = calls(bench, &mut node, &warm, PAUSE)?;
        row(format!("{class}: call of a warm unit, one every 5 ms"), &rested);
        // Nobody's processor has fallen asleep: the difference is what waking two of them takes.
        let again = calls(bench, &mut node, &warm, Duration::ZERO)?;
        row(format!("{class}: call of a warm unit, one after another"), &again);
        if class == "microvm" {
            figures.set("microvm_fresh_call_p50_ms", quantile(&times, 0.5));
            figures.set("microvm_fresh_call_p99_ms", quantile(&times, 0.99));
            figures.set("microvm_warm_call_p50_ms", quantile(&again, 0.5));
        }
    }
    table.print();
    Ok(())
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
    let class = MicrovmClass::new()?;
    let hello = bench.guest("hello")?;
    let (mut boots, mut links) = (Vec::new(), Vec::new());
    let mut artefact = Vec::new();
    for _ in 0..bench.pick(20, 50) {
        let (made, times) = class.link(&hello)?;
        boots.push(ms(times.boot));
        links.push(ms(times.link));
        artefact = made;
    }
    Ok((artefact, boots, links))
}

/// Milliseconds from asking for a unit to its first instruction, and to its first reply.
async fn starts(bench: &Bench, artefact: &[u8], source: Source) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let bed = Bed::new(&MicrovmClass::new()?, artefact, 64 << 20)?;
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
fn calls(bench: &Bench, node: &mut Called, function: &str, pause: Duration) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    for turn in 0..bench.pick(500, 5_000) + 20 {
        let (took, reply) = node.call(function, "world")?;
        ensure!(reply.trim() == "hello, world", "another reply: {reply}");
        if turn >= 20 {
            times.push(ms(took));
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    Ok(times)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
