//! Events in the hands of workers outside of the node, which lease, renew, ack and fail them over the API.
//!
//! ```text
//!   lease ──▶ Lent: lease of the queue, owner ──▶ renew … ──▶ ack · fail
//!                        └── ended, or the node ended: the event is ready again
//! ```
//! The name of a lease is random, and only the token that took it may use it: a worker that was slow, or outlived the
//! node, never acks what another has by then. Leases live in memory, as those of the node's own workers do; acks and
//! failures are durable before they are answered.

use super::duties::Duty;
use super::{Events, dead_to, failure};
use crate::body::{BodyRoom, Share};
use crate::clock;
use crate::functions::{Handler, Live};
use crate::results;
use bytes::Bytes;
use handling::WholeReply;
use manifest::Retry;
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::{Failed, Leased, Queue, Ticket, Transaction};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until};

/// Leases of all workers outside together, and of one token.
const LEASES_MAX: usize = 10_000;
const LEASES_PER_TOKEN_MAX: usize = 1_000;
/// Requests that wait for an event at once: all together, and those of one token.
const WAITING_MAX: usize = 256;
const WAITING_PER_TOKEN_MAX: usize = 128;
/// Data of the events of one answer: once it has so much, it takes no more.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// A lease ends this long after it began, however often it is renewed.
const RENEWED_MAX: Duration = Duration::from_secs(86_400);
/// How often a request that waits looks whether the queue was resumed, and leases that have ended are forgotten.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Characters of a reason that are kept; the state keeps fewer bytes still.
const REASON_CHARACTERS_MAX: usize = 512;

/// The leases of workers outside, by name.
#[derive(Default)]
pub struct Outside {
    leases: Mutex<HashMap<String, Arc<Lent>>>,
    /// How many requests of each token wait for an event.
    waiting: Mutex<HashMap<String, usize>>,
}

/// A request that waits, until it is dropped.
struct Waiting<'a> {
    outside: &'a Outside,
    owner: &'a str,
}

/// Leases that nobody has been told of: they end when this is dropped.
struct Untold<'a> {
    outside: &'a Outside,
    named: Vec<(String, Arc<Lent>)>,
}

/// One lease.
pub struct Lent {
    pub leased: Leased,
    /// Name of the token that has it.
    owner: String,
    queue: Queue,
    began: Instant,
    /// Its data in the node's memory.
    _share: Share,
}

/// What a worker asks for.
pub struct Wanted<'a> {
    pub queue: &'a str,
    /// Name of its token.
    pub owner: &'a str,
    pub count: usize,
    pub lease: Duration,
    /// How long it waits for the first event.
    pub wait: Duration,
    /// Whether the token still holds: asked each time before events are taken.
    pub may: &'a (dyn Fn() -> Result<(), Problem> + Sync),
}

/// Which lease a worker speaks of.
pub struct Named<'a> {
    pub queue: &'a str,
    pub owner: &'a str,
    pub lease: &'a str,
}

/// What a worker says of an event it could not handle.
pub struct Failure {
    pub reason: String,
    /// It can never be handled.
    pub is_final: bool,
    /// The longer of this pause and the queue's own is kept.
    pub after: Option<Duration>,
}

impl Outside {
    fn get(&self, named: &Named<'_>) -> Result<Arc<Lent>, Problem> {
        let leases = self.leases.lock();
        let lent = leases.get(named.lease);
        // Not told apart: nobody learns that a name exists.
        let own = lent.filter(|lent| lent.owner == named.owner && lent.queue.name().as_ref() == named.queue);
        own.cloned().ok_or_else(|| lost(named.queue))
    }

    fn forget(&self, lease: &str) {
        self.leases.lock().remove(lease);
    }

    /// How many more a token may lease.
    fn room(leases: &HashMap<String, Arc<Lent>>, owner: &str) -> Result<usize, Problem> {
        let own = leases.values().filter(|lent| lent.owner == owner).count();
        let full = match (leases.len() >= LEASES_MAX, own >= LEASES_PER_TOKEN_MAX) {
            (true, _) => format!("{} events are leased to workers outside, the limit is {LEASES_MAX}", leases.len()),
            (_, true) => format!("the token has leased {own} events, the limit is {LEASES_PER_TOKEN_MAX}"),
            _ => return Ok((LEASES_MAX - leases.len()).min(LEASES_PER_TOKEN_MAX - own)),
        };
        Err(Problem::new(Code::LeasesFull, full))
    }

