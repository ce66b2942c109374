//! Starts servers and generators as processes of their own, on a chosen core, and reads what they use.
//!
//! A process that is dropped is ended and waited for, so that no run leaves anything behind.

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take to end by itself before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Kernel clock ticks a second in /proc/PID/stat: fixed for user space on every Linux architecture.
const TICKS_PER_SECOND: u64 = 100;

/// The processor that servers get when they are measured alone on one, and the one that load comes from.
pub const SERVER_CORE: u32 = 0;
pub const LOAD_CORE: u32 = 1;

/// Where a process may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cores {
    All,
    Only(u32),
}

/// A command that will run on `cores`, and that is started like any other.
pub fn command(program: impl AsRef<Path>, cores: Cores) -> Command {
    match cores {
        Cores::All => Command::new(program.as_ref()),
        Cores::Only(core) => {
            // taskset becomes the program, so the process id stays the same.
            let mut command = Command::new("taskset");
            command.arg("-c").arg(core.to_string()).arg(program.as_ref());
            command
        }
    }
}

/// A running process and the file that its output goes to.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    /// Starts `command` with its output in the file `output`, which is replaced.
    ///
    /// # Errors
    /// The file could not be made or the program not be started.
    pub fn start(mut command: Command, output: &Path) -> anyhow::Result<Self> {
        let file = File::create(output).with_context(|| format!("could not write {}", output.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("could not start {command:?}"))?;
        Ok(Self { child, output: output.to_owned() })
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    /// The process ended or `timeout` passed; the end of its output is part of the error.
    pub fn wait_until(&mut self, timeout: Duration, mut ready: impl FnMut() -> bool) -> anyhow::Result<()> {
        let begin = Instant::now();
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status} before it was ready; its output ends\n{}", self.output_end());
            }
            if begin.elapsed() > timeout {
                bail!("it was not ready after {timeout:?}; its output ends\n{}", self.output_end());
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Asks the process to end, and after a while insists.
    ///
    /// # Errors
    /// It had to be killed, or had already ended.
    pub fn stop(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it had already ended with {status}; its output ends\n{}", self.output_end());
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > STOP_TIMEOUT {
                bail!("it did not end within {STOP_TIMEOUT:?} of a TERM signal");
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// CPU time used so far, all threads together.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let stat = self.proc_file("stat")?;
        // The name in parentheses may hold spaces; user and system time are the 12th and 13th fields after it.
        let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat has no name")?;
        let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
    }

    /// Resident memory in bytes, pages shared with other processes and files included.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        sum_of_fields(&self.proc_file("status")?, &["VmRSS"])
    }

    /// Memory in bytes that only this process holds and has written to. Pages of its program are none of it: they come
    /// and go, and a node gives back megabytes of them when it is idle.
    pub fn private_bytes(&self) -> anyhow::Result<u64> {
        sum_of_fields(&self.proc_file("smaps_rollup")?, &["Private_Dirty"])
    }

    /// Bytes it had written to the disk so far, by the system or by itself, and before any that were taken back.
    pub fn written_bytes(&self) -> anyhow::Result<u64> {
        let io = self.proc_file("io")?;
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        line.and_then(|bytes| bytes.parse().ok()).context("/proc/PID/io has no write_bytes")
    }

    fn proc_file(&self, name: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{name}", self.child.id());
        fs::read_to_string(&path).with_context(|| format!("could not read {path}; the process may have ended"))
    }

    /// The last lines of what it printed.
    fn output_end(&self) -> String {
        let text = fs::read(&self.output).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident memory of this process, in bytes.
pub fn own_resident_bytes() -> anyhow::Result<u64> {
    sum_of_fields(&fs::read_to_string("/proc/self/status")?, &["VmRSS"])
}

/// Adds up lines such as `VmRSS:      1234 kB`.
fn sum_of_fields(text: &str, names: &[&str]) -> anyhow::Result<u64> {
    let kilobytes = |name: &&str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(*name));
        let value = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|value| value.parse::<u64>().ok());
        value.with_context(|| format!("/proc has no {name}"))
    };
    names.iter().map(kilobytes).sum::<anyhow::Result<u64>>().map(|sum| sum * 1_024)
}

/// An address on the loopback interface where nothing listens now.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Lets this process and those it starts open as many files as the system allows it.
pub fn raise_open_files_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused or not, whoever then runs out of files says so.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Runs a command to its end.
///
/// # Errors
/// It could not be started or failed; what it printed is part of the error.
pub fn run_to_end(mut command: Command) -> anyhow::Result<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("could not start {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed with {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_shows_what_it_uses_and_ends_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = command("sh", Cores::All);
        command.args(["-c", "echo ready; while :; do :; done"]);
        let output = folder.path().join("output");
        let mut process = Process::start(command, &output).unwrap();
        process.wait_until(Duration::from_secs(10), || fs::read(&output).is_ok_and(|o| o == b"ready\n")).unwrap();
        assert!(process.resident_bytes().unwrap() > 100 << 10);
        assert!(process.private_bytes().unwrap() < process.resident_bytes().unwrap());
        let proc_folder = format!("/proc/{}", process.child.id());
        drop(process);
        assert!(!Path::new(&proc_folder).exists());
    }
}
