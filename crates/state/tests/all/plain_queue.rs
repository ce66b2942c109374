//! A queue as plain lists: what the real ones are compared with.

use state::{Leased, QueueConfig};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub id: String,
    pub key: Option<String>,
    pub attempts: u32,
    pub lease_ends: u32,
    pub expires: u64,
    pub state: Is,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Is {
    Ready,
    Held(u64),
    Leased { lease: u64, until: u64 },
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub tail: u64,
    pub ready: BTreeMap<u64, Waiting>,
    pub delayed: BTreeMap<(u64, u64), Waiting>,
    pub dead: BTreeMap<u64, (Waiting, String)>,
    pub ids: HashMap<String, u64>,
}

impl Model {
    pub fn next(&mut self) -> u64 {
        self.tail += 1;
        self.tail - 1
    }

    pub fn pass(&mut self, now: u64) {
        for event in self.ready.values_mut() {
            match event.state {
                Is::Leased { until, .. } if until <= now => {
                    event.lease_ends += 1;
                    event.state = Is::Ready;
                }
                Is::Held(until) if until <= now => event.state = Is::Ready,
                _ => {}
            }
        }
    }

    pub fn busy(&self, config: &QueueConfig) -> BTreeSet<String> {
        let in_hand = self.ready.values().filter(|event| config.order_by_key && event.state != Is::Ready);
        in_hand.filter_map(|event| event.key.clone()).collect()
    }

    pub fn die(&mut self, config: &QueueConfig, event: Waiting, reason: &str) {
        if config.dead_letters_max == 0 {
            return;
        }
        let sequence = self.next();
        self.dead.insert(sequence, (event, reason.to_owned()));
        while self.dead.len() as u64 > config.dead_letters_max {
            self.dead.pop_first();
        }
    }

    /// What a lease gives: sequences.
    pub fn lease(&mut self, config: &QueueConfig, now: u64, count: usize) -> Vec<u64> {
        self.pass(now);
        let mut taken = Vec::new();
        loop {
            let (mut busy, mut over) = (self.busy(config), Vec::new());
            for (sequence, event) in &mut self.ready {
                let is_busy = event.key.as_ref().is_some_and(|key| busy.contains(key));
                if taken.len() == count {
                    break;
                }
                if event.state != Is::Ready || is_busy {
                    continue;
                }
                if config.order_by_key {
                    busy.extend(event.key.clone());
                }
                if event.expires <= now {
                    over.push(*sequence);
                } else {
                    event.state = Is::Leased { lease: 0, until: u64::MAX };
                    taken.push(*sequence);
                }
            }
            let more = !over.is_empty() && taken.len() < count;
            for sequence in over {
                let event = self.ready.remove(&sequence).unwrap();
                self.die(config, event, "expired");
            }
            if !more {
                return taken;
            }
        }
    }

    pub fn do_due(&mut self, config: &QueueConfig, now: u64) {
        while let Some(entry) = self.delayed.first_entry().filter(|entry| entry.key().0 <= now) {
            let event = entry.remove();
            let sequence = self.next();
            self.ready.insert(sequence, event);
        }
        self.pass(now);
        let over: Vec<u64> = self
            .ready
            .iter()
            .filter(|(_, event)| event.state == Is::Ready && event.expires <= now)
            .map(|(at, _)| *at)
            .collect();
        for sequence in over {
            let event = self.ready.remove(&sequence).unwrap();
            self.die(config, event, "expired");
        }
    }

    pub fn push(&mut self, event: Waiting, due: Option<u64>) {
        let sequence = self.next();
        match due {
            Some(due) => drop(self.delayed.insert((due, sequence), event)),
            None => drop(self.ready.insert(sequence, event)),
        }
    }

    pub fn holds(&self, leased: &Leased) -> bool {
        let held = self.ready.get(&leased.sequence).map(|event| event.state);
        matches!(held, Some(Is::Leased { lease, .. }) if lease == leased.lease.0)
    }

    pub fn restart(&mut self) {
        for event in self.ready.values_mut() {
            event.lease_ends = 0;
            if let Is::Leased { .. } = event.state {
                event.state = Is::Ready;
            }
        }
    }
}
