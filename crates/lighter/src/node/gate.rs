//! What the listeners hand their requests to: the gate's go to functions, the API's to its router.

use super::functions::Answered;
use super::serve::{ReplyBody, Wanted, serve};
use super::{Failed, Node, clock, hide_token, later};
use crate::api::RequestId;
use crate::api::types::Scope;
use axum::Router;
use bytes::Bytes;
use gate_http::{Arrival, Handled, Handler, RequestBody, problem_reply};
use http::header::{HOST, WWW_AUTHENTICATE};
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use problem::Problem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};
use tower_service::Service;
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
        if target.needs_token {
            let now_ms = clock::unix_ms(SystemTime::now());
            if let Err(problem) = node.access.check(request.headers(), Scope::Call, now_ms) {
                node.strays.refused(problem.code);
                return Handled { response: refused(&problem.into()), function };
            }
            hide_token(request.headers_mut());
        }
        match target.answered {
            Answered::AtOnce => {}
            Answered::Later => {
                let response = later::accept(node, &target, request).await.unwrap_or_else(|failed| refused(&failed));
                return Handled { response, function };
            }
            Answered::Earlier => {
                let response =
                    later::result(node, &target, request.uri().path()).unwrap_or_else(|failed| refused(&failed));
                return Handled { response, function };
            }
        }
        if arrival.peer.tls && request.uri().scheme().is_none() {
            name_scheme(&mut request);
        }
        let wanted = Wanted {
            live: &target.live,
            source: &target.source,
            reply_type: &target.reply_type,
            request_id: arrival.request_id,
            arrived,
        };
        let response = serve(node, wanted, request).await.unwrap_or_else(|failed| refused(&failed));
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

/// Serves the API.
pub struct Api {
    pub router: Router,
}

impl Handler for Api {
    type Body = axum::body::Body;

    async fn handle(self: &Arc<Self>, request: Request<RequestBody>, arrival: Arrival) -> Handled<axum::body::Body> {
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(RequestId(arrival.request_id));
        let Ok(response) = self.router.clone().call(request).await;
        response.into()
    }
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
