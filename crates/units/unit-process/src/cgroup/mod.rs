//! Control groups: what the kernel counts and bounds for the processes of a unit together.
//!
//! ```text
//!   the node's own group
//!     lighter-ID/                 one for each data folder
//!       hello.3.1/                a zygote and its children: function, version, number
//!         zygote
//!         unit-17                 one for each child: memory, processes, CPU
//! ```
//! Each of the controllers is used where it is: in the one hierarchy of version 2, or in its own of version 1, as
//! on systems that have both. A node holds a lock on its group; what one that was killed left behind is removed when
//! the next one starts, of whatever data folder.

mod files;
mod find;

use crate::descriptors as fd;
use crate::jail::{Missing, Protection};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use files::{CpuShare, Files, Usage};
pub use find::Controller;

/// What the name of a node's group begins with; the rest is made of its data folder, in hexadecimal digits.
pub const NAME_PREFIX: &str = "lighter-";

/// How often, and for how long, an emptied group is tried to be removed: its processes take a moment to end.
const REMOVE_TRIES: u32 = 400;
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// What removes groups, in a thread of its own.
type Removal = Box<dyn FnOnce() + Send>;

/// Where one controller's groups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    controller: Controller,
    is_second_version: bool,
    folder: PathBuf,
}

/// Makes groups below the node's own.
#[derive(Debug, Default)]
pub struct Groups {
    hierarchies: Vec<Hierarchy>,
    usage: Option<Usage>,
    /// Says to other nodes that the groups are in use.
    _locks: Vec<File>,
}

/// What a group may use.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub memory_bytes: u64,
    pub processes: u64,
}

impl Groups {
    /// Removes what nodes that were killed have left: that of this data folder, and others that nobody holds.
    pub fn remove_left(name: &str) {
        for own in Controller::ALL.into_iter().filter_map(|controller| find::own_group(controller).ok()) {
            remove_tree(&own.folder.join(name));
            let Ok(others) = fs::read_dir(&own.folder) else { continue };
            let others = others.flatten().map(|other| other.path());
            others.filter(|other| is_abandoned(other)).for_each(|other| _ = remove_tree(&other));
        }
    }

    /// Opens the group of this data folder, empty, and says what the system refuses.
    /// All units together get no more than `memory_bytes_max`.
    pub fn open(name: &str, memory_bytes_max: u64) -> (Self, Vec<Missing>) {
        let (mut hierarchies, mut missing) = (Vec::new(), Vec::new());
        // Before any is made: in version 2 the controllers share the group, from which this process may have to move,
        // and what one was handed down would go with the group.
        let own = Controller::ALL.map(|controller| (controller, find::own_group(controller)));
        let left: BTreeSet<_> = own.iter().flat_map(|(_, own)| own).map(|own| own.folder.join(name)).collect();
        left.iter().for_each(|folder| _ = remove_tree(folder));
        for (controller, own) in own {
            let made = own.and_then(|own| Hierarchy::make(controller, own, name));
            match made.and_then(|hierarchy| hierarchy.bound_memory(memory_bytes_max).map(|()| hierarchy)) {
                Ok(hierarchy) => hierarchies.push(hierarchy),
                Err(error) => {
                    let said = |protection| Missing { protection, why: error.to_string() };
                    missing.extend(controller.protection().map(said));
                }
            }
        }
        CpuShare::open(&hierarchies).iter().for_each(|share| _ = share.weigh_all());
        let locks = folders(&hierarchies).iter().filter_map(|folder| lock(folder)).collect();
        (Self { usage: Usage::open(&hierarchies), hierarchies, _locks: locks }, missing)
    }

    /// A group for a zygote and its children.
    pub fn family(&self, name: &str) -> io::Result<Family> {
        let hierarchies: Vec<_> =
            self.hierarchies.iter().map(|hierarchy| hierarchy.below(name, true)).collect::<io::Result<_>>()?;
        Ok(Family { share: CpuShare::open(&hierarchies), hierarchies })
    }

