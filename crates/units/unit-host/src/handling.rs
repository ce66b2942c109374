//! Store and queue as one handling sees them: every operation goes into one transaction, after a grant was found.

use crate::unix_ms;
use budget::{Full, Purpose, Share};
use event::Event;
use manifest::Name;
use problem::Problem;
use state::{Leased, Page, StoreError, Ticket, Transaction};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use unit::{Deployed, Origin, Outgoing};

/// How much longer than its call a popped event is leased, so that a commit at the last moment still finds the lease.
const LEASE_SLACK_MS: u64 = 5_000;

/// Hexadecimal digits of [`Handling::key`].
const KEY_DIGITS: usize = 32;

/// Why the host refused what a function asked for: `error` of `contracts/wit/unit.wit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No grant covers it.
    Denied(String),
    /// An argument is malformed or over a limit.
    Invalid(String),
    /// Not now. It may or may not have happened.
    Unavailable(String),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(problem) => Self::Unavailable(problem.detail.into_owned()),
            // Not the argument's fault: there may be room again later.
            full @ (StoreError::BucketFull(_) | StoreError::QueueFull(_)) => Self::Unavailable(full.to_string()),
            invalid => Self::Invalid(invalid.to_string()),
        }
    }
}

impl From<Full> for Refusal {
    fn from(full: Full) -> Self {
        Self::Unavailable(Problem::from(full).detail.into_owned())
    }
}

/// What one handling has done so far.
pub struct Handling {
    deployed: Arc<Deployed>,
    /// Begun by the first use of store or queue.
    transaction: Option<Transaction>,
    /// Where the work comes from, if it comes from a queue.
    lease: Option<Arc<Leased>>,
    pushed: u32,
    /// What it has committed already, before its end.
    committed: Ticket,
    /// What the transaction holds, in the node's budget.
    held: Share,
}

impl Handling {
    pub fn new(deployed: Arc<Deployed>) -> Self {
        let held = deployed.budget.share(Purpose::HostCalls);
        Self { deployed, transaction: None, lease: None, pushed: 0, committed: Ticket::NOTHING_WRITTEN, held }
    }

    /// Begins to handle what was leased, if it was.
    pub fn begin(&mut self, lease: Option<Arc<Leased>>) {
        self.lease = lease;
    }

    /// What is handled, if it came from a queue.
    pub fn leased(&self) -> Option<Arc<Leased>> {
        self.lease.clone()
    }

    pub fn transaction(&mut self) -> &mut Transaction {
        let state = &self.deployed.state;
        self.transaction.get_or_insert_with(|| state.begin())
    }

    /// What tells this call from every other: the same for its reruns, and for every handling of the same event. Nobody
    /// outside chooses it: two requests with one `x-request-id` are two calls.
    pub fn key(&self, request_id: &str, deadline: Instant) -> String {
        static STARTED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mut hash = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        match &self.lease {
            Some(lease) => {
                let Leased { queue, event, pushed_ms, .. } = &**lease;
                for bytes in [queue.as_bytes(), event.source.as_bytes(), event.id.as_bytes(), &event.data] {
                    part(bytes);
                }
                part(&pushed_ms.to_le_bytes());
            }
            // A call's time ends at a moment of its own.
            None => {
                part(request_id.as_bytes());
                part(&STARTED.hash_one((request_id, deadline)).to_le_bytes());
            }
        }
        hash.finalize().to_hex()[..KEY_DIGITS].to_owned()
    }

    /// What has to be durable before a request of this handling goes out: its event, what it has committed and what it
    /// has read. The rule is at [`Ticket`].
    pub fn cause(&self) -> Ticket {
        let event = self.lease.as_ref().map_or(Ticket::NOTHING_WRITTEN, |lease| lease.ticket);
        let seen = self.transaction.as_ref().map_or(Ticket::NOTHING_WRITTEN, Transaction::seen);
        event.max(seen).max(self.committed)
    }

    /// What was taken has been committed.
    pub fn committed(&mut self, ticket: Ticket) {
        self.committed = ticket;
    }

    /// Bytes that what was done until now holds in memory.
    pub fn held_bytes(&self) -> u64 {
        self.transaction.as_ref().map_or(0, Transaction::held_bytes) as u64
    }

    /// Holds room for what was just written. Asked after it rather than before, for only then is its size known; it is
    /// at most one value.
    fn hold(&mut self) -> Outcome<()> {
        Ok(self.held.hold(self.held_bytes())?)
    }

    /// Takes what was done until now; what comes later is a transaction of its own.
    pub fn take(&mut self) -> Option<Transaction> {
        self.held.shrink(u64::MAX);
        self.transaction.take()
    }

