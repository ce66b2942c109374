//! HTTP of one attempt: the request it serves and its reply, and requests of the unit's own, each by its number.
//!
//! ```text
//!   unit ── http.read 0 ──▶ the caller's body
//!   unit ── http.head, http.write 0, http.finish 0 ──▶ outlet ──▶ caller
//!   unit ── http.fetch ──▶ a number n; its body by http.write n, its reply by http.fetched n and http.read n
//! ```
//! What a unit asks is checked as if it lied. A question that makes no sense ends it; it waits no longer than its call.

use crate::fetch::{Fetch, Fetching};
use crate::outlet::Outlet;
use crate::question::{Asked, Question, Wait};
use crate::source::{Piece, Source};
use crate::words;
use budget::{Budget, Purpose};
use bytes::Bytes;
use frame::{Frame, Limits, Value};
use kernel_abi::Verb;
use problem::Problem;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use unit::{Host, RequestBody};
use unit_host::kernel::garbled;

/// Requests of a unit's own that it has not let go of. One more is refused.
pub const FETCHES_MAX: usize = 100;

/// The exchange that is served.
const SERVED: u64 = 0;

pub struct Exchange {
    host: Arc<dyn Host>,
    /// The node's memory.
    budget: Arc<Budget>,
    fetching: Fetching,
    /// None for work that is an event.
    served: Option<Served>,
    fetches: BTreeMap<u64, Fetch>,
    next: u64,
}

/// A request and where its reply goes.
pub struct Served {
    pub body: Source,
    pub outlet: Arc<Outlet>,
}

impl Served {
    pub fn new(body: RequestBody, outlet: Arc<Outlet>) -> Self {
        Self { body: Source::of_request(body), outlet }
    }
}

impl Exchange {
    pub fn new(host: Arc<dyn Host>, budget: Arc<Budget>, fetching: Fetching, served: Option<Served>) -> Self {
        Self { host, budget, fetching, served, fetches: BTreeMap::new(), next: SERVED + 1 }
    }

    /// A unit that is used again may ask for an exchange of a call before: no number is given twice to one unit.
    #[must_use]
    pub fn after(self, calls: u32) -> Self {
        Self { next: (u64::from(calls) << 32) + SERVED + 1, ..self }
    }

    /// To be told when the unit asks for anything, and when it is answered.
    pub fn waits(&self, unit_waits: bool) {
        if let Some(served) = &self.served {
            served.outlet.waits(unit_waits);
        }
    }

    /// The frame that answers a question.
    ///
    /// # Errors
    /// It makes no sense; what the reply's head rests on could not be committed.
    pub async fn answer(&mut self, verb: Verb, request: &[u8], limits: &Limits) -> Result<Vec<u8>, Problem> {
        let _read = self.budget.take(Purpose::HostCalls, request.len() as u64)?;
        let frame = Frame::decode(request, limits).map_err(|error| garbled(&error.to_string()))?;
        let id = frame.id;
        let answer = match Question::read(verb, &frame)? {
            Question::Head { head, has_body } => {
                self.outlet()?.head(head, has_body)?;
                self.host.commit()?;
                self.outlet()?.head_stands();
                Value::Null
            }
            Question::Refuse(why) => {
                self.outlet()?.refuse(why)?;
                Value::Null
            }
            Question::Read { of, bytes_max, wait } => return self.read(id, of, bytes_max, wait).await,
            Question::Wait { of, wait } => Value::List(self.wait(&of, wait).await.into_iter().map(number).collect()),
            Question::Write { of, bytes } => {
                let data = http_body::Frame::data(Bytes::copy_from_slice(bytes));
                Value::Bool(match (of, self.fetches.get_mut(&of)) {
                    (SERVED, _) => self.outlet()?.write(data).await?,
                    (_, Some(fetch)) => fetch.write(data).await,
                    (_, None) => false,
                })
            }
            Question::Finish { of, trailers } => {
                match (of, self.fetches.get_mut(&of)) {
                    (SERVED, _) => self.outlet()?.finish(trailers).await?,
                    (_, Some(fetch)) => fetch.finish(trailers).await,
                    (_, None) => {}
                }
                Value::Null
            }
            Question::Abort(of) => {
                // Of what is served: it is not whole, and its reader hears of that when the unit has ended.
                if let Some(fetch) = self.fetches.get_mut(&of) {
                    fetch.abort();
                }
                Value::Null
            }
            Question::Fetch(asked) => return self.fetch(id, *asked),
            Question::Fetched { of, wait } => return self.fetched(id, of, wait).await,
            Question::Drop(of) => {
                self.fetches.remove(&of);
                Value::Null
            }
        };
        words::reply(id, answer)
    }

