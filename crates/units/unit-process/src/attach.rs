//! Somebody attaches to a unit at work: its interpreter, or its virtual machine, writes where it is to its log.
//!
//! ```text
//!   attach ── signal ──▶ child: faulthandler, or the thread dump of Java ── stderr, stdout ──▶ log
//! ```
//! The child goes on at once. Nothing of it is read: what it says of itself is its own word.

use crate::bundle::Runtime;
use crate::prepared::PreparedProcess;
use problem::Problem;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use unit::{Prepared, Seen, ended_meanwhile};

/// How long its lines may take to its log.
const LINES_WAIT: Duration = Duration::from_millis(300);

pub async fn attach(
    prepared: Arc<PreparedProcess>,
    runtime: Runtime,
    unit: u64,
    wants_core: bool,
) -> Result<Seen, Problem> {
    if wants_core {
        let why = "a process leaves no core file here";
        return Err(unit::refused(why.to_owned()).with_hint("leave --output out: where it is goes to its log"));
    }
    let process = prepared.at_work.find(unit)?;
    let signal = match runtime {
        Runtime::Python => libc::SIGUSR2,
        Runtime::Java | Runtime::Android => libc::SIGQUIT,
    };
    match process.signal(signal) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Err(ended_meanwhile(unit)),
        Err(error) => return Err(not_allowed(&error)),
    }
    tokio::time::sleep(LINES_WAIT).await;
    if !prepared.at_work.has(unit) {
        return Err(ended_meanwhile(unit));
    }
    let number = process.number();
    let name = &prepared.deployed().name;
    let native = format!("it is process {number} here: as root, `gdb -p {number}` shows the native code of {name}");
    Ok(Seen { lines: vec![native], core: None })
}

fn not_allowed(error: &io::Error) -> Problem {
    unit::refused(format!("this system does not let the node signal its unit: {error}"))
}
