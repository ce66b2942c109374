//! Events: where gates put them, which function or sink handles them, and what becomes of failed ones.
//!
//! ```text
//!   gate ──▶ Events::commit ▶ queue ──▶ Shell: workers ──▶ Consumer: a function or a sink
//!     ▲                                    ▲                    │
//!     └── Sources: triggers                └── Policy           └──▶ Outcome: acked · retry · dead letter · postponed
//! ```
//! A gate knows queues and triggers, never a unit; a consumer knows one event at a time, never the queue. In reading
//! order: [`consumer`], `shell`, `worker`, [`failure`], `function`, `work`; `runtime` keeps up with what is deployed,
//! `duties` say who handles what here, and `agenda` keeps the time.

mod agenda;
mod consumer;
mod dead_to;
mod duties;
mod failure;
mod function;
mod outside;
mod past;
mod pauses;
mod pushes;
mod running;
mod runtime;
mod shell;
mod sources;
#[cfg(test)]
mod tests;
mod together;
mod work;
mod worker;
mod workflow;

pub use consumer::{Consumer, Outcome, SinkKind, SinkKinds, Tried};
pub use duties::Duty;
pub use outside::{Failure, Lent, Named, Wanted};
pub use past::{BYTES_MAX as PAST_BYTES_MAX, Past};
pub use pauses::Pauses;
pub use pushes::{PushError, Pushes, refuse_forged};
pub use running::Running;
pub use shell::{Numbers, Shell};
pub use sources::{Sources, Timers};
pub use work::{GATE_HEADER, is_request, judge};

use super::clock;
use super::functions::{Functions, Table};
use super::ids::Ids;
use super::mail::Mail;
use super::traces::Traces;
use agenda::Agenda;
use manifest::Name;
use outside::Outside;
use problem::{Code, Problem};
use runtime::Shells;
use state::{CommitError, Push, Pushed, Queue, State, Ticket};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::watch;

/// The one door for events, and the runtime behind it. Shared by gates and the API: all that is pushed to the node, but
/// for what functions push themselves, goes through [`Events::commit`].
pub struct Events {
    functions: Arc<Functions>,
    state: State,
    traces: Option<Arc<Traces>>,
    sources: watch::Sender<Arc<Sources>>,
    shells: Shells,
    /// Nothing is leased any more, until the node is started again.
    is_draining: AtomicBool,
    agenda: Arc<Agenda>,
    seeds: Ids,
    /// None in a node that belongs to no fleet.
    mail: watch::Sender<Option<Arc<Mail>>>,
    /// What workers outside of the node have.
    outside: Arc<Outside>,
    pub pauses: Pauses,
    /// What is being handled, for the next start.
    pub running: Arc<Running>,
    /// What became of the last handlings.
    pub past: Arc<Past>,
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
        let sources = watch::Sender::new(Arc::new(sources_of(&functions.table(), None)));
        Arc::new(Self {
            functions,
            state,
            traces,
            sources,
            shells: Shells::default(),
            is_draining: AtomicBool::new(false),
            agenda: Arc::default(),
            seeds: Ids::new(seed),
            mail: watch::Sender::new(None),
            outside: Arc::default(),
            pauses,
            running,
            past: Arc::default(),
        })
    }

    /// Pushes events to one queue, all or none. They are durable when it returns; a dropped future may or may not have
    /// pushed them. Many callers at once share one sync of the disk. `caller` is the trace of whoever asks for it.
    ///
    /// # Errors
    /// [`Code::QueueFull`], [`Code::EventTooLarge`], [`Code::EventInvalid`], [`Code::WorkflowEnded`] and the disk's
    /// L5xxx: nothing was pushed, except that with [`Code::DiskFailed`] nobody knows.
    pub async fn push(&self, queue: &str, mut pushes: Vec<Push>, caller: Option<&str>) -> Result<Vec<Pushed>, Problem> {
        let queue: Arc<str> = queue.into();
        let (pushed, ticket) = self.commit(|into| {
            let pushed = pushes.iter_mut().map(|push| into.push(&queue, push, caller));
            pushed.collect::<Result<Vec<_>, PushError>>().map_err(Problem::from)
        })?;
        self.state.durable(ticket).await?;
        Ok(pushed)
    }

    /// Does `work` in one transaction, and again whenever another commit came in between: what it
    /// pushes and what else it writes both happen, or neither. What it returns is durable once [`State::durable`] has
    /// returned for the ticket.
    ///
    /// # Errors
    /// Those of `work`; those of the commit. Nothing was written, except that with [`Code::DiskFailed`] nobody knows.
    pub fn commit<T, E: From<CommitError>>(
        &self,
        mut work: impl FnMut(&mut Pushes<'_>) -> Result<T, E>,
    ) -> Result<(T, Ticket), E> {
        let (table, now_ms) = (self.functions.table(), clock::now_ms());
        let (mut spans, mut delayed) = (Vec::new(), Vec::new());
        let done = self.state.transact(|transaction| {
            delayed.clear();
            let (spans, delayed) = (&mut spans, &mut delayed);
            work(&mut Pushes { events: self, table: &table, transaction, now_ms, pushed: 0, spans, delayed })
        })?;
        delayed.iter().for_each(|(queue, delay)| self.agenda.add(queue, *delay));
        Ok(done)
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

    /// Who handles the events of a queue on this node; none if nobody does.
    pub fn duty(&self, queue: &str) -> Option<Duty> {
        let queue = queue.parse::<Name>().ok()?;
        duties::of(&self.functions.table(), &queue, self.mail.borrow().as_ref())
    }

    /// What is deployed.
    pub fn table(&self) -> Arc<Table> {
        self.functions.table()
    }

    /// The triggers of what is deployed, now and whenever they change.
    pub fn sources(&self) -> watch::Receiver<Arc<Sources>> {
        self.sources.subscribe()
    }

    /// This node's mail, if it belongs to a fleet.
    pub fn mail(&self) -> Option<Arc<Mail>> {
        self.mail.borrow().clone()
    }

    /// From now on events go to other nodes that are the home of their queue; with none no more: they wait.
    pub fn set_mail(&self, mail: Option<Arc<Mail>>) {
        self.mail.send_replace(mail);
    }

    /// For gates that read queues or records of their own, and for who waits until something is durable.
    pub fn state(&self) -> &State {
        &self.state
    }
}

/// The triggers of what is deployed. What the clock starts, it starts at the home of its queue only: else one tick
/// would be as many events as there are nodes.
pub fn sources_of(table: &Table, mail: Option<&Mail>) -> Sources {
    let handled_at = |queue: &Name| duties::handled_at(table, queue, mail);
    Sources::of(table.entries().map(|entry| (entry.live.name(), &*entry.live.function)), handled_at)
}
