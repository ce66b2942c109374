//! The nats-server of an anchor: found, configured, started, checked, started again, ended.
//!
//! ```text
//!  find ─▶ configuration written (0600) ─▶ start ─▶ read back what it runs with ─▶ up ─▶ it has ended
//!              ▲                                           │ not as it must be              │
//!              └──────────── a rest, longer each time ◀────┴────────────────────────────────┘
//! ```
//! A thread of its own does this. The program is bound to that thread (`PR_SET_PDEATHSIG`), so it never outlives the
//! node, and two of them never write to one folder.

mod config;
mod engine;
mod launch;
mod program;
mod report;

pub use config::{EngineConfig, Routes, Tls, cluster_name};
pub use engine::{Engine, EngineState};
pub use launch::{Launcher, launch};
pub use program::{Program, find};
