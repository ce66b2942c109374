//! A function ready to run on boards: each call goes to the least busy one, and to another when that one dies.
//!
//! ```text
//!   call ──▶ candidates ─▶ a free one ─▶ session ─▶ code, if it has it not ─▶ event ─▶ host calls ─▶ reply
//!               ▲                                                                 │ the board went away
//!               └────────────── what was done is undone ◀─────────────────────────┘
//! ```

use crate::kind::{Candidate, Payload, Shared, payload_for};
use crate::session::{Said as BoardSaid, Session, Work as BoardWork};
use board_link::{Boot, Stages};
use event::Event;
use frame::Limits;
use futures_util::future::BoxFuture;
use kernel_abi::Verb;
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::Leased;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout_at;
use unit::{Call, Deployed, Level, Prepared, Reply, Stream, Timing, UnitStatus, Work};
use unit_host::calls::{Host, Said};
use unit_host::http::Requests;
use unit_host::kernel::{self, WORK};
use unit_host::{Handled, Handling, Output, Roster, Spending, Spent, check_reply};

/// Boards one call is tried on, when they go away one after the other.
const TRIES_MAX: usize = 3;
/// By which a caller names the board it wants: as a header of the request it becomes this attribute of the event.
pub const BOARD_HEADER: &str = "lighter-board";
const BOARD_ATTRIBUTE: &str = "http-lighter-board";
/// Nothing is looked at more rarely while a call waits for a board.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub struct PreparedMetal {
    shared: Arc<Shared>,
    deployed: Arc<Deployed>,
    payloads: Vec<Payload>,
    roster: Arc<Roster>,
}

/// What one attempt uses.
struct Meter {
    began: Instant,
    start: Mutex<Option<Duration>>,
    cpu_us: AtomicU64,
    memory_bytes: AtomicU64,
}

impl Spending for Meter {
    fn spent(&self) -> Spent {
        let total = self.began.elapsed();
        let start = self.start.lock().unwrap_or(total);
        let timing = Timing { start, run: total.saturating_sub(start), stages: None };
        let cpu = Duration::from_micros(self.cpu_us.load(Relaxed));
        Spent { timing, cpu, memory_bytes: self.memory_bytes.load(Relaxed) }
    }
}

/// The boards a call was tried on, and how the last one went away.
#[derive(Default)]
struct Lost {
    boots: Vec<Boot>,
    problem: Option<Problem>,
}

/// A board's session, while nobody else uses it.
type Place = OwnedMutexGuard<Option<(Boot, Session)>>;

/// One try on one board.
struct Try<'a> {
    request_id: &'a Arc<str>,
    event: &'a Arc<Event>,
    lease: &'a Option<Arc<Leased>>,
    deadline: Instant,
    meter: &'a Meter,
}

impl PreparedMetal {
    pub fn new(shared: Arc<Shared>, deployed: Arc<Deployed>, payloads: Vec<Payload>) -> Self {
        Self { shared, deployed, payloads, roster: Arc::default() }
    }

    async fn attempt(&self, one: Try<'_>) -> Result<Handled, Problem> {
        let mut lost = Lost::default();
        loop {
            let failed = match self.attempt_once(&one, &mut lost).await {
                Err(problem) if problem.code == Code::BoardLost => problem,
                outcome => return outcome,
            };
            if Instant::now() >= one.deadline {
                let detail = format!("the call had run out of time when {}", failed.detail);
                return Err(Problem::new(Code::TimeExceeded, detail));
            }
            if lost.boots.len() == TRIES_MAX {
                return Err(failed);
            }
            tracing::info!(function = %self.deployed.name, "trying elsewhere: {}", failed.detail);
            lost.problem = Some(failed);
        }
    }

