//! How much memory this machine has for the node: all of it, or what a control group above the node leaves.

use std::fs;
use std::path::Path;

/// What the node may hold for others unless it is told: a half, because its own code, tables and threads, and what the
/// system keeps for it, need the rest.
const PART: u64 = 2;

/// The least budget by default: below it nothing of use runs.
const LEAST: u64 = 32 << 20;

/// The default of `memory_bytes_max`.
pub fn budget_bytes() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_bytes(&text)).unwrap_or(u64::MAX);
    let read = |path: &Path| fs::read_to_string(path).ok();
    (smallest(&groups, read).min(machine) / PART).max(LEAST)
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// The smallest limit of the node's own memory control group and of all above it, of either version.
fn smallest(groups: &str, read: impl Fn(&Path) -> Option<String>) -> u64 {
    groups.lines().filter_map(|line| place(line)).fold(u64::MAX, |least, (root, file, group)| {
        let folders = Path::new(group).ancestors().filter_map(|folder| folder.strip_prefix("/").ok());
        let limits = folders.filter_map(|folder| read(&Path::new(root).join(folder).join(file))?.trim().parse().ok());
        limits.fold(least, u64::min)
    })
}

/// Where one line of `/proc/self/cgroup` keeps its limit: the hierarchy's folder, the file's name, the group.
fn place(line: &str) -> Option<(&'static str, &'static str, &str)> {
    let (number, rest) = line.split_once(':')?;
    let (controllers, group) = rest.split_once(':')?;
    match controllers.split(',').any(|controller| controller == "memory") {
        true => Some(("/sys/fs/cgroup/memory", "memory.limit_in_bytes", group)),
        false if number == "0" => Some(("/sys/fs/cgroup", "memory.max", group)),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_with(groups: &str, files: &[(&str, &str)]) -> u64 {
        smallest(groups, |path| {
            files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_smallest_limit_above_the_node_counts() {
        let second = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/memory.max", "2000\n"),
        ];
        assert_eq!(limit_with("0::/a/b\n", &second), 1_000);
        let first = [("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "500\n")];
        assert_eq!(limit_with("7:cpu:/x\n6:memory:/c\n0::/\n", &first), 500);
        assert_eq!(limit_with("nonsense", &first), u64::MAX);
    }

    #[test]
    fn the_machine_says_how_much_it_has() {
        assert_eq!(total_bytes("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
        assert_eq!(total_bytes("nothing"), None);
        assert!(budget_bytes() >= LEAST);
    }
}
