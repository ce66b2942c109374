//! How nats-server is bound to the life of its node: a step between the two.
//!
//! The node starts itself with a word; that process asks to be killed with its parent and becomes nats-server. A
//! parent cannot ask that for its child without unsafe code, and a child can for itself.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The program that calls [`launch`] when it is started with this word.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub program: PathBuf,
    pub word: String,
}

impl Launcher {
    /// Becomes `program`. The thread that starts it has to live as long as it is to.
    pub(crate) fn command(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(&self.word).arg(std::process::id().to_string()).arg(program);
        command
    }
}

/// Becomes the program that the words behind the launcher's name: its parent, the program, its arguments. Returns only
/// if that fails.
pub fn launch(words: impl IntoIterator<Item = OsString>) -> io::Error {
    let mut words = words.into_iter();
    let (Some(parent), Some(program)) = (words.next(), words.next()) else {
        return io::Error::new(io::ErrorKind::InvalidInput, "the node runs this to start its engine");
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // It may have died before it was asked.
    let is_there = getppid().is_some_and(|id| *parent == *id.as_raw_nonzero().to_string());
    match is_there {
        true => Command::new(program).args(words).exec(),
        false => io::Error::other("the node has ended"),
    }
}
