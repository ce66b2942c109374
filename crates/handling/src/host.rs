//! The host of one attempt: every operation on store and queues goes into one transaction, after a grant was found.

use crate::outgoing::{PushedBy, TRACE};
use crate::requests::{Trace, reach};
use crate::values;
use crate::{Handler, requests};
use budget::{Budget, Purpose, Share};
use event::Event;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Uri};
use manifest::Name;
use parking_lot::Mutex;
use problem::{Code, Problem};
use state::{Leased, StoreError, Ticket, Transaction};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use unit::{Departure, Deployed, Entry, Host, Inbound, Outbound, Outgoing, Page, Refusal, bucket_denied};

/// How much longer than its call a popped event is leased, so that a commit at the last moment still finds the lease.
const LEASE_SLACK_MS: u64 = 5_000;

/// Hexadecimal digits of [`Handling::key`].
const KEY_DIGITS: usize = 32;

/// What the work is about: where what the unit pushes comes from, and which trace its requests belong to.
#[derive(Default)]
pub struct Cause {
    /// What is handled, if it came from a queue.
    pub lease: Option<Arc<Leased>>,
    pub named: Named,
}

/// What of an event or request is needed while a unit has it; nothing for a function that may neither push nor send.
#[derive(Debug, Default)]
pub struct Named {
    /// Who gave the id of the event; of a request, nothing.
    pub id_giver: String,
    pub id: String,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
}

impl Named {
    /// `attribute` finds the attributes of the event, or the headers of the request.
    pub fn of<'a>(id_giver: &str, id: &str, attribute: impl Fn(&str) -> Option<&'a str>) -> Self {
        let [traceparent, tracestate] = TRACE.map(|name| attribute(name).map(str::to_owned));
        Self { id_giver: id_giver.to_owned(), id: id.to_owned(), traceparent, tracestate }
    }
}

/// One attempt as its host sees it.
pub struct Handling {
    handler: Handler,
    deployed: Arc<Deployed>,
    request_id: Arc<str>,
    deadline: Instant,
    cause: Cause,
    done: Mutex<Done>,
    // What is asked of while the unit may still run on a thread of least priority: without a lock it could hold.
    /// The number of what it has committed already, before its end; 0 for nothing.
    committed: AtomicU64,
    /// A request has left that another unit would send again.
    has_departed: AtomicBool,
    /// The attempt is settled: a unit that is still on its way to its end does nothing more.
    is_over: AtomicBool,
}

/// What it has done so far.
struct Done {
    /// Begun by the first use of store or queue.
    transaction: Option<Transaction>,
    pushed: u32,
    /// Requests that were sent whole.
    sent: u32,
    /// What was committed already, before the end.
    committed: Ticket,
    /// What the transaction holds, in the node's budget.
    held: Share,
    /// A queue it pushed to had no room.
    full: Option<Problem>,
}

type Outcome<T> = Result<T, Refusal>;

