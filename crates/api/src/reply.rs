//! Answers of the API: problems as documents, lists as lines.

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Query, Request};
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use node::body::Collected;
use node::{Failed, Node};
use problem::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Media type of a stream of JSON documents, one a line.
pub const NDJSON: &str = "application/x-ndjson";

/// Bytes of a JSON request, for those that do not say otherwise.
const JSON_BYTES_MAX: u64 = 64 << 10;

/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(120);

/// What is still read of a refused body: as much as was allowed and a little more, for a little while.
const DRAIN_BYTES_MAX: u64 = 64 << 10;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(10);

pub type Answer<T> = Result<T, Refused>;

/// A problem as the answer to a request.
pub struct Refused(pub Failed);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(problem.into())
    }
}

impl From<Failed> for Refused {
    fn from(failed: Failed) -> Self {
        Self(failed)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = problem(&self.0.problem);
        self.0.describe(response.headers_mut());
        response
    }
}

pub fn problem(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(CONTENT_TYPE, problem::MEDIA_TYPE)], problem.to_json()).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// What a query asks for.
///
/// # Errors
/// [`Code::ApiRequest`]: it is not what the endpoint takes.
pub fn of_query<T>(read: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    read.map(|Query(asked)| asked).map_err(|error| Problem::new(Code::ApiRequest, error.body_text()))
}

/// One line of a stream.
pub fn line(value: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(value).expect("what the API sends can be JSON");
    line.push(b'\n');
    line.into()
}

/// The whole body, if it has at most so many bytes, and its share of the node's room for bodies.
pub async fn whole(node: &Node, mut body: Body, bytes_max: u64) -> Result<Collected, Problem> {
    let refused = match node.bodies.collect(&mut body, bytes_max, BODY_TIME_MAX).await {
        Ok(collected) => return Ok(collected),
        Err(problem) => problem,
    };
    // Late is as good as never: the answer is the same.
    let _ = timeout(DRAIN_TIME_MAX, drain(&mut body, bytes_max + DRAIN_BYTES_MAX)).await;
    Err(match refused.code {
        // Else it is the node's room that is too small, which the problem says.
        Code::BodyTooLarge if bytes_max <= node.config.bodies_bytes_max => {
            Problem::new(Code::BodyTooLarge, format!("the request body has more than {bytes_max} bytes")).with_hint("")
        }
        _ => refused,
    })
}

/// Reads and drops, so that a client that reads no answer before it has sent all gets to read it: bodies of the API are
/// larger than what the gate throws away of any refused one.
async fn drain(body: &mut Body, mut left: u64) {
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
        if left == 0 {
            return;
        }
    }
}

/// A JSON request. An empty body is the default where there is one.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<Node>> for Json<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, node: &Arc<Node>) -> Result<Self, Refused> {
        let body = whole(node, request.into_body(), JSON_BYTES_MAX).await?;
        let body = if body.data.is_empty() { &b"{}"[..] } else { &body.data };
        let parsed = serde_json::from_slice(body);
        Ok(Self(parsed.map_err(|error| {
            Problem::new(Code::ApiRequest, format!("the request is not what the API takes: {error}"))
        })?))
    }
}
