//! One attempt to handle an event: a child is handed the event, asks its host what it needs, and answers or is ended.
//!
//! ```text
//!   event ──▶ child ──▶ questions ─▶ host ─▶ answers ──▶ child ──▶ reply or failure
//!                 └ meanwhile: its output goes to the log, its time and CPU are watched
//! ```

use crate::arena::{Arena, LENT_BYTES_MIN};
use crate::child::{Child, Life};
use crate::prepared::PreparedProcess;
use crate::wire::{self, Broken};
use crate::{descriptors as fd, lent, pump, turn};
use budget::Purpose;
use event::Event;
use frame::{Encoded, Kind, Limits, Value};
use manifest::Limits as FunctionLimits;
use problem::{Code, Problem};
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use unit::{Contract, Given, Level, Output, Prepared, Stream, check_reply};
use unit_host::calls::{Answers, FoundReply, Nonsense, Said};
use unit_host::{Attempt, Meter};

/// Id of the frame with the work; those of questions are the unit's own.
const WORK: u64 = 1;
/// Id of a call or a reply that only says where the call or the reply lies.
const LENT: u64 = 2;
/// Bytes of a frame beside its data; also what a question to the host may have.
const FRAME_BYTES: u64 = 16 << 20;
/// Shortest and longest pause of the watchdog.
const WATCH_MIN: Duration = Duration::from_millis(1);
const WATCH_MAX: Duration = Duration::from_secs(1);
/// CPU time after which a unit lets others go first.
const FIRST_CPU: Duration = Duration::from_millis(10);
/// Its pause where it also watches memory.
const WATCH_MEMORY: Duration = Duration::from_millis(10);

pub async fn attempt(prepared: Arc<PreparedProcess>, attempt: Attempt) -> Result<Given, Problem> {
    let meter = &*attempt.meter;
    let taken = tokio::time::timeout_at(meter.deadline.into(), prepared.take(&attempt.request_id)).await;
    let (mut child, entry) = taken.map_err(|_| meter.time_exceeded())??;
    meter.started();
    let _at_work = prepared.at_work.begins(child.number, child.life.process.clone());
    let mut answers = attempt.answers(prepared.deployed(), child.number);
    let output = answers.output.clone();
    let used = Used { before: child.life.cpu(), for_it_ns: AtomicU64::new(0) };
    let outcome = run(&mut child, &mut answers, &prepared, &attempt, &used).await;
    meter.used_cpu(used.cpu(&child.life));
    meter.used_memory(child.life.group().memory_peak_bytes().unwrap_or_else(|| child.life.resident_bytes()));
    let outcome = match outcome {
        Ok(Said::Crashed { code, why, .. }) => Err(crashed(&child, code, why, &output)),
        Ok(said) => Ok(said),
        Err(Ending::Problem(problem)) => {
            output.note(Level::Error, &problem.detail);
            Err(problem)
        }
        Err(Ending::Broken(broken)) => Err(broken_off(&child, broken, &output)),
        Err(Ending::Ended(status)) => Err(ended(&child, status, &output)),
    };
    pump::rest(&mut child.stdout, &output, Stream::Stdout);
    pump::rest(&mut child.stderr, &output, Stream::Stderr);
    output.end_call();
    drop(answers);
    let said = match outcome {
        Ok(said) => said,
        Err(problem) => {
            drop((child, entry));
            prepared.returned();
            return Err(problem);
        }
    };
    prepared.put_back(child, entry);
    match said {
        Said::Reply { data, stages, raised } => {
            check_reply(data.len() as u64, &prepared.deployed().function.limits)?;
            meter.staged(stages);
            if raised {
                // What a function did before it raised is undone, as a handler's that fails.
                attempt.host.undo();
            }
            Ok(Given::Reply(data))
        }
        Said::Failed(failure) => Ok(Given::Failure(unit::said(failure, &output))),
        Said::Crashed { .. } => unreachable!("made a problem above"),
    }
}

/// CPU time of one call: of the unit's processes, and of the node where it works for the unit.
struct Used {
    /// What the unit had used before the call.
    before: Duration,
    /// What the node has used to hear, answer and log what the unit says, in nanoseconds.
    for_it_ns: AtomicU64,
}

