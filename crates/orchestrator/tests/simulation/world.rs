//! The world of the simulation: arrivals, workers and a wall clock that may jump; time goes from one happening to the
//! next.

use orchestrator::{Decision, Mean, Observation, Overload, Policy, Rate};
use random::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// A handling that hangs is ended after this time.
const HANG: Duration = Duration::from_secs(10);
/// Nothing may take longer in all.
const END: Duration = Duration::from_secs(3_600);

pub struct Load {
    /// When events arrive, in order.
    pub arrivals: Vec<Duration>,
    /// Mean time of a handling; each takes between a half and one and a half of it.
    pub service: Duration,
    /// Share of handlings that hang.
    pub hang_share: f64,
    pub jumps: Vec<Jump>,
    /// Units of the whole workflow, if it has a maximum. Other steps of it take and leave what this one leaves them.
    pub workflow_max: Option<u32>,
}

/// The wall clock is set.
#[derive(Clone, Copy)]
pub struct Jump {
    pub at: Duration,
    pub by_ms: i64,
}

#[derive(Debug, Default)]
pub struct Report {
    pub arrived: usize,
    pub handled: usize,
    pub workers_max: u32,
    pub workers_at_the_end: u32,
    pub stopped: u32,
    /// Why and when the workflow ended, if it did. Nothing happened afterwards.
    pub ended: Option<(Overload, Duration)>,
    /// Longest time events were ready with no worker there, though the workflow left room for one.
    pub reaction_max: Duration,
    pub wait_p99: Duration,
    /// Share of the time of the load in which there was a worker.
    pub busy_share: f64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival,
    HandlingEnds {
        took: Duration,
    },
    /// Other steps of the workflow would have so many workers.
    Others {
        wanted: u32,
    },
    Look,
}

pub struct World {
    random: Random,
    policy: Box<dyn Policy>,
    load: Load,
    now: Duration,
    agenda: BinaryHeap<Reverse<(Duration, u64, Happening)>>,
    next_number: u64,
    /// When each event arrived: by the true time, and by the wall clock.
    ready: VecDeque<(Duration, i64)>,
    workers: u32,
    busy: u32,
    ended: u64,
    /// Workers of other steps of the workflow.
    others: u32,
    to_stop: u32,
    last_lease: Duration,
    service_time: Mean,
    rate: Rate,
    waits: Vec<Duration>,
    look_at: Option<Duration>,
    alone_since: Option<Duration>,
    manned: Duration,
    report: Report,
}

impl Load {
    /// Events at random moments, so many a second on average.
    pub fn steady(seed: u64, per_second: f64, length: Duration, service: Duration) -> Self {
        let mut random = Random(seed ^ 0xa5a5);
        let mut at = Duration::ZERO;
        let mut arrivals = Vec::new();
        while at < length {
            arrivals.push(at);
            at += Duration::from_secs_f64(-random.share().max(1e-9).ln() / per_second);
        }
        Self { arrivals, service, hang_share: 0.0, jumps: Vec::new(), workflow_max: None }
    }

    /// Five bursts of up to `size` events, with pauses of up to 20 seconds.
    pub fn bursts(seed: u64, size: u64, service: Duration) -> Self {
        let mut random = Random(seed ^ 0x5a5a);
        let mut at = Duration::ZERO;
        let mut arrivals = Vec::new();
        for _ in 0..5 {
            let events = 1 + random.below(size);
            arrivals.extend((0..events).map(|place| at + Duration::from_micros(place * random.below(100))));
            at += Duration::from_millis(random.below(20_000));
        }
        arrivals.sort();
        Self { arrivals, service, hang_share: 0.0, jumps: Vec::new(), workflow_max: None }
    }
}

impl World {
    pub fn new(seed: u64, policy: Box<dyn Policy>, load: Load) -> Self {
        let mut world = Self {
            random: Random(seed),
            policy,
            now: Duration::ZERO,
            agenda: BinaryHeap::new(),
            next_number: 0,
            ready: VecDeque::new(),
            workers: 0,
            busy: 0,
            ended: 0,
            others: 0,
            to_stop: 0,
            last_lease: Duration::ZERO,
            service_time: Mean::default(),
            rate: Rate::default(),
            waits: Vec::new(),
            look_at: None,
            alone_since: None,
            manned: Duration::ZERO,
            report: Report { arrived: load.arrivals.len(), ..Report::default() },
            load,
        };
        for at in world.load.arrivals.clone() {
            world.plan(at, Happening::Arrival);
        }
        if let Some(maximum) = world.load.workflow_max {
            let last = world.load.arrivals.last().copied().unwrap_or_default();
            let mut at = Duration::ZERO;
            while at < last {
                let wanted = world.random.below(u64::from(maximum) + 1) as u32;
                world.plan(at, Happening::Others { wanted });
                at += Duration::from_millis(1 + world.random.below(500));
            }
            world.plan(last, Happening::Others { wanted: 0 });
        }
        world
    }

