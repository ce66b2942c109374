//! Messages on their way out: letters that are written with the commit that takes the messages.

use super::letter::{Head, of_message};
use super::wanted::Taker;
use crate::clock;
use crate::mail::household;
use ::mail::Household;
use fleet_trust::NodeId;
use gate_mqtt::Delivery;
use gate_mqtt::broker::Message;
use std::collections::BTreeSet;

/// Letters that one transaction takes beside nothing else.
pub const AT_ONCE_MAX: usize = 500;

/// A letter with what was retained before its receiver wanted it. None: it is too large.
pub fn retained(message: &Message, to: &NodeId, id: &str) -> Option<(Household, Vec<u8>)> {
    let view = message.view();
    let head = Head { retain: true, is_old: true, ..Head::new(&view, clock::now_ms()) };
    Some((household(to), of_message(id, &head, view.lasting, view.payload).ok()?))
}

/// The letters of one commit.
#[derive(Default)]
pub struct Leaving {
    letters: Vec<(Household, Vec<u8>)>,
    /// Nodes at which triggers are to hear one of them.
    triggers: BTreeSet<Household>,
}

impl Leaving {
    /// Whether the message fits into a letter. If not, it stays here.
    pub fn add(&mut self, delivery: &Delivery, taker: &Taker, id: &str) -> bool {
        let view = delivery.message.view();
        let head = Head {
            retain: delivery.retain,
            client: delivery.client.to_string(),
            user: delivery.user.as_deref().map(str::to_owned),
            queues: taker.queues.iter().map(|queue| queue.to_string()).collect(),
            ..Head::new(&view, clock::now_ms())
        };
        let Ok(letter) = of_message(id, &head, view.lasting, view.payload) else { return false };
        let to = household(&taker.node);
        if !taker.queues.is_empty() {
            self.triggers.insert(to.clone());
        }
        self.letters.push((to, letter));
        true
    }

    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    pub fn letters(&self) -> &[(Household, Vec<u8>)] {
        &self.letters
    }

    pub fn has_triggers(&self, to: &Household) -> bool {
        self.triggers.contains(to)
    }

    /// Takes out what is for one node: how many.
    pub fn leave_out(&mut self, to: &Household) -> u64 {
        let before = self.letters.len();
        self.letters.retain(|(other, _)| other != to);
        (before - self.letters.len()) as u64
    }
}
