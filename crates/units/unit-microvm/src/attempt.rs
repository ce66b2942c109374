//! One attempt: a machine is handed the work, asks its host what it needs, and answers or is ended.
//!
//! ```text
//!   work ──▶ unit ──▶ questions ─▶ host, or exchange ─▶ answers ──▶ unit ──▶ reply or failure
//!                └ meanwhile: its lines go to the log, its time and CPU are watched
//! ```

use crate::Busy;
use crate::exchange::{Exchange, Served};
use crate::fetch::Fetching;
use crate::prepared::PreparedMicrovm;
use crate::processor::Registers;
use crate::tender::{Clock, Tender, Told, What};
use frame::Limits;
use problem::{Code, Problem};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::coop::{consume_budget, unconstrained};
use unit::{Given, Host, Level, Output, Prepared, StackFrame, check_reply};
use unit_host::calls::{Answers, Said};
use unit_host::{Attempt, Meter, answers, kernel};

/// Shortest and longest pause of the watchdog.
const WATCH_MIN: Duration = Duration::from_millis(1);
const WATCH_MAX: Duration = Duration::from_secs(1);
/// CPU time after which a unit lets others go first, and how far it steps back.
const FIRST_CPU: Duration = Duration::from_millis(10);
const NICE: i32 = 10;

/// What a machine is to do.
pub struct Job {
    pub request_id: Arc<str>,
    /// A frame.
    pub work: Vec<u8>,
    pub host: Arc<dyn Host>,
    pub meter: Arc<Meter>,
    /// None for an event.
    pub served: Option<Served>,
}

pub async fn attempt(prepared: Arc<PreparedMicrovm>, attempt: Attempt) -> Result<Given, Problem> {
    let Attempt { request_id, event, host, meter } = attempt;
    let out =
        Limits { total_bytes_max: u64::MAX >> 1, meta_bytes_max: 64 << 20, values_max: 1 << 20, ..Limits::default() };
    let work = kernel::work(&event, &out)?;
    // Its runner gives it back for another attempt, if it is the only one who has it.
    drop(event);
    let (said, output) = perform(&prepared, Job { request_id, work, host, meter, served: None }).await?;
    match said {
        Said::Reply { data, .. } => {
            check_reply(data.len() as u64, &prepared.deployed().function.limits)?;
            Ok(Given::Reply(data))
        }
        Said::Failed(failure) => Ok(Given::Failure(unit::said(failure, &output))),
        Said::Crashed { .. } => unreachable!("a problem by now"),
    }
}

/// Takes a machine, has it do the job, and makes it fresh again or ends it.
///
/// # Errors
/// There is no machine; the unit crashed, or exceeded a limit.
pub async fn perform(prepared: &Arc<PreparedMicrovm>, job: Job) -> Result<(Said, Arc<Output>), Problem> {
    let Job { request_id, work, host, meter, served } = job;
    let taken = tokio::time::timeout_at(meter.deadline.into(), prepared.take(&request_id)).await;
    let (mut tender, entry) = taken.map_err(|_| meter.time_exceeded())??;
    meter.started();
    let _at_work = prepared.at_work.begins(tender.number, tender.clock());
    let busy = prepared.begins_work();
    let deployed = prepared.deployed();
    let answers = answers(deployed, tender.number, request_id, host.clone());
    let output = answers.output.clone();
    if let Some(served) = &served {
        served.outlet.is_of(tender.clock());
    }
    let fetching = Fetching { client: prepared.client(), output: output.clone(), deadline: meter.deadline };
    let exchange = Exchange::new(host, deployed.budget.clone(), fetching, served).after(tender.events);
    let mut asked = Answering { answers, exchange };
    // A future that is dropped here drops the tender: the machine is stopped and ended.
    let outcome = run(prepared, &mut tender, &mut asked, work, (&meter, &busy)).await;
    meter.used_cpu(tender.cpu());
    drop((asked, busy));
    let outcome = match outcome {
        Ok(Said::Crashed { code, why, frames }) => {
            if prepared.deployed().function.units.dump
                && let Ok(dump) = tender.dump().await
            {
                prepared.keep_dump(dump);
            }
            Err(crashed(prepared, code, &why, frames, &output))
        }
        Ok(said) => Ok(said),
        Err(problem) => {
            // A conflict is nothing the function did wrong: its log has no word of it.
            if problem.code != Code::Conflict {
                output.note(Level::Error, &problem.detail);
            }
            Err((problem, None))
        }
    };
    output.end_call();
    match outcome {
        Ok(said) => {
            prepared.put_back(tender, entry);
            Ok((said, output))
        }
        Err((problem, told)) => {
            drop((tender, entry));
            prepared.returned();
            if let Some(told) = told {
                told.wait().await;
            }
            Err(problem)
        }
    }
}

/// Who answers a unit.
struct Answering {
    answers: Answers,
    exchange: Exchange,
}

