//! The jail: what the node tells it, what it tells the node, and which walls may be missing.
//!
//! The node starts its own program again as process 1 of new namespaces (`spawn.rs`). That process reads
//! [`Settings`] from the control socket and builds the walls one after the other (`inside.rs`). Then it parts in two:
//! its child says which walls the system refused and becomes the interpreter, process 1 itself keeps the jail
//! (`keeper.rs`).
//!
//! ```text
//!   node ── Settings ──▶ jail: names ─▶ mounts ─▶ user ─▶ capabilities ─▶ limits ─▶ keeper
//!    ▲                            "map" │                                              └▶ Landlock ─▶ seccomp ─▶ interpreter
//!    └──────────────────────────────────┴───────────────────────────────────────────────────┘ Report
//! ```

mod empty;
pub mod files;
mod inside;
pub mod keeper;
mod mounts;
pub mod rights;
pub mod syscalls;
pub mod zygote;

pub use inside::main;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Bytes of one message on the control socket.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// User and group as the unit sees itself.
pub const USER: u32 = 1_000;

/// Where a jail has the function's code, its SDK and the scratch folders of children.
pub const CODE: &str = "/bundle";
pub const SDK: &str = "/sdk";
pub const SCRATCH: &str = "/scratch";

/// Stands for the child's own scratch folder in the arguments of a program that is started anew for each child.
pub const SCRATCH_WORD: &str = "{scratch}";

/// What the node asks of a jail.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    /// An empty folder of the node's, over which the jail's root is mounted; in its own mount namespace only.
    pub staging: PathBuf,
    /// What it may read, where it stands in the jail.
    pub binds: Vec<Bind>,
    /// Scratch folders, and bytes of each.
    pub slots: u32,
    pub scratch_bytes: u64,
    /// Processes and threads while the function is loaded.
    pub loading_processes: u64,
    /// Processes of the whole jail, as far as its user is its own.
    pub processes: u64,
    /// The user the jail changes to, where the node is root and may choose one nobody else has.
    pub outer_user: Option<u32>,
    /// What it becomes: a zygote. Anew: what each child becomes, and the zygote is the jail's own.
    pub anew: bool,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Ends after saying which walls there are.
    pub probe: bool,
}

/// A file or folder that a jail may read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bind {
    Path { source: PathBuf, target: PathBuf },
    Link { at: PathBuf, to: PathBuf },
}

impl Bind {
    /// At the place where it stands outside.
    pub fn same(path: impl Into<PathBuf>) -> Self {
        let source = path.into();
        Self::Path { target: source.clone(), source }
    }
}

/// What a jail tells the node before it becomes the interpreter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    /// It has entered a user namespace and waits for its user to be mapped.
    Map,
    /// The walls stand but for these.
    Stands { missing: Vec<Missing> },
    /// It could not be built.
    Failed { step: String, why: String },
}

/// A protection that this system refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub protection: Protection,
    pub why: String,
}

/// A protection without which a unit can still run, if its owner agrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// Files outside the jail are out of reach even if its mounts were not; a call cannot touch another call's files.
    Landlock,
    /// A user of its own, who means nothing outside.
    UserNamespace,
    /// The kernel bounds memory; without it the node watches, and a unit may take more for some milliseconds.
    MemoryLimit,
    /// The kernel bounds the processes of each unit; without it only those of all units of a function.
    ProcessLimit,
    /// The kernel counts CPU time of all processes of a unit; without it that of its first one.
    CpuCount,
}

impl Protection {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::UserNamespace => "user-namespace",
            Self::MemoryLimit => "memory-limit",
            Self::ProcessLimit => "process-limit",
            Self::CpuCount => "cpu-count",
        }
    }
}