    /// Gives each a name, as many as there is room for: others may have leased some since it was asked.
    fn enter(&self, owner: &str, lent: Vec<Lent>) -> Result<Untold<'_>, Problem> {
        let names = lent.iter().map(|_| name()).collect::<Result<Vec<_>, _>>()?;
        let mut named: Vec<_> = names.into_iter().zip(lent.into_iter().map(Arc::new)).collect();
        let mut leases = self.leases.lock();
        let room = Self::room(&leases, owner)?;
        let beyond = named.split_off(room.min(named.len()));
        leases.extend(named.iter().cloned());
        drop(leases);
        drop(beyond);
        Ok(Untold { outside: self, named })
    }

    /// A place for a request that waits.
    fn wait<'a>(&'a self, owner: &'a str) -> Result<Waiting<'a>, Problem> {
        let mut waiting = self.waiting.lock();
        let own = waiting.get(owner).copied().unwrap_or_default();
        let full = match (waiting.values().sum::<usize>() >= WAITING_MAX, own >= WAITING_PER_TOKEN_MAX) {
            (true, _) => format!("{WAITING_MAX} requests wait for events, which is the limit"),
            (_, true) => format!("{own} requests of the token wait for events, which is the limit"),
            _ => {
                waiting.insert(owner.to_owned(), own + 1);
                return Ok(Waiting { outside: self, owner });
            }
        };
        Err(Problem::new(Code::LeasesFull, full))
    }

    /// Forgets leases that have ended by themselves; runs until it is dropped.
    pub async fn sweep(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            self.leases.lock().retain(|_, lent| lent.queue.has_lease(lent.leased.lease));
        }
    }
}

impl Untold<'_> {
    fn told(mut self) -> Vec<(String, Arc<Lent>)> {
        std::mem::take(&mut self.named)
    }
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        self.named.iter().for_each(|(name, _)| self.outside.forget(name));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.outside.waiting.lock();
        if let Some(own) = waiting.get_mut(self.owner) {
            *own -= 1;
        }
        waiting.retain(|_, own| *own > 0);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Nothing, if it was acked or failed, or has ended.
        self.queue.release(self.leased.lease);
    }
}

impl Events {
    /// A token was removed: the events that it has leased are ready again.
    pub fn take_back_from(&self, owner: &str) {
        let gone: Vec<_> = self.outside.leases.lock().extract_if(|_, lent| lent.owner == owner).collect();
        drop(gone);
    }

    /// Leases events to a worker outside, each by a name. They are durable. Dropping the future gives all back.
    ///
    /// # Errors
    /// [`Code::QueueUnknown`]; [`Code::ManifestConflict`]: its events go to another node. [`Code::LeasesFull`],
    /// [`Code::MemoryFull`] and [`Code::NodeFull`]; [`Code::Draining`]; those of the disk.
    pub async fn lease_outside(
        &self,
        wanted: &Wanted<'_>,
        bodies: &Arc<BodyRoom>,
    ) -> Result<Vec<(String, Arc<Lent>)>, Problem> {
        let queue = self.queue(wanted.queue)?;
        if let Some(Duty::Send(_, home)) = self.duty(wanted.queue) {
            let detail = format!("the events of queue {:?} are handled at their home, {home}", wanted.queue);
            return Err(Problem::new(Code::ManifestConflict, detail).with_hint("lease them there"));
        }
        let mut ready = queue.watch();
        let until = tokio::time::Instant::now() + wanted.wait;
        let mut place = None;
        loop {
            ready.borrow_and_update();
            self.refuse_when_draining()?;
            (wanted.may)()?;
            let room = Outside::room(&self.outside.leases.lock(), wanted.owner)?;
            let lent = self.take_outside(&queue, wanted, wanted.count.min(room), bodies)?;
            let now = tokio::time::Instant::now();
            if !lent.is_empty() || now >= until {
                return self.hand_out(wanted, lent).await;
            }
            if place.is_none() {
                place = Some(self.outside.wait(wanted.owner)?);
            }
            tokio::select! {
                changed = ready.changed() => if changed.is_err() { return Ok(Vec::new()) },
                () = sleep_until(until.min(now + LOOK_EVERY)) => {}
            }
        }
    }

