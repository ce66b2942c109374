//! Several leased events of one function, handled one after the other and committed together.
//!
//! ```text
//!   handle ─▶ what event 1 did ─▶ handle ─▶ event 2 failed: undone ─▶ handle ─▶ event 3 … ─▶ commit: 1 and 3, acked
//! ```
//! Each event has a handling of its own: its attempt, its limits, its part of the transaction. What fails is undone by
//! itself and is to be handled alone; nothing is decided about it here. A unit that is stopped in the middle of its
//! event, because its future is dropped, leaves as little.

use crate::host::{Cause, Handling};
use crate::rerun::Supply;
use crate::{Call, Handler, WholeReply, reply};
use budget::{Budget, Purpose, Share};
use http::Response;
use problem::{Code, Problem};
use state::{CommitError, Ticket, Transaction};
use std::future::poll_fn;
use std::sync::Arc;
use unit::{Attempt, Deployed, Given, Prepared, Running, Spent};

/// Changes, and bytes in memory, beyond which a batch takes no more events: what one of them may do comes on top.
const CHANGES_MAX: usize = 2_000;
const BYTES_MAX: usize = 256 << 10;

/// Made by [`Handler::batch`]. Dropped without a commit it leaves nothing behind.
pub struct Batch {
    handler: Handler,
    /// None while an event is being handled.
    transaction: Option<Transaction>,
    /// What it holds, in the node's budget.
    held: Share,
    is_full: bool,
}

impl Handler {
    pub fn batch(&self, budget: &Arc<Budget>) -> Batch {
        let (transaction, held) = (Some(self.state.begin()), budget.share(Purpose::HostCalls));
        Batch { handler: self.clone(), transaction, held, is_full: false }
    }
}

impl Batch {
    /// Has a unit handle one more event, whose lease the call has. `commits` writes what becomes durable with it, as
    /// [`crate::Caller::commits`].
    ///
    /// # Errors
    /// As of [`Handler::handle`]; everything of this event is undone, and nothing of the others. The event is to be
    /// handled alone.
    pub async fn handle(
        &mut self,
        prepared: Arc<dyn Prepared>,
        call: Call,
        commits: impl FnOnce(&mut Transaction, &WholeReply) -> Result<(), Problem>,
    ) -> Result<Spent, Problem> {
        let deployed = prepared.deployed().clone();
        let Call { request_id, work, deadline, lease } = call;
        // A request that leaves would rest on what the others did, which is not committed yet.
        let Some(lease) = lease.filter(|_| deployed.function.grants.hosts.is_empty()) else {
            let detail = "only leased events of functions that send no requests are handled together";
            return Err(Problem::new(Code::Internal, detail));
        };
        let mut transaction = self.transaction.take().expect("it is put back by whoever has it");
        transaction.begin_part();
        let (work, named) = match Supply::new(work, &deployed) {
            Ok(mut source) => source.give(&request_id, Some(&lease), &deployed),
            Err(problem) => {
                self.transaction = Some(transaction);
                return Err(problem);
            }
        };
        let cause = Cause { lease: Some(lease.clone()), named };
        let host = Handling::new(&self.handler, deployed.clone(), request_id.clone(), deadline, cause);
        let host = Arc::new(host.lent(transaction));
        let lent = Lent { batch: self, host: Some(host.clone()) };
        // Declared later, it is dropped earlier: the unit has stopped before what it did is taken back.
        let mut running = prepared.attempt(Attempt { request_id, work, deadline, host });
        let reply = whole_reply(&mut *running, &deployed).await?;
        let spent = running.spent();
        lent.ends(|transaction| {
            commits(transaction, &reply)?;
            transaction.ack(&lease);
            Ok(spent)
        })
    }

    /// Whether the next event is to go into another batch.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Commits what was handled, the acks among it. Nobody was promised that it is durable.
    ///
    /// # Errors
    /// Nothing was written, unless the disk failed; all its events are to be handled alone.
    pub fn commit(self) -> Result<Ticket, CommitError> {
        self.transaction.expect("it is put back by whoever has it").commit()
    }

    fn put_back(&mut self, transaction: Transaction) {
        let has_room = self.held.hold(transaction.held_bytes() as u64).is_ok();
        self.is_full = !has_room || transaction.write_count() > CHANGES_MAX || transaction.held_bytes() > BYTES_MAX;
        self.transaction = Some(transaction);
    }
}

/// Runs the unit to its end.
async fn whole_reply(running: &mut dyn Running, deployed: &Deployed) -> Result<WholeReply, Problem> {
    match poll_fn(|cx| running.poll_given(cx)).await? {
        Given::Reply(bytes) => Ok(WholeReply::Bytes(bytes)),
        Given::Failure(problem) => Err(problem),
        Given::Head(head) => {
            let mut held = deployed.budget.share(Purpose::HostCalls);
            let bytes = reply::whole(running, deployed.function.limits.body_bytes, &mut held).await?;
            Ok(WholeReply::Http(Response::from_parts(head, bytes)))
        }
    }
}

/// The transaction while one event is handled on it. Dropped, it takes back what that event did.
struct Lent<'a> {
    batch: &'a mut Batch,
    host: Option<Arc<Handling>>,
}

impl Lent<'_> {
    /// The unit has ended: `last` has the last word, and if that is an error nothing of the event is left.
    fn ends<T>(mut self, last: impl FnOnce(&mut Transaction) -> Result<T, Problem>) -> Result<T, Problem> {
        let host = self.host.take().expect("it ends once");
        let mut transaction = host.finish().expect("it was lent one");
        let said = last(&mut transaction);
        if said.is_err() {
            transaction.undo_part();
        }
        self.batch.put_back(transaction);
        said
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(host) = self.host.take() else { return };
        let mut transaction = host.finish().expect("it was lent one");
        transaction.undo_part();
        self.batch.put_back(transaction);
    }
}
