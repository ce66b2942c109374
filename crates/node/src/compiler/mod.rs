//! The compiler, in a process of its own: what a stranger's image makes it do costs the node neither memory nor time,
//! and ends when nobody waits for it any more.
//!
//! ```text
//!   node ──image──▶ lighter compile-unit TARGET   (low priority, bounded CPU time, no network, no files: child.rs)
//!        ◀──code──
//!        watches: memory, whether anybody still waits ──▶ kill
//! ```
//! Several compile at once: two, or as many as there are cores and the budget has room for. Bases of process units, for
//! which packages are installed for minutes, and calls that wait for their function have turns of their own.

pub mod child;

use budget::{Budget, Full, Purpose, Share};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Memory one compile may have, if the budget's part for compilers is not less. One that takes more is ended with
/// L2020.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Deployments compile beside each other where each could have so much; two of them always do, so that one that takes
/// long holds nobody up.
const MEMORY_BYTES_EACH: u64 = 256 << 20;
/// How often its memory is looked at: it takes 30 MB in that time on a fast machine.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Bytes of the compiler's words when it fails.
const WORDS_BYTES_MAX: u64 = 16 << 10;
/// Bytes of code read at once.
const PIECE_BYTES: usize = 256 << 10;

/// Who waits for an artefact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Deployment,
    /// A call of a function that is deployed and whose artefact is gone, or was made by another compiler.
    Call,
    /// Either, for what the node makes without a compiler.
    Base,
}

pub struct Compilers {
    budget: Arc<Budget>,
    cpu_time_max: Duration,
    memory_bytes_max: u64,
    deployments: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    bases: Arc<Semaphore>,
}

/// Held while somebody waits for what is compiled.
pub struct Waits(#[expect(dead_code, reason = "its end is what is heard")] oneshot::Sender<()>);

/// Hears the end of [`Waits`].
pub struct Waiting(oneshot::Receiver<()>);

pub fn waits() -> (Waits, Waiting) {
    let (waits, waiting) = oneshot::channel();
    (Waits(waits), Waiting(waiting))
}

impl Compilers {
    pub fn new(budget: Arc<Budget>, cpu_time_max: Duration) -> Self {
        let part_bytes = budget.part_bytes(Purpose::Compilers);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let at_once = usize::try_from(part_bytes / MEMORY_BYTES_EACH).unwrap_or(usize::MAX);
        Self {
            budget,
            cpu_time_max,
            memory_bytes_max: MEMORY_BYTES_MAX.min(part_bytes),
            deployments: Arc::new(Semaphore::new(at_once.clamp(2, cores.max(2)))),
            calls: Arc::new(Semaphore::new(1)),
            bases: Arc::new(Semaphore::new(1)),
        }
    }

    /// Waits for a turn. It belongs to the work and not to who waits for it: a base goes on being made after its client
    /// has gone, and the next one must not begin beside it.
    pub async fn turn(&self, whose: For) -> OwnedSemaphorePermit {
        let turns = match whose {
            For::Deployment => &self.deployments,
            For::Call => &self.calls,
            For::Base => &self.bases,
        };
        turns.clone().acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Compiles an image for a target, in a process of its own. Must be polled by one thread to its end, because the
    /// process ends with the thread that started it.
    ///
    /// # Errors
    /// - [`Code::CompileFailed`]: the image is at fault.
    /// - [`Code::CompileTooLong`], [`Code::CompileTooLarge`]: it took more than it may.
    /// - [`Code::MemoryFull`]: others have the memory it needs.
    /// - [`Code::Interrupted`]: nobody waits any more.
    pub async fn compile(&self, target: &str, image: &[u8], waiting: &mut Waiting) -> Result<Vec<u8>, Problem> {
        let held = Mutex::new(Held::new(self));
        let mut child = Command::new("/proc/self/exe")
            .arg0("lighter")
            .args([child::COMMAND, target, &self.cpu_time_max.as_secs().to_string()])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Problem::new(Code::Internal, format!("starting the compiler: {error}")))?;
        let process = child.id();
        let (status, code, words) = tokio::select! {
            ended = converse(&mut child, image, &held) => ended?,
            problem = too_much_memory(process, &held) => return Err(problem),
            _ = &mut waiting.0 => {
                return Err(Problem::new(Code::Interrupted, "nobody waits any more for what is compiled"));
            }
        };
        if !status.success() {
            return Err(self.failed(status, &words));
        }
        if !words.is_empty() {
            tracing::warn!("{words}");
        }
        Ok(code)
    }

    fn failed(&self, status: ExitStatus, words: &str) -> Problem {
        match (status.code(), status.signal()) {
            (Some(code), _) if code == i32::from(child::IMAGE_AT_FAULT) => {
                Problem::new(Code::CompileFailed, words.to_owned())
            }
            (Some(_), _) => Problem::new(Code::Internal, format!("the compiler: {words}")),
            (None, Some(libc::SIGXCPU)) => {
                let detail = format!("compiling took more than {} s of CPU time", self.cpu_time_max.as_secs());
                Problem::new(Code::CompileTooLong, detail)
            }
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                let detail = format!("signal {signal} ended the compiler before it was through. {words}");
                Problem::new(Code::CompileFailed, detail.trim_end().to_owned())
            }
        }
    }
}

