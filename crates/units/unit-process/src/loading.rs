//! The loading of a function by a child that is a program of its own, where no zygote has loaded it before.
//!
//! ```text
//!   child ◀── go ── node      it is in its control group
//!   child ── a reply without value: ready ──▶ node      or a failure: why it will never be
//! ```
//! What it prints meanwhile belongs to no call, and goes where the output of zygotes goes.

use crate::child::Child;
use crate::jail::zygote::GO;
use crate::wire::{self, Broken};
use crate::zygote::Zygote;
use crate::{attempt, pump};
use budget::Purpose;
use frame::{Kind, Limits, Value};
use problem::{Code, Problem};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use unit::Stream;
use unit_host::calls::Said;

/// How long it may take.
const LOAD_TIME_MAX: Duration = Duration::from_secs(30);
/// CPU time that loading a function may take, of all its processes together.
const LOAD_CPU_MAX: Duration = Duration::from_secs(20);
const LOAD_LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of what a child says of it.
const SAID_BYTES_MAX: u64 = 64 << 10;
/// What the virtual machine throws at classes that are newer than itself.
const NEWER_CLASSES: &str = "UnsupportedClassVersionError";

/// Lets a child go on, and waits until it has loaded the function.
///
/// # Errors
/// [`Code::StartFailed`], [`Code::BaseMismatch`], [`Code::MemoryExceeded`], [`Code::TimeExceeded`],
/// [`Code::CpuExceeded`]: it does not load.
pub async fn load(child: &mut Child, zygote: &Zygote) -> Result<(), Problem> {
    let output = zygote.output().clone();
    let loaded = timeout(LOAD_TIME_MAX, async {
        let Child { stream, reader, stdout, stderr, life, .. } = &mut *child;
        let said = async {
            match said(stream, reader, zygote).await {
                Err(Broken::Ended) => Err(Unsaid::Ended(life.status().await)),
                Err(broken) => Err(Unsaid::Broken(broken)),
                Ok(said) => Ok(said),
            }
        };
        tokio::select! {
            biased;
            said = said => said,
            problem = watch_loading(|| life.cpu()) => Ok(Some(problem)),
            never = pump::forever(stdout, &output, Stream::Stdout) => match never {},
            never = pump::forever(stderr, &output, Stream::Stderr) => match never {},
        }
    });
    let outcome = loaded.await;
    pump::rest(&mut child.stdout, &output, Stream::Stdout);
    pump::rest(&mut child.stderr, &output, Stream::Stderr);
    let detail = match outcome {
        Ok(Ok(None)) => return Ok(()),
        Err(_) => {
            let detail = format!("the function was not loaded after {} s", LOAD_TIME_MAX.as_secs());
            let hint = "do less when the class is initialised";
            return Err(Problem::new(Code::TimeExceeded, detail).with_hint(hint));
        }
        Ok(Ok(Some(problem))) => return Err(problem),
        Ok(Err(Unsaid::Ended(status))) => {
            if child.life.group().memory_exceeded() {
                return Err(out_of_memory());
            }
            attempt::died(status).detail.into_owned()
        }
        Ok(Err(Unsaid::Broken(Broken::NoRoom(full)))) => return Err(full.into()),
        Ok(Err(Unsaid::Broken(broken))) => broken.to_string(),
    };
    Err(does_not_load(&detail))
}

/// Waits for the moment in which loading has used too much.
pub async fn watch_loading(cpu: impl Fn() -> Duration) -> Problem {
    while cpu() <= LOAD_CPU_MAX {
        tokio::time::sleep(LOAD_LOOK_EVERY).await;
    }
    let detail = format!("the function used more than {} s of CPU time while it was loaded", LOAD_CPU_MAX.as_secs());
    Problem::new(Code::CpuExceeded, detail).with_hint("do less when the module is imported or the class initialised")
}

/// Why a child has not said how its loading went.
enum Unsaid {
    /// It closed its socket, and ended with this status if that is known.
    Ended(Option<i32>),
    Broken(Broken),
}

/// Waits for the first frame; none: the function is loaded.
async fn said(
    stream: &mut tokio::net::UnixStream,
    reader: &mut wire::Reader,
    zygote: &Zygote,
) -> Result<Option<Problem>, Broken> {
    stream.write_all(GO).await?;
    let within = Limits { total_bytes_max: SAID_BYTES_MAX, ..Limits::default() };
    let mut room = zygote.deployed().budget.share(Purpose::HostCalls);
    let frame = wire::decode(reader.next(stream, &within, &mut room).await?, &within)?;
    match (frame.kind, frame.id, &frame.body) {
        (Kind::Reply, 0, Value::Null) => Ok(None),
        (Kind::Failure, 0, body) => {
            let said = Said::failure(body).map_err(|nonsense| Broken::Garbled(nonsense.0))?;
            Ok(Some(match said {
                Said::Crashed { code: Code::MemoryExceeded, .. } => out_of_memory(),
                Said::Crashed { why, .. } => does_not_load(&why),
                _ => does_not_load("it says what makes no sense"),
            }))
        }
        (kind, id, _) => Err(Broken::Garbled(format!("an unexpected {} with the id {id}", kind.name()))),
    }
}

fn out_of_memory() -> Problem {
    Problem::new(Code::MemoryExceeded, "the function ran out of memory while it was loaded")
}

fn does_not_load(why: &str) -> Problem {
    let why = unit::cut(why, 2_000);
    if why.contains(NEWER_CLASSES) {
        let hint = "compile with `javac --release` for the node's Java, or start the node with a newer one: --java";
        return Problem::new(Code::BaseMismatch, format!("the function cannot be loaded: {why}")).with_hint(hint);
    }
    let problem = Problem::new(Code::StartFailed, format!("the function cannot be loaded: {why}"));
    problem.with_hint("`lighter logs` has the stack")
}
