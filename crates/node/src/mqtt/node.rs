//! The node as the MQTT gate sees it: its records and the events of functions commit together.

use super::event::{Origin, to_event};
use crate::audit::{Audit, Door};
use crate::events::{Events, PushError, Pushes, sources_of};
use crate::functions::Table;
use crate::{clock, records};
use gate_mqtt::broker::Filters;
use gate_mqtt::{Changes, Delivery, Node, Refused};
use parking_lot::RwLock;
use problem::Problem;
use state::{CommitError, Push, StoreError};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Table of the node's records that holds what the gate keeps.
const TABLE: &str = "mqtt";

/// What the gate asks of the node.
pub struct GateNode {
    events: Arc<Events>,
    wanted: RwLock<Arc<TopicTable>>,
    audit: Arc<Audit>,
    ids: Ids,
}

/// Which queue wants which topics.
#[derive(Default)]
struct TopicTable {
    /// What was deployed when this was made. It keeps nothing of it alive.
    table: Weak<Table>,
    filters: Filters,
    queues: Vec<Arc<str>>,
}

impl TopicTable {
    fn of(table: &Arc<Table>) -> Self {
        let sources = sources_of(table, None);
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
    pub fn new(events: Arc<Events>, audit: Arc<Audit>, seed: u64) -> Arc<Self> {
        let ids = Ids { run: seed, next: AtomicU64::new(0) };
        Arc::new(Self { wanted: RwLock::default(), audit, ids, events })
    }

    /// As of this moment: what was deployed before a message came gets it, for the message is confirmed.
    fn wanted(&self) -> Arc<TopicTable> {
        let table = self.events.table();
        let known = self.wanted.read().clone();
        if Weak::as_ptr(&known.table) == Arc::as_ptr(&table) {
            return known;
        }
        let now = Arc::new(TopicTable::of(&table));
        *self.wanted.write() = now.clone();
        now
    }

    fn write(&self, into: &mut Pushes<'_>, changes: &Changes, wanted: &TopicTable) -> Result<(), Failed> {
        for (key, value) in &changes.records {
            into.transaction().record(TABLE, key, value.clone()).map_err(Failed::of_store)?;
        }
        for delivery in &changes.events {
            self.push(into, delivery, wanted)?;
        }
        Ok(())
    }

    fn push(&self, into: &mut Pushes<'_>, delivery: &Delivery, wanted: &TopicTable) -> Result<(), Failed> {
        let numbers = wanted.filters.matches(delivery.message.topic());
        if numbers.is_empty() {
            return Ok(());
        }
        let id = format!("{:016x}{:08x}", self.ids.run, self.ids.next.fetch_add(1, Ordering::Relaxed));
        let event = to_event(delivery, Origin { id: &id, time_ms: clock::now_ms() });
        for number in numbers {
            let mut push = Push { event: event.clone(), delay: Duration::ZERO, ttl: None };
            into.push(&wanted.queues[number as usize], &mut push, None)?;
        }
        Ok(())
    }
}

struct Failed(Refused);

impl Failed {
    fn of_store(error: StoreError) -> Self {
        let is_full = matches!(error, StoreError::QueueFull(_));
        let problem = Problem::from(error);
        Self(if is_full { Refused::QueueFull(problem) } else { Refused::Unavailable(problem) })
    }
}

impl From<PushError> for Failed {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Refused(problem) => Self(Refused::QueueFull(problem)),
            PushError::Store(error) => Self::of_store(error),
        }
    }
}

impl From<CommitError> for Failed {
    fn from(error: CommitError) -> Self {
        Self(match error {
            // Events of the same id are pushed all the time.
            CommitError::Conflict | CommitError::QueueFull(_) => Refused::QueueFull(error.into()),
            other => Refused::Unavailable(other.into()),
        })
    }
}

impl Node for GateNode {
    fn wants(&self, topic: &str) -> bool {
        let wanted = self.wanted();
        !wanted.queues.is_empty() && !wanted.filters.matches(topic).is_empty()
    }

    fn commit(&self, changes: &Changes) -> Result<u64, Refused> {
        let wanted = self.wanted();
        let written = self.events.commit(|into| self.write(into, changes, &wanted));
        written.map(|((), ticket)| ticket.number()).map_err(|Failed(refused)| refused)
    }

    async fn durable(&self, number: u64) -> Result<u64, Problem> {
        self.events.state().durable_number(number).await
    }

    fn failed_login(&self, peer: IpAddr, user: Option<&Arc<str>>) {
        self.audit.failed_login(Door::Mqtt, peer, user, clock::now_ms());
    }

    fn restore(&self, take: &mut dyn FnMut(&str, &[u8])) -> Result<(), Problem> {
        records::each(&self.events.state().records(TABLE), |key, value| {
            take(key, value);
            Ok(())
        })
    }
}
