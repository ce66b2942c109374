//! The one loop: an attempt, what becomes of it, and once more in a fresh unit after a conflict.

use crate::host::{Cause, Handling, Named};
use crate::kept::kept;
use crate::reply::{self, Tail};
use crate::{Call, Caller, Content, Ended, Handler, Reply, WholeReply, Work};
use budget::Purpose;
use event::Event;
use http::response::Parts;
use http::{Method, Response};
use problem::{Code, Problem};
use state::{Leased, Ticket, Transaction};
use std::future::poll_fn;
use std::sync::Arc;
use unit::{Attempt, Contract, Deployed, Given, Incoming, Prepared, Running, Spent};

/// Handlings of one event that conflicted with others before the caller is told to try again later.
pub const RERUNS_MAX: u32 = 20;

/// As [`Handler::handle`].
pub async fn handle<C: Caller>(
    handler: &Handler,
    prepared: Arc<dyn Prepared>,
    call: Call,
    mut caller: C,
) -> Result<Reply, Problem> {
    let deployed = prepared.deployed().clone();
    let Call { request_id, work, deadline, lease } = call;
    let is_head = matches!(&work, Work::Http(request) if request.method() == Method::HEAD);
    let mut source = Supply::new(work, &deployed)?;
    let mut reruns = 0;
    loop {
        let (work, named) = source.give(&request_id, lease.as_deref(), &deployed);
        let cause = Cause { lease: lease.clone(), named };
        let host = Arc::new(Handling::new(handler, deployed.clone(), request_id.clone(), deadline, cause));
        let attempt = Attempt { request_id: request_id.clone(), work, deadline, host: host.clone() };
        let running = prepared.clone().attempt(attempt);
        let mut one = One { handler, running, host, lease: lease.as_deref() };
        let problem = match one.settle(&deployed, &mut caller).await {
            Ok(Settled::Whole(content)) => {
                let timing = tell(caller, Ok(()), one.running.spent(), reruns);
                return Ok(Reply { timing, content });
            }
            Ok(Settled::Head(head, before)) => {
                let One { running, host, .. } = one;
                let tail = Tail::new(handler, running, host, before, caller, reruns);
                return reply::send(tail, head, is_head, deadline).await;
            }
            Err(problem) => match lease.is_some() {
                true => one.host.blame(problem),
                false => problem,
            },
        };
        one.host.give_up();
        let is_conflict = problem.code == Code::Conflict;
        if is_conflict && reruns + 1 < RERUNS_MAX && source.take_back(&mut one) {
            reruns += 1;
            continue;
        }
        let problem = match is_conflict && reruns + 1 == RERUNS_MAX {
            true => {
                let detail =
                    format!("{RERUNS_MAX} handlings in a row conflicted with others that changed the same keys");
                Problem::new(Code::Conflict, detail)
            }
            false => problem,
        };
        let spent = one.running.spent();
        // Stops the unit, if it still runs, before anybody hears that the call has ended.
        drop(one);
        tell(caller, Err(problem.clone()), spent, reruns);
        return Err(problem);
    }
}

/// Tells the caller how it ended.
pub fn tell(caller: impl Caller, result: Result<(), Problem>, spent: Spent, reruns: u32) -> unit::Timing {
    let Spent { timing, cpu, memory_bytes } = spent;
    caller.ended(Ended { result, timing, cpu, memory_bytes, reruns });
    timing
}

/// Work that can be given to several units, one after the other.
pub enum Supply {
    /// None while a unit has it.
    Event(Option<Event>),
    Http(Incoming),
}

impl Supply {
    /// # Errors
    /// [`Code::Internal`]: the work is not for such a function.
    pub fn new(work: Work, deployed: &Deployed) -> Result<Self, Problem> {
        match (deployed.contract, work) {
            (Contract::Unit | Contract::Call, Work::Event(event)) => Ok(Self::Event(Some(event))),
            (Contract::WasiHttp, Work::Http(request)) => Ok(Self::Http(Incoming::new(request, deployed.may_write()))),
            (contract, _) => {
                let detail = format!("this work is not for a {} function", contract.as_str());
                Err(Problem::new(Code::Internal, detail))
            }
        }
    }

