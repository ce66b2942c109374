//! What the operating system says about this process: memory, CPU time, open files.

use std::fs;
use std::time::Duration;

#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub rss_bytes: u64,
    pub cpu: Duration,
    pub open_files: u64,
}

/// Linux on the machines we run on counts CPU time in hundredths of a second (`USER_HZ`) and pages of 4 KiB in `/proc`.
const TICK: Duration = Duration::from_millis(10);
const STATUS_UNIT_BYTES: u64 = 1 << 10;

/// Zeros where `/proc` cannot be read.
pub fn usage() -> Usage {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = u32::try_from(cpu_ticks(&stat)).unwrap_or(u32::MAX);
    Usage {
        rss_bytes: rss_bytes(),
        cpu: TICK * ticks,
        open_files: fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
    }
}

/// Of this process, in RAM; 0 where `/proc` cannot be read. Counting the open files takes ten times as long.
pub fn rss_bytes() -> u64 {
    rss_kib(&fs::read_to_string("/proc/self/status").unwrap_or_default()) * STATUS_UNIT_BYTES
}

fn rss_kib(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// User and system time. The command name before them, in parentheses, may hold anything.
fn cpu_ticks(stat: &str) -> u64 {
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
    rest.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_whatever_the_command_is_called() {
        let stat = "7 (a) (b) R 1 7 7 0 -1 4194304 9 0 0 0 120 30 0 0 20 0 1 0 5 1 1 1";
        assert_eq!(cpu_ticks(stat), 150);
        assert_eq!(cpu_ticks("nonsense"), 0);
        assert_eq!(rss_kib("Name:\tx\nVmRSS:\t  2048 kB\n"), 2048);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(usage().rss_bytes > 100_000 && rss_bytes() > 100_000);
    }
}