    fn refuse_when_draining(&self) -> Result<(), Problem> {
        match self.is_draining.load(SeqCst) {
            true => Err(Problem::new(Code::Draining, "the node is being drained, and leases no more events")),
            false => Ok(()),
        }
    }

    /// Those that are ready now, and that have not had all their tries.
    fn take_outside(
        &self,
        queue: &Queue,
        wanted: &Wanted<'_>,
        count: usize,
        bodies: &Arc<BodyRoom>,
    ) -> Result<Vec<Lent>, Problem> {
        let mut lent: Vec<Lent> = Vec::new();
        if self.pauses.is_paused(wanted.queue) {
            return Ok(lent);
        }
        let now_ms = clock::now_ms();
        let until_ms = now_ms.saturating_add(failure::ms(wanted.lease));
        let retry = self.retry_of(wanted.queue);
        let mut bytes = 0;
        for _ in 0..count {
            let Some(leased) = queue.lease(now_ms, until_ms, 1)?.pop() else { break };
            let size = leased.event.data.len();
            let (queue, owner, share) = (queue.clone(), wanted.owner.to_owned(), bodies.share());
            let mut one = Lent { leased, owner, queue, began: Instant::now(), _share: share };
            if one.leased.event.attempt > retry.attempts {
                self.give_up(&one.leased, retry.attempts)?;
                continue;
            }
            if let Err(problem) = one._share.hold(size as u64) {
                // What is there already is worth an answer.
                return if lent.is_empty() { Err(problem) } else { Ok(lent) };
            }
            bytes += size;
            lent.push(one);
            if bytes >= ANSWER_BYTES_MAX {
                break;
            }
        }
        Ok(lent)
    }

    /// Tells of them once a power cut cannot undo their events any more. They count from the start, and whoever may not
    /// have them any more by the end of the wait gets none.
    async fn hand_out(&self, wanted: &Wanted<'_>, lent: Vec<Lent>) -> Result<Vec<(String, Arc<Lent>)>, Problem> {
        if lent.is_empty() {
            return Ok(Vec::new());
        }
        let untold = self.outside.enter(wanted.owner, lent)?;
        for (_, lent) in &untold.named {
            self.state.durable(lent.leased.ticket).await?;
        }
        self.refuse_when_draining()?;
        (wanted.may)()?;
        Ok(untold.told())
    }

    /// Has a lease end so long from now.
    ///
    /// # Errors
    /// [`Code::LeaseLost`]: it has ended, or is another's.
    pub fn renew_outside(&self, named: &Named<'_>, lease: Duration) -> Result<(), Problem> {
        let lent = self.outside.get(named)?;
        let now_ms = clock::now_ms();
        let left = RENEWED_MAX.saturating_sub(lent.began.elapsed());
        if left.is_zero() {
            lent.queue.release(lent.leased.lease);
            return Err(self.ended(named));
        }
        let until_ms = now_ms.saturating_add(failure::ms(lease.min(left)));
        match lent.queue.renew(lent.leased.lease, now_ms, until_ms) {
            true => Ok(()),
            false => Err(self.ended(named)),
        }
    }

    /// The event is handled; whoever waits for its result gets an empty reply. Durable when it returns.
    ///
    /// # Errors
    /// [`Code::LeaseLost`]: nothing was done; those of the disk.
    pub async fn ack_outside(&self, named: &Named<'_>) -> Result<(), Problem> {
        let lent = self.outside.get(named)?;
        let live = self.function_of(named.queue);
        let acked = self.state.transact(|transaction| {
            if let Some(live) = &live {
                results::keep_reply(transaction, live.name(), &lent.leased.event, &WholeReply::Bytes(Bytes::new()))?;
            }
            transaction.ack(&lent.leased);
            Ok::<_, Problem>(())
        });
        let ((), ticket) = acked.map_err(|problem| self.failed(named, problem))?;
        self.outside.forget(named.lease);
        self.state.durable(ticket).await
    }

