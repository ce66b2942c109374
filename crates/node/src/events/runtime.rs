//! Keeps a shell for every queue that is handled, as deployments come and go; ends workflows; drains.

use super::consumer::Consumer;
use super::duties::{self, Duty};
use super::function::FunctionConsumer;
use super::shell::{Books, Cast, Shell};
use super::workflow::UnitPermits;
use super::{Events, agenda, sources_of};
use crate::clock;
use crate::functions::{Ended, Handler, Table};
use crate::mail::{Mail, MailConsumer};
use manifest::{Function, Name, OnOverload, PolicyWord, Queue, Units, WhenFull, Workflow};
use orchestrator::{Latency, LatencyConfig, Overload, Policy, Triggers, TriggersConfig};
use parking_lot::Mutex;
use problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// Workflows that wait to be ended. One that finds no room asks again.
const OVERLOADS_MAX: usize = 64;

/// How long nothing begins after a task that gave up.
const REST: Duration = Duration::from_secs(1);

/// The queues that are handled, and those whose last handlings run.
#[derive(Default)]
pub struct Shells {
    by_queue: Mutex<BTreeMap<Name, Handled>>,
    retired: Mutex<Vec<Arc<Shell>>>,
    /// Of each workflow that has a maximum.
    permits: Mutex<BTreeMap<Name, Arc<UnitPermits>>>,
}

struct Handled {
    shell: Arc<Shell>,
    /// In which it runs.
    task: AbortHandle,
    role: Role,
}

/// What a shell was given last: while it is the same, nothing has to be done.
#[derive(PartialEq)]
struct Role {
    /// None: mail.
    handler: Option<Name>,
    /// The address of the version, the sink or the mail, held by the consumer.
    what: usize,
    queue: Queue,
    workflow: Option<(Name, Workflow)>,
    in_cycle: bool,
    has_ended: bool,
}