impl Used {
    fn cpu(&self, life: &Life) -> Duration {
        life.cpu().saturating_sub(self.before) + Duration::from_nanos(self.for_it_ns.load(Relaxed))
    }

    /// Counts the CPU time in which this future works; none while it waits.
    async fn charged<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let began = fd::thread_cpu_ns();
            let polled = future.as_mut().poll(context);
            self.for_it_ns.fetch_add(fd::thread_cpu_ns().saturating_sub(began), Relaxed);
            polled
        })
        .await
    }
}

/// Why a unit's work came to no end of its own.
enum Ending {
    Problem(Problem),
    Broken(Broken),
    /// It closed its socket, and ended with this status if that is known.
    Ended(Option<i32>),
}

impl From<Broken> for Ending {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl From<Nonsense> for Ending {
    fn from(nonsense: Nonsense) -> Self {
        Self::Broken(Broken::Garbled(nonsense.0))
    }
}

async fn run(
    child: &mut Child,
    answers: &mut Answers,
    prepared: &PreparedProcess,
    attempt: &Attempt,
    used: &Used,
) -> Result<Said, Ending> {
    let (output, deployed) = (answers.output.clone(), prepared.deployed());
    let limits = &deployed.function.limits;
    let memory_bytes_max = (!prepared.counts_memory()).then(|| prepared.memory_bytes_max());
    let lends = prepared.lends_to(child);
    let Child { stream, reader, stdout, stderr, life, .. } = child;
    let work = async {
        tokio::select! {
            biased;
            said = converse(stream, reader, life, answers, (prepared, &attempt.event, lends)) => said,
            never = pump::forever(stdout, &output, Stream::Stdout) => match never {},
            never = pump::forever(stderr, &output, Stream::Stderr) => match never {},
        }
    };
    let work = async {
        // Together, for each look at the clock is a system call.
        match used.charged(work).await {
            Err(Ending::Broken(Broken::Ended)) => Err(Ending::Ended(life.status().await)),
            said => said,
        }
    };
    tokio::select! {
        biased;
        said = work => said,
        problem = watch(life, &attempt.meter, limits, used, memory_bytes_max) => Err(Ending::Problem(problem)),
    }
}

async fn converse(
    stream: &mut UnixStream,
    reader: &mut wire::Reader,
    life: &Life,
    answers: &mut Answers,
    (prepared, event, lends): (&PreparedProcess, &Event, bool),
) -> Result<Said, Ending> {
    let deployed = prepared.deployed();
    let limits = &deployed.function.limits;
    let body = match deployed.contract {
        // A function with arguments is told nothing but these.
        Contract::Call => Value::Map(vec![("data", Value::Buffer(&event.data))]),
        _ => frame::event_body(event).map_err(|error| Broken::Garbled(error.to_string()))?,
    };
    let out =
        Limits { total_bytes_max: u64::MAX >> 1, meta_bytes_max: 64 << 20, values_max: 1 << 20, ..Limits::default() };
    let work = wire::encode(Kind::Call, WORK, body, &out)?;
    if !(lends && event.data.len() >= LENT_BYTES_MIN && lend(stream, life, prepared, &work).await?) {
        wire::send_pieces(stream, work.pieces()).await?;
    }
    let total_bytes_max = limits.body_bytes.saturating_add(FRAME_BYTES);
    let within = Limits { total_bytes_max, ..Limits::default() };
    let mut room = deployed.budget.share(Purpose::HostCalls);
    loop {
        let bytes = match reader.next(stream, &within, &mut room).await {
            Err(Broken::TooLarge { kind: Some(Kind::Reply), bytes, .. }) => {
                return Err(beyond(bytes, limits));
            }
            bytes => bytes?,
        };
        match turn::aside(turn::bytes_to_read(bytes, &within), heard(bytes, &within, answers)).await? {
            Heard::Question(None) => {}
            Heard::Question(Some(answer)) => wire::send_bytes(stream, &answer).await?,
            Heard::Reply(found) => return Ok(found.said(reader.take())),
            Heard::Lent(pieces) => {
                if pieces.bytes() > total_bytes_max {
                    return Err(beyond(pieces.bytes(), limits));
                }
                room.hold(pieces.bytes()).map_err(Broken::from)?;
                let bytes = pieces.copy(life).await?;
                let found = turn::aside(turn::bytes_to_read(&bytes, &within), async { lent_reply(&bytes, &within) });
                return Ok(found.await?.said(bytes));
            }
            Heard::Failure(said) => return Ok(said),
        }
    }
}

/// Has the unit map its work. False where it has to be sent.
async fn lend(
    stream: &UnixStream,
    life: &Life,
    prepared: &PreparedProcess,
    work: &Encoded<'_>,
) -> Result<bool, Broken> {
    let bytes = work.pieces().map(<[u8]>::len).sum::<usize>();
    let Some(mut arena) = Arena::take(&prepared.arenas, &prepared.deployed().budget, bytes) else { return Ok(false) };
    let Ok(reader) = arena.reader() else { return Ok(false) };
    arena.write(work.pieces()).await;
    let said = wire::encode(Kind::Call, LENT, Value::I64(bytes as i64), &Limits::default())?.to_vec();
    life.lend(arena, prepared.arenas.clone());
    stream.async_io(Interest::WRITABLE, || fd::send(stream, &said, &[reader.as_fd()])).await?;
    Ok(true)
}

/// What a unit says in one frame.
enum Heard {
    /// Its answer, if it has one.
    Question(Option<Vec<u8>>),
    Reply(FoundReply),
    Lent(lent::Pieces),
    Failure(Said),
}

/// Reads a frame, and answers it if it is a question.
async fn heard(bytes: &[u8], within: &Limits, answers: &mut Answers) -> Result<Heard, Ending> {
    let frame = wire::decode(bytes, within)?;
    Ok(match (frame.kind, frame.id) {
        (Kind::Call, id) => Heard::Question(answers.answer(id, &frame.body).await?),
        (Kind::Reply, WORK) => Heard::Reply(Said::reply(&frame.body, bytes)?),
        (Kind::Reply, LENT) => Heard::Lent(lent::Pieces::read(&frame.body)?),
        (Kind::Failure, WORK) => Heard::Failure(Said::failure(&frame.body)?),
        (kind, id) => return Err(Broken::Garbled(format!("an unexpected {} with the id {id}", kind.name())).into()),
    })
}

/// Reads a reply that was lent.
fn lent_reply(bytes: &[u8], within: &Limits) -> Result<FoundReply, Ending> {
    let frame = wire::decode(bytes, within)?;
    if (frame.kind, frame.id) != (Kind::Reply, WORK) {
        return Err(Broken::Garbled("no reply where it is said to be".into()).into());
    }
    Ok(Said::reply(&frame.body, bytes)?)
}

/// A reply that is larger than any can be.
fn beyond(bytes: u64, limits: &FunctionLimits) -> Ending {
    let within = |()| Broken::Garbled("a reply beyond every limit".into()).into();
    check_reply(bytes, limits).map_or_else(Ending::Problem, within)
}

/// Waits for the moment a limit is exceeded. Looks no more often than the limit could be reached: every core may work
/// for the unit. `memory_bytes_max`: where no control group bounds its memory.
async fn watch(
    life: &Life,
    meter: &Meter,
    limits: &FunctionLimits,
    used: &Used,
    memory_bytes_max: Option<u64>,
) -> Problem {
    let mut is_back = false;
    // Nothing is known of a unit that has just begun, but that it cannot have used much.
    let mut cpu = Duration::ZERO;
    loop {
        let Some(left) = limits.cpu().checked_sub(cpu).filter(|left| !left.is_zero()) else {
            return Problem::new(
                Code::CpuExceeded,
                format!("the call used more than {} ms of CPU time", limits.cpu_ms),
            );
        };
        if memory_bytes_max.is_some_and(|most| life.resident_bytes() > most) {
            return memory_exceeded(limits);
        }
        if !is_back && cpu >= FIRST_CPU {
            is_back = true;
            life.step_back(true);
        }
        let longest = if memory_bytes_max.is_none() { WATCH_MAX } else { WATCH_MEMORY };
        // One that mostly waits is looked at less and less.
        let longest = if is_back { longest } else { longest.min(FIRST_CPU.max(meter.began.elapsed() / 4)) };
        let pause = (left / cores()).clamp(WATCH_MIN, longest);
        let until = (Instant::now() + pause).min(meter.deadline);
        tokio::time::sleep_until(until.into()).await;
        if Instant::now() >= meter.deadline {
            return meter.time_exceeded();
        }
        cpu = used.cpu(life);
    }
}

/// Asked once: the system's answer takes half a dozen files.
pub fn cores() -> u32 {
    static CORES: OnceLock<u32> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZeroUsize::get) as u32)
}