    /// The event could not be handled: it is tried again, or a dead letter. Says when it is ready again; none of a dead
    /// one. Durable when it returns.
    ///
    /// # Errors
    /// [`Code::LeaseLost`]: nothing was done; those of the disk.
    pub async fn fail_outside(&self, named: &Named<'_>, why: Failure) -> Result<Option<u64>, Problem> {
        let lent = self.outside.get(named)?;
        let reason: String = why.reason.chars().take(REASON_CHARACTERS_MAX).collect();
        let problem = Problem::new(if why.is_final { Code::UnitFatal } else { Code::UnitRetry }, reason);
        let failed = match why.is_final {
            true => Failed::Dead { reason: format!("{}: {}", problem.code, problem.detail) },
            false => {
                let retry = self.retry_of(named.queue);
                let (attempt, now_ms) = (lent.leased.event.attempt, clock::now_ms());
                failure::next_step(&retry, attempt, &problem, why.after, now_ms, self.seeds.next())
            }
        };
        let again_ms = match &failed {
            Failed::Retry { at_ms, .. } => Some(*at_ms),
            Failed::Dead { .. } => None,
        };
        let written = self.write_failure(&lent.leased, failed, &problem);
        let ticket = written.map_err(|problem| self.failed(named, problem))?;
        self.outside.forget(named.lease);
        if let Some(again_ms) = again_ms {
            self.agenda.add(lent.queue.name(), Duration::from_millis(again_ms.saturating_sub(clock::now_ms())));
        }
        self.state.durable(ticket).await?;
        Ok(again_ms)
    }

    /// Workers took it again and again, and never answered in time.
    fn give_up(&self, leased: &Leased, attempts: u32) -> Result<(), Problem> {
        let detail = format!("no worker answered before its lease ended ({attempts} tries)");
        let problem = Problem::new(Code::LeaseLost, detail);
        let reason = format!("{}: {}", problem.code, problem.detail);
        tracing::warn!(queue = %leased.queue, event = %leased.event.id, "a dead letter: {reason}");
        // A power cut that undoes it has the event given up once more.
        self.write_failure(leased, Failed::Dead { reason }, &problem).map(|_ticket| ())
    }

    /// With a dead letter goes why there will never be a result, to whoever waits for one.
    fn write_failure(&self, leased: &Leased, failed: Failed, why: &Problem) -> Result<Ticket, Problem> {
        let live = self.function_of(&leased.queue).filter(|_| matches!(failed, Failed::Dead { .. }));
        let ends = |transaction: &mut Transaction| match &live {
            Some(live) => results::keep_failure(transaction, live.name(), &leased.event, why),
            None => Ok(()),
        };
        let table = self.functions.table();
        let part = table.parts().queues.get(leased.queue.as_ref());
        if let (Failed::Dead { reason }, Some(to)) = (&failed, part.and_then(|part| part.what.dead_to.as_ref())) {
            match dead_to::send_on(&self.state, leased, reason, to.as_str(), ends) {
                Ok(ticket) => return Ok(ticket),
                Err(problem) if problem.code == Code::LeaseLost => return Err(problem),
                // Rather a dead letter here than an event that is nowhere.
                Err(problem) => {
                    let Problem { code, detail, .. } = &problem;
                    tracing::warn!(queue = %leased.queue, "cannot send on to {to}: {code} {detail}");
                }
            }
        }
        let written = self.state.transact(|transaction| {
            ends(transaction)?;
            transaction.fail(leased, failed.clone());
            Ok::<_, Problem>(())
        });
        written.map(|((), ticket)| ticket)
    }

    /// The function which handles the queue too.
    fn function_of(&self, queue: &str) -> Option<Arc<Live>> {
        match self.duty(queue) {
            Some(Duty::Handle(Handler::Function(live))) => Some(live),
            _ => None,
        }
    }

    /// That of the function which handles the queue too, or the defaults.
    fn retry_of(&self, queue: &str) -> Retry {
        self.function_of(queue).map_or_else(Retry::default, |live| live.function.retry.clone())
    }

    fn failed(&self, named: &Named<'_>, problem: Problem) -> Problem {
        match problem.code {
            Code::LeaseLost => self.ended(named),
            _ => problem,
        }
    }

    fn ended(&self, named: &Named<'_>) -> Problem {
        self.outside.forget(named.lease);
        lost(named.queue)
    }
}

fn lost(queue: &str) -> Problem {
    let detail = format!("this token has no such lease in queue {queue:?}: it ended, was settled, or never was");
    Problem::new(Code::LeaseLost, detail)
        .with_hint("renew a lease before it ends: after that, another worker may lease the event")
}