impl Events {
    /// Keeps up with what is deployed until the future is dropped, which drops what is being handled: those events are
    /// ready again.
    pub async fn run(self: Arc<Self>) {
        let mut tables = self.functions.watch();
        let mut mails = self.mail.subscribe();
        let (overloaded, mut overloads) = mpsc::channel(OVERLOADS_MAX);
        let (agenda, running, past) = (self.agenda.clone(), self.running.clone(), self.past.clone());
        let books = Books { agenda, running, past, overloaded };
        let mut tasks = JoinSet::new();
        tasks.spawn(agenda::run(self.state.clone(), self.agenda.clone()));
        let outside = self.outside.clone();
        tasks.spawn(async move { outside.sweep().await });
        loop {
            let table = tables.borrow_and_update().clone();
            let mail = mails.borrow_and_update().clone();
            self.follow_sources(&table, mail.as_deref());
            self.follow_duties(&table, &duties::all(&table, mail.as_ref()), &books, &mut tasks);
            drop(mail);
            tokio::select! {
                // A queue whose shell is gone gets another one.
                Some(ended) = tasks.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!("a task of the queues gave up: {error}");
                        sleep(REST).await;
                    }
                }
                changed = tables.changed() => if changed.is_err() { return },
                // The sender is in this very node.
                _ = mails.changed() => {}
                overload = overloads.recv() => {
                    if let Some((queue, overload)) = overload {
                        self.end_workflow(&queue, overload).await;
                    }
                }
            }
        }
    }

    fn follow_sources(&self, table: &Table, mail: Option<&Mail>) {
        let sources = sources_of(table, mail);
        self.sources.send_if_modified(|known| {
            let is_new = **known != sources;
            if is_new {
                *known = Arc::new(sources);
            }
            is_new
        });
    }

    fn follow_duties(&self, table: &Table, duties: &BTreeMap<Name, Duty>, books: &Books, tasks: &mut JoinSet<()>) {
        self.follow_workflows(table);
        let mut shells = self.shells.by_queue.lock();
        let gone: Vec<Name> = shells.keys().filter(|queue| !duties.contains_key(*queue)).cloned().collect();
        for queue in gone {
            let Handled { shell, .. } = shells.remove(&queue).expect("it was just there");
            shell.retire();
            let mut retired = self.shells.retired.lock();
            retired.retain(|shell| shell.is_working());
            retired.push(shell);
        }
        shells.retain(|_, handled| !handled.task.is_finished());
        // Under the lock that a drain takes after it has said so: no shell begins that it does not retire.
        if self.is_draining.load(SeqCst) {
            return;
        }
        for (queue, duty) in duties {
            let role = Role::new(table, queue, duty);
            if shells.get(queue).is_some_and(|handled| handled.role == role) {
                continue;
            }
            let cast = match self.cast(duty, &role) {
                Ok(cast) => cast,
                Err(problem) => {
                    tracing::error!(%queue, "nobody handles it: {} {}", problem.code, problem.detail);
                    continue;
                }
            };
            match shells.get_mut(queue) {
                Some(handled) => {
                    handled.shell.replace(cast);
                    handled.role = role;
                }
                None => match self.state.queue(queue.as_str()) {
                    Ok(opened) => {
                        let (state, seed) = (self.state.clone(), self.seeds.next());
                        let shell = Shell::new(opened, state, cast, books.clone(), seed);
                        shell.pause(self.pauses.is_paused(queue.as_str()));
                        let task = tasks.spawn(shell.clone().run());
                        shells.insert(queue.clone(), Handled { shell, task, role });
                    }
                    Err(problem) => tracing::error!(%queue, "cannot be opened: {} {}", problem.code, problem.detail),
                },
            }
        }
    }

    /// Those who work keep their permits through a new deployment, as far as it leaves so many.
    fn follow_workflows(&self, table: &Table) {
        let workflows = &table.parts().workflows;
        let mut permits = self.shells.permits.lock();
        permits.retain(|name, _| workflows.contains_key(name));
        for (name, part) in workflows {
            let Some(maximum) = part.what.units_max else {
                permits.remove(name);
                continue;
            };
            permits.entry(name.clone()).or_insert_with(|| UnitPermits::new(maximum)).set_maximum(maximum);
        }
    }

    fn cast(&self, duty: &Duty, role: &Role) -> Result<Cast, Problem> {
        let dead_to = role.queue.dead_to.clone();
        match duty {
            Duty::Send(mail, home) => {
                let consumer = MailConsumer::new(mail.clone(), home.clone());
                let units = Units { maximum: consumer.workers_max(), ..Units::default() };
                Ok(Cast { consumer: Arc::new(consumer), policy: policy(&units, role), dead_to, permits: None })
            }
            Duty::Handle(Handler::Function(live)) => {
                let consumer = FunctionConsumer {
                    live: live.clone(),
                    loader: self.functions.loader.clone(),
                    traces: self.traces.clone(),
                    in_cycle: role.in_cycle,
                };
                let policy = policy(&live.function.units, role);
                let workflow = role.workflow.as_ref().map(|(name, _)| name);
                // Who starts no worker wants no permit, and is none to give way to.
                let workflow = workflow.filter(|_| !role.has_ended && live.function.units.maximum > 0);
                let permits = workflow.and_then(|name| self.shells.permits.lock().get(name).cloned());
                Ok(Cast { consumer: Arc::new(consumer), policy, dead_to, permits })
            }
            Duty::Handle(Handler::Sink(name, sink)) => {
                let consumer = self.functions.sinks.get(name, sink)?.open(name, sink);
                let units = Units { maximum: consumer.workers_max(), ..Units::default() };
                let policy = policy(&units, role);
                Ok(Cast { consumer, policy, dead_to, permits: None })
            }
        }
    }

    /// Pauses or resumes queues, or all if none are named. Durable when it returns.
    ///
    /// # Errors
    /// [`Code::QueueUnknown`](problem::Code::QueueUnknown): nothing changed; those of the state.
    pub async fn pause(&self, paused: bool, queues: &[String]) -> Result<(), Problem> {
        queues.iter().try_for_each(|queue| self.queue(queue).map(drop))?;
        self.pauses.set(paused, queues).await?;
        for (queue, handled) in &*self.shells.by_queue.lock() {
            handled.shell.pause(self.pauses.is_paused(queue.as_str()));
        }
        Ok(())
    }

    /// The shell of a handled queue, for figures.
    pub fn shell(&self, queue: &str) -> Option<Arc<Shell>> {
        self.shells.by_queue.lock().get(queue).map(|handled| handled.shell.clone())
    }

    /// Leases nothing more, to nobody, and waits until what is being handled has ended, but no longer than `at_most`.
    /// Says how many are left; their events are ready again once [`Events::run`] is dropped.
    pub async fn drain(&self, at_most: Duration) -> usize {
        self.is_draining.store(true, SeqCst);
        let shells: Vec<Arc<Shell>> = {
            let by_queue = self.shells.by_queue.lock();
            let retired = self.shells.retired.lock();
            by_queue.values().map(|handled| handled.shell.clone()).chain(retired.iter().cloned()).collect()
        };
        shells.iter().for_each(|shell| shell.retire());
        let ended = async {
            for shell in &shells {
                shell.ended().await;
            }
        };
        tokio::time::timeout(at_most, ended).await.ok();
        shells.iter().filter(|shell| shell.is_working()).count()
    }

    /// Everything that is joined to this queue by pushes handles nothing more until it is deployed again.
    async fn end_workflow(&self, queue: &str, overload: Overload) {
        let table = self.functions.table();
        let Some(handler) = table.handlers().get(queue) else { return };
        let what = match overload {
            Overload::Full => "was full",
            Overload::Growing => "went on growing",
        };
        let reason = format!("queue {queue:?} {what} while {:?} had all its units at work", handler.name().as_str());
        let names = joined(&table, handler.name());
        tracing::error!(queue, workflow = ?names, "the workflow ends: {reason}");
        for name in &names {
            if let Ok(entry) = table.get(name.as_str()) {
                let note = format!("the workflow ends: {reason}; deploy it again to go on");
                entry.live.identity.log.node(unit::Level::Error, entry.live.version, &note);
            }
        }
        let ended = Ended { reason, at_ms: clock::now_ms() };
        if let Err(problem) = self.functions.end_workflow(names, ended).await {
            tracing::error!(queue, "the workflow could not be ended: {} {}", problem.code, problem.detail);
        }
    }
}

