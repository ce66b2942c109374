//! Says what machine this is and what the peers are: a figure without its machine means nothing.

use crate::peers::Peers;
use anyhow::bail;
use std::fs;
use std::thread;

/// Above this load average for each core, other work disturbs the run enough to say so.
const LOAD_MAX: f64 = 0.25;

/// Above this part of the processors' time, what the host takes disturbs the run enough to say so.
const STOLEN_MAX: f64 = 0.05;

/// Processor time of this machine since it was started, in ticks.
pub struct ProcessorTime {
    worked: u64,
    /// Wanted here, and given to other machines by the host (`steal` of proc(5)).
    stolen: u64,
}

impl ProcessorTime {
    /// Up to now. A system that does not say has had none.
    pub fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn read(stat: &str) -> Self {
        let first = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = first.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(0)).collect();
        let tick = |at: usize| ticks.get(at).copied().unwrap_or(0);
        // user, nice, system, idle, iowait, irq, softirq, steal
        Self { worked: [0, 1, 2, 5, 6].into_iter().map(tick).sum(), stolen: tick(7) }
    }

    /// The part of what was wanted since then that the host took.
    fn stolen_since(&self, then: &Self) -> f64 {
        // Some kernels take a few ticks back.
        let (worked, stolen) = (self.worked.saturating_sub(then.worked), self.stolen.saturating_sub(then.stolen));
        stolen as f64 / (worked + stolen).max(1) as f64
    }

    /// Prints what the host took since then, if that is enough to disturb a run.
    pub fn print_since(&self, then: &Self) {
        let stolen = self.stolen_since(then);
        if stolen > STOLEN_MAX {
            let percent = stolen * 100.0;
            println!("\nNOTE: the host took {percent:.0} % of the processors' time; expect noise and long tails");
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_took_is_a_part_of_what_was_wanted() {
        let then = ProcessorTime::read("cpu  100 10 50 4000 9 0 5 20 30 0\ncpu0 1 1 1 1 1 1 1 1\n");
        let now = ProcessorTime::read("cpu  160 10 60 9000 9 0 5 50 90 0\ncpu0 1 1 1 1 1 1 1 1\n");
        assert_eq!((now.worked, now.stolen), (235, 50));
        assert!((now.stolen_since(&then) - 0.3).abs() < 1e-9);
        let silent = ProcessorTime::read("");
        assert_eq!(silent.stolen_since(&silent), 0.0);
        assert_eq!(then.stolen_since(&now), 0.0, "ticks that were taken back");
    }
}