    /// Memory of all units together, with the files they keep in it; none where the kernel does not count it.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.usage.as_ref()?.bytes()
    }

    pub fn has(&self, controller: Controller) -> bool {
        self.hierarchies.iter().any(|hierarchy| hierarchy.controller == controller)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        folders(&self.hierarchies).iter().for_each(|folder| _ = remove_tree(folder));
    }
}

impl Controller {
    /// What is missing without it; nothing where priorities do the most of it too.
    const fn protection(self) -> Option<Protection> {
        match self {
            Self::Memory => Some(Protection::MemoryLimit),
            Self::Processes => Some(Protection::ProcessLimit),
            Self::Cpu => Some(Protection::CpuCount),
            Self::Share => None,
        }
    }
}

impl Hierarchy {
    fn make(controller: Controller, own: find::Own, name: &str) -> io::Result<Self> {
        let folder = own.folder.join(name);
        if own.is_second_version {
            find::hand_down(&own.folder, controller, name)?;
        }
        fs::create_dir(&folder).or_else(|error| if folder.is_dir() { Ok(()) } else { Err(error) })?;
        let hierarchy = Self { controller, is_second_version: own.is_second_version, folder };
        hierarchy.hand_down()?;
        // A group that cannot be bounded is none: it is tried out once.
        let probe = hierarchy.below("probe", false)?;
        let tried = probe.bound(&Bounds { memory_bytes: 64 << 20, processes: 64 });
        fs::remove_dir(&probe.folder)?;
        tried.map(|()| hierarchy)
    }

    /// In version 2 a group says which controllers those below it have.
    fn hand_down(&self) -> io::Result<()> {
        if self.is_second_version {
            fs::write(self.folder.join("cgroup.subtree_control"), format!("+{}", self.controller.as_str()))?;
        }
        Ok(())
    }

    fn below(&self, name: &str, has_more_below: bool) -> io::Result<Self> {
        let hierarchy = Self { folder: self.folder.join(name), ..self.clone() };
        fs::create_dir(&hierarchy.folder)
            .or_else(|error| if hierarchy.folder.is_dir() { Ok(()) } else { Err(error) })?;
        if has_more_below {
            hierarchy.hand_down()?;
        }
        Ok(hierarchy)
    }

    fn bound(&self, bounds: &Bounds) -> io::Result<()> {
        let write = |name: &str, value: u64| fs::write(self.folder.join(name), value.to_string());
        match (self.controller, self.is_second_version) {
            (Controller::Memory, is_second_version) => {
                self.bound_memory(bounds.memory_bytes)?;
                if is_second_version {
                    write("memory.oom.group", 1).ok();
                }
                Ok(())
            }
            (Controller::Processes, _) => write("pids.max", bounds.processes),
            (Controller::Cpu | Controller::Share, _) => Ok(()),
        }
    }

    /// Memory of it and all below it. Less than there is in use is refused (version 1), or ends what uses it (version
    /// 2).
    fn bound_memory(&self, bytes: u64) -> io::Result<()> {
        let write = |name: &str, value: u64| fs::write(self.folder.join(name), value.to_string());
        match (self.controller, self.is_second_version) {
            (Controller::Memory, false) => {
                // Memory and swap together, which must not be less than memory alone: before if it grows, after if it
                // shrinks. Not every kernel counts swap.
                write("memory.memsw.limit_in_bytes", bytes).ok();
                write("memory.limit_in_bytes", bytes)?;
                write("memory.memsw.limit_in_bytes", bytes).ok();
            }
            (Controller::Memory, true) => {
                write("memory.max", bytes)?;
                write("memory.swap.max", 0).ok();
            }
            _ => {}
        }
        Ok(())
    }
}

