//! One request: checked, named, handed to the node, and its reply made fit to send.

use crate::access::Access;
use crate::body::{Arriving, RequestBody};
use crate::config::HEADERS_MAX;
use crate::gate::{GateInner, STREAM_WINDOW_BYTES};
use crate::http1::{METHOD_BYTES_MAX, Refused};
use crate::id::{self, REQUEST_ID};
use crate::line::Line;
use crate::reply::{Content, Handled, InProgress, ReplyBody, problem_reply};
use crate::room::{HTTP2_BODY_BYTES_MAX, SMALL_BYTES};
use crate::{host, path};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::body::Incoming;
use problem::{Code, Problem};
use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The node, as the gate sees it. One serves all connections.
pub trait Handler: Send + Sync + 'static {
    /// An error of the body breaks the reply off: the client sees that it is not whole.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Answers one request. Called for sound requests only: the host is sound, the path has one meaning.
    ///
    /// Dropped when the client goes away before the head of the reply is there.
    fn handle(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        arrival: Arrival,
    ) -> impl Future<Output = Handled<Self::Body>> + Send;
}

/// How a request came.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// At most 64 of `A-Z a-z 0-9 _ -`. The gate sends it back in `x-request-id`.
    pub request_id: Arc<str>,
    pub peer: Peer,
    pub trust: Trust,
}

/// Where the node says that a request has shown a right, as a token is: its connection gives way to others last.
#[derive(Debug, Clone)]
pub struct Trust(Arc<Line>);

impl Trust {
    pub fn give(&self) {
        self.0.trust();
    }
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddr,
    pub tls: bool,
}

/// What all requests of one connection share.
pub(crate) struct Connection<H> {
    pub handler: Arc<H>,
    pub line: Arc<Line>,
    pub shared: Arc<GateInner>,
    pub peer: Peer,
}

/// Fields that speak of the connection, which is the gate's to speak of (RFC 9110, 7.6.1).
const CONNECTION_FIELDS: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// What requests have beside them: they say what the sender takes on this connection, and what comes behind a body.
const REQUEST_FIELDS: [HeaderName; 2] = [header::TE, header::TRAILER];

/// Fields that are no connection's, whatever `connection` names: nobody can have them removed.
const KEPT_FIELDS: [HeaderName; 6] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::AUTHORIZATION,
    header::FORWARDED,
    HeaderName::from_static("x-real-ip"),
    REQUEST_ID,
];
/// How the names of others begin that say who really sent a request, as a proxy before the gate writes them.
const KEPT_PREFIX: &str = "x-forwarded-";

/// What a field takes in memory beside its name and value.
const FIELD_BYTES: usize = 64;

/// Bytes of one stream of HTTP/2 that may wait.
const HTTP2_STREAM_BYTES: u64 = STREAM_WINDOW_BYTES as u64;

/// A request that the gate answers itself.
enum Own {
    Problem(Problem),
    /// The last reply of this connection.
    Last(Problem),
    /// `OPTIONS *`.
    Empty,
}

/// A request on its way to its reply.
struct Admitted {
    next: Result<(Request<RequestBody>, Arrival), Own>,
    id_value: HeaderValue,
    in_progress: InProgress,
    access: Option<Box<Access>>,
    is_head: bool,
    /// hyper leaves the body of a HEAD reply away in HTTP/1 only.
    head_only: bool,
}

