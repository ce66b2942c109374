//! The files of a group that are used while its processes run, opened with it.
//!
//! To open one takes a lock that the kernel holds for milliseconds while groups are made and removed beside it: a
//! thread that serves everybody must not. To read and write one that is open takes none.

use super::{Controller, Hierarchy};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Bytes of what the kernel counts that are looked at; the total comes first.
const BYTES_MAX: usize = 512;

/// Share of the processors of a unit, and of one that lets others go first, where a group has 100 that nobody weighed.
const WEIGHT: u64 = 100;
const WEIGHT_LESS: u64 = 10;
/// Share of all units together, beside the node that serves everybody and what else is on the machine.
const WEIGHT_OF_ALL: u64 = 20;
/// What that is in version 1, where it is 1,024.
const SHARES_AT_100: u64 = 1_024;

/// An open file, and the version of its controller.
#[derive(Debug)]
struct Open {
    file: File,
    is_second_version: bool,
}

impl Open {
    /// The controller's file, by its names in both versions; none without the controller or the file.
    fn read(hierarchies: &[Hierarchy], controller: Controller, first: &str, second: &str) -> Option<Self> {
        Self::with(File::options().read(true), hierarchies, controller, first, second)
    }

    fn write(hierarchies: &[Hierarchy], controller: Controller, first: &str, second: &str) -> Option<Self> {
        Self::with(File::options().write(true), hierarchies, controller, first, second)
    }

    fn with(
        how: &std::fs::OpenOptions,
        hierarchies: &[Hierarchy],
        controller: Controller,
        first: &str,
        second: &str,
    ) -> Option<Self> {
        let hierarchy = hierarchies.iter().find(|hierarchy| hierarchy.controller == controller)?;
        let name = if hierarchy.is_second_version { second } else { first };
        let file = how.open(hierarchy.folder.join(name)).ok()?;
        Some(Self { file, is_second_version: hierarchy.is_second_version })
    }

    fn text(&self) -> Option<String> {
        let mut room = [0; BYTES_MAX];
        let got = self.file.read_at(&mut room, 0).ok()?;
        Some(String::from_utf8_lossy(&room[..got]).into_owned())
    }

    fn number(&self) -> Option<u64> {
        self.text()?.trim().parse().ok()
    }

    /// The number after `key` in a file of lines `key number`.
    fn entry(&self, key: &str) -> Option<u64> {
        entry(&self.text()?, key)
    }

    fn set(&self, number: u64) -> io::Result<()> {
        self.file.write_all_at(number.to_string().as_bytes(), 0)
    }
}

/// Memory that all of a group uses.
#[derive(Debug)]
pub struct Usage(Open);

impl Usage {
    pub fn open(hierarchies: &[Hierarchy]) -> Option<Self> {
        Open::read(hierarchies, Controller::Memory, "memory.usage_in_bytes", "memory.current").map(Self)
    }

    pub fn bytes(&self) -> Option<u64> {
        self.0.number()
    }
}

/// A group's share of the processors among those beside it.
#[derive(Debug)]
pub struct CpuShare(Open);

impl CpuShare {
    pub fn open(hierarchies: &[Hierarchy]) -> Option<Self> {
        Open::write(hierarchies, Controller::Share, "cpu.shares", "cpu.weight").map(Self)
    }

    /// Gives it as much as others have, or less; false if the kernel refuses.
    pub fn weigh(&self, is_less: bool) -> bool {
        self.set(if is_less { WEIGHT_LESS } else { WEIGHT })
    }

    /// Gives it what the group of all units has.
    pub fn weigh_all(&self) -> bool {
        self.set(WEIGHT_OF_ALL)
    }

    fn set(&self, weight: u64) -> bool {
        let number = if self.0.is_second_version { weight } else { weight * SHARES_AT_100 / 100 };
        self.0.set(number).is_ok()
    }
}

/// The files of a unit's group; each is missing where its controller is.
#[derive(Debug, Default)]
pub struct Files {
    cpu: Option<Open>,
    memory_peak: Option<Open>,
    memory_events: Option<Open>,
    process_events: Option<Open>,
    processes_max: Option<Open>,
    share: Option<CpuShare>,
}

impl Files {
    pub fn open(hierarchies: &[Hierarchy]) -> Self {
        use Controller::{Cpu, Memory, Processes};
        Self {
            cpu: Open::read(hierarchies, Cpu, "cpuacct.usage", "cpu.stat"),
            memory_peak: Open::read(hierarchies, Memory, "memory.max_usage_in_bytes", "memory.peak"),
            memory_events: Open::read(hierarchies, Memory, "memory.oom_control", "memory.events"),
            process_events: Open::read(hierarchies, Processes, "pids.events", "pids.events"),
            processes_max: Open::write(hierarchies, Processes, "pids.max", "pids.max"),
            share: CpuShare::open(hierarchies),
        }
    }

    /// CPU time of all that is or was in the group.
    pub fn cpu(&self) -> Option<Duration> {
        let open = self.cpu.as_ref()?;
        match open.is_second_version {
            true => open.entry("usage_usec").map(Duration::from_micros),
            false => open.number().map(Duration::from_nanos),
        }
    }

    pub fn memory_peak_bytes(&self) -> Option<u64> {
        self.memory_peak.as_ref()?.number()
    }

    pub fn memory_kills(&self) -> u64 {
        self.memory_events.as_ref().and_then(|open| open.entry("oom_kill")).unwrap_or(0)
    }

    pub fn process_refusals(&self) -> u64 {
        self.process_events.as_ref().and_then(|open| open.entry("max")).unwrap_or(0)
    }

    pub fn bound_processes(&self, processes: u64) -> io::Result<()> {
        self.processes_max.as_ref().map_or(Ok(()), |open| open.set(processes))
    }

    pub fn weigh(&self, is_less: bool) -> bool {
        self.share.as_ref().is_some_and(|share| share.weigh(is_less))
    }
}

fn entry(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_keys() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!((entry(text, "oom_kill"), entry(text, "max")), (Some(3), None));
    }
}