    async fn attempt_once(&self, one: &Try<'_>, lost: &mut Lost) -> Result<Handled, Problem> {
        let wanted = one.event.attribute(BOARD_ATTRIBUTE);
        let waiting = self.free_board(wanted, lost);
        // The place is held to the end of the call: a board does one thing at a time.
        let (candidate, mut place) =
            timeout_at(one.deadline.into(), waiting).await.map_err(|_| time_exceeded(one))??;
        lost.boots.push(candidate.seen.beacon.boot);
        let _busy = Busy::new(self.shared.clone(), &candidate);
        let kept = place.take().filter(|(boot, _)| *boot == candidate.seen.beacon.boot);
        let run = self.run(one, &candidate, kept.map(|(_, session)| session));
        let (outcome, session) = match timeout_at(one.deadline.into(), run).await {
            Ok(Ok((handled, session))) => (handled, session),
            Ok(Err(problem)) => return Err(problem),
            // Closing the connection tells the board that nobody waits; its watchdog ends what hangs.
            Err(_) => return Err(time_exceeded(one)),
        };
        *place = Some((candidate.seen.beacon.boot, session));
        outcome
    }

    /// A board nobody uses; the least busy one, after a while.
    async fn free_board(&self, wanted: Option<&str>, lost: &Lost) -> Result<(Candidate, Place), Problem> {
        loop {
            let mut candidates = self.shared.candidates(&self.payloads, wanted)?;
            // One that went away is tried again once it is back, in another life.
            candidates.retain(|one| !lost.boots.contains(&one.seen.beacon.boot));
            if let (true, Some(problem)) = (candidates.is_empty(), &lost.problem) {
                return Err(Problem { code: Code::BoardMissing, ..problem.clone() });
            }
            for candidate in candidates {
                if let Ok(place) = candidate.board.session.clone().try_lock_owned() {
                    return Ok((candidate, place));
                }
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, self.shared.freed.notified()).await;
        }
    }

    /// The work on one board. What went wrong on its side of the session ends the session; what the function did wrong does
    /// not.
    async fn run(
        &self,
        one: &Try<'_>,
        candidate: &Candidate,
        kept: Option<Session>,
    ) -> Result<(Result<Handled, Problem>, Session), Problem> {
        let payload = payload_for(&self.payloads, &candidate.seen.beacon.formats)
            .ok_or_else(|| Problem::new(Code::BoardMissing, "the board does not run this code"))?;
        let mut session = match kept {
            Some(mut session) => match session.bring(payload.hash, &payload.bytes).await {
                Ok(()) => session,
                // It was kept for too long.
                Err(_) => self.fresh(candidate, payload).await?,
            },
            None => self.fresh(candidate, payload).await?,
        };
        *one.meter.start.lock() = Some(one.meter.began.elapsed());
        let deployed = self.deployed.clone();
        let limits = deployed.function.limits.clone();
        let number = self.shared.next_number();
        let _entry = Roster::enter(&self.roster, number, one.request_id.clone());
        let output = Output::new(deployed.log.clone(), number, one.request_id.clone(), limits.log_bytes);
        let output = Arc::new(output);
        let mut handling = Handling::new(deployed.clone());
        handling.begin(one.lease.clone());
        let requests = Requests::new(self.shared.client.clone(), deployed.clone(), one.request_id.clone());
        let (event, deadline) = (one.event.clone(), one.deadline);
        let mut host = Host { deployed, handling, requests, output: output.clone(), event, deadline };
        // A board that starts again forgets its sessions, and does not always get to say so.
        let said = tokio::select! {
            said = self.converse(one, &mut session, payload, &mut host) => said,
            () = self.shared.restarted(candidate) => {
                Err(Problem::new(Code::BoardLost, format!("the board {} started again", candidate.entry.name)))
            }
        };
        let transaction = host.handling.end();
        let outcome = match said {
            Ok((Said::Reply { data, .. }, stages)) => {
                one.meter.cpu_us.store(stages.run_us.into(), Relaxed);
                one.meter.memory_bytes.store(stages.memory_bytes, Relaxed);
                check_reply(data.len() as u64, &limits).map(|()| Handled { reply: data, transaction })
            }
            Ok((Said::Failed(failure), _)) => Err(unit_host::said(failure, &output)),
            Ok((Said::Crashed { code, why, frames }, _)) => {
                let why = unit_host::cut(&why, 4_000).to_owned();
                let problem = Problem::new(code, format!("{}: {why}", code.title()));
                output.note(Level::Error, &problem.detail);
                for frame in frames {
                    output.note(Level::Error, &format!("  in {}", frame.function));
                }
                Err(problem)
            }
            Err(problem) => {
                output.note(Level::Error, &problem.detail);
                output.end_call();
                return Err(problem);
            }
        };
        output.end_call();
        Ok((outcome, session))
    }

