//! Events: where gates put them, which function or sink handles them, and what becomes of failed ones.
//!
//! ```text
//!   gate ──▶ Events::push ──▶ queue ──▶ Shell: workers ──▶ Consumer: a function or a sink
//!     ▲                                    ▲                    │
//!     └── Sources: triggers                └── Policy           └──▶ Outcome: acked · retry · dead letter · postponed
//! ```
//! A gate knows queues and triggers, never a unit; a consumer knows one event at a time, never the queue. In reading
//! order: [`consumer`], `shell`, `worker`, [`failure`], `function`, `work`; `runtime` keeps up with what is deployed
//! and `agenda` with the time.

mod agenda;
mod consumer;
mod failure;
mod function;
mod pauses;
mod running;
mod runtime;
mod shell;
mod sources;
#[cfg(test)]
mod tests;
mod work;
mod worker;

pub use consumer::{Consumer, Outcome, SinkKind, SinkKinds};
pub use pauses::Pauses;
pub use running::Running;
pub use shell::{Numbers, Shell};
pub use sources::Sources;
pub use work::{GATE_HEADER, is_request, judge, set_trace};

use super::clock;
use super::functions::{Functions, Table};
use super::ids::Ids;
use super::traces::Traces;
use agenda::Agenda;
use event::{ATTRIBUTES_MAX, Event};
use manifest::Name;
use problem::{Code, Problem};
use runtime::Shells;
use state::{Push, Pushed, Queue, State, Ticket, Transaction};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;

/// Bytes of the id, source, type or subject of an event.
const FIELD_BYTES_MAX: usize = 8_192;

/// The door for events, and the runtime behind it. Shared by gates and the API.
///
/// The MQTT gate makes its own transaction through [`Self::state`], because it writes the broker's records too: it
/// calls [`Self::check`] and [`Self::trace_push`] itself.
pub struct Events {
    functions: Arc<Functions>,
    state: State,
    traces: Option<Arc<Traces>>,
    sources: watch::Sender<Arc<Sources>>,
    shells: Shells,
    agenda: Arc<Agenda>,
    seeds: Ids,
    pub pauses: Pauses,
    /// What is being handled, for the next start.
    pub running: Arc<Running>,
}

impl Events {
    /// `seed` is random: two nodes, and two runs, do not try again at the same moments.
    pub fn new(
        functions: Arc<Functions>,
        traces: Option<Arc<Traces>>,
        pauses: Pauses,
        running: Arc<Running>,
        seed: u64,
    ) -> Arc<Self> {
        let state = functions.loader.state.clone();
        let sources = watch::Sender::new(Arc::new(sources_of(&functions.table())));
        Arc::new(Self {
            functions,
            state,
            traces,
            sources,
            shells: Shells::default(),
            agenda: Arc::default(),
            seeds: Ids::new(seed),
            pauses,
            running,
        })
    }

    /// Pushes events to one queue, all or none. They are durable when it returns; a dropped future may or may not have
    /// pushed them. Many callers at once share one sync of the disk.
    ///
    /// # Errors
    /// [`Code::QueueFull`], [`Code::EventTooLarge`], [`Code::EventInvalid`], [`Code::WorkflowEnded`] and the disk's
    /// L5xxx: nothing was pushed, except that with [`Code::DiskFailed`] nobody knows.
    pub async fn push(&self, queue: &str, pushes: Vec<Push>) -> Result<Vec<Pushed>, Problem> {
        let queue: Arc<str> = queue.into();
        let pushes: Vec<_> = pushes.into_iter().map(|push| (queue.clone(), push)).collect();
        self.push_all(&pushes).await
    }

    /// The same for events of several queues, all or none: fan-out.
    pub async fn push_all(&self, pushes: &[(Arc<str>, Push)]) -> Result<Vec<Pushed>, Problem> {
        let (pushed, ticket) = self.push_with(pushes, |_, _| Ok(()))?;
        self.state.durable(ticket).await?;
        Ok(pushed)
    }

    /// Pushes events and writes what `write` writes, in one transaction: both happen, or neither. `write` is told what
    /// became of the pushes, and is called once more whenever another commit came in between. What it returns is
    /// durable once [`State::durable`] has returned for the ticket.
    ///
    /// # Errors
    /// Those of [`Self::push`], and those of `write`.
    pub fn push_with(
        &self,
        pushes: &[(Arc<str>, Push)],
        mut write: impl FnMut(&mut Transaction, &[Pushed]) -> Result<(), Problem>,
    ) -> Result<(Vec<Pushed>, Ticket), Problem> {
        let table = self.functions.table();
        for (queue, push) in pushes {
            refuse_ended(&table, queue)?;
            check(&push.event)?;
        }
        let now_ms = clock::now_ms();
        let done = self.state.transact(|transaction| {
            let mut pushed = Vec::with_capacity(pushes.len());
            for (queue, push) in pushes {
                pushed.push(transaction.push(queue, push, now_ms)?);
            }
            write(transaction, &pushed)?;
            Ok::<_, Problem>(pushed)
        })?;
        let delayed = pushes.iter().filter(|(_, push)| !push.delay.is_zero());
        delayed.for_each(|(queue, push)| self.agenda.add(queue, push.delay));
        Ok(done)
    }