/// The group of a zygote and its children. Dropping it kills what is in it and removes it.
#[derive(Debug)]
pub struct Family {
    hierarchies: Vec<Hierarchy>,
    share: Option<CpuShare>,
}

impl Family {
    /// Bounds the memory of all members together, those that are gone and left some among them.
    ///
    /// # Errors
    /// More is in use, and cannot be freed.
    pub fn bound_memory(&self, bytes: u64) -> io::Result<()> {
        self.hierarchies.iter().try_for_each(|hierarchy| hierarchy.bound_memory(bytes))
    }

    /// As [`Group::weigh`], against those of other functions.
    pub fn weigh(&self, is_less: bool) {
        self.share.iter().for_each(|share| _ = share.weigh(is_less));
    }

    /// A group for one member.
    pub fn member(&self, name: &str, bounds: &Bounds) -> io::Result<Group> {
        let hierarchies =
            self.hierarchies.iter().map(|hierarchy| hierarchy.below(name, false)).collect::<io::Result<Vec<_>>>()?;
        let mut group = Group { hierarchies, files: Files::default() };
        group.hierarchies.iter().try_for_each(|hierarchy| hierarchy.bound(bounds))?;
        group.files = Files::open(&group.hierarchies);
        Ok(group)
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        remove_later(&self.hierarchies);
    }
}

/// The group of one process and all it starts. Dropping it kills them and removes it, a moment later. What makes,
/// enters, kills or ends a group takes locks that the kernel may hold for milliseconds: it is not for threads that
/// serve everybody.
#[derive(Debug)]
pub struct Group {
    hierarchies: Vec<Hierarchy>,
    files: Files,
}

impl Group {
    /// Moves a process here, which must be a child of this process that was not reaped: else its number may be
    /// another's. May take milliseconds: the kernel waits for every processor.
    pub fn add(&self, process: u32) -> io::Result<()> {
        folders(&self.hierarchies)
            .iter()
            .try_for_each(|folder| fs::write(folder.join("cgroup.procs"), process.to_string()))
    }

    /// What the number of a process is written to so that it is moved here, by whoever knows whose number it is.
    pub fn entrances(&self) -> io::Result<Vec<File>> {
        let open = |folder: &PathBuf| File::options().write(true).open(folder.join("cgroup.procs"));
        folders(&self.hierarchies).iter().map(open).collect()
    }

    /// Bounds the number of its processes anew.
    pub fn bound_processes(&self, processes: u64) -> io::Result<()> {
        self.files.bound_processes(processes)
    }

    /// Gives all of its processes less of the processors than others have, or as much; false where only priorities do
    /// that.
    pub fn weigh(&self, is_less: bool) -> bool {
        self.files.weigh(is_less)
    }

    /// CPU time of all that is or was in it; none without the controller.
    pub fn cpu(&self) -> Option<Duration> {
        self.files.cpu()
    }

    /// The most memory it had at once.
    pub fn memory_peak_bytes(&self) -> Option<u64> {
        self.files.memory_peak_bytes()
    }

    /// Whether something in it was killed for its memory.
    pub fn memory_exceeded(&self) -> bool {
        self.files.memory_kills() > 0
    }

    /// Whether a process was refused for their number.
    pub fn processes_exceeded(&self) -> bool {
        self.files.process_refusals() > 0
    }

    /// Its processes are the same in every hierarchy: one is enough.
    pub fn kill(&self) {
        let first = self.hierarchies.iter().find(|hierarchy| hierarchy.is_second_version).or(self.hierarchies.first());
        first.iter().for_each(|hierarchy| kill(&hierarchy.folder, hierarchy.is_second_version));
    }

    /// Removes it, which succeeds once none of its processes is left: whether that is certain.
    pub fn end(mut self) -> bool {
        let hierarchies = std::mem::take(&mut self.hierarchies);
        let folders = folders(&hierarchies);
        !folders.is_empty() && folders.iter().map(|folder| remove_tree(folder)).fold(true, |all, one| all && one)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        remove_later(&self.hierarchies);
    }
}