impl Handling {
    pub fn new(
        handler: &Handler,
        deployed: Arc<Deployed>,
        request_id: Arc<str>,
        deadline: Instant,
        cause: Cause,
    ) -> Self {
        let done = Done {
            transaction: None,
            pushed: 0,
            sent: 0,
            committed: Ticket::NOTHING_WRITTEN,
            held: deployed.budget.share(Purpose::HostCalls),
            full: None,
        };
        Self {
            handler: handler.clone(),
            deployed,
            request_id,
            deadline,
            cause,
            done: Mutex::new(done),
            committed: AtomicU64::new(0),
            has_departed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// The same, which does all it does in a transaction that others have begun.
    pub fn lent(mut self, transaction: Transaction) -> Self {
        self.done.get_mut().transaction = Some(transaction);
        self
    }

    /// Takes what was done and not committed, once the unit has ended.
    pub fn finish(&self) -> Option<Transaction> {
        self.give_up();
        self.done.lock().take()
    }

    /// Why the handling of a leased event failed: where the handler gave up after a push to a full queue, that queue.
    pub fn blame(&self, problem: Problem) -> Problem {
        let gave_up = matches!(problem.code, Code::UnitInvalid | Code::UnitRetry | Code::UnitFatal | Code::UnitTrapped);
        match self.done.lock().full.take() {
            Some(full) if gave_up => full,
            _ => problem,
        }
    }

    /// From here on the unit, which may not have ended, can do no more.
    pub fn give_up(&self) {
        self.is_over.store(true, SeqCst);
    }

    /// The memory of the node.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.deployed.budget
    }

    /// The number of what the unit has committed itself, before its end.
    pub fn committed(&self) -> u64 {
        self.committed.load(SeqCst)
    }

    /// Whether a request has left that another unit would send again.
    pub fn has_departed(&self) -> bool {
        self.has_departed.load(SeqCst)
    }

    fn trace(&self) -> Trace {
        let Named { traceparent, tracestate, .. } = &self.cause.named;
        Trace::new(traceparent.as_deref(), tracestate.as_deref())
    }

    /// What tells this call from every other: the same for its reruns, and for every handling of the same event. Nobody
    /// outside chooses it: two requests with one `x-request-id` are two calls.
    fn key(&self) -> String {
        static STARTED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mut hash = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        match &self.cause.lease {
            Some(lease) => {
                let Leased { queue, event, pushed_ms, .. } = &**lease;
                for bytes in [queue.as_bytes(), event.source.as_bytes(), event.id.as_bytes(), &event.data] {
                    part(bytes);
                }
                part(&pushed_ms.to_le_bytes());
            }
            // A call's time ends at a moment of its own.
            None => {
                part(self.request_id.as_bytes());
                part(&STARTED.hash_one((&*self.request_id, self.deadline)).to_le_bytes());
            }
        }
        hash.finalize().to_hex()[..KEY_DIGITS].to_owned()
    }

    /// What has to be durable before a request of this handling goes out: its event, what it has committed and what it
    /// has read. The rule is at [`Ticket`].
    fn rests_on(&self, done: &Done) -> Ticket {
        let event = self.cause.lease.as_ref().map_or(Ticket::NOTHING_WRITTEN, |lease| lease.ticket);
        let seen = done.transaction.as_ref().map_or(Ticket::NOTHING_WRITTEN, Transaction::seen);
        event.max(seen).max(done.committed)
    }

    /// Does one thing in the transaction, which it begins if need be.
    fn operate<T>(&self, operate: impl FnOnce(&mut Transaction) -> Result<T, StoreError>) -> Outcome<T> {
        let mut done = self.done.lock();
        operate(done.transaction(self)?).map_err(refusal)
    }

    /// The same for what leaves something in memory, for which room is then held. Asked after it rather than before,
    /// because only then is its size known; it is at most one value.
    fn write<T>(&self, bucket: &str, write: impl FnOnce(&mut Transaction) -> Result<T, StoreError>) -> Outcome<T> {
        self.may_use(bucket)?;
        let mut done = self.done.lock();
        let written = write(done.transaction(self)?).map_err(refusal)?;
        done.hold().map(|()| written)
    }

    fn may_use(&self, bucket: &str) -> Outcome<()> {
        match self.deployed.function.grants.stores.iter().any(|granted| granted == bucket) {
            true => Ok(()),
            false => Err(Refusal::Denied(bucket_denied(bucket))),
        }
    }
}

impl Done {
    fn transaction(&mut self, handling: &Handling) -> Outcome<&mut Transaction> {
        if handling.is_over.load(SeqCst) {
            return Err(Refusal::Unavailable("the handling is over".to_owned()));
        }
        Ok(self.transaction.get_or_insert_with(|| handling.handler.state.begin()))
    }

    fn held_bytes(&self) -> u64 {
        self.transaction.as_ref().map_or(0, Transaction::part_bytes) as u64
    }

    fn hold(&mut self) -> Outcome<()> {
        let bytes = self.held_bytes();
        Ok(self.held.hold(bytes)?)
    }

    fn take(&mut self) -> Option<Transaction> {
        self.held.shrink(u64::MAX);
        self.transaction.take()
    }
}

fn refusal(error: StoreError) -> Refusal {
    match error {
        StoreError::Unavailable(problem) => Refusal::Unavailable(problem.detail.into_owned()),
        // Not the argument's fault: there may be room again later.
        full @ (StoreError::BucketFull(_) | StoreError::QueueFull(_)) => Refusal::Unavailable(full.to_string()),
        invalid => Refusal::Invalid(invalid.to_string()),
    }
}

impl Host for Handling {
    fn get(&self, bucket: &str, key: &str) -> Outcome<Option<Vec<u8>>> {
        self.may_use(bucket)?;
        self.operate(|transaction| transaction.get(bucket, key))
    }

    fn set(&self, bucket: &str, key: &str, value: Vec<u8>) -> Outcome<()> {
        self.write(bucket, |transaction| transaction.set(bucket, key, value))
    }

    fn set_with_ttl(&self, bucket: &str, key: &str, value: Vec<u8>, ttl: Duration) -> Outcome<()> {
        self.write(bucket, |transaction| transaction.set_with_ttl(bucket, key, value, ttl))
    }

    fn delete(&self, bucket: &str, key: &str) -> Outcome<()> {
        self.write(bucket, |transaction| transaction.delete(bucket, key))
    }

    fn increment(&self, bucket: &str, key: &str, delta: i64) -> Outcome<i64> {
        self.write(bucket, |transaction| transaction.increment(bucket, key, delta))
    }

    fn compare_and_set(
        &self,
        bucket: &str,
        key: &str,
        expected: Option<&[u8]>,
        value: Option<Vec<u8>>,
    ) -> Outcome<bool> {
        self.write(bucket, |transaction| transaction.compare_and_set(bucket, key, expected, value))
    }

