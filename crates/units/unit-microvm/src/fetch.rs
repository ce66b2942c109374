//! A request of a unit's own: its body as the unit writes it, its reply as the unit reads it.

use crate::question::Asked;
use crate::source::Source;
use crate::words::{self, Failure};
use bytes::Bytes;
use egress::{Caller, Clients, Unsent, time_left};
use frame::Value;
use futures_util::stream;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use problem::Problem;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use unit::{Departure, Host, Output};
use unit_host::kernel::garbled;

type Outgoing = UnsyncBoxBody<Bytes, io::Error>;

/// The clients of all units of the class.
pub type Client = Arc<Clients<Outgoing>>;

/// What requests of one attempt have in common.
pub struct Fetching {
    pub client: Client,
    pub output: Arc<Output>,
    pub deadline: Instant,
}

pub struct Fetch {
    head: Head,
    /// None once the body has ended.
    body: Option<Body>,
    reply: Option<Source>,
    between: Option<Duration>,
    task: tokio::task::AbortHandle,
}

/// A body that a unit writes. One that ends otherwise than by being whole has failed, whoever drops it: where its
/// length was not said before, whoever reads it must not take it for whole.
struct Body {
    pieces: mpsc::Sender<Frame<Bytes>>,
    is_whole: Arc<AtomicBool>,
}

impl Body {
    /// And what a client sends of it.
    fn new() -> (Self, Outgoing) {
        let (pieces, receiver) = mpsc::channel(1);
        let is_whole = Arc::new(AtomicBool::new(false));
        let whole = is_whole.clone();
        let frames = stream::unfold(Some(receiver), move |receiver| {
            let whole = whole.clone();
            async move {
                let mut receiver = receiver?;
                match receiver.recv().await {
                    Some(frame) => Some((Ok(frame), Some(receiver))),
                    None if whole.load(SeqCst) => None,
                    None => Some((Err(io::Error::other("the unit did not finish its request")), None)),
                }
            }
        });
        (Self { pieces, is_whole }, StreamBody::new(frames).boxed_unsync())
    }
}

enum Head {
    Coming(oneshot::Receiver<Result<Response<Incoming>, Failure>>),
    Here(Result<(u16, HeaderMap), Failure>),
    Taken,
}

/// A request that does not leave.
pub struct Denied {
    failure: Failure,
    /// What the log is told; the unit learns no more than the word.
    why: Option<String>,
}

impl Denied {
    fn of(word: &'static str) -> Self {
        Self { failure: Failure::of(word), why: None }
    }

    /// # Errors
    /// It does not fit into a frame.
    pub fn reply(&self, id: u64) -> Result<Vec<u8>, Problem> {
        let mut said = vec![("failed", Value::Str(self.failure.word))];
        said.extend(self.why.as_deref().map(|why| ("why", Value::Str(why))));
        words::reply(id, Value::Map(said))
    }
}

impl Fetching {
    /// Begins to send a request, if a grant covers it.
    ///
    /// # Errors
    /// It does not leave.
    pub fn begin(&self, host: &dyn Host, asked: Asked) -> Result<Fetch, Denied> {
        let Asked { method, uri, mut headers, has_body, connect, first_byte, between_bytes } = asked;
        let Some(uri) = uri else { return Err(Denied::of("uri")) };
        let departure = match host.departs(&uri, &mut headers) {
            Ok(departure) => departure,
            Err(why) => return Err(Denied { why: Some(why), ..Denied::of("denied") }),
        };
        let (written, body): (_, Outgoing) = match has_body {
            true => {
                let (written, body) = Body::new();
                (Some(written), body)
            }
            false => (None, Empty::new().map_err(|never| match never {}).boxed_unsync()),
        };
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
        // The time for the first byte begins when there is a connection.
        let wait = first_byte.map(|wait| wait.saturating_add(connect.unwrap_or_default()));
        let timeout = time_left(wait, self.deadline);
        let (tell, head) = oneshot::channel();
        let (client, output) = (self.client.clone(), self.output.clone());
        let task = tokio::spawn(async move {
            let answered = tokio::time::timeout(timeout, send(client, departure, connect, request, output)).await;
            tell.send(answered.unwrap_or(Err(Failure::of("read-timeout")))).ok();
        });
        let (head, task) = (Head::Coming(head), task.abort_handle());
        Ok(Fetch { head, body: written, reply: None, between: between_bytes, task })
    }
}

