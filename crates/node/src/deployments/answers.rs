//! What other nodes of the fleet ask of this one.
//!
//! | | | |
//! |---|---|---|
//! | `POST` | `/deployments/talk` | how far a node is; answered with what this one knows |
//! | `GET`, `PUT` | `/deployments/records/NAME` | the record that holds |
//! | `POST` | `/deployments/orders` | an order, for an anchor |
//! | `GET` | `/deployments` | the view of this node |
//! | `GET` | `/images/HASH` | an image, from the byte that `range` names |

use super::Deployments;
use crate::ReplyBody;
use bytes::Bytes;
use fleet_deploy::record::DOCUMENT_BYTES_MAX;
use fleet_deploy::talk::{NodeTold, TALK_BYTES_MAX, TalkReply};
use fleet_link::FarBody;
use fleet_trust::NodeId;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use problem::{Code, Problem};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Bodies of one node that are read at once. Another one is refused.
const READING_MAX: usize = 4;
/// How long one may take. Then it is refused.
const READING_TIME_MAX: Duration = Duration::from_secs(60);

impl Deployments {
    /// None: it is about something else.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        from: NodeId,
        request: Request<FarBody>,
    ) -> Option<Response<ReplyBody>> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let answered = match (&head.method, path.as_str()) {
            (&Method::POST, "/deployments/talk") => self.hear(from, body).await,
            (&Method::POST, "/deployments/orders") => self.ordered(from, body).await,
            (&Method::GET, "/deployments") => Ok(json(&self.view())),
            (method, path) => {
                if let Some(hash) = path.strip_prefix("/images/").filter(|_| method == Method::GET) {
                    self.give_image(from, hash, &head.headers).await
                } else if let Some(name) = path.strip_prefix("/deployments/records/") {
                    self.record(from, method, name, body).await
                } else {
                    return None;
                }
            }
        };
        Some(answered.unwrap_or_else(|problem| refused(&problem)))
    }

    async fn hear(&self, from: NodeId, body: FarBody) -> Result<Response<ReplyBody>, Problem> {
        let told = NodeTold::read(&self.collected(from, body, TALK_BYTES_MAX).await?)?;
        let theirs = told.digest;
        self.told.lock().insert(from, (told, Instant::now()));
        let records = self.records.lock();
        let digest = records.digest();
        let serials = (digest != theirs).then(|| records.serials());
        Ok(json(&TalkReply { digest, serials }))
    }

    /// The whole body that a node sends.
    async fn collected(&self, from: NodeId, body: FarBody, bytes_max: usize) -> Result<Bytes, Problem> {
        let _reading = {
            let mut reading = self.reading.lock();
            let count = reading.entry(from).or_default();
            if *count >= READING_MAX {
                return Err(Problem::new(Code::NodeFull, "this node reads as much of the other one as it may at once"));
            }
            *count += 1;
            Reading { deployments: self, from }
        };
        let broken = |what: String| Problem::new(Code::FleetMessage, format!("what another node sends: {what}"));
        let whole = timeout(READING_TIME_MAX, Limited::new(body, bytes_max).collect()).await;
        let whole = whole.map_err(|_| broken(format!("not whole within {} s", READING_TIME_MAX.as_secs())))?;
        Ok(whole.map_err(|error| broken(error.to_string()))?.to_bytes())
    }

    async fn ordered(self: &Arc<Self>, from: NodeId, body: FarBody) -> Result<Response<ReplyBody>, Problem> {
        let order = self.collected(from, body, DOCUMENT_BYTES_MAX).await?;
        Ok(json(&self.take_order(&order, Some(from)).await?))
    }

    async fn record(
        &self,
        from: NodeId,
        method: &Method,
        name: &str,
        body: FarBody,
    ) -> Result<Response<ReplyBody>, Problem> {
        if method == Method::PUT {
            let is_news = self.take_record(&self.collected(from, body, DOCUMENT_BYTES_MAX).await?).await?;
            return Ok(json(&is_news));
        }
        let record = self.records.lock().get(name).cloned();
        let unknown = || Problem::new(Code::DeploymentUnknown, format!("this node knows no deployment {name:?}"));
        let bytes = Bytes::copy_from_slice(record.ok_or_else(unknown)?.bytes());
        Ok(Response::new(ReplyBody::Whole(bytes)))
    }
}

/// A body of a node that is being read.
struct Reading<'a> {
    deployments: &'a Deployments,
    from: NodeId,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut reading = self.deployments.reading.lock();
        if let Some(count) = reading.get_mut(&self.from) {
            *count -= 1;
        }
        reading.retain(|_, count| *count > 0);
    }
}

fn json(value: &impl Serialize) -> Response<ReplyBody> {
    let bytes = serde_json::to_vec(value).expect("it is plain data");
    let mut response = Response::new(ReplyBody::Whole(bytes.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(problem: &Problem) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Whole(problem.to_json().into()));
    *response.status_mut() = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
    response
}