    /// The work for the next unit, and what its host has to know of it.
    pub fn give(&mut self, request_id: &str, lease: Option<&Leased>, deployed: &Deployed) -> (unit::Work, Named) {
        let grants = &deployed.function.grants;
        let is_named = !(grants.push.is_empty() && grants.hosts.is_empty());
        let leased = lease.filter(|_| is_named).map(|lease| (lease.event.id_giver(), lease.event.id.as_str()));
        match self {
            Self::Event(event) => {
                let event = event.take().expect("it was given back");
                let named = match is_named {
                    true => {
                        let (giver, id) = leased.unwrap_or_else(|| (event.id_giver(), &event.id));
                        Named::of(&giver, id, |name| event.attribute(name))
                    }
                    false => Named::default(),
                };
                (unit::Work::Event(event), named)
            }
            Self::Http(incoming) => {
                let request = incoming.give();
                let named = match is_named {
                    true => {
                        let (giver, id) = leased.unwrap_or_else(|| ("".into(), request_id));
                        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
                        Named::of(&giver, id, header)
                    }
                    false => Named::default(),
                };
                (unit::Work::Http(request), named)
            }
        }
    }

    /// Whether the work can be given to another unit, after this attempt.
    fn take_back(&mut self, one: &mut One<'_>) -> bool {
        match self {
            Self::Event(event) => {
                *event = one.running.give_back().map(|event| Event { attempt: event.attempt + 1, ..event });
                event.is_some()
            }
            Self::Http(incoming) => incoming.can_be_given_again() && !one.host.has_departed(),
        }
    }
}

/// One attempt.
struct One<'a> {
    handler: &'a Handler,
    running: Box<dyn Running>,
    host: Arc<Handling>,
    lease: Option<&'a Leased>,
}

/// What a caller can be told.
enum Settled {
    Whole(Content),
    /// The body follows; what was committed up to this number is durable.
    Head(Parts, u64),
}

impl One<'_> {
    /// Runs the unit until its caller can be told something, and sees to it that what it is told is true: what was done
    /// is committed, and it and what was read are durable where somebody waits for them ([`Ticket`]). An event whose
    /// handling is lost with a power cut, its ack among it, is handled again. The commit of a whole reply is not on the
    /// unit's own thread: one of least priority would hold up every other commit.
    async fn settle(&mut self, deployed: &Deployed, caller: &mut impl Caller) -> Result<Settled, Problem> {
        let state = &self.handler.state;
        match poll_fn(|cx| self.running.poll_given(cx)).await? {
            Given::Reply(bytes) => {
                let transaction = self.host.finish();
                match self.lease {
                    Some(lease) => self.ack(lease, transaction, WholeReply::Bytes(bytes), caller).map(Settled::Whole),
                    None => {
                        // Before the commit: where there is no room for the reply, nothing was done.
                        let bytes = kept(&deployed.budget, bytes)?;
                        if let Some(transaction) = transaction {
                            state.durable(transaction.commit()?).await?;
                        }
                        Ok(Settled::Whole(Content::Bytes(bytes)))
                    }
                }
            }
            Given::Failure(problem) => {
                // What it says rests on what it has read. Of a leased event's failure nobody hears.
                let transaction = self.host.finish().filter(|_| self.lease.is_none());
                let seen = transaction.map_or(Ticket::NOTHING_WRITTEN, |transaction| transaction.seen());
                state.durable(seen).await?;
                Err(problem)
            }
            Given::Head(head) => match self.lease {
                Some(lease) => {
                    let mut held = deployed.budget.share(Purpose::HostCalls);
                    let bytes_max = deployed.function.limits.body_bytes;
                    let bytes = reply::whole(&mut *self.running, bytes_max, &mut held).await?;
                    let reply = WholeReply::Http(Response::from_parts(head, bytes));
                    self.ack(lease, self.host.finish(), reply, caller).map(Settled::Whole)
                }
                None => {
                    let committed = self.host.committed();
                    state.durable_number(committed).await?;
                    Ok(Settled::Head(head, committed))
                }
            },
        }
    }

    /// Commits leased work together with the ack of its event. Nobody was promised that it is durable.
    fn ack(
        &self,
        lease: &Leased,
        transaction: Option<Transaction>,
        reply: WholeReply,
        caller: &mut impl Caller,
    ) -> Result<Content, Problem> {
        let mut transaction = transaction.unwrap_or_else(|| self.handler.state.begin());
        caller.commits(&mut transaction, &reply)?;
        transaction.ack(lease);
        let _durable_later = transaction.commit()?;
        Ok(match reply {
            WholeReply::Bytes(bytes) => Content::Bytes(bytes),
            WholeReply::Http(reply) => Content::Http(reply.map(reply::full)),
        })
    }
}
