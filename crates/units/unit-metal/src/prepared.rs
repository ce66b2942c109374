//! A function ready to run on boards: each call goes to the least busy one, and to another when that one dies.
//!
//! ```text
//!   call ──▶ candidates ─▶ a free one ─▶ session ─▶ code, if it has it not ─▶ event ─▶ host calls ─▶ reply
//!               ▲                                                                 │ the board went away
//!               └────────────── what was done is undone ◀─────────────────────────┘
//! ```

use crate::class::{Candidate, MetalInner, Payload, payload_for};
use crate::session::{BoardSaid, BoardWork, Session};
use board_link::{Boot, Stages};
use frame::Limits;
use futures_util::future::BoxFuture;
use kernel_abi::Verb;
use problem::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout_at;
use unit::{Deployed, Given, Host, Level, Prepared, Running, Stream, UnitStatus, check_reply};
use unit_host::calls::{Answers, Said};
use unit_host::kernel::{self, WORK};
use unit_host::{Attempt, Roster};

/// Boards one call is tried on, when they go away one after the other.
const TRIES_MAX: usize = 3;
/// By which a caller names the board it wants: the header [`manifest::BOARD_HEADER`] as an attribute of the event.
const BOARD_ATTRIBUTE: &str = "http-lighter-board";
/// Nothing is looked at more rarely while a call waits for a board.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub struct PreparedMetal {
    shared: Arc<MetalInner>,
    deployed: Arc<Deployed>,
    payloads: Vec<Payload>,
    roster: Arc<Roster>,
}

/// The boards a call was tried on, and how the last one went away.
#[derive(Default)]
struct Lost {
    boots: Vec<Boot>,
    problem: Option<Problem>,
}

/// A board's session, while nobody else uses it.
type SessionGuard = OwnedMutexGuard<Option<(Boot, Session)>>;

impl PreparedMetal {
    pub fn new(shared: Arc<MetalInner>, deployed: Arc<Deployed>, payloads: Vec<Payload>) -> Self {
        Self { shared, deployed, payloads, roster: Arc::default() }
    }

    async fn on_boards(&self, one: Attempt) -> Result<Given, Problem> {
        let mut lost = Lost::default();
        loop {
            let failed = match self.on_one(&one, &mut lost).await {
                Err(problem) if problem.code == Code::BoardLost => problem,
                outcome => return outcome,
            };
            if Instant::now() >= one.meter.deadline {
                let detail = format!("the call had run out of time when {}", failed.detail);
                return Err(Problem::new(Code::TimeExceeded, detail));
            }
            if lost.boots.len() == TRIES_MAX {
                return Err(failed);
            }
            tracing::info!(function = %self.deployed.name, "trying elsewhere: {}", failed.detail);
            one.host.undo();
            lost.problem = Some(failed);
        }
    }

    async fn on_one(&self, one: &Attempt, lost: &mut Lost) -> Result<Given, Problem> {
        let wanted = one.event.attribute(BOARD_ATTRIBUTE);
        let waiting = self.free_board(wanted, lost);
        // The session is held to the end of the call: a board does one thing at a time.
        let (candidate, mut guard) =
            timeout_at(one.meter.deadline.into(), waiting).await.map_err(|_| one.meter.time_exceeded())??;
        lost.boots.push(candidate.seen.beacon.boot);
        let _busy = Busy::new(self.shared.clone(), &candidate);
        let kept = guard.take().filter(|(boot, _)| *boot == candidate.seen.beacon.boot);
        let run = self.run(one, &candidate, kept.map(|(_, session)| session));
        let (outcome, session) = match timeout_at(one.meter.deadline.into(), run).await {
            Ok(Ok((handled, session))) => (handled, session),
            Ok(Err(problem)) => return Err(problem),
            // Closing the connection tells the board that nobody waits; its watchdog ends what hangs.
            Err(_) => return Err(one.meter.time_exceeded()),
        };
        *guard = Some((candidate.seen.beacon.boot, session));
        outcome
    }

