//! A link between two members: each says hello every three seconds, and at once when its list of the revoked is newer.
//! What was said before on the link is left out.

use crate::active::{Active, PERIOD, revoked};
use crate::hello::{Hello, receive};
use crate::table::{Part, Record, Telling, ToldNode};
use fleet_trust::link::why;
use fleet_trust::{LinkEnd, NodeId, Peer};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{sleep, timeout};

/// How long nothing may come. A link that is silent for longer is given up, and dialed again.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// What lies between two hellos that are looked at: a member that says more waits.
const PACE: Duration = Duration::from_millis(200);

/// The other side's list of revoked nodes has not been told yet.
const UNKNOWN: u64 = u64::MAX;

/// Talks until the link ends. `is_anchor`: the other side is one.
///
/// # Errors
/// Why it ended.
pub async fn talk<S>(active: &Active, mut peer: Peer, stream: S, is_anchor: bool) -> Result<(), Problem>
where
    S: AsyncRead + AsyncWrite,
{
    let (mut reader, mut writer) = split(stream);
    let (node, theirs, is_brief) = (peer.node, AtomicU64::new(UNKNOWN), AtomicBool::new(false));
    let listen = async {
        let mut said = None;
        loop {
            let hello = in_time(receive(&mut reader)).await?;
            theirs.store(hello.revoked, Relaxed);
            is_brief.store(hello.brief, Relaxed);
            if let Some(list) = hello.list() {
                active.learn_list(&list).await?;
            }
            active.hear(node, newest(&mut said, hello.record)?, is_anchor)?;
            if is_anchor {
                learn(active, hello.known, &hello.heard_ms);
                active.learn_anchors().await;
            }
            sleep(PACE).await;
        }
    };
    let tell = async {
        let (mut revision, mut telling, mut said) = (active.revision(), Telling::default(), None);
        loop {
            let is_brief = is_brief.load(Relaxed);
            let part = match active.anchor {
                Some(_) => active.with_table(|table| table.tell(&mut telling, is_brief, Instant::now())),
                None => Part::default(),
            };
            let record = Some(active.record()).filter(|record| !is_brief || said.as_ref() != Some(record));
            said = record.clone().or(said);
            let theirs = theirs.load(Relaxed);
            // An anchor with another list of the same revision makes one of both.
            let is_rival = is_anchor && active.trust.has_rival_list();
            let is_owed = |ours: u64| ours > theirs || (is_rival && ours == theirs);
            let list = active.trust.revoked().filter(|list| is_owed(list.revision()));
            let ours = *revision.borrow_and_update();
            let hello = Hello::new(record, ours, list.as_ref().map(|list| list.bytes()), part);
            let send = async {
                writer.write_all(&hello.write()).await.map_err(|error| why(&error))?;
                writer.flush().await.map_err(|error| why(&error))
            };
            in_time(send).await?;
            tokio::select! {
                () = sleep(PERIOD) => {}
                // Its sender lives as long as this node's part in the fleet.
                _ = revision.changed() => {}
            }
        }
    };
    tokio::select! {
        ended = listen => ended,
        ended = tell => ended,
        end = peer.ended() => Err(match end {
            LinkEnd::Revoked => revoked(&node),
            LinkEnd::NewLife => Problem::new(Code::AnchorsAway, format!("the node {node} lives anew")),
        }),
    }
}

/// What the other side says of itself: now, or before on this link.
fn newest(said: &mut Option<Record>, record: Option<Record>) -> Result<Record, Problem> {
    *said = record.or(said.take());
    said.clone().ok_or_else(|| Problem::new(Code::FleetMessage, "the first hello of a link does not say who it is"))
}

/// What an anchor says of other nodes, without those that are revoked here.
fn learn(active: &Active, known: Vec<ToldNode>, heard_ms: &BTreeMap<NodeId, u64>) {
    let is_news = active.with_table(|table| {
        let now = Instant::now();
        // Of this moment: whoever was forgotten a moment ago would come back for good.
        let revoked = active.trust.revoked();
        let is_revoked = |told: &ToldNode| revoked.as_ref().is_some_and(|list| list.contains(&told.node));
        heard_ms.iter().for_each(|(node, ms)| table.hear_again(node, *ms, now));
        known.into_iter().filter(|told| !is_revoked(told)).fold(false, |news, told| table.learn(told, now) || news)
    });
    if is_news {
        active.has_news();
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let late = |_| Problem::new(Code::AnchorsAway, format!("the link was silent for {} s", SILENCE_MAX.as_secs()));
    timeout(SILENCE_MAX, work).await.map_err(late)?
}
