//! Events: where gates put them, which function or sink handles them, and what becomes of those that fail.
//!
//! ```text
//!   gate ──▶ Events::push ──▶ queue ──▶ worker ──▶ Consumer: a function or a sink
//!     ▲                                               │
//!     └── Sources: triggers of what is deployed       └──▶ Outcome: acked · retry · dead letter · postponed
//! ```
//! A gate knows queues and triggers, never a unit; a consumer knows one event at a time, never the queue.

mod consumer;
mod sources;

pub use consumer::{Consumer, Outcome, SinkKind, SinkKinds};
pub use sources::{Source, Sources};

use super::clock;
use super::functions::{Functions, Table};
use manifest::Name;
use problem::{Code, Problem};
use state::{Push, Pushed, State};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;

/// The one door for events, and the runtime behind it. Shared by gates and the API.
pub struct Events {
    functions: Arc<Functions>,
    state: State,
    sources: watch::Sender<Arc<Sources>>,
}

impl Events {
    pub fn new(functions: Arc<Functions>) -> Arc<Self> {
        let state = functions.loader.state.clone();
        let sources = watch::Sender::new(Arc::new(sources_of(&functions.table())));
        Arc::new(Self { functions, state, sources })
    }

    /// Keeps up with what is deployed, for as long as the node runs.
    pub async fn run(self: Arc<Self>) {
        let mut tables = self.functions.watch();
        loop {
            let sources = sources_of(&tables.borrow_and_update().clone());
            self.sources.send_if_modified(|known| {
                let is_new = **known != sources;
                if is_new {
                    *known = Arc::new(sources);
                }
                is_new
            });
            if tables.changed().await.is_err() {
                return;
            }
        }
    }

    /// Pushes events to one queue, all or none. They are durable when it returns; a dropped future may or may not have
    /// pushed them. Many callers at once share one sync of the disk.
    ///
    /// # Errors
    /// [`Code::QueueFull`], [`Code::EventTooLarge`], [`Code::EventInvalid`], [`Code::WorkflowEnded`] and the disk's
    /// L5xxx: nothing was pushed, except that with [`Code::DiskFailed`] nobody knows.
    pub async fn push(&self, queue: &str, pushes: Vec<Push>) -> Result<Vec<Pushed>, Problem> {
        let queue: Arc<str> = queue.into();
        self.push_all(pushes.into_iter().map(|push| (queue.clone(), push)).collect()).await
    }

    /// The same for events of several queues, all or none: fan-out.
    pub async fn push_all(&self, pushes: Vec<(Arc<str>, Push)>) -> Result<Vec<Pushed>, Problem> {
        let now_ms = clock::unix_ms(SystemTime::now());
        let mut transaction = self.state.begin();
        let mut pushed = Vec::with_capacity(pushes.len());
        for (queue, push) in pushes {
            pushed.push(transaction.push(&queue, push, now_ms)?);
        }
        self.state.durable(transaction.commit()?).await?;
        Ok(pushed)
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

    /// The triggers of what is deployed, now and whenever they change.
    pub fn sources(&self) -> watch::Receiver<Arc<Sources>> {
        self.sources.subscribe()
    }

    /// For gates that write records of their own in the transaction of a push.
    pub fn state(&self) -> &State {
        &self.state
    }
}

fn sources_of(table: &Table) -> Sources {
    Sources::of(table.entries().map(|entry| (entry.live.name(), &*entry.live.function)))
}
