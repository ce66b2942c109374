//! What the listener of the gate hands its requests to: the functions.

use super::asker::Asker;
use super::audit::{Door, is_failed_login};
use super::functions::{Answered, Target};
use super::link::{CallLink, Elsewhere, FarFunction};
use super::serve::{self, ReplyBody, Wanted};
use super::{Failed, Node, clock, hide_token, later};
use bytes::Bytes;
use event::Gate;
use gate_http::{Arrival, Config, Handled, Handler, Listener, Refusal, RequestBody, problem_reply};
use http::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use problem::{Code, Problem};
use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use unit::BodyError;

/// Bytes of a whole reply that are handed on at once: the engine of HTTP may copy what it is handed.
const PIECE_BYTES: usize = 64 << 10;

/// Serves the routes of all functions until the gate is drained or dropped. Generic code of the gate is compiled here
/// for it, and not where this is called.
///
/// # Errors
/// The system gives no random numbers.
pub fn serve(node: &Arc<Node>, listener: Listener, config: Config) -> Result<gate_http::Gate, Problem> {
    gate_http::Gate::start(vec![listener], config, Arc::new(Functions { node: node.clone() }))
}

struct Functions {
    node: Arc<Node>,
}

impl Handler for Functions {
    type Body = ReplyBody;

    async fn handle(self: &Arc<Self>, mut request: Request<RequestBody>, arrival: Arrival) -> Handled<ReplyBody> {
        let arrived = Instant::now();
        let (node, link) = (&*self.node, self.node.link());
        node.calls.came();
        let found = node.functions.table().routes.route(&request).map(|route| route.target.clone());
        let target = match (found, &link) {
            (Ok(target), _) => target,
            (Err(Refusal::NotFound), Some(link)) => match link.route(node, &request) {
                Some(function) => return far_away(node, link, &function, request, arrival).await,
                None => return node.stray(Refusal::NotFound.reply()).into(),
            },
            (Err(refusal), _) => return node.stray(refusal.reply()).into(),
        };
        let function = Some(target.live.identity.label.clone());
        let authorization = link.as_ref().and_then(|_| request.headers().get(AUTHORIZATION).cloned());
        let asker = match Asker::of(node, &target, request.headers_mut()) {
            Ok(asker) => asker,
            Err(problem) => {
                node.strays.refused(problem.code);
                if is_failed_login(problem.code) {
                    let now_ms = clock::now_ms();
                    node.audit.failed_login(Door::Gate, arrival.peer.address.ip(), None, now_ms);
                }
                return Handled { response: refused(&problem.into()), function };
            }
        };
        if target.needs_token {
            arrival.trust.give();
        }
        let served = match target.answered {
            Answered::AtOnce => {
                if arrival.peer.tls && request.uri().scheme().is_none() {
                    name_scheme(&mut request);
                }
                let called = Called { node, target: &target, asker: &asker, request_id: arrival.request_id, arrived };
                match link {
                    None => called.here(request).await,
                    Some(link) => called.somewhere(&link, request, authorization).await,
                }
            }
            Answered::Later if node.is_draining() => Err(Node::drains().into()),
            Answered::Later => later::accept(node, &target, &asker, request).await,
            Answered::Earlier => later::result(node, &target, &asker, request.uri().path()).await,
        };
        let response = served.unwrap_or_else(|failed| failed_for(&asker, node, &target, failed));
        Handled { response, function }
    }
}

/// A call of a function that is here, and is answered at once.
struct Called<'a> {
    node: &'a Node,
    target: &'a Target,
    asker: &'a Asker,
    request_id: Arc<str>,
    arrived: Instant,
}