async fn run(
    prepared: &PreparedMicrovm,
    tender: &mut Tender,
    asked: &mut Answering,
    work: Vec<u8>,
    (meter, busy): (&Meter, &Busy),
) -> Result<Said, Problem> {
    let limits = &prepared.deployed().function.limits;
    match busy.leaves_one() {
        true => prepared.begin_heard(tender, work),
        false => tender.begin_unheard(work),
    }
    let clock = tender.clock();
    let mut is_behind = false;
    let outcome = tokio::select! {
        biased;
        said = converse(prepared, tender, asked, meter) => said,
        // A unit that asks without a pause uses up what a task may do at once; its time ends no less.
        problem = unconstrained(watch(&clock, meter, limits, &mut is_behind)) => Err(problem),
    };
    if is_behind {
        tender.is_behind();
    }
    outcome
}

/// Answers until the unit has.
async fn converse(
    prepared: &PreparedMicrovm,
    tender: &mut Tender,
    asked: &mut Answering,
    meter: &Meter,
) -> Result<Said, Problem> {
    let Answering { answers, exchange } = asked;
    loop {
        let Told { lines, what } = tender.told().await;
        for (level, text) in lines {
            kernel::write(&answers.output, level, &text);
        }
        match what {
            What::Lines => {}
            What::Asks { verb, request } => {
                // Its number was allowed, and its bytes were bounded, by the tender.
                let within = Limits { total_bytes_max: u64::MAX >> 1, meta_bytes_max: 16 << 20, ..Limits::default() };
                exchange.waits(true);
                let answer = match verb.is_of_exchange() {
                    true => exchange.answer(verb, &request, &within).await?,
                    false => kernel::answer(answers, verb, &request, &within).await?,
                };
                exchange.waits(false);
                tender.answer(answer);
                // The next question may be there already: others go on meanwhile, and the limits are looked at.
                consume_budget().await;
            }
            What::Replied { reply, memory_bytes } => {
                // The unit's own word, which is only shown.
                meter.used_memory(memory_bytes.min(prepared.deployed().function.limits.memory_bytes));
                return kernel::said(reply, &Limits { total_bytes_max: u64::MAX >> 1, ..Limits::default() });
            }
            What::Panicked(why) if why.contains("memory allocation") => {
                return Err(Problem::new(Code::MemoryExceeded, format!("the unit ran out of memory: {why}")));
            }
            What::Panicked(why) => {
                let why = unit::cut(&why, 4_000);
                return Err(Problem::new(Code::UnitTrapped, format!("the unit's kernel gave up: {why}")));
            }
            What::Faulted(crash) => {
                answers.output.note(Level::Error, &registers(&crash.registers.words()));
                if let Some(dump) = crash.dump {
                    prepared.keep_dump(dump);
                }
                let at = crash.registers.pc();
                return Err(Problem::new(Code::UnitTrapped, format!("the unit trapped: a fault at {at:#x}")));
            }
            What::Lied(why) => return Err(kernel::garbled(&why)),
            What::Stopped => return Err(Problem::new(Code::Internal, "the unit was stopped")),
            What::Failed(error) => return Err(crate::kvm_failed(&error)),
        }
    }
}

/// Waits for the moment a limit is exceeded. Looks no more often than the limit could be reached.
async fn watch(clock: &Clock, meter: &Meter, limits: &manifest::Limits, is_behind: &mut bool) -> Problem {
    loop {
        if Instant::now() >= meter.deadline {
            return meter.time_exceeded();
        }
        let cpu = clock.cpu();
        let Some(left) = limits.cpu().checked_sub(cpu).filter(|left| !left.is_zero()) else {
            let detail = format!("the call used more than {} ms of CPU time", limits.cpu_ms);
            return Problem::new(Code::CpuExceeded, detail);
        };
        if !*is_behind && cpu >= FIRST_CPU {
            *is_behind = true;
            clock.step_back(NICE);
        }
        // One that mostly waits is looked at less and less.
        let longest = if *is_behind { WATCH_MAX } else { FIRST_CPU.max(meter.began.elapsed() / 4) };
        let until = (Instant::now() + left.clamp(WATCH_MIN, longest)).min(meter.deadline);
        tokio::time::sleep_until(until.into()).await;
    }
}

/// What it says it died of; the way there is on its way to the log.
fn crashed(
    prepared: &Arc<PreparedMicrovm>,
    code: Code,
    why: &str,
    frames: Vec<StackFrame>,
    output: &Arc<Output>,
) -> (Problem, Option<unit_lines::Told>) {
    let why = unit::cut(why, 4_000);
    let problem = Problem::new(code, format!("{}: {why}", code.title()));
    output.note(Level::Error, &problem.detail);
    let told = (!frames.is_empty()).then(|| prepared.tell(frames, output));
    (problem, told)
}

pub fn registers(words: &[u64]) -> String {
    let named: Vec<String> =
        Registers::NAMES.iter().zip(words).map(|(name, word)| format!("{name}={word:#x}")).collect();
    named.chunks(6).map(|line| format!("  {}\n", line.join(" "))).collect()
}
