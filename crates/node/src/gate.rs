//! What the listener of the gate hands its requests to: the functions.

use super::asker::Asker;
use super::audit::{Door, is_failed_login};
use super::functions::{Answered, Target};
use super::serve::{ReplyBody, Wanted, serve};
use super::{Failed, Node, clock, later};
use bytes::Bytes;
use event::Gate;
use gate_http::{Arrival, Handled, Handler, RequestBody, problem_reply};
use http::header::{HOST, WWW_AUTHENTICATE};
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use problem::Problem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use unit::BodyError;

/// Serves the routes of all functions.
pub struct Functions {
    pub node: Arc<Node>,
}

impl Handler for Functions {
    type Body = ReplyBody;

    async fn handle(self: &Arc<Self>, mut request: Request<RequestBody>, arrival: Arrival) -> Handled<ReplyBody> {
        let arrived = Instant::now();
        let node = &*self.node;
        let found = node.functions.table().routes.route(&request).map(|route| route.target.clone());
        let target = match found {
            Ok(target) => target,
            Err(refusal) => return node.stray(refusal.reply()).into(),
        };
        let function = Some(target.live.identity.label.clone());
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
        match target.answered {
            Answered::AtOnce => {}
            Answered::Later => {
                let accepted = later::accept(node, &target, &asker, request).await;
                let response = accepted.unwrap_or_else(|failed| failed_for(&asker, node, &target, failed));
                return Handled { response, function };
            }
            Answered::Earlier => {
                let kept = later::result(node, &target, &asker, request.uri().path()).await;
                let response = kept.unwrap_or_else(|failed| failed_for(&asker, node, &target, failed));
                return Handled { response, function };
            }
        }
        if arrival.peer.tls && request.uri().scheme().is_none() {
            name_scheme(&mut request);
        }
        let wanted = Wanted {
            live: &target.live,
            source: &target.source,
            gate: Gate::Http,
            sender: &asker.name,
            reply_type: &target.reply_type,
            request_id: arrival.request_id,
            arrived,
        };
        let served = serve(node, wanted, request).await;
        let response = served.unwrap_or_else(|failed| failed_for(&asker, node, &target, failed));
        Handled { response, function }
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
fn failed_for(asker: &Asker, node: &Node, target: &Target, mut failed: Failed) -> Response<ReplyBody> {
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
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Streaming(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Streaming(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Streaming(body) => body.size_hint(),
        }
    }
}
