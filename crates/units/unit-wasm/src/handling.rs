//! One event, handled by a `lighter:unit` function: a transaction, begun again in a fresh unit after a conflict.
//!
//! ```text
//!   start ─▶ handle ─▶ ok ─▶ commit: writes, pushes, the ack of the lease ─▶ durable, if not leased ─▶ reply
//!     ▲                 │       │conflict
//!     │                 │       └──▶ undone, once more: at most RERUNS_MAX in all
//!     └─────────────────│──────────────┘
//!                       └▶ failure, trap, limit: undone
//! ```

use crate::bindings::types;
use crate::failure;
use crate::host::queue::to_guest;
use crate::meter::Meter;
use crate::prepared::{Instance, PreparedWasm, ended_with, timing};
use crate::run::Run;
use crate::unit_state::Cause;
use event::Event;
use problem::{Code, Problem};
use state::{Leased, Transaction};
use std::sync::Arc;
use std::time::Instant;
use unit::{Content, Reply, Watch, WholeReply};

/// Handlings of one event that conflicted with others before the caller is told to try again later.
pub const RERUNS_MAX: u32 = 20;

pub async fn call(
    prepared: Arc<PreparedWasm>,
    request_id: Arc<str>,
    deadline: Instant,
    mut watch: Box<dyn Watch>,
    event: Event,
    lease: Option<Arc<Leased>>,
) -> Result<Reply, Problem> {
    let mut event = Arc::new(to_guest(event));
    let mut reruns = 0;
    loop {
        let meter = Arc::new(Meter::new(deadline));
        let work = prepared.clone().handle(meter.clone(), request_id.clone(), event.clone(), lease.clone());
        let handled = Run::new(prepared.engine.clone(), prepared.weight.clone(), meter.clone(), work).await;
        let result = match handled {
            Ok(handled) => settle(&prepared, handled, lease.as_deref(), &mut *watch).await,
            Err(problem) => Err(problem),
        };
        let (ended, reply) = match result {
            Err(problem) if problem.code == Code::Conflict && reruns + 1 < RERUNS_MAX => {
                reruns += 1;
                let mut again = Arc::unwrap_or_clone(event);
                again.attempt += 1;
                event = Arc::new(again);
                continue;
            }
            Err(problem) if problem.code == Code::Conflict => {
                let detail = format!("{RERUNS_MAX} handlings in a row conflicted with others that changed the same keys");
                let problem = Problem::new(Code::Conflict, detail);
                (Err(problem.clone()), Err(problem))
            }
            Err(problem) => (Err(problem.clone()), Err(problem)),
            Ok(content) => (Ok(()), Ok(Reply { timing: timing(&meter), content })),
        };
        watch.ended(ended_with(ended, &meter, reruns));
        return reply;
    }
}

/// What a handler left behind.
struct Handled {
    reply: Vec<u8>,
    transaction: Option<Transaction>,
}

/// Commits what was done, and makes it durable where somebody waits for it: an event whose handling is lost with a power
/// cut, its ack among it, is handled again. Not on the unit's own thread: one of least priority would hold up every other commit.
async fn settle(
    prepared: &PreparedWasm,
    handled: Handled,
    lease: Option<&Leased>,
    watch: &mut dyn Watch,
) -> Result<Content, Problem> {
    let state = &prepared.deployed.state;
    let Handled { reply, transaction } = handled;
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

impl PreparedWasm {
    async fn handle(
        self: Arc<Self>,
        meter: Arc<Meter>,
        request_id: Arc<str>,
        event: Arc<types::Event>,
        lease: Option<Arc<Leased>>,
    ) -> Result<Handled, Problem> {
        let mut unit = self.start(&meter, &request_id).await?;
        let state = unit.store.data_mut();
        (state.cause, state.lease) = (Cause::Event(event.clone()), lease);
        let Instance::Unit(instance) = &unit.instance else { unreachable!("the guest's contract is lighter:unit") };
        let result = instance.lighter_unit_handler().call_handle(&mut unit.store, &event).await;
        let transaction = unit.store.data_mut().end_handling();
        let reply = match result {
            Ok(Ok(reply)) => reply,
            Ok(Err(said)) => {
                let problem = failure::said(said, &unit.store.data().output);
                self.put_back(unit);
                return Err(problem);
            }
            Err(error) => {
                let problem = self.failed(&error, &mut unit.store);
                unit.store.data().output.end_call();
                return Err(problem);
            }
        };
        self.put_back(unit);
        let bytes_max = self.deployed.function.limits.body_bytes;
        if reply.len() as u64 > bytes_max {
            let detail = format!("the reply has {} bytes, limits.body_bytes is {bytes_max}", reply.len());
            return Err(Problem::new(Code::ReplyTooLarge, detail));
        }
        Ok(Handled { reply, transaction })
    }
}
