//! The node as the MQTT gate sees it: its records, the events of functions and the letters to other nodes commit
//! together.

use super::crossing::{Arrived, Far, Leaving, QUEUE, Whose, put_back};
use super::event::{Origin, to_event};
use crate::audit::{Audit, Door};
use crate::events::{Events, PushError, Pushes, sources_of};
use crate::functions::Table;
use crate::{clock, records};
use gate_mqtt::broker::Filters;
use gate_mqtt::{Changes, Delivery, Node, Refused, WhenFull};
use parking_lot::RwLock;
use problem::{Code, Problem};
use state::{CommitError, Push, StoreError, Ticket, Transaction};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Table of the node's records that holds what the gate keeps.
const TABLE: &str = "mqtt";

/// What the name begins with of who publishes what a bridge brings: other nodes may have a bridge to the same broker.
const BRIDGE: &str = "$bridge/";

/// What the gate asks of the node.
pub struct GateNode {
    events: Arc<Events>,
    wanted: RwLock<Arc<TopicTable>>,
    audit: Arc<Audit>,
    ids: Ids,
    /// The other nodes of the fleet.
    pub far: Far,
    when_full: WhenFull,
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
    /// `seed` is random. `when_full` says what happens to messages for subscribers at a node that takes no more.
    ///
    /// # Errors
    /// What is known of other nodes cannot be read.
    pub fn open(events: Arc<Events>, audit: Arc<Audit>, seed: u64, when_full: WhenFull) -> Result<Arc<Self>, Problem> {
        let ids = Ids { run: seed, next: AtomicU64::new(0) };
        let far = Far::open(events.state())?;
        Ok(Arc::new(Self { wanted: RwLock::default(), audit, ids, events, far, when_full }))
    }

    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// A name for an event: no other one of this node has it.
    pub fn next_id(&self) -> String {
        format!("{:016x}{:08x}", self.ids.run, self.ids.next.fetch_add(1, Ordering::Relaxed))
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

    /// Writes all changes in one transaction, and with them what `more` writes.
    fn write_all(
        &self,
        changes: &Changes,
        wanted: &TopicTable,
        more: &dyn Fn(&mut Transaction) -> Result<(), StoreError>,
    ) -> Result<Ticket, Refused> {
        let written = self.events.commit(|into| {
            for (key, value) in &changes.records {
                into.transaction().record(TABLE, key, value.clone()).map_err(Failed::of_store)?;
            }
            changes.events.iter().try_for_each(|delivery| self.deliver(into, delivery, wanted))?;
            more(into.transaction()).map_err(Failed::of_store)
        });
        let ((), ticket) = written.map_err(|Failed(refused)| refused)?;
        for delivery in changes.events.iter().filter(|delivery| delivery.retain) {
            self.far.set_copy(delivery.message.topic(), self.is_copy(delivery));
        }
        Ok(ticket)
    }

    /// Whether what is retained after this message came from another node.
    fn is_copy(&self, delivery: &Delivery) -> bool {
        let is_deleted = delivery.message.payload().is_empty();
        !is_deleted && matches!(self.far.whose(&delivery.client), Whose::Theirs(_))
    }

    fn deliver(&self, into: &mut Pushes<'_>, delivery: &Delivery, wanted: &TopicTable) -> Result<(), Failed> {
        if delivery.retain {
            let is_copy = self.is_copy(delivery);
            let kept = self.far.keep_copy(into.transaction(), delivery.message.topic(), is_copy);
            kept.map_err(Failed::of_store)?;
        }
        match self.far.whose(&delivery.client) {
            Whose::Ours => self.push(into, delivery, wanted, |_| true, |_, error| Err(error.into())),
            Whose::Theirs(arrived) => self.push_arrived(into, delivery, wanted, &arrived),
            Whose::Nobodys => Ok(()),
        }
    }

    /// Pushes what a letter brought, and ends the letter. A queue that takes nothing must not hold up all that comes
    /// from other nodes: what was for it is put back, or is a dead letter if it will not take it later either.
    fn push_arrived(
        &self,
        into: &mut Pushes<'_>,
        delivery: &Delivery,
        wanted: &TopicTable,
        arrived: &Arrived,
    ) -> Result<(), Failed> {
        let delivery =
            Delivery { client: arrived.client.as_str().into(), user: arrived.user.clone(), ..delivery.clone() };
        let (mut full, mut ended, mut why) = (Vec::new(), Vec::new(), None);
        let hears = |queue: &str| arrived.queues.iter().any(|one| one == queue);
        // Before the ack: a transaction that frees something learns at its commit alone which queue is full.
        self.push(into, &delivery, wanted, hears, |queue, error| match error {
            PushError::Store(StoreError::QueueFull(_)) => {
                full.push(queue.to_string());
                Ok(())
            }
            PushError::Refused(problem) if problem.code == Code::WorkflowEnded => {
                ended.push(queue.to_string());
                why = Some(problem);
                Ok(())
            }
            other => Err(other.into()),
        })?;
        let transaction = into.transaction();
        if let Some(why) = why.filter(|_| full.is_empty() && arrived.put_back > 0) {
            transaction.fail(&arrived.leased, state::Failed::Dead { reason: format!("{} {}", why.code, why.detail) });
            return Ok(());
        }
        transaction.ack(&arrived.leased);
        for (queues, delay) in [(full, put_back_delay(arrived.put_back)), (ended, Duration::ZERO)] {
            let event = if queues.is_empty() { None } else { put_back(&arrived.leased.event, queues) };
            if let Some(event) = event {
                let push = Push { event, delay, ttl: None };
                transaction.push(QUEUE, &push, clock::now_ms()).map_err(Failed::of_store)?;
            }
        }
        Ok(())
    }

    /// Pushes the event of a message to the queues that want it; `failed` says what it means that one does not take
    /// it.
    fn push(
        &self,
        into: &mut Pushes<'_>,
        delivery: &Delivery,
        wanted: &TopicTable,
        hears: impl Fn(&str) -> bool,
        mut failed: impl FnMut(&str, PushError) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let numbers = wanted.filters.matches(delivery.message.topic());
        let queues: Vec<&Arc<str>> =
            numbers.iter().map(|number| &wanted.queues[*number as usize]).filter(|queue| hears(queue)).collect();
        if queues.is_empty() {
            return Ok(());
        }
        let event = to_event(delivery, Origin { id: &self.next_id(), time_ms: clock::now_ms() });
        for queue in queues {
            let mut push = Push { event: event.clone(), delay: Duration::ZERO, ttl: None };
            if let Err(error) = into.push(queue, &mut push, None) {
                failed(queue, error)?;
            }
        }
        Ok(())
    }

    /// The letters that these messages are to other nodes.
    fn leaving(&self, changes: &Changes, wanted: &TopicTable) -> Leaving {
        let (mut leaving, elsewhere) = (Leaving::default(), self.far.elsewhere());
        if elsewhere.is_empty() {
            return leaving;
        }
        for delivery in &changes.events {
            let is_ours = matches!(self.far.whose(&delivery.client), Whose::Ours);
            if !is_ours || delivery.client.starts_with(BRIDGE) {
                continue;
            }
            let topic = delivery.message.topic();
            let here: Vec<&str> =
                wanted.filters.matches(topic).into_iter().map(|number| &*wanted.queues[number as usize]).collect();
            for taker in elsewhere.takers(topic, &here) {
                if !leaving.add(delivery, &taker, &self.next_id()) {
                    self.far.drop_some(1);
                    tracing::warn!(topic, node = %taker.node, "a message is too large to go to another node");
                }
            }
        }
        leaving
    }

    /// A node takes no more of these letters now.
    fn leave_out(&self, leaving: &mut Leaving, full: ::mail::PushError) -> Result<(), Refused> {
        let refused = |error: &::mail::PushError| {
            Err(Refused::QueueFull(Problem::new(Code::MailWaits, format!("MQTT for another node: {error}"))))
        };
        let ::mail::PushError::Full(to) = &full else { return refused(&full) };
        if self.when_full == WhenFull::Refuse || leaving.has_triggers(to) {
            return refused(&full);
        }
        let count = leaving.leave_out(to);
        self.far.drop_some(count);
        tracing::debug!(%to, count, "messages for subscribers at another node find no room and are dropped");
        Ok(())
    }
}

/// How long a message waits for room in a queue that has none: a second, then twice as long each time, up to a minute.
fn put_back_delay(before: u32) -> Duration {
    Duration::from_secs(1 << before.min(6)).min(Duration::from_secs(60))
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
            CommitError::Conflict | CommitError::QueueFull(_) | CommitError::QueueEnded(_) => {
                Refused::QueueFull(error.into())
            }
            other => Refused::Unavailable(other.into()),
        })
    }
}

impl Node for GateNode {
    fn wants(&self, topic: &str) -> bool {
        let wanted = self.wanted();
        !wanted.queues.is_empty() && !wanted.filters.matches(topic).is_empty() || self.far.looks_at(topic)
    }

    fn commit(&self, changes: &Changes) -> Result<u64, Refused> {
        let wanted = self.wanted();
        let mut leaving = self.leaving(changes, &wanted);
        loop {
            let Some(mail) = self.events.mail().filter(|_| !leaving.is_empty()) else {
                return self.write_all(changes, &wanted, &|_| Ok(())).map(Ticket::number);
            };
            match mail.post_with(leaving.letters(), |more| self.write_all(changes, &wanted, more)) {
                Ok(written) => return written.map(Ticket::number),
                Err(full) => self.leave_out(&mut leaving, full)?,
            }
        }
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
