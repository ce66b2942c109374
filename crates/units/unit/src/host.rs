//! What a unit may ask of whatever runs it: `contracts/wit/unit.wit` as one trait, and the values it speaks of.

use crate::{Level, Output, Stream, cut};
use budget::Share;
use event::Event;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Uri};
use problem::Problem;
use std::sync::Arc;
use std::time::Duration;

/// The host of one attempt. A unit's class calls it, on whichever thread the unit runs; it finds a grant before it does
/// anything, and keeps what it did apart until the attempt is known to have succeeded.
///
/// Nothing here waits but [`Host::send`]. The methods that return [`Refusal`] did nothing when they refuse, unless the
/// refusal says otherwise; the unit may go on.
pub trait Host: Send + Sync {
    /// `store.get`.
    fn get(&self, bucket: &str, key: &str) -> Result<Option<Vec<u8>>, Refusal>;

    /// `store.set`.
    fn set(&self, bucket: &str, key: &str, value: Vec<u8>) -> Result<(), Refusal>;

    /// `store.set-with-ttl`.
    fn set_with_ttl(&self, bucket: &str, key: &str, value: Vec<u8>, ttl: Duration) -> Result<(), Refusal>;

    /// `store.delete`.
    fn delete(&self, bucket: &str, key: &str) -> Result<(), Refusal>;

    /// `store.increment`.
    fn increment(&self, bucket: &str, key: &str, delta: i64) -> Result<i64, Refusal>;

    /// `store.compare-and-set`.
    fn compare_and_set(
        &self,
        bucket: &str,
        key: &str,
        expected: Option<&[u8]>,
        value: Option<Vec<u8>>,
    ) -> Result<bool, Refusal>;

    /// `store.list`.
    fn list(&self, bucket: &str, prefix: &str, after: Option<&str>, limit: u32) -> Result<Page, Refusal>;

    /// Whether [`Host::push`] has a grant: asked before anything is made of what is to be pushed.
    fn may_push(&self, queue: &str) -> Result<(), Refusal>;

    /// `queue.push`.
    fn push(&self, queue: &str, event: Outgoing) -> Result<(), Refusal>;

    /// `queue.pop`.
    fn pop(&self, queue: &str) -> Result<Option<Event>, Refusal>;

    /// `log.write`. What a unit logs and what it prints are bounded together, so its class lends the unit's output.
    fn log(&self, output: &Output, level: Level, message: &str) {
        output.write(level, Stream::Log, message);
    }

    /// `clock.now-ms`.
    fn now_ms(&self) -> u64;

    /// `clock.monotonic-ns`.
    fn monotonic_ns(&self) -> u64;

    /// `random.bytes`.
    ///
    /// # Errors
    /// More than a call may ask for, or the operating system has none: the unit is ended.
    fn random(&self, count: u32) -> Result<Vec<u8>, String>;

    /// `config.get`.
    fn config(&self, name: &str) -> Option<&str>;

    /// All values there are, by name.
    fn configs(&self) -> Vec<(String, String)>;

    /// `http.send`. Waits until what the request rests on is durable.
    fn send(&self, request: Outbound) -> BoxFuture<'_, Result<Inbound, Refusal>>;

    /// A request that the class sends itself, piece by piece, goes to `uri` with these `headers`, which get those of
    /// the trace. From then on the work is not begun again.
    ///
    /// # Errors
    /// No grant covers it; says which one would.
    fn departs(&self, uri: &Uri, headers: &mut HeaderMap) -> Result<Departure, String>;

    /// The head of the reply is set, or the unit has ended after that: what was done until now is committed, and what
    /// comes later is done apart from it. Leased work is committed once, at its end: then this does nothing.
    ///
    /// # Errors
    /// Nothing was committed. [`Code::Conflict`](problem::Code::Conflict): the unit must not go on.
    fn commit(&self) -> Result<(), Problem>;

    /// Undoes what was written, pushed and popped since the last commit. What was read stays read.
    fn undo(&self);

    /// Bytes in memory of what was done and not committed. Room in the node was found for them.
    fn held_bytes(&self) -> u64;
}

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

impl Refusal {
    /// Its words.
    pub fn why(self) -> String {
        match self {
            Self::Denied(why) | Self::Invalid(why) | Self::Unavailable(why) => why,
        }
    }
}

impl From<budget::Full> for Refusal {
    fn from(full: budget::Full) -> Self {
        Self::Unavailable(Problem::from(full).detail.into_owned())
    }
}

/// Bytes of a bucket's name in words about it. The rest is cut off.
const SHOWN_BYTES_MAX: usize = 64;

/// What to say of a bucket without a grant.
pub fn bucket_denied(bucket: &str) -> String {
    let bucket = cut(bucket, SHOWN_BYTES_MAX);
    format!("no grant covers the bucket {bucket:?}; add it to grants.stores of the function")
}

/// A page of a bucket, as the contract has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Pass it as `after` to read on; none when this was the last page.
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
}

/// An event as a handler pushes it: without what the host adds.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    pub kind: String,
    pub subject: Option<String>,
    pub content_type: Option<String>,
    pub attributes: Vec<(String, String)>,
    pub data: Vec<u8>,
    /// At most a year.
    pub delay: Duration,
    pub ttl: Option<Duration>,
}

/// A whole request, as the contract has it.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    pub method: String,
    /// Absolute, `http` or `https`.
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub timeout: Option<Duration>,
}

/// A whole response.
#[derive(Debug)]
pub struct Inbound {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The same in the node's budget.
    pub held: Share,
}

/// A request that may leave the node.
pub struct Departure {
    /// Whose it is.
    pub function: Arc<str>,
    pub reach: Reach,
    /// Ready once what the request rests on is durable: what a power cut undoes must not have been told.
    pub caused: BoxFuture<'static, Result<(), Problem>>,
}

/// How far a request may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To any address: a grant names the host, by name or by address.
    Named,
    /// To addresses outside of this machine, its link and its cloud's metadata.
    Outer,
}
