//! Says what machine this is and what the peers are: a figure without its machine means nothing.

use crate::peers::Peers;
use anyhow::bail;
use std::fs;
use std::thread;

/// Above this load average for each core, other work disturbs the run enough to say so.
const LOAD_MAX: f64 = 0.25;

/// Prints the machine and the peers.
///
/// # Errors
/// There is one core only: load and server would share it, and every comparison would be wrong.
pub fn print(peers: &Peers) -> anyhow::Result<()> {
    let cores = thread::available_parallelism()?.get();
    let line = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).map(|line| line.replace(key, ""));
        line.map_or("unknown".to_owned(), |line| line.trim_matches([' ', '\t', ':']).to_owned())
    };
    let kernel = line("/proc/sys/kernel/osrelease", "");
    println!(
        "Machine: {} ({cores} cores), {}, Linux {kernel}",
        line("/proc/cpuinfo", "model name"),
        line("/proc/meminfo", "MemTotal")
    );
    for (name, is_there, note) in peers.notes() {
        println!("Peer: {name}: {}{note}", if is_there { "" } else { "MISSING: " });
    }
    if cores < 2 {
        bail!("this machine has one core: the load and the server need one each");
    }
    let load: f64 = line("/proc/loadavg", "").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    if load > LOAD_MAX * cores as f64 {
        println!("NOTE: other work keeps this machine busy (load average {load}); expect noise");
    }
    Ok(())
}