/// 128 random bits: no name comes again, in this run of the node or another.
fn name() -> Result<String, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests::town::TownNode;
    use event::Event;
    use state::Push;

    const QUEUE: &str = "jobs";

    /// A node with so many events in its queue.
    async fn with_jobs(count: usize) -> TownNode {
        let town = TownNode::start("one").await;
        town.deploy("[queue.jobs]\nevents_max = 1000\n").await;
        let push = |id: usize| {
            let (id, source, kind) = (id.to_string(), "/s".to_owned(), "k".to_owned());
            Push { event: Event { id, source, kind, ..Event::default() }, delay: Duration::ZERO, ttl: None }
        };
        town.node.events.push(QUEUE, (0..count).map(push).collect(), None).await.unwrap();
        town
    }

    fn wanted<'a>(count: usize, may: &'a (dyn Fn() -> Result<(), Problem> + Sync)) -> Wanted<'a> {
        let (lease, wait) = (Duration::from_secs(60), Duration::ZERO);
        Wanted { queue: QUEUE, owner: "worker", count, lease, wait, may }
    }

    /// The answer was that it went on, and it ended in that moment.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lease_that_had_its_day_is_not_renewed_but_over() {
        let town = with_jobs(1).await;
        let (events, queue) = (&town.node.events, town.node.events.queue(QUEUE).unwrap());
        let mut leases = events.lease_outside(&wanted(1, &|| Ok(())), &town.node.bodies).await.unwrap();
        let (name, lent) = leases.pop().unwrap();
        events.outside.forget(&name);
        let mut lent = Arc::into_inner(lent).expect("nobody else has it");
        lent.began -= RENEWED_MAX;
        events.outside.leases.lock().insert(name.clone(), Arc::new(lent));
        let named = Named { queue: QUEUE, owner: "worker", lease: &name };
        assert_eq!(events.renew_outside(&named, Duration::from_secs(60)).unwrap_err().code, Code::LeaseLost);
        assert_eq!((queue.counts().leased, queue.counts().ready), (0, 1));
    }

    /// The limit was looked at before the wait for the disk, and the leases were entered after it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn leases_count_before_the_disk_has_their_events_and_end_when_nobody_waits_for_them() {
        let town = with_jobs(3).await;
        let (outside, queue) = (&town.node.events.outside, town.node.events.queue(QUEUE).unwrap());
        let may = || Ok(());
        let take =
            |count| town.node.events.take_outside(&queue, &wanted(count, &may), count, &town.node.bodies).unwrap();
        let room = || Outside::room(&outside.leases.lock(), "worker").unwrap();
        let untold = outside.enter("worker", take(2)).unwrap();
        assert_eq!((untold.named.len(), room()), (2, LEASES_PER_TOKEN_MAX - 2));
        drop(untold);
        assert_eq!((room(), queue.counts().leased, queue.counts().ready), (LEASES_PER_TOKEN_MAX, 0, 3));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_token_that_is_removed_while_it_waits_for_the_disk_gets_nothing() {
        let town = with_jobs(1).await;
        let asked = std::sync::atomic::AtomicU32::new(0);
        let may = || match asked.fetch_add(1, SeqCst) {
            0 => Ok(()),
            _ => Err(Problem::new(Code::TokenInvalid, "it was removed")),
        };
        let lent = town.node.events.lease_outside(&wanted(1, &may), &town.node.bodies).await;
        assert_eq!(lent.err().unwrap().code, Code::TokenInvalid);
        assert!(town.node.events.outside.leases.lock().is_empty());
        assert_eq!(town.node.events.queue(QUEUE).unwrap().counts().leased, 0);
    }

    #[test]
    fn one_token_cannot_take_the_places_of_all_who_wait() {
        let outside = Outside::default();
        let greedy: Vec<_> = (0..WAITING_PER_TOKEN_MAX).map(|_| outside.wait("greedy").ok().unwrap()).collect();
        assert_eq!(outside.wait("greedy").err().unwrap().code, Code::LeasesFull);
        let other = outside.wait("other").ok().unwrap();
        drop(greedy);
        assert!(outside.wait("greedy").is_ok());
        drop(other);
        assert!(outside.waiting.lock().is_empty());
    }
}
