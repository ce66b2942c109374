//! Tells of facts as they change: all of them first, then one after the other.
//!
//! After a break it goes on behind the last change that it read. If the stream is another one, or has fewer changes
//! than were read, the engine has lost something, and all is told again.

use crate::api::call;
use crate::bucket::{EXPECTED, FactBucket, OPERATION};
use crate::link::EngineLink;
use crate::pull::{From, Pull, Read};
use facts::{Answer, Fact, Key, News, Prefix, Revision, Watch};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// News that wait here. More wait in the engine.
const WAITING_MAX: usize = 64;
/// Before what has failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);

pub struct NatsWatch {
    news: mpsc::Receiver<News>,
    following: JoinHandle<()>,
}

/// Where a watch is.
#[derive(Clone, Copy)]
struct Seen {
    /// The first number of the stream, which no other stream has.
    history: u64,
    last: u64,
}

/// A change of a fact, as a message of the stream has it.
pub struct Change {
    key: Key,
    revision: Revision,
    value: Option<Vec<u8>>,
}

/// Nobody waits for news any more.
struct Unheard;

impl NatsWatch {
    pub fn begin(link: EngineLink, bucket: FactBucket, prefix: Prefix) -> Self {
        let (tell, news) = mpsc::channel(WAITING_MAX);
        Self { news, following: tokio::spawn(follow(link, bucket, prefix, tell)) }
    }
}

impl Drop for NatsWatch {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl Watch for NatsWatch {
    fn next(&mut self) -> Answer<'_, News> {
        Box::pin(async {
            match self.news.recv().await {
                Some(news) => news,
                // The runtime ends.
                None => std::future::pending().await,
            }
        })
    }
}

async fn follow(link: EngineLink, bucket: FactBucket, prefix: Prefix, tell: mpsc::Sender<News>) {
    let mut seen = None;
    while follow_once(&link, &bucket, &prefix, &tell, &mut seen).await.is_ok() {
        sleep(PAUSE).await;
    }
}

/// Until the engine does not answer, or the connection is lost.
async fn follow_once(
    link: &EngineLink,
    bucket: &FactBucket,
    prefix: &Prefix,
    tell: &mpsc::Sender<News>,
    seen: &mut Option<Seen>,
) -> Result<(), Unheard> {
    let number = link.connection().await.number;
    let Ok(info) = call(link, &format!("STREAM.INFO.{}", bucket.stream), &json!({})).await else { return Ok(()) };
    let history = info["config"]["first_seq"].as_u64().unwrap_or_default();
    let last = info["state"]["last_seq"].as_u64().unwrap_or_default();
    let known = seen.filter(|seen| seen.history == history && seen.last <= last);
    let from = known.map_or(From::Newest, |seen| From::Number(seen.last + 1));
    let Ok(mut pull) = Pull::begin(link, bucket.consumer(prefix, from, false)).await else { return Ok(()) };
    if known.is_none() {
        let Some(all) = everything(bucket, &mut pull).await else { return Ok(()) };
        tell.send(News::All(all.facts)).await.map_err(|_| Unheard)?;
        // It was read after the stream was asked for its last change.
        *seen = Some(Seen { history, last: all.last.max(last) });
    }
    loop {
        let read = tokio::select! {
            read = pull.next() => read,
            () = link.lost(number) => return Ok(()),
            () = tell.closed() => return Err(Unheard),
        };
        let Ok(Some(read)) = read else { return Ok(()) };
        *seen = Some(Seen { history, last: read.number });
        let Some(change) = change(bucket, &read) else { continue };
        tell.send(change.into_news()).await.map_err(|_| Unheard)?;
    }
}

struct All {
    facts: Vec<Fact>,
    /// The last change among them.
    last: u64,
}

/// What there is at the beginning.
async fn everything(bucket: &FactBucket, pull: &mut Pull) -> Option<All> {
    let (mut facts, mut last) = (BTreeMap::new(), 0);
    let mut pending = pull.pending;
    while pending > 0 {
        let read = pull.next().await.ok()??;
        (pending, last) = (read.pending, read.number);
        // One key may come twice, if it was changed meanwhile.
        if let Some(change) = change(bucket, &read) {
            match change.into_news() {
                News::Set(fact) => _ = facts.insert(fact.key.clone(), fact),
                News::Deleted(key, _) => _ = facts.remove(&key),
                News::All(_) => {}
            }
        }
    }
    Some(All { facts: facts.into_values().collect(), last })
}

/// The change that a message is; none if it is no fact of the bucket.
pub fn change(bucket: &FactBucket, read: &Read) -> Option<Change> {
    let key = bucket.key(&read.message.subject)?;
    let has = |name: &str| read.message.headers.as_ref().is_some_and(|headers| headers.get(name).is_some());
    let is_deleted = has(OPERATION) || !has(EXPECTED);
    let value = (!is_deleted).then(|| read.message.payload.to_vec());
    Some(Change { key, revision: Revision(read.number), value })
}

impl Change {
    /// None: it was deleted.
    pub fn into_fact(self) -> Option<Fact> {
        Some(Fact { key: self.key, value: self.value?, revision: self.revision })
    }

    fn into_news(self) -> News {
        let Self { key, revision, value } = self;
        match value {
            Some(value) => News::Set(Fact { key, value, revision }),
            None => News::Deleted(key, revision),
        }
    }
}