// Not an async function: what needs no waiting is done before there is a future, which keeps it small to move.
pub(crate) fn serve<H: Handler>(
    connection: Arc<Connection<H>>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<ReplyBody<H::Body>>, Infallible>> + Send {
    let Admitted { next, id_value, in_progress, mut access, is_head, head_only } = admit(&connection, request);
    async move {
        let response = match next {
            Ok((request, arrival)) => {
                let handling = pin!(connection.handler.handle(request, arrival));
                match Guarded(handling).await {
                    Ok(Handled { response, function }) => {
                        if let Some(access) = &mut access {
                            access.function = function;
                        }
                        fit(response, is_head)
                    }
                    Err(Panicked) => {
                        let problem = Problem::new(Code::Internal, "the node failed while it answered this request");
                        problem_reply(&problem).map(Content::Gate)
                    }
                }
            }
            Err(own) => own.reply().map(Content::Gate),
        };
        if let Some(access) = &mut access {
            access.status = response.status().as_u16();
        }
        let mut response = response.map(|content| ReplyBody::new(content, in_progress, access));
        // There is room: no reply has nearly as many fields as a map can have.
        response.headers_mut().try_insert(REQUEST_ID, id_value).ok();
        if head_only {
            response = strip_body(response);
        }
        Ok(response)
    }
}

fn admit<H>(connection: &Connection<H>, request: Request<Incoming>) -> Admitted {
    let Connection { line, shared, peer, .. } = connection;
    let number = line.request();
    let request_id = id::choose(request.headers(), &shared.seed, line.number, number);
    let id_value = HeaderValue::from_str(&request_id).expect("an id is plain");
    let mut access = Access::begin(&request, &request_id, *peer);
    let is_head = request.method() == Method::HEAD;
    let head_only = is_head && request.version() == Version::HTTP_2;
    let mut head_bytes = 0;
    let next = match check(line, number, &request).and_then(|()| room(line, &request, &mut head_bytes)) {
        Ok(arriving) => {
            let counted = access.as_ref().map(|access| access.bytes_in.clone());
            let body_timeout = shared.config.body_timeout;
            let mut request = request.map(|body| RequestBody::new(body, body_timeout, counted, arriving));
            // They speak of the connection, which is not the function's.
            remove_connection_fields(request.headers_mut(), &REQUEST_FIELDS);
            Ok((request, Arrival { request_id, peer: *peer, trust: Trust(line.clone()) }))
        }
        Err(own) => {
            if let (Own::Last(_), Some(access)) = (&own, &mut access) {
                access.forget_target();
            }
            Err(own)
        }
    };
    let in_progress = InProgress::begin(line.clone(), head_bytes);
    Admitted { next, id_value, in_progress, access, is_head, head_only }
}

/// Makes room for what is kept of the request while it is at work, beyond what its connection counts already.
fn room(line: &Arc<Line>, request: &Request<Incoming>, head_bytes: &mut u64) -> Result<Option<Arriving>, Own> {
    let none = |full| Own::Problem(Problem::from(full));
    let is_http2 = request.version() == Version::HTTP_2;
    let least = if is_http2 { 0 } else { SMALL_BYTES };
    let fields = request.headers().iter();
    let bytes = fields.fold(0, |sum, (name, value)| sum + (name.as_str().len() + value.len() + FIELD_BYTES) as u64);
    if bytes > least {
        line.room.take_head(bytes).map_err(none)?;
        *head_bytes = bytes;
    }
    if request.body().is_end_stream() {
        return Ok(None);
    }
    let window = if is_http2 { HTTP2_STREAM_BYTES } else { u64::MAX };
    let waiting = request.body().size_hint().upper().unwrap_or(u64::MAX).min(window).min(HTTP2_BODY_BYTES_MAX);
    let waiting = if waiting > least { waiting } else { 0 };
    Arriving::begin(line, waiting).map(Some).map_err(none)
}

/// Checks what HTTP/1 has been checked for already, and what it has not.
fn check(line: &Line, number: u64, request: &Request<Incoming>) -> Result<(), Own> {
    if request.version() == Version::HTTP_2 {
        check_http2(request)?;
    } else if let Some(refused) = line.refused(number) {
        return Err(Own::Last(refused.problem()));
    }
    let target = request.uri().path();
    if target == "*" && request.method() == Method::OPTIONS {
        return Err(Own::Empty);
    }
    path::canonical(target).map(drop).map_err(|what| Own::Problem(Problem::new(Code::RequestMalformed, what)))
}

fn check_http2(request: &Request<Incoming>) -> Result<(), Own> {
    let malformed = |what| Own::Problem(Problem::new(Code::RequestMalformed, what));
    if request.method() == Method::CONNECT {
        return Err(Own::Problem(Refused::Connect.problem()));
    }
    if request.method().as_str().len() > METHOD_BYTES_MAX {
        return Err(malformed("the method is not a word of at most 32 bytes"));
    }
    if request.headers().len() > HEADERS_MAX {
        return Err(Own::Problem(Refused::TooManyHeaders.problem()));
    }
    host::check_http2(request).map_err(malformed)?;
    if request.headers().get_all(header::CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(malformed("the request has two content-length fields"));
    }
    Ok(())
}

impl Own {
    fn reply(&self) -> Response<Bytes> {
        match self {
            Self::Problem(problem) => problem_reply(problem),
            Self::Last(problem) => {
                let mut reply = problem_reply(problem);
                reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                reply
            }
            Self::Empty => {
                let mut reply = Response::new(Bytes::new());
                *reply.status_mut() = StatusCode::NO_CONTENT;
                reply
            }
        }
    }
}

/// The handling panicked. The process's panic hook has told the log.
struct Panicked;

/// Runs a handling so that a panic in it is an answer, and not a connection that ends without one: on a connection of
/// HTTP/2 all other requests would end with it.
struct Guarded<'a, F>(Pin<&'a mut F>);

impl<F: Future> Future for Guarded<'_, F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // After a panic the handling is dropped and never polled again: nobody sees what it left half done.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }
}

/// Fields of one reply. One with more is refused (L6006): a map of fields panics when it is full, and what is added to
/// a reply is added where nothing guards against that.
const FIELDS_MAX: usize = 1_000;

