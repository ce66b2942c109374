//! Thousands of random steps on one line, compared with the plainest model of it. A failure names its seed.

use dispatch::{Arrival, Limits, Rate, Refusal, Ticket, WaitingLine};
use random::Random;
use std::time::Duration;

const SEEDS: u64 = 200;
const STEPS: usize = 500;

#[test]
fn a_line_does_what_its_model_does() {
    let mut seen = [false; 5];
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for step in 0..STEPS {
            world.step(&mut seen);
            world.check(&format!("seed {seed}, step {step}"));
        }
        world.finish(seed);
    }
    assert_eq!(seen, [true; 5], "the test is blind");
}

struct World {
    random: Random,
    now: Duration,
    line: WaitingLine<u64>,
    model: Model,
    next_call: u64,
}

/// Plain lists, and how much time is owed for the calls that came.
struct Model {
    limits: Limits,
    running: Vec<u64>,
    waiting: Vec<(Ticket, u64)>,
    owed: u64,
    owed_at: Duration,
    admitted: u64,
    refused: [u64; 3],
    is_draining: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let limits = limits_of(&mut random);
        let model = Model {
            limits,
            running: Vec::new(),
            waiting: Vec::new(),
            owed: 0,
            owed_at: Duration::ZERO,
            admitted: 0,
            refused: [0; 3],
            is_draining: false,
        };
        Self { random, now: Duration::ZERO, line: WaitingLine::new(limits), model, next_call: 0 }
    }

    fn step(&mut self, seen: &mut [bool; 5]) {
        self.now += Duration::from_micros(self.random.below(200_000));
        match self.random.below(200) {
            0..110 => self.arrive(seen),
            110..160 => self.leave(),
            160..180 => self.withdraw(),
            180..199 => self.set_limits(),
            _ if self.random.below(5) == 0 => {
                self.line.drain();
                self.model.is_draining = true;
            }
            _ => {}
        }
    }

    fn arrive(&mut self, seen: &mut [bool; 5]) {
        let call = self.next_call;
        self.next_call += 1;
        let expected = self.model.arrive(self.now);
        let arrival = self.line.arrive(self.now, || call);
        seen[expected as usize] = true;
        match (expected, arrival) {
            (Expected::Runs, Arrival::Runs) => self.model.running.push(call),
            (Expected::Waits, Arrival::Waits(ticket)) => self.model.waiting.push((ticket, call)),
            (Expected::Full, Arrival::Refused(Refusal::LineFull { .. })) => self.model.refused[0] += 1,
            (Expected::TooFast, Arrival::Refused(Refusal::TooFast { retry_after, .. })) => {
                self.model.refused[1] += 1;
                let missing = self.model.owed + self.model.interval() - self.model.window();
                assert_eq!(retry_after, Duration::from_nanos(missing));
            }
            (Expected::Draining, Arrival::Refused(Refusal::Draining)) => self.model.refused[2] += 1,
            (expected, arrival) => panic!("expected {expected:?}, got {arrival:?} at {:?}", self.now),
        }
    }

    fn leave(&mut self) {
        if self.model.running.is_empty() {
            return;
        }
        let index = self.random.below(self.model.running.len() as u64) as usize;
        self.model.running.swap_remove(index);
        let next = self.line.leave();
        assert_eq!(Vec::from_iter(next), self.model.promote());
    }

    fn withdraw(&mut self) {
        if self.model.waiting.is_empty() {
            return;
        }
        let index = self.random.below(self.model.waiting.len() as u64) as usize;
        let (ticket, _) = self.model.waiting.remove(index);
        assert!(self.line.withdraw(ticket));
        assert!(!self.line.withdraw(ticket), "a turn is given back once");
    }

    fn set_limits(&mut self) {
        let limits = limits_of(&mut self.random);
        self.model.set_limits(limits, self.now);
        assert_eq!(self.line.set_limits(limits, self.now), self.model.promote());
    }

    fn check(&self, at: &str) {
        let counts = self.line.counts();
        let (running, waiting) = (self.model.running.len(), self.model.waiting.len());
        assert_eq!((counts.running as usize, counts.waiting as usize), (running, waiting), "{at}");
        assert_eq!(counts.admitted, self.model.admitted, "{at}");
        let refused = [counts.refused_line_full, counts.refused_rate, counts.refused_draining];
        assert_eq!(refused, self.model.refused, "{at}");
        let all_taken = running >= self.model.limits.running_max as usize;
        assert!(waiting == 0 || all_taken, "{at}: someone waits before a free place");
        assert_eq!(self.line.is_empty(), running + waiting == 0, "{at}");
    }

    /// Whoever waits gets a turn once those who run leave.
    fn finish(mut self, seed: u64) {
        while !self.model.running.is_empty() {
            self.leave();
        }
        assert!(self.model.limits.running_max == 0 || self.line.is_empty(), "seed {seed}: someone waits for ever");
    }
}

#[derive(Debug, Clone, Copy)]
enum Expected {
    Runs,
    Waits,
    Full,
    TooFast,
    Draining,
}

impl Model {
    fn arrive(&mut self, now: Duration) -> Expected {
        self.pass_time(now);
        let has_rate = self.limits.rate.is_some();
        let runs = self.running.len() < self.limits.running_max as usize;
        let waits = !self.limits.wait_max.is_zero() && self.waiting.len() < self.limits.waiting_max as usize;
        if self.is_draining {
            return Expected::Draining;
        }
        if has_rate && self.owed + self.interval() > self.window() {
            return Expected::TooFast;
        }
        if !runs && !waits {
            return Expected::Full;
        }
        self.owed += self.interval();
        self.admitted += u64::from(runs);
        if runs { Expected::Runs } else { Expected::Waits }
    }

    fn promote(&mut self) -> Vec<u64> {
        let mut promoted = Vec::new();
        while self.running.len() < self.limits.running_max as usize && !self.waiting.is_empty() {
            let (_, call) = self.waiting.remove(0);
            self.running.push(call);
            self.admitted += 1;
            promoted.push(call);
        }
        promoted
    }

    fn set_limits(&mut self, limits: Limits, now: Duration) {
        self.pass_time(now);
        self.limits = limits;
        if limits.rate.is_some() {
            self.owed = self.owed.min(self.window());
        }
    }

    fn pass_time(&mut self, now: Duration) {
        self.owed = self.owed.saturating_sub((now - self.owed_at).as_nanos() as u64);
        self.owed_at = now;
    }

    fn interval(&self) -> u64 {
        self.limits.rate.map_or(0, |rate| 1_000_000_000 / u64::from(rate.per_second))
    }

    fn window(&self) -> u64 {
        self.interval() * self.limits.rate.map_or(0, |rate| u64::from(rate.burst))
    }
}

fn limits_of(random: &mut Random) -> Limits {
    // Rates that divide a second: the model needs no rounding.
    let per_second = [1, 2, 4, 5, 10][random.below(5) as usize];
    let rate = Rate { per_second, burst: 1 + random.below(5) as u32 };
    Limits {
        running_max: random.below(5) as u32,
        waiting_max: random.below(6) as u32,
        wait_max: Duration::from_millis(random.below(4) * 100),
        rate: (random.below(2) == 0).then_some(rate),
    }
}