/// Memory that one compile holds: its process, and the code that has come out of it.
struct Held {
    share: Share,
    process_bytes: u64,
    code_bytes: u64,
    bytes_max: u64,
}

impl Held {
    fn new(compilers: &Compilers) -> Self {
        let share = compilers.budget.share(Purpose::Compilers);
        Self { share, process_bytes: 0, code_bytes: 0, bytes_max: compilers.memory_bytes_max }
    }

    fn process(&mut self, bytes: u64) -> Result<(), Problem> {
        self.process_bytes = bytes;
        self.hold()
    }

    fn code(&mut self, bytes: u64) -> Result<(), Problem> {
        self.code_bytes = bytes;
        self.hold()
    }

    /// A compile that alone takes more than it may is too large. Another is refused because others have the memory.
    fn hold(&mut self) -> Result<(), Problem> {
        let bytes = self.process_bytes + self.code_bytes;
        if bytes > self.bytes_max {
            let detail = format!("compiling took more than {} bytes of memory", self.bytes_max);
            return Err(Problem::new(Code::CompileTooLarge, detail));
        }
        self.share.hold(bytes).map_err(Full::into)
    }
}

/// Waits for the moment the compiler has taken too much memory.
async fn too_much_memory(process: Option<u32>, held: &Mutex<Held>) -> Problem {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(problem) = held.lock().process(process.map_or(0, own_bytes)) {
            return problem;
        }
    }
}

/// Gives the compiler its image and takes what it makes of it.
async fn converse(
    child: &mut Child,
    image: &[u8],
    held: &Mutex<Held>,
) -> Result<(ExitStatus, Vec<u8>, String), Problem> {
    let gone = |error: std::io::Error| Problem::new(Code::Internal, format!("talking to the compiler: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    let (mut stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let give = async move {
        // One that refuses an image need not read all of it.
        stdin.write_all(image).await.ok();
        Ok(())
    };
    let take = async {
        let mut code = Vec::new();
        loop {
            held.lock().code((code.len() + PIECE_BYTES) as u64)?;
            code.reserve(PIECE_BYTES);
            if stdout.read_buf(&mut code).await.map_err(gone)? == 0 {
                return Ok::<_, Problem>(code);
            }
        }
    };
    let hear = async {
        let mut words = Vec::new();
        stderr.take(WORDS_BYTES_MAX).read_to_end(&mut words).await.ok();
        Ok(String::from_utf8_lossy(&words).trim().to_owned())
    };
    let ((), code, words) = tokio::try_join!(give, take, hear)?;
    Ok((child.wait().await.map_err(gone)?, code, words))
}

/// Bytes of RAM that a process has for itself alone; 0 when it is gone.
fn own_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}
