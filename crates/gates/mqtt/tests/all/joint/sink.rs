//! A webhook at the end: it tells the world, which forgets nothing, and acks in a commit of its own.

use super::OUT;
use super::hands::Hands;
use super::poster::is_durable;
use crate::client::message_of;
use random::Random;
use state::{Clock, CommitError, State};
use std::collections::{BTreeMap, BTreeSet};

/// How long a delivery may take; its lease lasts as long.
const LEASE_MS: u64 = 2_000;

/// What receivers were told: of each message, the ids of the events that told of it.
#[derive(Default)]
pub struct Sink {
    pub told: BTreeMap<u64, BTreeSet<String>>,
}

impl Sink {
    /// Takes one event. `is_calm`: the node does not forget to ack.
    pub fn step(&mut self, state: &State, hands: &Hands, random: &mut Random, is_calm: bool) {
        let (queue, now_ms) = (state.queue(OUT).expect("there can be one"), hands.wall_ms());
        queue.do_due(now_ms).expect("the state works");
        let Some(leased) = queue.lease(now_ms, now_ms + LEASE_MS, 1).expect("the state works").pop() else { return };
        if !is_durable(state, leased.ticket) {
            return queue.release(leased.lease);
        }
        let message = message_of(&leased.event.data);
        self.told.entry(message).or_default().insert(leased.event.id.clone());
        if !is_calm && random.below(8) == 0 {
            return;
        }
        let mut transaction = state.begin();
        transaction.ack(&leased);
        match transaction.commit() {
            Ok(_) | Err(CommitError::LeaseLost) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