    async fn read(&mut self, id: u64, of: u64, bytes_max: usize, wait: Wait) -> Result<Vec<u8>, Problem> {
        let source = match (of, &mut self.served, self.fetches.get_mut(&of)) {
            (SERVED, Some(served), _) => &mut served.body,
            (_, _, Some(fetch)) => fetch.body()?,
            _ => return gone(id),
        };
        waited(wait, |cx| source.poll_ready(cx)).await;
        match &source.take(bytes_max) {
            Piece::NotYet => words::reply(id, Value::Null),
            Piece::Data(data) => words::reply(id, Value::Buffer(data)),
            Piece::End(None) => words::reply(id, Value::Map(vec![("end", Value::Null)])),
            Piece::End(Some(trailers)) => words::reply(id, Value::Map(vec![("end", words::headers(trailers))])),
            Piece::Failed(failure) => words::reply(id, failure.value()),
        }
    }

    fn fetch(&mut self, id: u64, asked: Asked) -> Result<Vec<u8>, Problem> {
        if self.fetches.len() >= FETCHES_MAX {
            let why = format!("{FETCHES_MAX} requests at once are the most");
            return words::reply(id, words::failed("internal", None, Some(&why)));
        }
        match self.fetching.begin(&*self.host, asked) {
            Ok(fetch) => {
                let of = self.next;
                self.next += 1;
                self.fetches.insert(of, fetch);
                words::reply(id, number(of))
            }
            Err(denied) => denied.reply(id),
        }
    }

    async fn fetched(&mut self, id: u64, of: u64, wait: Wait) -> Result<Vec<u8>, Problem> {
        let Some(fetch) = self.fetches.get_mut(&of) else { return gone(id) };
        waited(wait, |cx| fetch.poll_ready(cx)).await;
        match fetch.take_head() {
            None => words::reply(id, Value::Null),
            Some(Ok((status, headers))) => {
                let status = ("status", Value::I64(status.into()));
                words::reply(id, Value::Map(vec![status, ("headers", words::headers(&headers))]))
            }
            Some(Err(failure)) => words::reply(id, failure.value()),
        }
    }

    /// Which of the exchanges have something.
    async fn wait(&mut self, ids: &[u64], wait: Wait) -> Vec<u64> {
        let mut ready = Vec::new();
        waited(wait, |cx| {
            ready = ids.iter().copied().filter(|id| self.poll_ready(*id, cx).is_ready()).collect();
            if ready.is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        ready
    }

    fn poll_ready(&mut self, id: u64, cx: &mut Context<'_>) -> Poll<()> {
        match (id, &mut self.served) {
            (SERVED, Some(served)) => served.body.poll_ready(cx),
            _ => self.fetches.get_mut(&id).map_or(Poll::Ready(()), |fetch| fetch.poll_ready(cx)),
        }
    }

    fn outlet(&self) -> Result<&Outlet, Problem> {
        let served = self.served.as_ref().ok_or_else(|| garbled("it replies to a request it was not given"))?;
        Ok(&served.outlet)
    }
}

/// What is said of an exchange that the unit has let go of, or that was of a call before.
fn gone(id: u64) -> Result<Vec<u8>, Problem> {
    words::reply(id, words::failed("internal", None, Some("there is no such exchange any more")))
}

fn number(number: u64) -> Value<'static> {
    Value::I64(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Polls until it is ready, or for so long; once at least. None waits for ever: the call's own time ends that.
async fn waited(wait: Wait, mut poll: impl FnMut(&mut Context<'_>) -> Poll<()>) {
    let ready = poll_fn(|cx| poll(cx));
    match wait {
        None => ready.await,
        // A timer of no time is ready at once, yet only after what it bounds was asked.
        Some(wait) => _ = tokio::time::timeout(wait, ready).await,
    }
}

#[cfg(test)]
mod tests;
