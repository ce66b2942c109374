//! One call's work as a future: metered, moved to the threads for hogs when it runs long, ended at its deadline.
//!
//! A unit that has trapped has used its time. The node's work for it afterwards, which writes the backtrace to the log,
//! is not measured and does not end at the deadline, so that a trap is reported as a trap even on a busy machine.

use crate::engine::{Engine, SLICE};
use crate::hogs::HogThreads;
use crate::meter::Meter;
use crate::patience::Stay as MayStay;
use crate::stall::{STALL_MIN, Stall};
use problem::{Code, Problem};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

/// Boxed where it is made: it is large, and every move of it would copy it.
pub type RunFuture<T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send>>;

/// How heavy a function's calls have been of late. The calls of one that mostly runs long begin on the threads for
/// hogs, so that many of them, one after the other, do not add up on the threads everyone shares.
#[derive(Default)]
pub struct Weight(AtomicI32);

impl Weight {
    const MAX: i32 = 16;
    /// What one heavy call weighs against light ones.
    const HEAVY_CALL: i32 = 4;

    fn is_heavy(&self) -> bool {
        self.0.load(Relaxed) > Self::HEAVY_CALL
    }

    /// None of the last calls was heavy.
    fn is_light(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    fn note(&self, cpu: Duration) {
        let before = self.0.load(Relaxed);
        let after = if cpu > SLICE { (before + Self::HEAVY_CALL).min(Self::MAX) } else { (before - 1).max(0) };
        // Calls that end at the same moment may miss each other: it is an estimate.
        if after != before {
            self.0.store(after, Relaxed);
        }
    }
}

/// Dropping it stops the unit, at the end of its slice at the latest.
pub struct Run<T> {
    engine: Arc<Engine>,
    meter: Arc<Meter>,
    weight: Arc<Weight>,
    phase: Phase<T>,
    /// Set up only for work that has to wait at all.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// Nothing in it is pinned in its place.
impl<T> Unpin for Run<T> {}

enum Phase<T> {
    /// On the threads everyone shares.
    Here(RunFuture<T>),
    /// On the threads for hogs, or for starved ones.
    Moved(JoinHandle<Step<T>>),
    /// It has ended; the log is told how.
    Told(Option<Result<T, Problem>>, Pin<Box<dyn Future<Output = ()> + Send>>),
    Done,
}

/// How a stay on other threads ended.
enum Step<T> {
    Ended(Result<T, Problem>),
    /// To go on at the other of the two.
    Moves {
        work: RunFuture<T>,
        to: Threads,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum Threads {
    Hogs,
    Starved,
}

/// A unit is starved when it got less than this share of the core in [`STALL_MIN`] of wanting it.
const STARVED_SHARE: u32 = 5;

/// CPU time a starved unit gets at normal priority before it goes back.
const STARVED_GETS: Duration = Duration::from_millis(20);

impl<T: Send + 'static> Run<T> {
    pub fn new(engine: Arc<Engine>, weight: Arc<Weight>, meter: Arc<Meter>, work: RunFuture<T>) -> Self {
        engine.call_begins();
        let is_heavy = weight.is_heavy();
        let mut run = Self { engine, weight, meter, phase: Phase::Done, alarm: None };
        if is_heavy {
            run.meter.moves();
            run.go(work, Threads::Hogs);
        } else {
            if run.weight.is_light() {
                run.meter.set_stay(MayStay::May(run.engine.patience.clone()));
            }
            run.phase = Phase::Here(work);
        }
        run
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Problem>> {
        if let Phase::Here(work) = &mut self.phase {
            let polled = metered(&self.meter, || work.as_mut().poll(cx));
            if polled.is_ready() || !self.meter.hog.load(Relaxed) {
                return polled;
            }
            let Phase::Here(work) = std::mem::replace(&mut self.phase, Phase::Done) else { unreachable!() };
            self.meter.moves();
            self.go(work, Threads::Hogs);
        }
        loop {
            let Phase::Moved(handle) = &mut self.phase else { unreachable!("a run is not polled after its end") };
            match std::task::ready!(Pin::new(handle).poll(cx)) {
                Ok(Step::Ended(result)) => return Poll::Ready(result),
                Ok(Step::Moves { work, to }) => self.go(work, to),
                Err(error) => {
                    let detail = format!("the thread that ran the unit failed: {error}");
                    return Poll::Ready(Err(Problem::new(Code::Internal, detail)));
                }
            }
        }
    }

    fn go(&mut self, work: RunFuture<T>, to: Threads) {
        let now = Instant::now();
        let to = if self.engine.stall.is_on(now) { Threads::Starved } else { to };
        let hogs = self.engine.hogs();
        // With a thread for each of them, nothing but the rest of the machine keeps it from running at once.
        let is_alone = to == Threads::Hogs && hogs.have_room();
        let (hog_threads, stall) = (hogs.threads.clone(), self.engine.stall.clone());
        let stay = Stay { threads: to, came: now, is_alone, hog_threads, stall };
        let runtime = match to {
            Threads::Hogs => hogs.handle(),
            Threads::Starved => self.engine.starved(),
        };
        self.phase = Phase::Moved(runtime.spawn(stay.run(work, self.meter.clone())));
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.meter.deadline;
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into()))).as_mut().poll(cx)
    }

