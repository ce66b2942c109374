//! The node between broker and state: records of the broker and events of functions commit together, as in the real
//! node.

use super::hands::Hands;
use event::Event;
use gate_mqtt::{Changes, Delivery, Node, Refused};
use problem::Problem;
use state::{Clock, CommitError, Push, State, StoreError, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const FIRST: &str = "first";
const TABLE: &str = "mqtt";

pub struct Intake {
    pub state: State,
    pub hands: Arc<Hands>,
    /// Tells the lives of the node apart, in the ids of events.
    pub life: u64,
    pub next: AtomicU64,
}

impl Intake {
    fn event(&self, delivery: &Delivery) -> Event {
        let properties = delivery.message.properties();
        let named = properties.user.iter().find(|(name, _)| *name == "id").map(|(_, id)| (*id).to_owned());
        Event {
            id: named.unwrap_or_else(|| format!("{}.{}", self.life, self.next.fetch_add(1, Ordering::Relaxed))),
            source: format!("mqtt://{}", delivery.client),
            kind: "mqtt.publish".into(),
            data: delivery.message.payload().to_vec(),
            ..Event::default()
        }
    }

    fn apply(&self, changes: &Changes, transaction: &mut Transaction) -> Result<(), CommitError> {
        for (key, value) in &changes.records {
            transaction.record(TABLE, key, value.clone()).expect("records are small");
        }
        for delivery in &changes.events {
            let push = Push { event: self.event(delivery), delay: Duration::ZERO, ttl: None };
            match transaction.push(FIRST, &push, self.hands.wall_ms()) {
                Err(StoreError::QueueFull(full)) => return Err(CommitError::QueueFull(full)),
                pushed => drop(pushed.expect("the state works")),
            }
        }
        Ok(())
    }
}

impl Node for Intake {
    fn wants(&self, topic: &str) -> bool {
        topic.starts_with("wanted/")
    }

    fn commit(&self, changes: &Changes) -> Result<u64, Refused> {
        match self.state.transact(|transaction| self.apply(changes, transaction)) {
            Ok(((), ticket)) => Ok(ticket.number()),
            Err(full @ (CommitError::Conflict | CommitError::QueueFull(_))) => Err(Refused::QueueFull(full.into())),
            Err(other) => Err(Refused::Unavailable(other.into())),
        }
    }

    async fn durable(&self, number: u64) -> Result<u64, Problem> {
        self.state.durable_number(number).await
    }

    fn restore(&self, take: &mut dyn FnMut(&str, &[u8])) -> Result<(), Problem> {
        let mut after = None::<String>;
        loop {
            let page = self.state.records(TABLE).list("", after.as_deref(), 100)?;
            page.entries.iter().for_each(|entry| take(&entry.key, &entry.value));
            let Some(next) = page.next else { return Ok(()) };
            after = Some(next);
        }
    }
}
