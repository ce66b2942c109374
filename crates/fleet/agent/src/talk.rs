//! A link between two members: each says hello every three seconds, and at once when its list of the revoked is newer.

use crate::active::{Active, PERIOD};
use crate::hello::{Hello, receive};
use fleet_trust::link::why;
use fleet_trust::{LinkEnd, Peer};
use problem::{Code, Problem};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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
    let (node, theirs) = (peer.node, AtomicU64::new(UNKNOWN));
    let listen = async {
        loop {
            let hello = in_time(receive(&mut reader)).await?;
            theirs.store(hello.revoked, Relaxed);
            if let Some(list) = hello.list() {
                active.learn_list(&list).await?;
            }
            active.hear(node, hello.record, is_anchor)?;
            if is_anchor {
                learn(active, hello.known);
            }
            sleep(PACE).await;
        }
    };
    let tell = async {
        let (mut revision, mut after) = (active.revision(), None);
        loop {
            let (known, next) = match active.anchor {
                Some(_) => active.with_table(|table| table.tell(after, Instant::now())),
                None => (Vec::new(), None),
            };
            after = next;
            let list = active.trust.revoked().filter(|list| list.revision() > theirs.load(Relaxed));
            let ours = *revision.borrow_and_update();
            let hello = Hello::new(active.record(), ours, list.as_ref().map(|list| list.bytes()), known);
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
            LinkEnd::Revoked => Problem::new(Code::NodeRevoked, format!("the node {node} was taken out of the fleet")),
            LinkEnd::NewLife => Problem::new(Code::AnchorsAway, format!("the node {node} lives anew")),
        }),
    }
}

/// What an anchor says of other nodes, without those that are revoked here.
fn learn(active: &Active, known: Vec<crate::table::ToldNode>) {
    let revoked = active.trust.revoked();
    let is_revoked = |told: &crate::table::ToldNode| revoked.as_ref().is_some_and(|list| list.contains(&told.node));
    let is_news = active.with_table(|table| {
        let now = Instant::now();
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
