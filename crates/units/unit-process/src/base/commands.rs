//! The programs that make bases: bounded in time and room, with an environment that is nobody's own.

use problem::{Code, Problem};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// One step of making a base: packages may come over a slow network, and not come at all.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// Bytes of a base with what its lock file names, and how often it is looked at while it grows.
const BYTES_MAX: u64 = 4 << 30;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Address space of what reads packages.
const MEMORY_BYTES_MAX: u64 = 2 << 30;

/// A program that reads what strangers packed: its memory is bounded by the shell that becomes it.
pub fn bounded(program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("ulimit -v {} && exec \"$0\" \"$@\"", MEMORY_BYTES_MAX >> 10)]).arg(program);
    command
}

pub fn run(command: &mut Command, what: &str) -> Result<Output, Problem> {
    watched(command, what, None)
}

/// # Errors
/// It cannot be started, fails, takes longer than [`TIME_MAX`], or fills the folder with more than [`BYTES_MAX`].
pub fn watched(command: &mut Command, what: &str, folder: Option<&Path>) -> Result<Output, Problem> {
    let failed = |error: io::Error| unavailable(format!("{what}: {error}"));
    // Virtual environments of whoever started the node are no business of its bases.
    command.env_remove("PYTHONHOME").env_remove("PYTHONPATH").env_remove("VIRTUAL_ENV");
    // Nor are options of its virtual machines.
    command.env_remove("JAVA_TOOL_OPTIONS").env_remove("JDK_JAVA_OPTIONS").env_remove("_JAVA_OPTIONS");
    // Nor are tokens, which are for this program and for the SDK on a device.
    command.env_remove("LIGHTER_TOKEN").env_remove("LIGHTERAGE_TOKENS").env_remove("LIGHTERAGE_TOKENS_FILE");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| unavailable(format!("{what}: {:?}: {error}", command.get_program())))?;
    let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let readers = reader(stdout).and_then(|stdout| Ok((stdout, reader(stderr)?)));
    if readers.is_err() {
        // Nobody would hear it.
        child.kill().and_then(|()| child.wait()).map_err(failed)?;
    }
    let (stdout, stderr) = readers.map_err(failed)?;
    let began = Instant::now();
    let mut looked = began;
    let status = loop {
        let ended = child.try_wait().map_err(failed)?;
        let mut exceeded = None;
        if began.elapsed() > TIME_MAX {
            exceeded = Some(format!("{what} had not ended after {} minutes", TIME_MAX.as_secs() / 60));
        }
        if ended.is_some() || looked.elapsed() > LOOK_EVERY {
            looked = Instant::now();
            if folder.is_some_and(|folder| folder_bytes(folder) > BYTES_MAX) {
                exceeded = Some(format!("{what}: the packages take more than {BYTES_MAX} bytes"));
            }
        }
        match (ended, exceeded) {
            (ended, Some(exceeded)) => {
                if ended.is_none() {
                    child.kill().and_then(|()| child.wait()).map_err(failed)?;
                }
                return Err(unavailable(exceeded));
            }
            (Some(status), None) => break status,
            (None, None) => thread::sleep(Duration::from_millis(5)),
        }
    };
    let read = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    let output = Output { status, stdout: read(stdout), stderr: read(stderr) };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = if said.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { said };
        let last: Vec<&str> = said.trim().lines().rev().take(5).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
        return Err(unavailable(format!("{what} ended with {}: {last}", output.status)));
    }
    Ok(output)
}

fn reader(mut pipe: impl Read + Send + 'static) -> io::Result<JoinHandle<Vec<u8>>> {
    thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        // What was read before it broke is told all the same.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

pub fn unavailable(detail: String) -> Problem {
    Problem::new(Code::BaseUnavailable, detail)
}

/// What comes and goes while it is counted is not counted.
pub fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        metadata => metadata.map_or(0, |metadata| metadata.len()),
    });
    bytes.sum()
}