/// Removes them where nobody waits: their processes take a moment to end.
fn remove_later(hierarchies: &[Hierarchy]) {
    let folders = folders(hierarchies);
    if !folders.is_empty() {
        remove_aside(folders, |removal| thread::Builder::new().spawn(removal).map(drop));
    }
}

/// Removes them in a thread that `begin` begins. Where none is to be had, their processes are killed all the same,
/// and groups that are not empty at once stay until the one above them goes, or the next node starts.
fn remove_aside(folders: BTreeSet<PathBuf>, begin: impl FnOnce(Removal) -> io::Result<()>) {
    let folders = Arc::new(folders);
    let aside = folders.clone();
    let removal = Box::new(move || aside.iter().for_each(|folder| _ = remove_tree(folder)));
    if let Err(error) = begin(removal) {
        tracing::warn!(target: "lighter::jails", %error, "there is no thread to remove control groups in");
        folders.iter().for_each(|folder| remove_at_once(folder));
    }
}

/// Each folder once: in version 2 the controllers share it.
fn folders(hierarchies: &[Hierarchy]) -> BTreeSet<PathBuf> {
    hierarchies.iter().map(|hierarchy| hierarchy.folder.clone()).collect()
}

/// Kills every process of a group: at once where the kernel can, else one by one, again until none is left.
fn kill(folder: &Path, can_at_once: bool) {
    if can_at_once && fs::write(folder.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for process in processes.lines().filter_map(|process| process.parse().ok()) {
        let Ok(pidfd) = fd::pidfd(process) else { continue };
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
        // The number may be another's by now. If what is open still lives, it had the number when its groups were read.
        if is_in(&groups, folder) && !fd::has_ended(&pidfd) {
            fd::kill(&pidfd);
        }
    }
}

/// Whether these groups of a process, as the kernel lists them, are this one or below it, in any hierarchy. Compared
/// are the names from the node's own group on, which say whose they are.
fn is_in(groups: &str, folder: &Path) -> bool {
    let own = |path: &Path| {
        let names: Vec<_> = path.iter().map(ToOwned::to_owned).collect();
        let at = names.iter().rposition(|name| name.as_encoded_bytes().starts_with(NAME_PREFIX.as_bytes()))?;
        Some(names[at..].to_vec())
    };
    let Some(wanted) = own(folder) else { return false };
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.filter_map(|path| own(Path::new(path))).any(|names| names.starts_with(&wanted))
}

/// The lock on a group, if nobody has it.
fn lock(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    file.try_lock().ok().map(|()| file)
}

/// Whether a group is a node's that is no more: nobody holds it, and nothing runs in it.
fn is_abandoned(folder: &Path) -> bool {
    let name = folder.file_name().map(|name| name.to_string_lossy());
    let id = name.as_deref().and_then(|name| name.strip_prefix(NAME_PREFIX));
    id.is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())) && is_empty(folder) && lock(folder).is_some()
}

/// Whether no process is in a group or below.
fn is_empty(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let mut below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|processes| processes.is_empty())
        && below.all(|entry| is_empty(&entry.path()))
}

/// Kills what is in a group and below, and removes it. A group that stays is removed at the next start.
/// Says whether it is gone.
fn remove_tree(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return !folder.exists() };
    let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below.for_each(|entry| _ = remove_tree(&entry.path()));
    for turn in 0..REMOVE_TRIES {
        match fs::remove_dir(folder) {
            // Another user's: no patience helps, and whoever starts a node would wait for it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return false,
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                kill(folder, true);
                if turn > 0 {
                    thread::sleep(REMOVE_PAUSE);
                }
            }
            _ => return true,
        }
    }
    tracing::warn!(target: "lighter::jails", group = %folder.display(), "a control group could not be removed");
    false
}

