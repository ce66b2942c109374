//! Where this process may make control groups, from what the kernel says of mounts and of the process.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    Memory,
    Processes,
    /// Counts CPU time.
    Cpu,
    /// Shares the processors out. Without groups, processes are weighed one by one; or, where the kernel groups them by
    /// sessions (autogroups), by the sessions that a unit chooses to begin, whatever their priorities are.
    Share,
}

impl Controller {
    pub const ALL: [Controller; 4] = [Controller::Memory, Controller::Processes, Controller::Cpu, Controller::Share];

    /// The kernel's word for it in version 2.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu | Self::Share => "cpu",
        }
    }

    /// In version 1 CPU time is counted by a controller of its own.
    const fn first_version(self) -> &'static str {
        match self {
            Self::Cpu => "cpuacct",
            other => other.as_str(),
        }
    }
}

/// The node's own group for one controller.
#[derive(Debug, PartialEq, Eq)]
pub struct Own {
    pub folder: PathBuf,
    pub is_second_version: bool,
}

pub fn own_group(controller: Controller) -> io::Result<Own> {
    let (mounts, groups) = (fs::read_to_string("/proc/self/mountinfo")?, fs::read_to_string("/proc/self/cgroup")?);
    for is_second_version in [true, false] {
        let Some(candidates) = candidates(&mounts, &groups, controller, is_second_version) else { continue };
        let Some(folder) = candidates.into_iter().find(|folder| folder.is_dir()) else { continue };
        let has = !is_second_version || controllers(&folder).iter().any(|name| name == controller.as_str());
        if has {
            return Ok(Own { folder, is_second_version });
        }
    }
    let what = controller.as_str();
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("this system has no control groups with the controller {what}"),
    ))
}

/// The group of this process below the mount; and the mount itself, where the kernel shows another root than ours.
fn candidates(mounts: &str, groups: &str, controller: Controller, is_second_version: bool) -> Option<Vec<PathBuf>> {
    let (root, mount) = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, mount) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let fits = match is_second_version {
            true => kind == "cgroup2",
            false => kind == "cgroup" && options.split(',').any(|option| option == controller.first_version()),
        };
        fits.then_some((root, mount))
    })?;
    let path = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (names, path) = (parts.next()?, parts.next()?);
        let fits = match is_second_version {
            true => names.is_empty(),
            false => names.split(',').any(|name| name == controller.first_version()),
        };
        fits.then_some(path)
    })?;
    let mount = Path::new(mount);
    let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path).trim_start_matches('/');
    Some(vec![mount.join(below), mount.to_path_buf()])
}

fn controllers(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Version 2: makes a controller available below a group. A group with processes of its own may not do that, so the
/// node moves into a leaf beside its units; where others share its group, that is not enough and this fails.
pub fn hand_down(folder: &Path, controller: Controller, name: &str) -> io::Result<()> {
    let enable = || fs::write(folder.join("cgroup.subtree_control"), format!("+{}", controller.as_str()));
    enable().or_else(|error| {
        if error.kind() != io::ErrorKind::ResourceBusy {
            return Err(error);
        }
        let leaf = folder.join(format!("{name}.node"));
        fs::create_dir(&leaf).or_else(|error| if leaf.is_dir() { Ok(()) } else { Err(error) })?;
        fs::write(leaf.join("cgroup.procs"), std::process::id().to_string())?;
        enable()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "31 30 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        32 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        33 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const SECOND: &str = "33 30 0:28 /docker/x /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n";

    fn first(mounts: &str, groups: &str, controller: Controller, second: bool) -> Option<PathBuf> {
        candidates(mounts, groups, controller, second).map(|mut all| all.remove(0))
    }

    #[test]
    fn each_controller_is_found_in_its_own_hierarchy() {
        let groups = "4:memory:/a/b\n2:cpu,cpuacct:/\n0::/user\n";
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(first(FIRST, groups, Controller::Memory, false), path("/sys/fs/cgroup/memory/a/b"));
        assert_eq!(first(FIRST, groups, Controller::Cpu, false), path("/sys/fs/cgroup/cpu,cpuacct/"));
        assert_eq!(first(FIRST, groups, Controller::Memory, true), path("/sys/fs/cgroup/unified/user"));
        assert_eq!(first(FIRST, groups, Controller::Processes, false), None);
        assert_eq!(first(SECOND, "0::/docker/x/y\n", Controller::Memory, true), path("/sys/fs/cgroup/y"));
        assert_eq!(first(SECOND, "0::/docker/x/y\n", Controller::Memory, false), None);
    }
}
