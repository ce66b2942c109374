//! How cost grows: with the length of a queue, and with the keys in the store.

use crate::fill::Filled;
use crate::lighter::Node;
use crate::process::{Cores, command, run_to_end};
use crate::report::{Figures, Table, number};
use crate::run::Bench;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

const MB: f64 = 1e6;
/// What a process settles in after it started.
const SETTLE: Duration = Duration::from_millis(500);

fn fill(folder: &Path, what: &str, count: u64) -> anyhow::Result<Filled> {
    fs::create_dir_all(folder)?;
    let mut command = command(std::env::current_exe()?, Cores::All);
    command.arg("fill").arg(folder).args([what, &count.to_string()]);
    Ok(serde_json::from_slice(&run_to_end(command)?)?)
}

/// Queues of a thousand to ten million events, then a node on the longest.
pub fn queue(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    let counts: &[u64] = bench.pick(&[1_000, 100_000, 1_000_000], &[1_000, 10_000, 100_000, 1_000_000, 10_000_000]);
    let mut table = Table::new(
        "Growth with the length of a queue, without a node; us for one event where 64 share a sync; medians of 200",
        &["events", "filled/s", "append us", "lease us", "ack us", "resident MB", "disk MB"],
    );
    let mut appends = Vec::new();
    let mut last = bench.folder("queue-0");
    for &count in counts {
        last = bench.folder(&format!("queue-{count}"));
        let filled = fill(&last, "--events", count)?;
        let costs = [filled.filled_per_s, filled.append_us, filled.lease_us, filled.ack_us];
        let sizes = [filled.resident_bytes as f64 / MB, filled.disk_bytes as f64 / MB];
        table.row([count.to_string()].into_iter().chain(costs.into_iter().chain(sizes).map(number)));
        appends.push(filled.append_us);
    }
    table.print();
    if let [first, .., longest] = appends[..] {
        figures.set("append_flat_ratio", longest / first);
    }

    let node = Node::start(&bench.lighter, &last, Cores::All)?;
    thread::sleep(SETTLE);
    let resident = node.process.resident_bytes()? as f64 / MB;
    println!(
        "A node on the longest queue: ready after {} ms, {} MB resident",
        number(node.ready.as_secs_f64() * 1e3),
        number(resident)
    );
    figures.set("rss_10m_events_mb", resident);
    node.process.stop()?;
    fs::remove_dir_all(&last)?;
    Ok(())
}

/// Buckets of a thousand to a million keys.
pub fn store(bench: &Bench, _: &mut Figures) -> anyhow::Result<()> {
    let mut table = Table::new(
        "Growth with the keys in the store, without a node; us for one key; a list is a page of 100",
        &["keys", "filled/s", "get us", "list us", "set us", "resident MB", "disk MB"],
    );
    for count in [1_000, 100_000, 1_000_000] {
        let folder = bench.folder(&format!("keys-{count}"));
        let filled = fill(&folder, "--keys", count)?;
        let of_keys = [filled.get_us, filled.list_us, filled.set_us].map(|time| time.unwrap_or(f64::NAN));
        let costs = [filled.filled_per_s].into_iter().chain(of_keys);
        let sizes = [filled.resident_bytes as f64 / MB, filled.disk_bytes as f64 / MB];
        table.row([count.to_string()].into_iter().chain(costs.chain(sizes).map(number)));
        fs::remove_dir_all(&folder)?;
    }
    table.print();
    Ok(())
}