fn memory_exceeded(limits: &FunctionLimits) -> Problem {
    Problem::new(Code::MemoryExceeded, format!("the unit needed more than {} bytes of memory", limits.memory_bytes))
}

/// What it says it died of, or what the kernel says it was refused.
fn crashed(child: &Child, code: Code, why: String, output: &Output) -> Problem {
    let group = child.life.group();
    let problem = match code {
        Code::UnitTrapped if group.memory_exceeded() => {
            Problem::new(Code::MemoryExceeded, format!("the unit ran out of memory: {why}"))
        }
        Code::UnitTrapped if group.processes_exceeded() => {
            Problem::new(Code::ProcessesExceeded, format!("the unit was refused another process or thread: {why}"))
        }
        code => Problem::new(code, format!("{}: {}", code.title(), unit::cut(&why, 4_000))),
    };
    output.note(Level::Error, &problem.detail);
    problem
}

/// Names the end of a unit that did not say how it ended.
fn ended(child: &Child, status: Option<i32>, output: &Output) -> Problem {
    let problem = if let Some(why) = child.life.why_zygote_ended() {
        why.clone()
    } else if child.life.group().memory_exceeded() {
        Problem::new(Code::MemoryExceeded, "the unit ran out of memory")
    } else {
        died(status)
    };
    output.note(Level::Error, &problem.detail);
    problem
}