    /// Whether `push` would take the event, for gates that push in a transaction of their own.
    ///
    /// # Errors
    /// [`Code::EventInvalid`], [`Code::WorkflowEnded`].
    pub fn check(&self, queue: &str, event: &Event) -> Result<(), Problem> {
        refuse_ended(&self.functions.table(), queue)?;
        check(event)
    }

    /// The queue this function handles, to push to.
    ///
    /// # Errors
    /// [`Code::FunctionUnknown`]; [`Code::QueueUnknown`] if it handles none.
    pub fn queue_of(&self, function: &str) -> Result<Name, Problem> {
        let live = self.functions.get(function)?.live;
        let queue = live.function.handles(live.name()).cloned();
        queue.ok_or_else(|| {
            let problem = Problem::new(Code::QueueUnknown, format!("function {function:?} handles no queue"));
            problem.with_hint("give it `queue = \"NAME\"` in lighter.toml")
        })
    }

    /// A queue that something deployed handles, names or is granted, or that holds events.
    ///
    /// # Errors
    /// [`Code::QueueUnknown`].
    pub fn queue(&self, name: &str) -> Result<Queue, Problem> {
        let table = self.functions.table();
        let is_known = table.handlers().contains_key(name)
            || table.parts().queues.contains_key(name)
            || table.entries().any(|entry| {
                let grants = &entry.live.function.grants;
                grants.push.iter().chain(&grants.pop).any(|queue| queue.as_str() == name)
            })
            || self.state.queues().iter().any(|queue| queue == name);
        match is_known {
            true => self.state.queue(name),
            false => Err(Problem::new(Code::QueueUnknown, format!("there is no queue {name:?}"))),
        }
    }

    /// The names of all queues there are, in order.
    pub fn queues(&self) -> BTreeSet<String> {
        let table = self.functions.table();
        let configured = table.handlers().keys().chain(table.parts().queues.keys()).map(ToString::to_string);
        configured.chain(self.state.queues()).collect()
    }

    /// The trace in which a pushed event goes on: its own, the caller's, or a new one. A push that is recorded is a
    /// span of its own, and what handles the event its child. None if nothing is traced.
    pub fn trace_push(&self, queue: &str, event: &Event, caller: Option<&str>) -> Option<String> {
        let traces = self.traces.as_ref()?;
        let parent = event.attribute(super::traces::HEADER).or(caller);
        Some(traces.push(parent, queue, &event.id, SystemTime::now()))
    }

    /// What is deployed.
    pub fn table(&self) -> Arc<Table> {
        self.functions.table()
    }

    /// The triggers of what is deployed, now and whenever they change.
    pub fn sources(&self) -> watch::Receiver<Arc<Sources>> {
        self.sources.subscribe()
    }

    /// For gates that write records of their own in the transaction of a push.
    pub fn state(&self) -> &State {
        &self.state
    }
}

/// The triggers of what is deployed.
pub fn sources_of(table: &Table) -> Sources {
    Sources::of(table.entries().map(|entry| (entry.live.name(), &*entry.live.function)))
}

fn refuse_ended(table: &Table, queue: &str) -> Result<(), Problem> {
    let ended = &table.parts().ended;
    if ended.is_empty() {
        return Ok(());
    }
    match table.handlers().get(queue).and_then(|handler| ended.get_key_value(handler.name())) {
        None => Ok(()),
        Some((name, why)) => {
            let detail =
                format!("queue {queue:?} takes no events: {:?} has ended, because {}", name.as_str(), why.reason);
            Err(Problem::new(Code::WorkflowEnded, detail))
        }
    }
}

/// What the queue itself does not look at.
fn check(event: &Event) -> Result<(), Problem> {
    let bad = |detail: String| Err(Problem::new(Code::EventInvalid, detail));
    let needed = [("id", &event.id), ("source", &event.source), ("type", &event.kind)];
    if let Some((name, _)) = needed.iter().find(|(_, value)| value.is_empty()) {
        return bad(format!("the event has no {name}"));
    }
    let subject = event.subject.iter().map(|subject| ("subject", subject));
    if let Some((name, value)) = needed.into_iter().chain(subject).find(|(_, value)| value.len() > FIELD_BYTES_MAX) {
        return bad(format!("the {name} of the event has {} bytes, the limit is {FIELD_BYTES_MAX}", value.len()));
    }
    // An event that is sent says nothing of its gate yet, which will be one more.
    let room = ATTRIBUTES_MAX - usize::from(event.origin.gate.is_none());
    if event.attributes.len() > room {
        return bad(format!("the event has {} attributes, the limit is {room}", event.attributes.len()));
    }
    Ok(())
}

/// What a sender outside of the node said of an event must not be what the node's gates alone say.
///
/// # Errors
/// [`Code::EventInvalid`]: it is.
pub fn refuse_forged(event: &Event) -> Result<(), Problem> {
    let Some(forged) = event.forged() else { return Ok(()) };
    let hint = "give it a type, source and attributes of your own; who passes an event of a gate on needs a token that may deploy";
    Err(Problem::new(Code::EventInvalid, forged.to_string()).with_hint(hint))
}