    fn list(&self, bucket: &str, prefix: &str, after: Option<&str>, limit: u32) -> Outcome<Page> {
        self.may_use(bucket)?;
        let state::Page { entries, next } =
            self.operate(|transaction| transaction.list(bucket, prefix, after, limit))?;
        let entries = entries.into_iter().map(|state::Entry { key, value }| Entry { key, value });
        Ok(Page { entries: entries.collect(), next })
    }

    fn may_push(&self, queue: &str) -> Outcome<()> {
        match covers(&self.deployed.function.grants.push, queue) {
            true => Ok(()),
            false => Err(queue_denied("push", queue)),
        }
    }

    fn push(&self, queue: &str, outgoing: Outgoing) -> Outcome<()> {
        self.may_push(queue)?;
        let mut done = self.done.lock();
        let number = done.pushed + 1;
        let now_ms = values::unix_ms();
        let origin = PushedBy { function: &self.deployed.name, named: &self.cause.named };
        let push = origin.push(number, queue, outgoing, now_ms).map_err(Refusal::Invalid)?;
        if let Some(lease) = self.cause.lease.as_ref().filter(|lease| *lease.queue == *queue) {
            // The event makes room for those that follow from it: a full queue that feeds itself goes on.
            done.transaction(self)?.ack(lease);
        }
        // One the queue remembers already is where it should be.
        if let Err(error) = done.transaction(self)?.push(queue, &push, now_ms) {
            if let StoreError::QueueFull(full) = &error {
                done.full = Some(Problem::new(Code::QueueFull, full.to_string()));
            }
            return Err(refusal(error));
        }
        done.pushed = number;
        done.hold()
    }

    /// The event is leased until a little after the deadline.
    fn pop(&self, queue: &str) -> Outcome<Option<Event>> {
        if !covers(&self.deployed.function.grants.pop, queue) {
            return Err(queue_denied("pop", queue));
        }
        let now_ms = values::unix_ms();
        let left = self.deadline.saturating_duration_since(Instant::now());
        let until_ms = now_ms + u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2) + LEASE_SLACK_MS;
        self.operate(|transaction| transaction.pop(queue, now_ms, until_ms))
    }

    fn now_ms(&self) -> u64 {
        values::unix_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        values::monotonic_ns()
    }

    fn random(&self, count: u32) -> Result<Vec<u8>, String> {
        values::random(count)
    }

    fn config(&self, name: &str) -> Option<&str> {
        values::value(&self.deployed, name)
    }

    fn configs(&self) -> Vec<(String, String)> {
        values::values(&self.deployed)
    }

    fn send(&self, request: Outbound) -> BoxFuture<'_, Outcome<Inbound>> {
        let (number, cause) = {
            let mut done = self.done.lock();
            done.sent += 1;
            (done.sent, self.rests_on(&done))
        };
        let key = format!("{}-{number}", self.key());
        let sending = requests::Sending {
            client: &self.handler.client,
            deployed: &self.deployed,
            trace: self.trace(),
            key,
            deadline: self.deadline,
        };
        Box::pin(sending.send(request, self.handler.state.durable(cause)))
    }

    fn departs(&self, uri: &Uri, headers: &mut HeaderMap) -> Result<Departure, String> {
        let reach = reach(&self.deployed.function.grants.hosts, uri)?;
        self.trace().add_to(headers);
        self.has_departed.store(true, SeqCst);
        let cause = self.rests_on(&self.done.lock());
        let state = self.handler.state.clone();
        let function = self.deployed.name.as_str().into();
        Ok(Departure { function, reach, caused: Box::pin(async move { state.durable(cause).await }) })
    }

    fn commit(&self) -> Result<(), Problem> {
        if self.cause.lease.is_some() {
            return Ok(());
        }
        let mut done = self.done.lock();
        if self.is_over.load(SeqCst) {
            return Err(Problem::new(Code::Internal, "the handling is over"));
        }
        if let Some(transaction) = done.take() {
            done.committed = transaction.commit()?;
            self.committed.store(done.committed.number(), SeqCst);
        }
        Ok(())
    }

    fn undo(&self) {
        let mut done = self.done.lock();
        done.transaction.iter_mut().for_each(Transaction::undo);
        (done.pushed, done.sent, done.full) = (0, 0, None);
        // What was only read is held again with the next write.
        done.held.shrink(u64::MAX);
    }

    fn held_bytes(&self) -> u64 {
        self.done.lock().held_bytes()
    }
}

fn covers(grants: &[Name], queue: &str) -> bool {
    grants.iter().any(|granted| granted.as_str() == queue)
}

fn queue_denied(verb: &str, queue: &str) -> Refusal {
    Refusal::Denied(format!("no grant covers {verb} to the queue {queue:?}; add it to grants.{verb} of the function"))
}
