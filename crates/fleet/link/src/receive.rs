//! The side that receives: judges a call by its head, refuses it or runs it, and says how this node is.
//!
//! ```text
//!   MemberArrival ─▶ HTTP/2 ─▶ fields ─▶ hops ≤ 1? ─▶ has it? ─▶ as busy as was expected? ─▶ room? ─▶ Local::run ─▶ reply
//!                                    looped      absent      busy, before the body       full
//! ```

use crate::body::{Arriving, Fault};
use crate::fields::{self, CALL, CallField, MAIL, OFFERS, REPLY, REPORT, ReplyField, Why};
use crate::limits::{
    CALLER_SILENCE_TIMEOUT, CONNECTION_WINDOW_BYTES, CONNECTIONS_SERVED_MAX, HEAD_BYTES_MAX, OFFERS_BYTES_MAX,
    STREAM_SEND_BYTES, STREAM_WINDOW_BYTES, STREAMS_MAX,
};
use crate::link::Link;
use crate::local::{CameByLink, FarCall, Local, Ran};
use crate::reports::AskedBy;
use crate::room::{CallRoom, WireRoom};
use crate::silence::{LastByte, Listened, caller_silence_max};
use bytes::Bytes;
use choice::{Judgement, Report, judge};
use fleet_trust::NodeId;
use fleet_trust::serve::MemberArrival;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use problem::{Code, Problem};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Who has a connection's room while nobody is answered on it: the one that serves it, and its service.
const ROOM_AT_REST: usize = 2;

/// The body of what is answered to another node.
enum Answer<B> {
    Whole(Bytes),
    Run {
        body: B,
        /// Held until the reply has ended.
        _room: Arc<CallRoom>,
    },
}

impl<L: Local> Link<L> {
    /// Serves members that have connected, until there are no more, or it is dropped: then all connections are cut.
    pub async fn receive(self: Arc<Self>, mut arrivals: mpsc::Receiver<MemberArrival>) {
        let mut all = JoinSet::new();
        let mut by_node: BTreeMap<NodeId, VecDeque<AbortHandle>> = BTreeMap::new();
        loop {
            tokio::select! {
                arrival = arrivals.recv() => {
                    let Some(arrival) = arrival else { break };
                    let node = arrival.peer.node;
                    let mine = by_node.entry(node).or_default();
                    mine.push_back(all.spawn(self.clone().serve(arrival)));
                    mine.retain(|connection| !connection.is_finished());
                    if mine.len() > CONNECTIONS_SERVED_MAX
                        && let Some(oldest) = mine.pop_front()
                    {
                        oldest.abort();
                    }
                }
                Some(_) = all.join_next() => by_node.retain(|_, mine| mine.iter().any(|one| !one.is_finished())),
            }
        }
        while all.join_next().await.is_some() {}
    }