/// The same without waiting: what its processes still hold stays.
fn remove_at_once(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below.for_each(|entry| remove_at_once(&entry.path()));
    if fs::remove_dir(folder).is_err() {
        kill(folder, true);
        fs::remove_dir(folder).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding R10: a number in a list of processes may belong to another process when it is used.
    #[test]
    fn a_process_is_in_a_group_only_if_the_kernel_says_so_of_it() {
        let folder = Path::new("/sys/fs/cgroup/memory/app/lighter-00ff/zygote-2/unit-17");
        let line = |path: &str| format!("4:memory:{path}\n3:cpuset:/\n");
        for path in [
            "/app/lighter-00ff/zygote-2/unit-17",
            "/lighter-00ff/zygote-2/unit-17",
            "/../lighter-00ff/zygote-2/unit-17/x",
        ] {
            assert!(is_in(&line(path), folder), "{path}");
        }
        for path in [
            "/",
            "/app",
            "/app/lighter-00ff/zygote-2",
            "/app/lighter-00ff/zygote-2/unit-170",
            "/app/lighter-01ff/zygote-2/unit-17",
        ] {
            assert!(!is_in(&line(path), folder), "{path}");
        }
        assert!(!is_in("4:memory:/anywhere\n", Path::new("/sys/fs/cgroup/anywhere")));
    }

    #[test]
    fn only_what_nobody_holds_is_abandoned() {
        let root = std::env::temp_dir().join(format!("lighter-groups-{}", std::process::id()));
        let group = |name: &str, processes: &str| {
            let folder = root.join(name);
            fs::create_dir_all(folder.join("f.1.1")).unwrap();
            fs::write(folder.join("cgroup.procs"), "").unwrap();
            fs::write(folder.join("f.1.1/cgroup.procs"), processes).unwrap();
            folder
        };
        assert!(is_abandoned(&group("lighter-00ff", "")));
        assert!(!is_abandoned(&group("lighter-01ff", "17\n")));
        assert!(!is_abandoned(&group("lighter-02ff.node", "")));
        assert!(!is_abandoned(&group("other-03ff", "")));
        let held = group("lighter-04ff", "");
        let lock = lock(&held);
        assert!(lock.is_some() && !is_abandoned(&held));
        drop(lock);
        assert!(is_abandoned(&held));
        fs::remove_dir_all(&root).unwrap();
    }

    /// A function with as many threads as the node may have left none for the groups of its own calls: two of them
    /// that ended in one panic ended the node.
    #[test]
    fn groups_are_killed_and_removed_without_a_thread_too() {
        let root = std::env::temp_dir().join(format!("lighter-threadless-{}", std::process::id()));
        let [empty, busy] = ["zygote-1", "zygote-2"].map(|name| root.join(name));
        let make = || {
            fs::create_dir_all(empty.join("unit-3")).unwrap();
            fs::create_dir_all(busy.join("unit-4")).unwrap();
            // Like a process that has not ended, it keeps the group from being removed.
            fs::write(busy.join("unit-4/cgroup.procs"), "").unwrap();
            BTreeSet::from([empty.clone(), busy.clone()])
        };
        remove_aside(make(), |_| Err(io::ErrorKind::WouldBlock.into()));
        assert!(!empty.exists());
        assert_eq!(fs::read_to_string(busy.join("unit-4/cgroup.kill")).unwrap(), "1");
        fs::remove_dir_all(&busy).unwrap();
        make();
        remove_aside(BTreeSet::from([empty.clone()]), |removal| {
            removal();
            Ok(())
        });
        assert!(!empty.exists() && busy.exists());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn without_any_controller_groups_are_empty_words() {
        let family = Groups::default().family("f.1.1").unwrap();
        let group = family.member("unit-1", &Bounds { memory_bytes: 1, processes: 1 }).unwrap();
        assert!(group.add(1).is_ok() && group.cpu().is_none() && !group.memory_exceeded());
    }
}