    fn stop(&mut self) {
        if let Phase::Moved(handle) = std::mem::replace(&mut self.phase, Phase::Done) {
            handle.abort();
        }
    }
}

/// A stay on threads of one sort, until the work ends or should go to the other.
///
/// The idle class gets a core only when nothing else wants it. On a machine that is busy with other things that would
/// be never, so a unit that starves has a turn at normal priority, on the one thread there is for such.
struct Stay {
    threads: Threads,
    came: Instant,
    /// It could have begun when it came, had the machine nothing else to do. Otherwise it may wait for others like it.
    is_alone: bool,
    hog_threads: Arc<HogThreads>,
    stall: Arc<Stall>,
}

impl Stay {
    async fn run<T>(self, work: RunFuture<T>, meter: Arc<Meter>) -> Step<T> {
        let mut work = Some(work);
        let (mut wanted, cpu_before) = (Duration::ZERO, meter.cpu());
        let mut came = Some(self.came);
        poll_fn(move |cx| {
            let began = Instant::now();
            let may_be_late = self.is_alone || HogThreads::is_raised();
            let late = came.take().filter(|_| may_be_late).map_or(Duration::ZERO, |came| began - came);
            wanted += late;
            if late <= STALL_MIN {
                let polled = metered(&meter, || work.as_mut().expect("polled until it is ready").as_mut().poll(cx));
                if self.threads == Threads::Hogs {
                    self.hog_threads.slice_ended();
                }
                if let Poll::Ready(result) = polled {
                    return Poll::Ready(Step::Ended(result));
                }
                wanted += began.elapsed();
            }
            let got = meter.cpu().saturating_sub(cpu_before);
            let to = match self.threads {
                // What is left to do is the node's.
                Threads::Hogs if meter.failed.load(SeqCst) => Threads::Starved,
                Threads::Hogs if wanted > STALL_MIN && got * STARVED_SHARE < wanted => {
                    self.stall.note(wanted, Instant::now());
                    Threads::Starved
                }
                Threads::Starved if got > STARVED_GETS => Threads::Hogs,
                _ => return Poll::Pending,
            };
            Poll::Ready(Step::Moves { work: work.take().expect("just polled"), to })
        })
        .await
    }
}

fn metered<T>(meter: &Meter, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
    meter.poll_begins();
    let polled = poll();
    meter.poll_ends();
    polled
}

impl<T: Send + 'static> Future for Run<T> {
    type Output = Result<T, Problem>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !matches!(self.phase, Phase::Told(..)) {
            let result = match self.poll_work(cx) {
                Poll::Ready(result) => result,
                Poll::Pending if self.meter.failed.load(SeqCst) => return Poll::Pending,
                Poll::Pending => match self.poll_alarm(cx) {
                    Poll::Ready(()) => Err(time_exceeded(&self.meter)),
                    Poll::Pending => return Poll::Pending,
                },
            };
            self.meter.ended();
            self.stop();
            let Some(told) = self.meter.take_telling() else { return Poll::Ready(result) };
            self.phase = Phase::Told(Some(result), Box::pin(told.wait()));
        }
        let Phase::Told(result, told) = &mut self.phase else { unreachable!("put there above") };
        std::task::ready!(told.as_mut().poll(cx));
        Poll::Ready(result.take().expect("a run is not polled after its end"))
    }
}

impl<T> Drop for Run<T> {
    fn drop(&mut self) {
        self.engine.call_ends();
        self.meter.set_stay(MayStay::None);
        self.weight.note(self.meter.cpu());
        if let Phase::Moved(handle) = &self.phase {
            handle.abort();
        }
    }
}

pub fn time_exceeded(meter: &Meter) -> Problem {
    unit_host::time_exceeded(meter.began, meter.deadline)
}