    /// Takes what was done, and forgets what it was about.
    pub fn end(&mut self) -> Option<Transaction> {
        self.lease = None;
        self.pushed = 0;
        self.committed = Ticket::NOTHING_WRITTEN;
        self.take()
    }
}

type Outcome<T> = Result<T, Refusal>;

/// The store.
impl Handling {
    pub fn is_granted(&self, bucket: &str) -> bool {
        self.deployed.function.grants.stores.iter().any(|granted| granted == bucket)
    }

    fn bucket(&mut self, bucket: &str) -> Outcome<&mut Transaction> {
        if !self.is_granted(bucket) {
            return Err(Refusal::Denied(bucket_denied(bucket)));
        }
        Ok(self.transaction())
    }

    pub fn get(&mut self, bucket: &str, key: &str) -> Outcome<Option<Vec<u8>>> {
        Ok(self.bucket(bucket)?.get(bucket, key)?)
    }

    pub fn set(&mut self, bucket: &str, key: &str, value: Vec<u8>) -> Outcome<()> {
        self.bucket(bucket)?.set(bucket, key, value)?;
        self.hold()
    }

    pub fn set_with_ttl(&mut self, bucket: &str, key: &str, value: Vec<u8>, ttl: Duration) -> Outcome<()> {
        self.bucket(bucket)?.set_with_ttl(bucket, key, value, ttl)?;
        self.hold()
    }

    pub fn delete(&mut self, bucket: &str, key: &str) -> Outcome<()> {
        self.bucket(bucket)?.delete(bucket, key)?;
        self.hold()
    }

    pub fn increment(&mut self, bucket: &str, key: &str, delta: i64) -> Outcome<i64> {
        let sum = self.bucket(bucket)?.increment(bucket, key, delta)?;
        self.hold().map(|()| sum)
    }

    pub fn compare_and_set(
        &mut self,
        bucket: &str,
        key: &str,
        expected: Option<&[u8]>,
        value: Option<Vec<u8>>,
    ) -> Outcome<bool> {
        let did = self.bucket(bucket)?.compare_and_set(bucket, key, expected, value)?;
        self.hold().map(|()| did)
    }

    pub fn list(&mut self, bucket: &str, prefix: &str, after: Option<&str>, limit: u32) -> Outcome<Page> {
        Ok(self.bucket(bucket)?.list(bucket, prefix, after, limit)?)
    }
}

/// The queues.
impl Handling {
    /// # Errors
    /// No grant covers it: asked before anything is made of what is to be pushed.
    pub fn may_push(&self, queue: &str) -> Outcome<()> {
        match covers(&self.deployed.function.grants.push, queue) {
            true => Ok(()),
            false => Err(queue_denied("push", queue)),
        }
    }

    pub fn push(&mut self, queue: &str, outgoing: Outgoing, origin: &Origin<'_>) -> Outcome<()> {
        self.may_push(queue)?;
        let number = self.pushed + 1;
        let now_ms = unix_ms();
        let push = origin.push(number, queue, outgoing, now_ms).map_err(Refusal::Invalid)?;
        if let Some(lease) = self.lease.clone().filter(|lease| *lease.queue == *queue) {
            // The event makes room for those that follow from it: a full queue that feeds itself goes on.
            self.transaction().ack(&lease);
        }
        // One the queue remembers already is where it should be.
        self.transaction().push(queue, &push, now_ms)?;
        self.pushed = number;
        self.hold()
    }

    /// The oldest event that is ready, leased until a little after `deadline`.
    pub fn pop(&mut self, queue: &str, deadline: Instant) -> Outcome<Option<Event>> {
        if !covers(&self.deployed.function.grants.pop, queue) {
            return Err(queue_denied("pop", queue));
        }
        let now_ms = unix_ms();
        let left = deadline.saturating_duration_since(Instant::now());
        let until_ms = now_ms + u64::try_from(left.as_millis()).unwrap_or(u64::MAX / 2) + LEASE_SLACK_MS;
        Ok(self.transaction().pop(queue, now_ms, until_ms)?)
    }
}

fn covers(grants: &[Name], queue: &str) -> bool {
    grants.iter().any(|granted| granted.as_str() == queue)
}

pub fn bucket_denied(bucket: &str) -> String {
    format!("no grant covers the bucket {bucket:?}; add it to grants.stores of the function")
}

fn queue_denied(verb: &str, queue: &str) -> Refusal {
    Refusal::Denied(format!("no grant covers {verb} to the queue {queue:?}; add it to grants.{verb} of the function"))
}