async fn send(
    client: Client,
    departure: Departure,
    connect: Option<Duration>,
    request: Request<Outgoing>,
    output: Arc<Output>,
) -> Result<Response<Incoming>, Failure> {
    let internal = |problem: Problem| Failure { text: Some(problem.detail.into_owned()), ..Failure::of("internal") };
    departure.caused.await.map_err(internal)?;
    let caller = Caller { function: departure.function, connect_max: connect };
    client.request(caller, departure.reach, request).await.map_err(|unsent| {
        if let Unsent::Inner(_) = unsent {
            output.note_denied(unit::Denied::Address, &format!("outgoing request denied: {unsent}"));
        }
        Failure::of(match unsent {
            Unsent::Inner(_) => "ip-prohibited",
            Unsent::NameUnknown => "name-unknown",
            Unsent::Refused => "refused",
            Unsent::Unreachable | Unsent::Full => "unavailable",
            Unsent::ConnectTimedOut => "connect-timeout",
            Unsent::Tls(_) => "tls",
            Unsent::Broken(_) => "protocol",
        })
    })
}

impl Fetch {
    /// Sends a piece of the body, once there is room. False: nobody takes it any more.
    pub async fn write(&mut self, frame: Frame<Bytes>) -> bool {
        match &self.body {
            Some(body) => body.pieces.send(frame).await.is_ok(),
            None => false,
        }
    }

    pub async fn finish(&mut self, trailers: Option<HeaderMap>) {
        if let (Some(body), Some(trailers)) = (&self.body, trailers) {
            body.pieces.send(Frame::trailers(trailers)).await.ok();
        }
        if let Some(body) = self.body.take() {
            body.is_whole.store(true, SeqCst);
        }
    }

    /// The body will not become whole: whoever reads it is not to believe that it is.
    pub fn abort(&mut self) {
        self.body = None;
    }

    /// Ready once there is a head, and when that was taken, once there is something of the body.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Head::Coming(head) = &mut self.head {
            let answered = std::task::ready!(std::pin::Pin::new(head).poll(cx));
            self.head = Head::Here(match answered {
                Ok(Ok(response)) => {
                    let (parts, body) = response.into_parts();
                    self.reply = Some(Source::of_reply(body, self.between));
                    Ok((parts.status.as_u16(), parts.headers))
                }
                Ok(Err(failure)) => Err(failure),
                Err(_) => Err(Failure::of("internal")),
            });
        }
        match (&self.head, &mut self.reply) {
            (Head::Taken, Some(reply)) => reply.poll_ready(cx),
            _ => Poll::Ready(()),
        }
    }

    /// The head, once.
    pub fn take_head(&mut self) -> Option<Result<(u16, HeaderMap), Failure>> {
        match std::mem::replace(&mut self.head, Head::Taken) {
            Head::Here(head) => Some(head),
            other => {
                self.head = other;
                None
            }
        }
    }

    /// # Errors
    /// There is no reply yet.
    pub fn body(&mut self) -> Result<&mut Source, Problem> {
        let reply = self.reply.as_mut().filter(|_| matches!(self.head, Head::Taken));
        reply.ok_or_else(|| garbled("it reads a reply that has no head yet"))
    }
}

impl Drop for Fetch {
    /// A request that nobody waits for is not sent, as far as it was not.
    fn drop(&mut self) {
        if matches!(self.head, Head::Coming(_)) {
            self.task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(body: Body) -> Fetch {
        let (_, head) = oneshot::channel();
        let task = tokio::spawn(async {}).abort_handle();
        Fetch { head: Head::Coming(head), body: Some(body), reply: None, between: None, task }
    }

    #[tokio::test]
    async fn a_body_is_whole_if_the_unit_says_so_and_not_if_it_goes() {
        type End = fn(Fetch) -> futures_util::future::BoxFuture<'static, ()>;
        let ends: [(End, bool); 3] = [
            (|mut fetch| Box::pin(async move { fetch.finish(None).await }), true),
            (|mut fetch| Box::pin(async move { fetch.abort() }), false),
            (|fetch| Box::pin(async move { drop(fetch) }), false),
        ];
        for (end, is_whole) in ends {
            let (written, read) = Body::new();
            let mut fetch = fetch(written);
            assert!(fetch.write(Frame::data(Bytes::from_static(b"half"))).await);
            end(fetch).await;
            let read = read.collect().await.map(|read| read.to_bytes());
            assert_eq!(read.ok(), is_whole.then(|| Bytes::from_static(b"half")));
        }
    }
}