/// Names what is wrong with what a unit says.
fn broken_off(child: &Child, broken: Broken, output: &Output) -> Problem {
    let problem = match broken {
        Broken::Ended => return ended(child, None, output),
        Broken::NoRoom(full) => full.into(),
        Broken::TooLarge { .. } | Broken::Garbled(_) => {
            Problem::new(Code::UnitGarbled, format!("what the unit says makes no sense: {broken}"))
        }
    };
    output.note(Level::Error, &problem.detail);
    problem
}

/// From a status as `wait` gives it.
pub fn died(status: Option<i32>) -> Problem {
    let Some(status) = status else {
        return Problem::new(Code::UnitNoReply, "the unit closed its socket without a reply");
    };
    let (signal, exit) = (status & 0x7F, status >> 8 & 0xFF);
    if signal == 0 {
        return Problem::new(Code::UnitExited, format!("the unit ended with status {exit}"));
    }
    let name = match signal {
        libc::SIGSEGV => " (segmentation fault)",
        libc::SIGABRT => " (abort)",
        libc::SIGBUS => " (bus error)",
        libc::SIGFPE => " (arithmetic)",
        libc::SIGILL => " (illegal instruction)",
        libc::SIGKILL => " (killed)",
        _ => "",
    };
    Problem::new(Code::UnitTrapped, format!("the unit trapped: signal {signal}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_nodes_work_is_charged_and_its_waiting_is_not() {
        let used = Used { before: Duration::ZERO, for_it_ns: AtomicU64::new(0) };
        used.charged(tokio::time::sleep(Duration::from_millis(200))).await;
        assert!(used.for_it_ns.load(Relaxed) < 50_000_000);
        used.charged(async {
            for _ in 0..5 {
                let began = fd::thread_cpu_ns();
                while fd::thread_cpu_ns() - began < 20_000_000 {}
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(used.for_it_ns.load(Relaxed) >= 100_000_000);
    }
}
