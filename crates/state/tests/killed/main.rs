//! A process is killed at any moment, and what it had acknowledged is there. A program of its own: while it starts a
//! process, that one holds its folders open for a moment, and nobody else may count on theirs.

#[path = "../all/common/mod.rs"]
mod common;
mod crash;
#[path = "../all/format_one.rs"]
mod format_one;
mod migration;
mod queue_crash;
mod replay_crash;