    /// A board nobody uses; the least busy one, after a while.
    async fn free_board(&self, wanted: Option<&str>, lost: &Lost) -> Result<(Candidate, SessionGuard), Problem> {
        loop {
            let mut candidates = self.shared.candidates(&self.payloads, wanted)?;
            // One that went away is tried again once it is back, in another life.
            candidates.retain(|one| !lost.boots.contains(&one.seen.beacon.boot));
            if let (true, Some(problem)) = (candidates.is_empty(), &lost.problem) {
                return Err(Problem { code: Code::BoardMissing, ..problem.clone() });
            }
            for candidate in candidates {
                if let Ok(guard) = candidate.board.session.clone().try_lock_owned() {
                    return Ok((candidate, guard));
                }
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, self.shared.freed.notified()).await;
        }
    }

    /// The work on one board. What went wrong on its side of the session ends the session; what the function did wrong
    /// does not.
    async fn run(
        &self,
        one: &Attempt,
        candidate: &Candidate,
        kept: Option<Session>,
    ) -> Result<(Result<Given, Problem>, Session), Problem> {
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
        one.meter.started();
        let number = self.shared.next_number();
        let _entry = Roster::enter(&self.roster, number, one.request_id.clone());
        let mut answers = one.answers(&self.deployed, number);
        let output = answers.output.clone();
        // A board that starts again forgets its sessions, and does not always get to say so.
        let said = tokio::select! {
            said = self.converse(one, candidate, &mut session, payload, &mut answers) => said,
            () = self.shared.restarted(candidate) => {
                Err(Problem::new(Code::BoardLost, format!("the board {} started again", candidate.entry.name)))
            }
        };
        let outcome = match said {
            Ok((Said::Reply { data, .. }, stages)) => {
                one.meter.used_cpu(Duration::from_micros(stages.run_us.into()));
                one.meter.used_memory(stages.memory_bytes);
                check_reply(data.len() as u64, &self.deployed.function.limits).map(|()| Given::Reply(data))
            }
            Ok((Said::Failed(failure), _)) => Ok(Given::Failure(unit::said(failure, &output))),
            Ok((Said::Crashed { code, why, frames }, _)) => {
                let why = unit::cut(&why, 4_000).to_owned();
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
        one: &Attempt,
        candidate: &Candidate,
        session: &mut Session,
        payload: &Payload,
        answers: &mut Answers,
    ) -> Result<(Said, Stages), Problem> {
        let event = kernel::work(&one.event, &generous())?;
        let work = BoardWork {
            id: WORK,
            code: payload.hash,
            may: kernel::policy(&self.deployed.function.grants).0,
            run_max: one.meter.deadline.saturating_duration_since(Instant::now()),
            memory_bytes_max: self.deployed.function.limits.memory_bytes,
            now_ms: one.host.now_ms(),
            event,
        };
        session.call(work).await?;
        loop {
            let said = session.said(WORK).await?;
            candidate.board.spoke();
            match said {
                BoardSaid::Line { level, line } => {
                    answers.output.write(kernel::level(level.into()), Stream::Log, &line);
                }
                BoardSaid::Asks { number, frame } => {
                    let none = || kernel::garbled("there is no host call of this number");
                    let verb = Verb::of(number).ok_or_else(none)?;
                    let answer = kernel::answer(answers, verb, &frame, &generous()).await?;
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

/// Counts a call on a board for as long as it lives.
struct Busy {
    shared: Arc<MetalInner>,
    candidate: Candidate,
}

impl Busy {
    fn new(shared: Arc<MetalInner>, candidate: &Candidate) -> Self {
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
    fn deployed(&self) -> &Arc<Deployed> {
        &self.deployed
    }

    /// Nothing is started: the boards are there or not, and that may be different when the first call comes.
    fn try_start(self: Arc<Self>, _: Arc<dyn Host>) -> BoxFuture<'static, Result<Duration, Problem>> {
        Box::pin(async { Ok(Duration::ZERO) })
    }

    fn attempt(self: Arc<Self>, one: unit::Attempt) -> Box<dyn Running> {
        unit_host::run(one, |one| async move { self.on_boards(one).await })
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