    pub fn run(mut self) -> Report {
        while let Some((at, happening)) = self.next() {
            assert!(at < END, "it never ends: {:?}", self.report);
            if self.workers > 0 {
                self.manned += at - self.now;
            }
            self.now = at;
            match happening {
                Happening::Arrival => {
                    let wall = self.wall_ms();
                    self.ready.push_back((at, wall));
                }
                Happening::HandlingEnds { took } => {
                    self.service_time.add(took);
                    self.busy -= 1;
                    self.report.handled += 1;
                    if self.to_stop > 0 {
                        self.to_stop -= 1;
                        self.end();
                    } else {
                        self.work();
                    }
                }
                Happening::Others { wanted } => self.others = wanted.min(self.room().unwrap_or(0) + self.others),
                Happening::Look => {}
            }
            self.ask();
            self.note();
            if self.report.ended.is_some() {
                break;
            }
        }
        self.waits.sort();
        let place = self.waits.len() * 99 / 100;
        let length = self.load.arrivals.last().copied().unwrap_or_default().max(Duration::from_secs(1));
        Report {
            wait_p99: self.waits.get(place).copied().unwrap_or_default(),
            workers_at_the_end: self.workers,
            busy_share: self.manned.as_secs_f64() / length.as_secs_f64(),
            ..self.report
        }
    }

    fn next(&mut self) -> Option<(Duration, Happening)> {
        let planned = self.agenda.peek().map(|Reverse((at, ..))| *at);
        if let Some(look_at) = self.look_at.filter(|look_at| planned.is_none_or(|at| *look_at < at)) {
            return Some((look_at, Happening::Look));
        }
        self.agenda.pop().map(|Reverse((at, _, happening))| (at, happening))
    }

    fn ask(&mut self) {
        let pushed = self.report.handled + self.busy as usize + self.ready.len();
        self.rate.note(self.now, pushed as u64);
        let wall = self.wall_ms();
        let age_ms = self.ready.front().map_or(0, |(_, at)| wall - at);
        let seen = Observation {
            ready: self.ready.len() as u64,
            oldest_age: Duration::from_millis(u64::try_from(age_ms).unwrap_or(0)),
            last_lease: self.last_lease,
            workers: self.workers,
            busy: self.busy,
            ended: self.ended,
            workflow_room: self.room(),
            refused: 0,
            service_time: self.service_time.get(),
            arrival_rate: self.rate.per_second(),
        };
        let Decision { start, stop, ends_workflow, look_after } = self.policy.decide(self.now, &seen);
        self.report.ended = ends_workflow.map(|overload| (overload, self.now));
        assert!(self.room().is_none_or(|room| start <= room), "more than the workflow has room for");
        self.report.stopped += stop;
        self.to_stop += stop;
        self.workers += start;
        for _ in 0..start {
            self.work();
        }
        // One timer, set anew by every decision.
        self.look_at = look_after.map(|after| self.now + after);
    }

    /// A worker that is free takes the next event, or ends.
    fn work(&mut self) {
        let Some((arrived, _)) = self.ready.pop_front() else {
            self.end();
            return;
        };
        self.waits.push(self.now - arrived);
        self.last_lease = self.now;
        self.busy += 1;
        let took = match self.random.share() < self.load.hang_share {
            true => HANG,
            false => self.load.service.mul_f64(0.5 + self.random.share()),
        };
        self.plan(self.now + took, Happening::HandlingEnds { took });
    }

    fn end(&mut self) {
        self.workers -= 1;
        self.ended += 1;
    }

    /// What the workflow's maximum leaves.
    fn room(&self) -> Option<u32> {
        self.load.workflow_max.map(|maximum| maximum - self.others - self.workers)
    }

    fn note(&mut self) {
        self.report.workers_max = self.report.workers_max.max(self.workers);
        match (self.ready.is_empty(), self.workers) {
            (false, 0) if self.room() != Some(0) => _ = self.alone_since.get_or_insert(self.now),
            _ => {
                if let Some(since) = self.alone_since.take() {
                    self.report.reaction_max = self.report.reaction_max.max(self.now - since);
                }
            }
        }
    }

    fn plan(&mut self, at: Duration, happening: Happening) {
        self.next_number += 1;
        self.agenda.push(Reverse((at, self.next_number, happening)));
    }

    fn wall_ms(&self) -> i64 {
        let jumped: i64 = self.load.jumps.iter().filter(|jump| jump.at <= self.now).map(|jump| jump.by_ms).sum();
        1_800_000_000_000 + self.now.as_millis() as i64 + jumped
    }
}