    /// Takes no more calls from other nodes; those that run may end.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    async fn serve(self: Arc<Self>, arrival: MemberArrival) {
        let MemberArrival { mut peer, stream } = arrival;
        let node = peer.node;
        let room = match WireRoom::take(&self.dialer.budget) {
            Ok(room) => room,
            Err(full) => {
                let problem = Problem::from(full);
                return tracing::warn!(%node, %problem, "closed a connection of a node");
            }
        };
        let (link, heard, of_service) = (self.clone(), LastByte::new(), room.clone());
        let service = service_fn(move |request| {
            let (link, room) = (link.clone(), of_service.clone());
            async move { Ok::<_, Infallible>(link.answer(node, &room, request).await) }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .auto_date_header(false)
            .max_concurrent_streams(STREAMS_MAX as u32)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(STREAM_SEND_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX);
        let stream = Listened::new(stream, heard.clone());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let (mut draining, mut is_told) = (self.draining.subscribe(), false);
        let mut gone = pin!(gone(&heard, &room));
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%node, %error, "a connection of a node broke off");
                    }
                    return;
                }
                why = peer.ended() => return tracing::info!(%node, ?why, "a connection of a node is cut"),
                () = &mut gone => return tracing::info!(%node, "a node that called has gone silent"),
                // The sender lives as long as the link.
                _ = draining.wait_for(|is_draining| *is_draining), if !is_told => {
                    connection.as_mut().graceful_shutdown();
                    is_told = true;
                }
            }
        }
    }

    /// Answers a call, a message of mail, or a question for a report.
    async fn answer(
        self: &Arc<Self>,
        from: NodeId,
        room: &Arc<WireRoom>,
        mut request: Request<Incoming>,
    ) -> Response<Answer<L::Body>> {
        let arrived = Instant::now();
        let is_way_back = self.hear_of(from, fields::read_report(request.headers()));
        if request.headers().contains_key(MAIL) {
            return Response::from_parts(self.take_mail(from, room, request).await, Answer::Whole(Bytes::new()));
        }
        if !request.headers().contains_key(CALL) {
            if request.uri().path() != "/" {
                return self.answer_other(from, room, request).await;
            }
            if is_way_back {
                self.local.reached(from);
            }
            let revision = fields::read_own_revision(request.headers());
            self.asked_by.lock().insert(from, AskedBy { at: Instant::now(), revision });
            return self.answer_question(request.headers());
        }
        let (call, room) = match self.judge(from, room, &request) {
            Ok(judged) => judged,
            Err(why) => return self.refuse(why),
        };
        fields::strip(request.headers_mut());
        request.extensions_mut().insert(CameByLink);
        let room = Arc::new(room);
        let left = call.left;
        let request = request.map(|body| Arriving::new(body, room.clone()));
        let ran = match timeout(left, self.local.run(request, call)).await {
            Ok(Ok(ran)) => ran,
            Ok(Err(why)) => return self.refuse(why),
            Err(_) => {
                let detail = format!("the {} ms that the call had left are over", left.as_millis());
                return self.say_ran(failed(&Problem::new(Code::TimeExceeded, detail)), arrived, None);
            }
        };
        let Ran { response, run } = ran;
        self.say_ran(response.map(|body| Answer::Run { body, _room: room }), arrived, run.map(|run| run.as_secs_f64()))
    }

    /// A member has sent something, and says how it is. One that could not be reached is believed once it was: calls
    /// would go in vain to a node that dials others and that nobody can dial. Says whether there is a way to it.
    fn hear_of(self: &Arc<Self>, from: NodeId, report: Option<Report>) -> bool {
        let link = self.clone();
        let reached = move || {
            report.inspect(|report| link.known.hear(from, *report, None));
            link.local.reached(from);
        };
        let is_way_back = self.pool(from).heard_of(&self.dialer, reached);
        if is_way_back {
            report.inspect(|report| self.known.hear(from, *report, None));
        }
        is_way_back
    }

    /// What the head of a call says is enough to refuse it.
    fn judge(
        &self,
        from: NodeId,
        room: &Arc<WireRoom>,
        request: &Request<Incoming>,
    ) -> Result<(FarCall, CallRoom), Why> {
        let field = request.headers().get(CALL).and_then(CallField::read).ok_or(Why::Garbled)?;
        let CallField { function, hops, refusals, bears, left } = field;
        if hops != 1 {
            return Err(Why::Looped);
        }
        if *self.draining.borrow() {
            return Err(Why::Draining);
        }
        let truth = self.local.truth(&function).ok_or(Why::Absent)?;
        if let Judgement::Refuses(_) = judge(truth, bears, refusals) {
            return Err(Why::Busy);
        }
        let room = room.call(request.headers(), !request.body().is_end_stream()).map_err(|_| Why::Full)?;
        Ok((FarCall { from, function, left }, room))
    }

    fn say_ran<B>(&self, mut response: Response<B>, arrived: Instant, run: Option<f64>) -> Response<B> {
        self.counts.taken();
        let headers = response.headers_mut();
        fields::strip(headers);
        headers.insert(REPLY, ReplyField::Ran { took: arrived.elapsed().as_secs_f64(), run }.write());
        headers.insert(REPORT, fields::write_report(&self.local.report()));
        response
    }

    fn refuse<B>(&self, why: Why) -> Response<Answer<B>> {
        self.counts.refuses(why);
        let mut response = Response::new(Answer::Whole(Bytes::new()));
        *response.status_mut() = StatusCode::CONFLICT;
        let headers = response.headers_mut();
        headers.insert(REPLY, ReplyField::Refused(why).write());
        headers.insert(REPORT, fields::write_report(&self.local.report()));
        response
    }

    /// Something that the link itself knows nothing of.
    async fn answer_other(
        &self,
        from: NodeId,
        room: &Arc<WireRoom>,
        request: Request<Incoming>,
    ) -> Response<Answer<L::Body>> {
        let room = match room.call(request.headers(), !request.body().is_end_stream()) {
            Ok(room) => Arc::new(room),
            Err(full) => return failed(&full.into()),
        };
        let path = request.uri().path().to_owned();
        let request = request.map(|body| Arriving::new(body, room.clone()));
        match self.local.answer(from, request).await {
            Some(response) => response.map(|body| Answer::Run { body, _room: room }),
            None => {
                let detail = format!("this node knows nothing under {path:?}");
                failed(&Problem::new(Code::FleetMessage, detail))
            }
        }
    }

    /// How this node is, and what it has if the other one does not know that yet.
    fn answer_question<B>(&self, headers: &HeaderMap) -> Response<Answer<B>> {
        let offers = self.local.offers();
        let is_known = fields::read_revision(headers) == Some(offers.revision);
        let too_many = offers.bytes.len() > OFFERS_BYTES_MAX;
        let bytes = if is_known || too_many { Bytes::new() } else { offers.bytes };
        let mut response = Response::new(Answer::Whole(bytes));
        let headers = response.headers_mut();
        headers.insert(REPORT, fields::write_report(&self.local.report()));
        headers.insert(OFFERS, fields::write_revision(offers.revision));
        response
    }
}

/// Returns when the other end has said nothing for too long. Whoever is answered, or read a reply, has the room.
async fn gone(heard: &LastByte, room: &Arc<WireRoom>) {
    loop {
        sleep(CALLER_SILENCE_TIMEOUT / 3).await;
        let has_calls = Arc::strong_count(room) > ROOM_AT_REST;
        if heard.silence(heard.began()) >= caller_silence_max(has_calls) {
            return;
        }
    }
}

/// A problem as a reply: RFC 9457.
fn failed<B>(problem: &Problem) -> Response<Answer<B>> {
    let mut response = Response::new(Answer::Whole(problem.to_json().into()));
    *response.status_mut() = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
    response
}

impl<B> Body for Answer<B>
where
    B: Body<Data = Bytes, Error: Into<Fault>> + Unpin,
{
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        match &mut *self {
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Run { body, .. } => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Run { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Run { body, .. } => body.size_hint(),
        }
    }
}