/// A reply that the node gives may come from a function: it has no say over the connection.
fn fit<B: Body>(mut response: Response<B>, is_head: bool) -> Response<Content<B>> {
    let bad = |detail| problem_reply(&Problem::new(Code::UnitBadReply, detail)).map(Content::Gate);
    if response.status().is_informational() {
        return bad(format!("the status {} ends no request", response.status().as_u16()));
    }
    let fields = response.headers().len();
    if fields > FIELDS_MAX {
        return bad(format!("the reply has {fields} header fields, and there may be {FIELDS_MAX}"));
    }
    remove_connection_fields(response.headers_mut(), &[]);
    if response.status() == StatusCode::RESET_CONTENT {
        // It has no content, whatever the function wrote (RFC 9110, 15.3.6).
        response.headers_mut().remove(header::CONTENT_LENGTH);
        return response.map(|_| Content::Gate(Bytes::new()));
    }
    if let Some(exact) = response.body().size_hint().exact().filter(|exact| lies(&response, *exact, is_head)) {
        return bad(format!("the reply has {exact} bytes, and its content-length says something else"));
    }
    response.map(Content::Node)
}

/// Whether the reply says another length than that of its body. hyper writes what it says unread, and where a reply
/// ends would then be the function's to decide.
fn lies<B>(response: &Response<B>, exact: u64, is_head: bool) -> bool {
    // They have no content, and may say how much there would be.
    if is_head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return false;
    }
    let mut said = response.headers().get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = said.next() else { return false };
    let digits = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()) != Some(exact) || said.next().is_some()
}

/// Removes what speaks of the connection: `more` of it too, and what the field `connection` names.
fn remove_connection_fields(headers: &mut HeaderMap, more: &[HeaderName]) {
    // Nearly no reply has one: looking at the few names there are is quicker than five lookups.
    if !headers.keys().any(|name| CONNECTION_FIELDS.contains(name) || more.contains(name)) {
        return;
    }
    let tokens =
        headers.get_all(header::CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let named = tokens.filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok());
    let is_kept = |name: &HeaderName| KEPT_FIELDS.contains(name) || name.as_str().starts_with(KEPT_PREFIX);
    let named: Vec<HeaderName> = named.filter(|name| !is_kept(name)).collect();
    for name in CONNECTION_FIELDS.iter().chain(more).chain(&named) {
        headers.remove(name);
    }
}

fn strip_body<B: Body<Data = Bytes> + Unpin>(mut response: Response<ReplyBody<B>>) -> Response<ReplyBody<B>> {
    let exact = response.body().exact();
    if let (Some(length), false) = (exact, response.headers().contains_key(header::CONTENT_LENGTH)) {
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    response.map(ReplyBody::without_content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_fields(count: usize) -> Response<String> {
        let mut response = Response::new(String::new());
        for number in 0..count {
            response.headers_mut().append(HeaderName::try_from(format!("x-{number}")).unwrap(), "".parse().unwrap());
        }
        response
    }

    /// RFC 9110, 7.6.1.
    #[test]
    fn what_speaks_of_the_connection_is_removed_and_what_it_names_too() {
        let removed = |fields: &[(&'static str, &'static str)], more: &[HeaderName]| {
            let mut headers = HeaderMap::new();
            fields.iter().for_each(|&(name, value)| _ = headers.append(name, HeaderValue::from_static(value)));
            remove_connection_fields(&mut headers, more);
            fields.iter().map(|(name, _)| *name).filter(|name| !headers.contains_key(*name)).collect::<Vec<_>>()
        };
        let fields = [
            ("connection", "keep-alive, X-Own ,,content-length"),
            ("connection", "authorization,host,x-request-id, x-other, X-Forwarded-For, forwarded"),
            ("keep-alive", "timeout=5"),
            ("x-own", "1"),
            ("x-other", "2"),
            ("x-third", "3"),
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("host", "x"),
            ("content-length", "0"),
            ("authorization", "Bearer x"),
            ("x-request-id", "1"),
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
        ];
        let of_both = ["connection", "connection", "keep-alive", "x-own", "x-other"];
        assert_eq!(removed(&fields, &[]), of_both);
        assert_eq!(removed(&fields, &REQUEST_FIELDS), [&of_both[..], &["te", "trailer"]].concat());
        assert_eq!(removed(&fields[5..], &[]), [""; 0]);
        assert_eq!(removed(&fields[5..], &REQUEST_FIELDS), ["te", "trailer"]);
    }

    /// A map of fields was filled by a function, and adding one more ended its connection and all streams of it.
    #[test]
    fn a_reply_has_so_many_fields_that_the_gate_can_add_its_own() {
        assert!(matches!(fit(with_fields(FIELDS_MAX), false).body(), Content::Node(_)));
        for count in [FIELDS_MAX + 1, 24_575] {
            let reply = fit(with_fields(count), false);
            let Content::Gate(body) = reply.body() else { panic!("it is passed on") };
            assert_eq!(Problem::from_json(body).unwrap().code, Code::UnitBadReply);
            assert!(reply.headers().len() < 10);
        }
    }
}
