//! The node as the MQTT gate sees it: its records and the events of functions commit together.

use super::event::{Origin, to_event};
use crate::node::events::{Events, set_trace, sources_of};
use crate::node::functions::Table;
use crate::node::{clock, records};
use gate_mqtt::broker::Filters;
use gate_mqtt::{Changes, Delivery, Node, Refused};
use parking_lot::RwLock;
use problem::{Code, Problem};
use state::{CommitError, Push, StoreError, Ticket};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

/// Table of the node's records that holds what the gate keeps.
const TABLE: &str = "mqtt";

/// Tries of a commit that others disturb, by pushing events of the same id.
const TRIES: u32 = 5;

/// What the gate asks of the node.
pub struct GateNode {
    events: Arc<Events>,
    wanted: RwLock<Arc<Wanted>>,
    ids: Ids,
}

/// Which queue wants which topics.
#[derive(Default)]
struct Wanted {
    /// What was deployed when this was made. It keeps nothing of it alive.
    table: Weak<Table>,
    filters: Filters,
    queues: Vec<Arc<str>>,
}

impl Wanted {
    fn of(table: &Arc<Table>) -> Self {
        let sources = sources_of(table);
        let mut queues: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        let mut filters = Vec::new();
        for source in &sources.mqtt {
            let next = queues.len() as u32;
            let number = *queues.entry(source.queue.clone()).or_insert(next);
            filters.push((source.trigger.topic.as_str(), number));
        }
        let mut names = vec![Arc::<str>::from(""); queues.len()];
        queues.into_iter().for_each(|(name, number)| names[number as usize] = name);
        Self { table: Arc::downgrade(table), filters: Filters::new(filters.into_iter()), queues: names }
    }
}

/// Ids of events: the time the node started, a random number, and a count.
struct Ids {
    run: u64,
    next: AtomicU64,
}

impl GateNode {
    pub fn new(events: Arc<Events>, seed: u64) -> Arc<Self> {
        Arc::new(Self { wanted: RwLock::default(), ids: Ids { run: seed, next: AtomicU64::new(0) }, events })
    }

    /// As of this moment: what was deployed before a message came gets it, for the message is confirmed.
    fn wanted(&self) -> Arc<Wanted> {
        let table = self.events.table();
        let known = self.wanted.read().clone();
        if Weak::as_ptr(&known.table) == Arc::as_ptr(&table) {
            return known;
        }
        let now = Arc::new(Wanted::of(&table));
        *self.wanted.write() = now.clone();
        now
    }

    fn try_commit(&self, changes: &Changes, wanted: &Wanted) -> Result<Ticket, Failed> {
        let now_ms = clock::unix_ms(SystemTime::now());
        let mut transaction = self.events.state().begin();
        for (key, value) in &changes.records {
            transaction.record(TABLE, key, value.clone()).map_err(Failed::of_store)?;
        }
        for delivery in &changes.events {
            self.push(&mut transaction, delivery, wanted, now_ms)?;
        }
        transaction.commit().map_err(|error| match error {
            CommitError::Conflict => Failed::Again,
            CommitError::QueueFull(_) => Failed::Refused(Refused::QueueFull(error.into())),
            other => Failed::Refused(Refused::Unavailable(other.into())),
        })
    }

    fn push(
        &self,
        transaction: &mut state::Transaction,
        delivery: &Delivery,
        wanted: &Wanted,
        now_ms: u64,
    ) -> Result<(), Failed> {
        let numbers = wanted.filters.matches(delivery.message.topic());
        if numbers.is_empty() {
            return Ok(());
        }
        let id = format!("{:016x}{:08x}", self.ids.run, self.ids.next.fetch_add(1, Ordering::Relaxed));
        let event = to_event(delivery, Origin { id: &id, time_ms: now_ms });
        for number in numbers {
            let queue = &wanted.queues[number as usize];
            let mut event = event.clone();
            self.events.check(queue, &event).map_err(|problem| Failed::Refused(Refused::QueueFull(problem)))?;
            if let Some(trace) = self.events.trace_push(queue, &event, None) {
                set_trace(&mut event, &trace);
            }
            let push = Push { event, delay: Duration::ZERO, ttl: None };
            transaction.push(queue, push, now_ms).map_err(Failed::of_store)?;
        }
        Ok(())
    }
}

enum Failed {
    /// Another commit came between.
    Again,
    Refused(Refused),
}

impl Failed {
    fn of_store(error: StoreError) -> Self {
        let is_full = matches!(error, StoreError::QueueFull(_));
        let problem = Problem::from(error);
        Self::Refused(if is_full { Refused::QueueFull(problem) } else { Refused::Unavailable(problem) })
    }
}

impl Node for GateNode {
    fn wants(&self, topic: &str) -> bool {
        let wanted = self.wanted();
        !wanted.queues.is_empty() && !wanted.filters.matches(topic).is_empty()
    }

    fn commit(&self, changes: &Changes) -> Result<u64, Refused> {
        let wanted = self.wanted();
        for _ in 0..TRIES {
            match self.try_commit(changes, &wanted) {
                Ok(ticket) => return Ok(ticket.number()),
                Err(Failed::Refused(refused)) => return Err(refused),
                Err(Failed::Again) => {}
            }
        }
        let problem = Problem::new(Code::Conflict, "events of the same id are pushed all the time");
        Err(Refused::QueueFull(problem))
    }

    async fn durable(&self, number: u64) -> Result<u64, Problem> {
        self.events.state().durable_number(number).await
    }

    fn restore(&self, take: &mut dyn FnMut(&str, &[u8])) -> Result<(), Problem> {
        records::each(&self.events.state().records(TABLE), |key, value| {
            take(key, value);
            Ok(())
        })
    }
}