impl Role {
    fn new(table: &Table, queue: &Name, duty: &Duty) -> Self {
        let (handler, what) = match duty {
            // The home is one of the queue's settings.
            Duty::Send(mail, _) => (None, Arc::as_ptr(mail) as usize),
            Duty::Handle(Handler::Function(live)) => (Some(live.name()), Arc::as_ptr(live) as usize),
            Duty::Handle(Handler::Sink(name, sink)) => (Some(name), Arc::as_ptr(sink) as usize),
        };
        Self {
            handler: handler.cloned(),
            what,
            queue: table.parts().queues.get(queue).map(|part| (*part.what).clone()).unwrap_or_default(),
            workflow: handler.and_then(|name| workflow_of(table, name)),
            in_cycle: is_in_cycle(table, queue),
            has_ended: handler.is_some_and(|name| table.parts().ended.contains_key(name)),
        }
    }
}

fn policy(units: &Units, role: &Role) -> Box<dyn Policy> {
    let maximum = if role.has_ended { 0 } else { units.maximum };
    let ends_when_full = role.queue.when_full == WhenFull::End;
    match units.policy {
        PolicyWord::Latency => {
            let (target, ends_workflow) = (units.target.duration(), ends_when_full);
            Box::new(Latency::new(LatencyConfig { maximum, target, ends_workflow }))
        }
        PolicyWord::Triggers => {
            let (threshold, grace) = (units.threshold, units.grace.duration());
            let ends_when_growing =
                role.workflow.as_ref().is_some_and(|(_, workflow)| workflow.on_overload == OnOverload::End);
            Box::new(Triggers::new(TriggersConfig { maximum, threshold, grace, ends_when_full, ends_when_growing }))
        }
    }
}

/// The bounds of the workflow that a function belongs to, if the manifest says some.
fn workflow_of(table: &Table, function: &Name) -> Option<(Name, Workflow)> {
    let (name, part) = table.parts().workflows.iter().find(|(_, part)| part.what.functions.contains(function))?;
    Some((name.clone(), (*part.what).clone()))
}

/// The queues that events of this one may lead to: its handler pushes to them, or what cannot be handled goes there.
fn pushes<'a>(table: &'a Table, queue: &Name) -> impl Iterator<Item = &'a Name> {
    let pushed = match table.handlers().get(queue) {
        Some(Handler::Function(live)) => pushed_by(table, live.name().as_str()),
        _ => &[],
    };
    pushed.iter().chain(table.parts().queues.get(queue).and_then(|part| part.what.dead_to.as_ref()))
}

fn pushed_by<'a>(table: &'a Table, function: &str) -> &'a [Name] {
    table.entry(function).map_or(&[], |entry| &entry.live.function.grants.push)
}

/// Whether an event of this queue may lead to another one in it.
fn is_in_cycle(table: &Table, queue: &Name) -> bool {
    let mut seen = BTreeSet::new();
    let mut ahead: Vec<&Name> = pushes(table, queue).collect();
    while let Some(next) = ahead.pop() {
        if next == queue {
            return true;
        }
        if seen.insert(next) {
            ahead.extend(pushes(table, next));
        }
    }
    false
}

/// The functions and sinks of the workflow this one belongs to: all that is joined by pushes, in either direction, and
/// all that the manifest names together.
fn joined(table: &Table, handler: &Name) -> BTreeSet<Name> {
    let handlers = table.handlers();
    let mut joined = BTreeSet::from([handler.clone()]);
    let mut ahead = vec![handler.clone()];
    while let Some(name) = ahead.pop() {
        let after = pushed_by(table, name.as_str()).iter().filter_map(|queue| handlers.get(queue)).map(Handler::name);
        let handled = handlers.iter().filter(|(_, handler)| *handler.name() == name).map(|(queue, _)| queue);
        let handled: Vec<&Name> = handled.collect();
        let pushes_to = |function: &Function| handled.iter().any(|queue| function.grants.push.contains(queue));
        let before = table.entries().filter(|entry| pushes_to(&entry.live.function)).map(|entry| entry.live.name());
        let named = table.parts().workflows.values().filter(|part| part.what.functions.contains(&name));
        let named = named.flat_map(|part| &part.what.functions).filter(|name| table.entry(name.as_str()).is_some());
        for next in after.chain(before).chain(named) {
            if joined.insert(next.clone()) {
                ahead.push(next.clone());
            }
        }
    }
    joined
}
