//! Answers of the API: problems as documents, lists as lines.

use crate::node::Failed;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use problem::{Code, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Media type of a stream of JSON documents, one a line.
pub const NDJSON: &str = "application/x-ndjson";

/// Bytes of a JSON request, for those that do not say otherwise.
const JSON_BYTES_MAX: usize = 64 << 10;

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
        if let Some(seconds) = self.0.retry_after_s {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
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

/// One line of a stream.
pub fn line(value: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(value).expect("what the API sends can be JSON");
    line.push(b'\n');
    line.into()
}

/// The whole body, if it has at most so many bytes.
pub async fn whole(body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    axum::body::to_bytes(body, bytes_max).await.map_err(|error| {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            if error.is::<http_body_util::LengthLimitError>() {
                return Problem::new(Code::BodyTooLarge, format!("the request body has more than {bytes_max} bytes"))
                    .with_hint("");
            }
            cause = error.source();
        }
        Problem::new(Code::RequestMalformed, format!("the request body broke off: {error}"))
    })
}

/// A JSON request. An empty body is the default where there is one.
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let body = whole(request.into_body(), JSON_BYTES_MAX).await?;
        let body = if body.is_empty() { &b"{}"[..] } else { &body };
        let parsed = serde_json::from_slice(body);
        Ok(Self(parsed.map_err(|error| {
            Problem::new(Code::ApiRequest, format!("the request is not what the API takes: {error}"))
        })?))
    }
}