impl Called<'_> {
    async fn here<B>(&self, request: Request<B>) -> Result<Response<ReplyBody>, Failed>
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Display,
    {
        let wanted = Wanted {
            live: &self.target.live,
            source: &self.target.source,
            gate: Gate::Http,
            sender: &self.asker.name,
            reply_type: &self.target.reply_type,
            request_id: self.request_id.clone(),
            arrived: self.arrived,
        };
        serve::serve(self.node, wanted, request).await
    }

    /// Here, or on another node that has the same function and less to do.
    async fn somewhere(
        &self,
        link: &CallLink,
        request: Request<RequestBody>,
        authorization: Option<HeaderValue>,
    ) -> Result<Response<ReplyBody>, Failed> {
        let (node, target, live) = (self.node, self.target, &self.target.live);
        let bytes = request.body().size_hint().lower();
        let ran_here = |response: &Response<ReplyBody>| link.ran_here(live, bytes, response);
        let Some(sooner) = link.sooner(node, target, &request, authorization) else {
            if node.is_draining() {
                live.identity.counters.refused(Code::Draining);
                return Err(Node::drains().into());
            }
            return self.here(request).await.inspect(ran_here);
        };
        match link.send(node, live, sooner, request, &self.request_id).await {
            Elsewhere::Ran(response) => Ok(response),
            Elsewhere::Here(mut request) => {
                if target.needs_token {
                    hide_token(request.headers_mut());
                }
                self.here(request).await.inspect(ran_here)
            }
            Elsewhere::Failed(problem) => {
                live.identity.counters.refused(problem.code);
                Err(problem.into())
            }
        }
    }
}

/// A call of a function that is not here. Who may call it is for the node to say that has it.
async fn far_away(
    node: &Node,
    link: &CallLink,
    function: &FarFunction,
    mut request: Request<RequestBody>,
    arrival: Arrival,
) -> Handled<ReplyBody> {
    if arrival.peer.tls && request.uri().scheme().is_none() {
        name_scheme(&mut request);
    }
    let label = Some(function.name.clone());
    match link.send_far(node, function, request, &arrival.request_id).await {
        Elsewhere::Ran(response) => Handled { response, function: label },
        Elsewhere::Here(_) => unreachable!("the function is not here"),
        Elsewhere::Failed(problem) => {
            node.strays.refused(problem.code);
            Handled { response: refused(&problem.for_strangers().into()), function: label }
        }
    }
}

impl Node {
    /// Counts a request that reached no function. What the gate answers for OPTIONS is no refusal.
    fn stray(&self, reply: Response<Bytes>) -> Response<ReplyBody> {
        if let Some(problem) = Problem::from_json(reply.body()) {
            self.strays.refused(problem.code);
        }
        reply.map(ReplyBody::Whole)
    }
}

/// What the asker may read of a failure.
pub fn failed_for(asker: &Asker, node: &Node, target: &Target, mut failed: Failed) -> Response<ReplyBody> {
    if !asker.reads_details(node, target) {
        failed.problem = failed.problem.for_strangers();
    }
    refused(&failed)
}

fn refused(failed: &Failed) -> Response<ReplyBody> {
    let mut reply = problem_reply(&failed.problem).map(ReplyBody::Whole);
    failed.describe(reply.headers_mut());
    if reply.status() == StatusCode::UNAUTHORIZED {
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    reply
}

/// A request of HTTP/1 does not say that it came by TLS; a function may want to know.
fn name_scheme(request: &mut Request<RequestBody>) {
    let authority = request.headers().get(HOST).and_then(|host| http::uri::Authority::try_from(host.as_bytes()).ok());
    let mut parts = request.uri().clone().into_parts();
    (parts.scheme, parts.authority) = (Some(Scheme::HTTPS), authority);
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut *self {
            Self::Whole(bytes) => {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
            }
            Self::Streaming(body) => Pin::new(body).poll_frame(cx),
            Self::Far(body) => Pin::new(body).poll_frame(cx).map_err(BodyError::Unit),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Streaming(body) => body.is_end_stream(),
            Self::Far(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Streaming(body) => body.size_hint(),
            Self::Far(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_whole_reply_goes_out_in_pieces_that_hold_its_share() {
        let budget = budget::Budget::new(1 << 20);
        let bytes: Bytes = (0..200_u32 << 10).map(|number| number as u8).collect();
        let mut body = ReplyBody::Whole(handling::kept(&budget, bytes.clone()).unwrap());
        assert_eq!((body.size_hint().exact(), budget.total_bytes()), (Some(200 << 10), 200 << 10));
        let mut pieces = Vec::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        assert!(body.is_end_stream() && pieces.concat() == bytes);
        assert_eq!(pieces.iter().map(|piece| piece.len() >> 10).collect::<Vec<_>>(), [64, 64, 64, 8]);
        drop(body);
        // The engine has let go of the body, and its pieces wait.
        assert_eq!(budget.total_bytes(), 200 << 10);
        drop(pieces);
        assert_eq!(budget.total_bytes(), 0);
    }
}