    async fn fresh(&self, candidate: &Candidate, payload: &Payload) -> Result<Session, Problem> {
        let mut session = self.shared.session(candidate).await?;
        session.bring(payload.hash, &payload.bytes).await?;
        Ok(session)
    }

    async fn converse(
        &self,
        one: &Try<'_>,
        session: &mut Session,
        payload: &Payload,
        host: &mut Host,
    ) -> Result<(Said, Stages), Problem> {
        let event = kernel::work(one.event, &generous())?;
        let work = BoardWork {
            id: WORK,
            code: payload.hash,
            may: kernel::policy(&self.deployed.function.grants).0,
            run_max: one.deadline.saturating_duration_since(Instant::now()),
            memory_bytes_max: self.deployed.function.limits.memory_bytes,
            now_ms: unit_host::unix_ms(),
            event,
        };
        session.call(work).await?;
        loop {
            match session.said(WORK).await? {
                BoardSaid::Line { level, line } => {
                    host.output.write(kernel::level(level.into()), Stream::Log, &line);
                }
                BoardSaid::Asks { number, frame } => {
                    let none = || kernel::garbled("there is no host call of this number");
                    let verb = Verb::of(number).ok_or_else(none)?;
                    let answer = kernel::answer(host, verb, &frame, &generous()).await?;
                    session.answer(answer).await?;
                }
                BoardSaid::Replied { stages, frame } => return Ok((kernel::said(frame, &generous())?, stages)),
            }
        }
    }
}

/// Frames were bounded when they arrived, by the session.
fn generous() -> Limits {
    Limits { meta_bytes_max: 64 << 20, values_max: 1 << 20, ..Limits::default() }
}

fn time_exceeded(one: &Try<'_>) -> Problem {
    let limit = one.deadline.saturating_duration_since(one.meter.began);
    Problem::new(Code::TimeExceeded, format!("the call had not ended after {} ms", limit.as_millis()))
}

/// Counts a call on a board for as long as it lives.
struct Busy {
    shared: Arc<Shared>,
    candidate: Candidate,
}

impl Busy {
    fn new(shared: Arc<Shared>, candidate: &Candidate) -> Self {
        candidate.board.busy.fetch_add(1, Relaxed);
        Self { shared, candidate: candidate.clone() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.candidate.board.busy.fetch_sub(1, Relaxed);
        self.shared.freed.notify_one();
    }
}

impl Prepared for PreparedMetal {
    /// Nothing is started: the boards are there or not, and that may be different when the first call comes.
    fn try_start(self: Arc<Self>) -> BoxFuture<'static, Result<Duration, Problem>> {
        Box::pin(async { Ok(Duration::ZERO) })
    }

    fn call(self: Arc<Self>, call: Call) -> BoxFuture<'static, Result<Reply, Problem>> {
        let Call { request_id, work, deadline, watch, lease } = call;
        Box::pin(async move {
            let Work::Event(event) = work else {
                return Err(Problem::new(Code::Internal, "this work is not for a metal unit"));
            };
            let first = event.attempt;
            let mut event = Arc::new(event);
            let one = |reruns: u32| {
                if reruns > 0 {
                    Arc::<Event>::make_mut(&mut event).attempt = first + reruns;
                }
                let (prepared, event, lease, request_id) =
                    (self.clone(), event.clone(), lease.clone(), request_id.clone());
                let meter = Arc::new(Meter {
                    began: Instant::now(),
                    start: Mutex::default(),
                    cpu_us: AtomicU64::new(0),
                    memory_bytes: AtomicU64::new(0),
                });
                async move {
                    let one = Try { request_id: &request_id, event: &event, lease: &lease, deadline, meter: &meter };
                    let outcome = prepared.attempt(one).await;
                    (outcome, meter)
                }
            };
            unit_host::call(&self.deployed.state, lease.as_deref(), watch, one).await
        })
    }

    fn units(&self) -> Vec<UnitStatus> {
        self.roster.units()
    }

    /// What a unit left is gone with its session.
    fn dump(&self) -> Option<Arc<Vec<u8>>> {
        None
    }

    fn sweep(&self, _: Instant, _: bool) {}
}
