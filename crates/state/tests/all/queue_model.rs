//! Random operations on two queues and a bucket do exactly what a plain model does: order, tries, keys, bounds, deaths,
//! remembered ids, conflicts and lost leases, through reopening and tables being written all the time.
//!
//! A failure names its seed; `QUEUE_SEEDS=100..200` runs others.

use crate::common;
use crate::plain_queue::{Is, Model, Waiting};
use event::Event;
use random::Random;
use state::{
    CommitError, Failed, Leased, Options, Part, Position, Push, Pushed, Queue, QueueConfig, State, StoreError, Ticket,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const STEPS: u64 = 600;
const NAMES: [&str; 2] = ["q", "q.two"];
const START: u64 = 1_700_000_000_000;

enum Change {
    Push(usize, Waiting, Option<u64>, Option<u64>),
    Ack(usize, Leased),
    Fail(usize, Leased, Failed),
}

struct Run {
    seed: u64,
    rng: Random,
    now: u64,
    state: Option<State>,
    folder: tempfile::TempDir,
    configs: [QueueConfig; 2],
    models: [Model; 2],
    leased: Vec<(usize, Leased)>,
    bucket: BTreeMap<String, Vec<u8>>,
    step: u64,
    pushed: u64,
}

#[test]
fn queues_do_what_a_plain_model_does() {
    let seeds = std::env::var("QUEUE_SEEDS").ok().and_then(|range| {
        let (from, to) = range.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    for seed in seeds.unwrap_or(0..12) {
        Run::new(seed).run();
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Random(seed);
        let folder = tempfile::tempdir().unwrap();
        let configs = [0, 1].map(|_| QueueConfig {
            events_max: [5, 40, 100_000][rng.below(3) as usize],
            ttl: (rng.below(2) == 0).then_some(Duration::from_millis(4_000)),
            deduplicate: (rng.below(3) == 0).then_some(Duration::from_millis(3_000)),
            order_by_key: rng.below(2) == 0,
            dead_letters_max: [0, 3, 1_000][rng.below(3) as usize],
            ..QueueConfig::default()
        });
        let mut run = Self {
            seed,
            rng,
            now: START,
            state: None,
            folder,
            configs,
            models: Default::default(),
            leased: Vec::new(),
            bucket: BTreeMap::new(),
            step: 0,
            pushed: 0,
        };
        run.open();
        run
    }

    fn open(&mut self) {
        // Small enough for tables to be written and merged all the time.
        let options = Options { queue_memtable_bytes: 16 << 10, memtable_bytes: 16 << 10, ..Options::default() };
        let state = State::open(self.folder.path(), options).unwrap();
        for (name, config) in NAMES.iter().zip(&self.configs) {
            state.queue(name).unwrap().configure(config.clone());
        }
        // Nobody pulls the plug here: half of the runs need not wait for the disk.
        state.set_sync_every((self.seed % 2 == 1).then_some(Duration::from_millis(20)));
        self.state = Some(state);
    }

    fn state(&self) -> &State {
        self.state.as_ref().unwrap()
    }

    fn queue(&self, at: usize) -> Queue {
        self.state().queue(NAMES[at]).unwrap()
    }

    fn at(&self) -> String {
        format!("seed {}, step {}", self.seed, self.step)
    }

    fn run(&mut self) {
        while self.step < STEPS {
            self.step += 1;
            self.now += [0, 0, 1, 10, 300][self.rng.below(5) as usize];
            let at = self.rng.below(2) as usize;
            match self.rng.below(20) {
                0..=9 => self.transaction(),
                10..=12 => self.lease(at),
                13..=14 => self.do_due(at),
                15 => self.release(),
                16 if self.rng.below(4) == 0 => self.reopen(),
                17 if self.rng.below(6) == 0 => self.purge(at),
                18 => self.replay(at),
                _ => self.look(at),
            }
            self.check_counts();
        }
        self.drain();
    }

    fn lease(&mut self, at: usize) {
        let count = 1 + self.rng.below(4) as usize;
        let until = self.now + [50, 2_000][self.rng.below(2) as usize];
        let leased = self.queue(at).lease(self.now, until, count).unwrap();
        let wanted = self.models[at].lease(&self.configs[at], self.now, count);
        assert_eq!(leased.iter().map(|leased| leased.sequence).collect::<Vec<_>>(), wanted, "{}", self.at());
        for leased in leased {
            self.note_lease(at, leased, until);
        }
    }

    fn note_lease(&mut self, at: usize, leased: Leased, until: u64) {
        let where_at = self.at();
        let event = self.models[at].ready.get_mut(&leased.sequence).unwrap();
        event.state = Is::Leased { lease: leased.lease.0, until };
        assert_eq!(leased.event.id, event.id, "{where_at}");
        assert_eq!(leased.event.subject, event.key, "{where_at}");
        assert_eq!(leased.event.attempt, event.attempts + event.lease_ends + 1, "{where_at}");
        assert_eq!(leased.event.data, event.id.repeat(20).into_bytes(), "{where_at}");
        self.leased.push((at, leased));
    }

    fn do_due(&mut self, at: usize) {
        let next = self.queue(at).do_due(self.now).unwrap();
        assert!(next.is_none_or(|next| next > self.now), "{}: a clock that follows it would never rest", self.at());
        self.models[at].do_due(&self.configs[at], self.now);
    }

    fn release(&mut self) {
        if self.leased.is_empty() {
            return;
        }
        let (at, leased) = self.leased.swap_remove(self.rng.below(self.leased.len() as u64) as usize);
        self.queue(at).release(leased.lease);
        if self.models[at].holds(&leased) {
            self.models[at].ready.get_mut(&leased.sequence).unwrap().state = Is::Ready;
        }
    }

    fn reopen(&mut self) {
        self.state = None;
        self.open();
        self.models.iter_mut().for_each(Model::restart);
        if self.rng.below(2) == 0 {
            self.leased.clear();
        }
    }

    fn purge(&mut self, at: usize) {
        let parts: Vec<Part> =
            [Part::Ready, Part::Delayed, Part::Dead].into_iter().filter(|_| self.rng.below(2) == 0).collect();
        let purged = common::wait(self.queue(at).purge(&parts)).unwrap();
        let model = &mut self.models[at];
        let before = model.ready.len() + model.delayed.len() + model.dead.len();
        for part in parts {
            match part {
                Part::Ready => model.ready.retain(|_, event| matches!(event.state, Is::Leased { .. })),
                Part::Delayed => model.delayed.clear(),
                Part::Dead => model.dead.clear(),
            }
        }
        let after = model.ready.len() + model.delayed.len() + model.dead.len();
        assert_eq!(purged, (before - after) as u64, "{}", self.at());
    }

    fn replay(&mut self, at: usize) {
        let named: Vec<u64> = self.models[at].dead.keys().copied().filter(|_| self.rng.below(2) == 0).collect();
        let result = common::wait(self.queue(at).replay(Some(&named), self.now));
        let (model, config) = (&mut self.models[at], &self.configs[at]);
        if named.len() + model.ready.len() + model.delayed.len() > config.events_max as usize && !named.is_empty() {
            assert_eq!(result.unwrap_err().code, problem::Code::QueueFull);
            return;
        }
        assert_eq!(result.unwrap(), named.len() as u64);
        for sequence in named {
            let (event, _) = model.dead.remove(&sequence).unwrap();
            let expires = config.ttl.map_or(u64::MAX, |ttl| self.now + ttl.as_millis() as u64);
            model.push(Waiting { attempts: 0, lease_ends: 0, state: Is::Ready, expires, ..event }, None);
        }
    }

    /// Several changes at once, with a write to the bucket, which happen all or not at all.
    fn transaction(&mut self) {
        let mut transaction = self.state().begin();
        let (mut changes, mut acks) = (Vec::new(), BTreeSet::new());
        let mut own_ids = BTreeSet::new();
        let mut effects = Vec::new();
        let disturbed = self.rng.below(8) == 0;
        if disturbed {
            transaction.get("b", "disturbed").unwrap();
        }
        for _ in 0..1 + self.rng.below(4) {
            let at = self.rng.below(2) as usize;
            match self.rng.below(7) {
                0..=3 => {
                    let id = if self.rng.below(3) == 0 { self.rng.below(20) } else { 1_000 + self.pushed }.to_string();
                    self.pushed += 1;
                    let key = [None, Some("a"), Some("b")][self.rng.below(3) as usize].map(str::to_owned);
                    let delay = if self.rng.below(4) == 0 { self.rng.below(2_000) } else { 0 };
                    let ttl = (self.rng.below(8) == 0).then(|| Duration::from_millis(100 + self.rng.below(1_000)));
                    let event = Event {
                        id: id.clone(),
                        source: "/m".into(),
                        subject: key.clone(),
                        data: id.repeat(20).into_bytes(),
                        ..Event::default()
                    };
                    let push = Push { event, delay: Duration::from_millis(delay), ttl };
                    let (model, config) = (&self.models[at], &self.configs[at]);
                    let result = transaction.push(NAMES[at], &push, self.now);
                    let remembered = config.deduplicate.map(|span| self.now + span.as_millis() as u64);
                    let known = model.ids.get(&id).is_some_and(|until| *until > self.now)
                        || own_ids.contains(&(at, id.clone()));
                    if remembered.is_some() && known {
                        assert_eq!(result, Ok(Pushed::Duplicate), "{}", self.at());
                        continue;
                    }
                    let is_full = model.ready.len() + model.delayed.len() >= config.events_max as usize;
                    if is_full && acks.is_empty() {
                        assert!(matches!(result, Err(StoreError::QueueFull(_))), "{}", self.at());
                        continue;
                    }
                    assert_eq!(result, Ok(Pushed::Accepted), "{}", self.at());
                    own_ids.insert((at, id.clone()));
                    let expires = [ttl, config.ttl].into_iter().flatten().min();
                    let expires = expires.map_or(u64::MAX, |ttl| self.now + ttl.as_millis() as u64);
                    let event = Waiting { id, key, attempts: 0, lease_ends: 0, expires, state: Is::Ready };
                    changes.push(Change::Push(at, event, (delay > 0).then_some(self.now + delay), remembered));
                }
                4 if !self.leased.is_empty() => {
                    let (at, leased) = self.leased[self.rng.below(self.leased.len() as u64) as usize].clone();
                    if acks.insert(leased.lease.0) {
                        transaction.ack(&leased);
                        effects.push((format!("{}/{}", NAMES[at], leased.event.id), b"acked".to_vec()));
                        changes.push(Change::Ack(at, leased));
                    }
                }
                5 if !self.leased.is_empty() => {
                    let (at, leased) = self.leased[self.rng.below(self.leased.len() as u64) as usize].clone();
                    if acks.insert(leased.lease.0) {
                        let reason = "r".to_owned();
                        let failed = match self.rng.below(3) {
                            0 => Failed::Dead { reason },
                            _ => Failed::Retry { at_ms: self.now + self.rng.below(1_000), reason },
                        };
                        transaction.fail(&leased, failed.clone());
                        changes.push(Change::Fail(at, leased, failed));
                    }
                }
                6 => {
                    let wanted = self.models[at].lease(&self.configs[at], self.now, 1);
                    let popped = transaction.pop(NAMES[at], self.now, self.now + 5_000).unwrap();
                    assert_eq!(popped.is_some(), !wanted.is_empty(), "{}", self.at());
                    if let (Some(event), Some(sequence)) = (popped, wanted.first()) {
                        assert_eq!(event.id, self.models[at].ready[sequence].id, "{}", self.at());
                        let held = self.models[at].ready.get_mut(sequence).unwrap();
                        held.state = Is::Leased { lease: u64::MAX, until: self.now + 5_000 };
                        acks.insert(u64::MAX - *sequence);
                        let lease = state::LeaseId(u64::MAX);
                        let queue = NAMES[at].into();
                        let ticket = Ticket::NOTHING_WRITTEN;
                        let leased = Leased { lease, queue, sequence: *sequence, event, pushed_ms: 0, ticket };
                        changes.push(Change::Ack(at, leased));
                    }
                }
                _ => {}
            }
        }
        for (key, value) in &effects {
            transaction.set("b", key, value.clone()).unwrap();
        }
        if disturbed && self.rng.below(2) == 0 {
            common::set(self.state(), "disturbed", &self.step.to_string());
            self.bucket.insert("disturbed".into(), self.step.to_string().into_bytes());
        }
        self.finish(transaction, changes, effects, disturbed);
    }

    fn finish(
        &mut self,
        transaction: state::Transaction,
        changes: Vec<Change>,
        effects: Vec<(String, Vec<u8>)>,
        disturbed: bool,
    ) {
        let commits = self.rng.below(5) > 0;
        let writes = transaction.write_count() > 0;
        let result = if commits { Some(transaction.commit()) } else { None };
        let lost = changes.iter().any(|change| match change {
            Change::Ack(at, leased) | Change::Fail(at, leased, _) => !self.models[*at].holds(leased),
            Change::Push(..) => false,
        });
        let full = (0..2).any(|at| {
            let pushes = changes.iter().filter(|change| matches!(change, Change::Push(of, ..) if *of == at)).count();
            let leave = |change: &&Change| match change {
                Change::Ack(of, _) => *of == at,
                Change::Fail(of, _, failed) => *of == at && matches!(failed, Failed::Dead { .. }),
                Change::Push(..) => false,
            };
            let leaving = changes.iter().filter(leave).count();
            let held = self.models[at].ready.len() + self.models[at].delayed.len();
            pushes > 0 && held + pushes - leaving.min(held) > self.configs[at].events_max as usize
        });
        let conflicts = disturbed && self.bucket.get("disturbed") == Some(&self.step.to_string().into_bytes());
        let happened = match result {
            None => false,
            Some(Ok(ticket)) => {
                assert!(!writes || !(conflicts || lost || full), "{}: {conflicts} {lost} {full}", self.at());
                common::durable(self.state(), ticket).unwrap();
                true
            }
            Some(Err(CommitError::Conflict)) => {
                assert!(conflicts, "{}", self.at());
                false
            }
            Some(Err(CommitError::LeaseLost)) => {
                assert!(lost && !conflicts, "{}", self.at());
                false
            }
            Some(Err(CommitError::QueueFull(_))) => {
                assert!(full && !lost && !conflicts, "{}", self.at());
                false
            }
            Some(Err(error)) => panic!("{}: {error}", self.at()),
        };
        for change in changes {
            if happened {
                self.perform(change);
            } else if let Change::Ack(at, leased) = change
                && leased.lease.0 == u64::MAX
                && self.models[at].holds(&leased)
            {
                self.models[at].ready.get_mut(&leased.sequence).unwrap().state = Is::Ready;
            }
        }
        if happened {
            self.bucket.extend(effects);
        }
    }

    fn perform(&mut self, change: Change) {
        match change {
            Change::Push(at, event, due, remembered) => {
                if let Some(until) = remembered {
                    self.models[at].ids.insert(event.id.clone(), until);
                }
                self.models[at].push(event, due);
            }
            Change::Ack(at, leased) => drop(self.models[at].ready.remove(&leased.sequence)),
            Change::Fail(at, leased, failed) => {
                let (model, config) = (&mut self.models[at], &self.configs[at]);
                let mut event = model.ready.remove(&leased.sequence).unwrap();
                event.attempts += event.lease_ends + 1;
                (event.lease_ends, event.state) = (0, Is::Ready);
                match failed {
                    Failed::Dead { reason } => model.die(config, event, &reason),
                    Failed::Retry { at_ms, .. } if config.order_by_key => {
                        event.state = Is::Held(at_ms);
                        model.ready.insert(leased.sequence, event);
                    }
                    Failed::Retry { at_ms, .. } => model.push(event, (at_ms > self.now).then_some(at_ms)),
                }
            }
        }
    }

    fn check_counts(&mut self) {
        for (at, model) in self.models.iter().enumerate() {
            let counts = self.queue(at).counts();
            let count = |is: fn(&Is) -> bool| model.ready.values().filter(|event| is(&event.state)).count() as u64;
            let held = count(|is| matches!(is, Is::Held(_)));
            let leased = count(|is| matches!(is, Is::Leased { .. }));
            let ready = model.ready.len() as u64 - held - leased;
            let wanted = (ready + held, leased, model.delayed.len() as u64, model.dead.len() as u64);
            let got = (
                counts.ready + counts.delayed - model.delayed.len() as u64,
                counts.leased,
                model.delayed.len() as u64,
                counts.dead,
            );
            assert_eq!(got, wanted, "{} of {}: {model:?}", self.at(), NAMES[at]);
        }
    }

    fn look(&mut self, at: usize) {
        let limit = 1 + self.rng.below(20) as u32;
        let model = &self.models[at];
        let list = |part| -> Vec<(u64, String, Option<String>)> {
            let (mut all, mut after) = (Vec::new(), None::<Position>);
            loop {
                let page = self.queue(at).list(part, after, limit).unwrap();
                let Some(last) = page.last() else { return all };
                after = Some(last.position.to_string().parse().unwrap());
                all.extend(page.into_iter().map(|listed| (listed.sequence, listed.event.id, listed.reason)));
            }
        };
        let ids = |part| list(part).into_iter().map(|(sequence, id, _)| (sequence, id)).collect::<Vec<_>>();
        let not_leased = model.ready.iter().filter(|(_, event)| !matches!(event.state, Is::Leased { .. }));
        let ready: Vec<_> = not_leased.map(|(sequence, event)| (*sequence, event.id.clone())).collect();
        assert_eq!(ids(Part::Ready), ready, "{}", self.at());
        let delayed: Vec<_> =
            model.delayed.iter().map(|((_, sequence), event)| (*sequence, event.id.clone())).collect();
        assert_eq!(ids(Part::Delayed), delayed, "{}", self.at());
        let dead: Vec<_> =
            model.dead.iter().map(|(at, (event, reason))| (*at, event.id.clone(), Some(reason.clone()))).collect();
        assert_eq!(list(Part::Dead), dead, "{}", self.at());
        for (key, value) in &self.bucket {
            assert_eq!(self.state().begin().get("b", key).unwrap().as_ref(), Some(value), "{}", self.at());
        }
    }

    /// In the end everything can be handled, and nothing is left on disk but what is dead.
    fn drain(&mut self) {
        for at in 0..2 {
            for _ in 0..1_000 {
                self.now += 700;
                self.step += 1;
                self.do_due(at);
                let leased = self.queue(at).lease(self.now, self.now + 10, 16).unwrap();
                let wanted = self.models[at].lease(&self.configs[at], self.now, 16);
                assert_eq!(leased.iter().map(|leased| leased.sequence).collect::<Vec<_>>(), wanted, "{}", self.at());
                let mut transaction = self.state().begin();
                for leased in &leased {
                    transaction.ack(leased);
                    self.models[at].ready.remove(&leased.sequence);
                }
                common::durable(self.state(), transaction.commit().unwrap()).unwrap();
                let model = &self.models[at];
                if model.ready.is_empty() && model.delayed.is_empty() {
                    break;
                }
            }
            let counts = self.queue(at).counts();
            assert_eq!((counts.ready, counts.delayed, counts.leased, counts.bytes), (0, 0, 0, 0), "{}", self.at());
            self.look(at);
        }
    }
}
