//! What live units weigh: hello units that have answered once and are kept.

use super::runtime;
use crate::report::{Figures, Table, number};
use crate::run::Bench;
use anyhow::Context as _;
use std::fs;
use unit_microvm::MicrovmClass;
use unit_microvm::measure::{Bed, Source};

const UNITS: usize = 500;

/// Megabytes of 1,000,000 bytes.
struct Weight {
    /// Of this process alone.
    private: f64,
    /// That the system has less: what KVM keeps for its machines is in it, and whatever else happens meanwhile.
    system: f64,
}

pub fn measure(_: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let bench_guest = include_bytes!("../../../guests/prebuilt/hello.wasm");
    let runtime = runtime()?;
    runtime.block_on(async {
        let class = MicrovmClass::new()?;
        class.available()?;
        let artefact = class.link(bench_guest)?.0;
        let bed = Bed::new(&class, &artefact, 64 << 20)?;
        let mut first = bed.start(Source::Nothing).await?;
        first.call(b"world").await?;
        let before = weigh()?;
        let mut units = Vec::new();
        for _ in 0..UNITS {
            let mut unit = bed.start(Source::Nothing).await?;
            unit.call(b"world").await?;
            units.push(unit);
        }
        let after = weigh()?;
        let (private, system) = (after.private - before.private, before.system - after.system);
        let columns = ["", "MB"];
        let mut table = Table::new(&format!("{UNITS} live hello units"), &columns);
        table.row(["private memory of the process".to_owned(), number(private)]);
        table.row(["memory the system has less".to_owned(), number(system)]);
        table.row(["the artefact, for all of them".to_owned(), number(artefact.len() as f64 / 1e6)]);
        table.print();
        // What the system keeps for the machines counts as well as what the process sees of itself.
        let total = private.max(system);
        figures.set("microvm_private_mb", total / UNITS as f64);
        figures.set("microvm_500_units_mb", total);
        anyhow::Ok(())
    })
}

fn weigh() -> anyhow::Result<Weight> {
    let sum = |file: &str, keys: &[&str]| {
        let text = fs::read_to_string(file)?;
        let value = |line: &str| line.split_whitespace().nth(1).and_then(|value| value.parse::<f64>().ok());
        let lines = text.lines().filter(|line| keys.iter().any(|key| line.starts_with(key)));
        let kilobytes: f64 = lines.filter_map(value).sum();
        anyhow::Ok(kilobytes * 1_024.0 / 1e6)
    };
    let private = sum("/proc/self/smaps_rollup", &["Private_Dirty:", "Private_Clean:"]).context("smaps_rollup")?;
    Ok(Weight { private, system: sum("/proc/meminfo", &["MemAvailable:"])? })
}
