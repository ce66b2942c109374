//! One call's work as a future: metered, moved to the threads for hogs when it runs long, ended at its deadline.

use crate::engine::{Engine, TICK};
use crate::meter::Meter;
use problem::{Code, Problem};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

/// Boxed where it is made: it is large, and every move of it would copy it.
pub type Work<T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send>>;

/// How heavy a function's calls have been of late. The calls of one that mostly runs long begin on the threads for hogs,
/// so that many of them, one after the other, do not add up on the threads everyone shares.
#[derive(Default)]
pub struct Weight(AtomicI32);

impl Weight {
    const MAX: i32 = 16;
    /// What one heavy call weighs against light ones.
    const HEAVY_CALL: i32 = 4;

    fn is_heavy(&self) -> bool {
        self.0.load(Relaxed) > Self::HEAVY_CALL
    }

    fn note(&self, cpu: Duration) {
        let before = self.0.load(Relaxed);
        let after = if cpu > TICK { (before + Self::HEAVY_CALL).min(Self::MAX) } else { (before - 1).max(0) };
        // Calls that end at the same moment may miss each other: it is an estimate.
        if after != before {
            self.0.store(after, Relaxed);
        }
    }
}

/// Dropping it stops the unit, at its next tick at the latest.
pub struct Run<T> {
    engine: Arc<Engine>,
    meter: Arc<Meter>,
    weight: Arc<Weight>,
    place: Place<T>,
    /// Set up only for work that has to wait at all.
    alarm: Option<Pin<Box<Sleep>>>,
}

enum Place<T> {
    /// On the threads everyone shares.
    Here(Work<T>),
    /// On the threads for hogs, or for starved ones.
    Moved(JoinHandle<Step<T>>),
    Done,
}

/// How a stay on other threads ended.
enum Step<T> {
    Ended(Result<T, Problem>),
    /// To go on at the other of the two.
    Moves {
        work: Work<T>,
        to: Threads,
    },
}

#[derive(Clone, Copy, PartialEq)]
enum Threads {
    Hogs,
    Starved,
}

/// A unit is starved when it got less than this share of the core in this much time of wanting it.
const STARVED_SHARE: u32 = 5;
const STARVED_AFTER: Duration = Duration::from_millis(50);

/// CPU time a starved unit gets at normal priority before it goes back.
const STARVED_GETS: Duration = Duration::from_millis(20);

impl<T: Send + 'static> Run<T> {
    pub fn new(engine: Arc<Engine>, weight: Arc<Weight>, meter: Arc<Meter>, work: Work<T>) -> Self {
        engine.call_begins();
        let is_heavy = weight.is_heavy();
        let mut run = Self { engine, weight, meter, place: Place::Done, alarm: None };
        if is_heavy {
            run.meter.moves();
            run.go(work, Threads::Hogs);
        } else {
            run.place = Place::Here(work);
        }
        run
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Problem>> {
        if let Place::Here(work) = &mut self.place {
            let polled = metered(&self.meter, || work.as_mut().poll(cx));
            if polled.is_ready() || !self.meter.hog.load(Relaxed) {
                return polled;
            }
            let Place::Here(work) = std::mem::replace(&mut self.place, Place::Done) else { unreachable!() };
            self.meter.moves();
            self.go(work, Threads::Hogs);
        }
        loop {
            let Place::Moved(handle) = &mut self.place else { unreachable!("a run is not polled after its end") };
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

    fn go(&mut self, work: Work<T>, to: Threads) {
        let runtime = match to {
            Threads::Hogs => self.engine.hogs(),
            Threads::Starved => self.engine.starved(),
        };
        self.place = Place::Moved(runtime.spawn(stay(work, self.meter.clone(), to)));
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.meter.deadline;
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into()))).as_mut().poll(cx)
    }

    fn stop(&mut self) {
        if let Place::Moved(handle) = std::mem::replace(&mut self.place, Place::Done) {
            handle.abort();
        }
    }
}

/// Runs the work on threads of one sort until it ends or should go to the other.
///
/// The idle class gets a core only when nothing else wants it. On a machine that is busy with other things that would be
/// never, so a unit that starves has a turn at normal priority, on the one thread there is for such.
async fn stay<T>(work: Work<T>, meter: Arc<Meter>, threads: Threads) -> Step<T> {
    let mut work = Some(work);
    let (mut wanted, cpu_before) = (Duration::ZERO, meter.cpu());
    poll_fn(move |cx| {
        let began = Instant::now();
        let polled = metered(&meter, || work.as_mut().expect("polled until it is ready").as_mut().poll(cx));
        if let Poll::Ready(result) = polled {
            return Poll::Ready(Step::Ended(result));
        }
        wanted += began.elapsed();
        let got = meter.cpu().saturating_sub(cpu_before);
        let to = match threads {
            Threads::Hogs if wanted > STARVED_AFTER && got * STARVED_SHARE < wanted => Threads::Starved,
            Threads::Starved if got > STARVED_GETS => Threads::Hogs,
            _ => return Poll::Pending,
        };
        Poll::Ready(Step::Moves { work: work.take().expect("just polled"), to })
    })
    .await
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
        let result = match self.poll_work(cx) {
            Poll::Ready(result) => result,
            Poll::Pending => match self.poll_alarm(cx) {
                Poll::Ready(()) => Err(time_exceeded(&self.meter)),
                Poll::Pending => return Poll::Pending,
            },
        };
        self.stop();
        Poll::Ready(result)
    }
}

impl<T> Drop for Run<T> {
    fn drop(&mut self) {
        self.engine.call_ends();
        self.weight.note(self.meter.cpu());
        if let Place::Moved(handle) = &self.place {
            handle.abort();
        }
    }
}

pub fn time_exceeded(meter: &Meter) -> Problem {
    unit_host::time_exceeded(meter.began, meter.deadline)
}
