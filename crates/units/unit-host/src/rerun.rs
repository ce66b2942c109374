//! One event, handled: a transaction, begun again in a fresh unit after a conflict.
//!
//! ```text
//!   attempt ─▶ ok ─▶ commit: writes, pushes, the ack of the lease ─▶ durable, if not leased ─▶ reply
//!     ▲     │           │conflict
//!     │     │           └──▶ undone, once more: at most RERUNS_MAX in all
//!     └─────│──────────────┘
//!           └▶ failure, trap, limit: undone; a failure says why once what it has read is durable
//! ```

use bytes::Bytes;
use problem::{Code, Problem};
use state::{Leased, State, Ticket, Transaction};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use unit::{Content, Ended, Reply, Timing, Watch, WholeReply};

/// Handlings of one event that conflicted with others before the caller is told to try again later.
pub const RERUNS_MAX: u32 = 20;

/// What a handler left behind.
pub struct Handled {
    /// Or how it said that it failed: then nothing of what it did remains.
    pub reply: Result<Bytes, Problem>,
    pub transaction: Option<Transaction>,
}

/// What one handling has used until now.
pub struct Spent {
    pub timing: Timing,
    pub cpu: Duration,
    pub memory_bytes: u64,
}

/// Tells what a handling has used; asked once it is settled.
pub trait Spending {
    fn spent(&self) -> Spent;
}

/// Runs `attempt` until its work is committed or cannot be. It is told how many attempts there were before.
///
/// # Errors
/// What the last attempt said; [`Code::Conflict`] after [`RERUNS_MAX`].
pub async fn call<S, F>(
    state: &State,
    lease: Option<&Leased>,
    mut watch: Box<dyn Watch>,
    mut attempt: impl FnMut(u32) -> F,
) -> Result<Reply, Problem>
where
    S: Spending,
    F: Future<Output = (Result<Handled, Problem>, Arc<S>)>,
{
    let mut reruns = 0;
    loop {
        let (handled, spending) = attempt(reruns).await;
        let result = match handled {
            Ok(handled) => settle(state, handled, lease, &mut *watch).await,
            Err(problem) => Err(problem),
        };
        let result = match result {
            Err(problem) if problem.code == Code::Conflict && reruns + 1 < RERUNS_MAX => {
                reruns += 1;
                continue;
            }
            Err(problem) if problem.code == Code::Conflict => {
                let detail =
                    format!("{RERUNS_MAX} handlings in a row conflicted with others that changed the same keys");
                Err(Problem::new(Code::Conflict, detail))
            }
            result => result,
        };
        let Spent { timing, cpu, memory_bytes } = spending.spent();
        let ended = result.as_ref().map(drop).map_err(Problem::clone);
        watch.ended(Ended { result: ended, timing, cpu, memory_bytes, reruns });
        return result.map(|content| Reply { timing, content });
    }
}

/// Commits what was done, and makes it and what was read durable where somebody waits for it ([`Ticket`]): an event
/// whose handling is lost with a power cut, its ack among it, is handled again. Not on the unit's own thread: one of
/// least priority would hold up every other commit.
async fn settle(
    state: &State,
    handled: Handled,
    lease: Option<&Leased>,
    watch: &mut dyn Watch,
) -> Result<Content, Problem> {
    let Handled { reply, transaction } = handled;
    let reply = match reply {
        Ok(reply) => reply,
        Err(problem) => {
            // What it says rests on what it has read. Of a leased event's failure nobody hears.
            let seen = transaction.filter(|_| lease.is_none()).map(|transaction| transaction.seen());
            state.durable(seen.unwrap_or(Ticket::NOTHING_WRITTEN)).await?;
            return Err(problem);
        }
    };
    let Some(lease) = lease else {
        if let Some(transaction) = transaction {
            state.durable(transaction.commit()?).await?;
        }
        return Ok(Content::Bytes(reply));
    };
    let mut transaction = transaction.unwrap_or_else(|| state.begin());
    let reply = WholeReply::Bytes(reply);
    watch.commits(&mut transaction, &reply)?;
    transaction.ack(lease);
    let _durable_later = transaction.commit()?;
    let WholeReply::Bytes(reply) = reply else { unreachable!("just made") };
    Ok(Content::Bytes(reply))
}
