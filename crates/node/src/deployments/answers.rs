//! What other nodes of the fleet ask of this one.
//!
//! | | | |
//! |---|---|---|
//! | `POST` | `/deployments/talk` | how far a node is; answered with what this one knows |
//! | `GET`, `PUT` | `/deployments/records/NAME` | the record that holds |
//! | `GET`, `PUT` | `/deployments/tokens` | the tokens of the fleet, signed |
//! | `POST` | `/deployments/orders` | an order, for an anchor |
//! | `GET` | `/deployments` | the view of this node |
//! | `GET` | `/images/HASH` | an image, from the byte that `range` names |

use super::seats::Seat;
use super::{Deployments, bytes_of};
use crate::ReplyBody;
use budget::{Purpose, Share};
use bytes::Bytes;
use fleet_deploy::record::DOCUMENT_BYTES_MAX;
use fleet_deploy::talk::{NodeTold, TALK_BYTES_MAX, TalkReply, ToldAgain};
use fleet_link::FarBody;
use fleet_trust::NodeId;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Limited, StreamBody};
use problem::{Code, Problem};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Bodies of one node that are read at once. Another one is refused.
pub const READING_MAX: usize = 4;
/// Records, views and talks on their way to one node at once. Another one is refused.
pub const ANSWERING_MAX: usize = 4;
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
            (&Method::GET, "/deployments") => self.answered(from, || Ok(json_of(&self.view()))).map(as_json),
            (&Method::GET, "/deployments/tokens") => self.give_tokens(from),
            (&Method::PUT, "/deployments/tokens") => self.put_tokens(from, body).await,
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
        let bytes = self.collected(from, body, TALK_BYTES_MAX).await?;
        let theirs = match ToldAgain::read(&bytes) {
            Some(again) => self.heard_again(&from, &again),
            None => {
                let told = NodeTold::read(&bytes)?;
                let (mut all, theirs) = (self.told.lock(), told.digest);
                all.insert(from, (told, Instant::now()));
                self.brief.heard(from, &bytes);
                Some(theirs)
            }
        };
        let reply = || {
            let records = self.records.lock();
            let digest = records.digest();
            let differs = theirs.is_some_and(|theirs| digest != theirs);
            let (serials, whole) = (differs.then(|| records.serials()), theirs.is_none());
            Ok(json_of(&TalkReply { digest, tokens: self.tokens.revision(), serials, keeps: true, whole }))
        };
        self.answered(from, reply).map(as_json)
    }

    /// A node says that it is as before: the digest of what it knows. None: it is not known how it was.
    fn heard_again(&self, from: &NodeId, again: &ToldAgain) -> Option<u64> {
        let mut all = self.told.lock();
        let (told, at) = all.get_mut(from).filter(|_| self.brief.is_as_before(from, again))?;
        *at = Instant::now();
        Some(told.digest)
    }

    /// An answer that may be large. It has a place, and counts, from before it is made until the node has taken it.
    pub(super) fn answered(
        &self,
        to: NodeId,
        make: impl FnOnce() -> Result<Bytes, Problem>,
    ) -> Result<ReplyBody, Problem> {
        let seat = self.answering.take(to)?;
        let bytes = make()?;
        let room = self.node()?.budget.take(Purpose::Bodies, bytes.len() as u64)?;
        let held = (Some(bytes), seat, room);
        let frames = stream::unfold(held, async |(bytes, seat, room): (Option<Bytes>, Seat, Share)| {
            Some((Ok(Frame::data(bytes?)), (None, seat, room)))
        });
        Ok(ReplyBody::Streaming(StreamBody::new(frames).boxed_unsync()))
    }

    /// The whole body that a node sends.
    async fn collected(&self, from: NodeId, body: FarBody, bytes_max: usize) -> Result<Bytes, Problem> {
        let _reading = self.reading.take(from)?;
        let broken = |what: String| Problem::new(Code::FleetMessage, format!("what another node sends: {what}"));
        let whole = timeout(READING_TIME_MAX, Limited::new(body, bytes_max).collect()).await;
        let whole = whole.map_err(|_| broken(format!("not whole within {} s", READING_TIME_MAX.as_secs())))?;
        Ok(whole.map_err(|error| broken(error.to_string()))?.to_bytes())
    }

    async fn ordered(self: &Arc<Self>, from: NodeId, body: FarBody) -> Result<Response<ReplyBody>, Problem> {
        let order = self.collected(from, body, DOCUMENT_BYTES_MAX).await?;
        Ok(json(&self.take_order(&order, Some(from)).await?))
    }

    fn give_tokens(&self, to: NodeId) -> Result<Response<ReplyBody>, Problem> {
        let none = || Problem::new(Code::TokenUnknown, "this node knows no tokens of the fleet");
        let newest = self.tokens.newest().ok_or_else(none)?;
        self.answered(to, || Ok(Bytes::copy_from_slice(newest.bytes()))).map(Response::new)
    }

    async fn put_tokens(&self, from: NodeId, body: FarBody) -> Result<Response<ReplyBody>, Problem> {
        let is_news = self.take_tokens(&self.collected(from, body, DOCUMENT_BYTES_MAX).await?).await?;
        Ok(json(&is_news))
    }

    async fn record(
        self: &Arc<Self>,
        from: NodeId,
        method: &Method,
        name: &str,
        body: FarBody,
    ) -> Result<Response<ReplyBody>, Problem> {
        if method == Method::PUT {
            let is_news = self.take_record(&self.collected(from, body, DOCUMENT_BYTES_MAX).await?).await?;
            return Ok(json(&is_news));
        }
        let record = || {
            let unknown = || Problem::new(Code::DeploymentUnknown, format!("this node knows no deployment {name:?}"));
            Ok(bytes_of(self.records.lock().get(name).ok_or_else(unknown)?))
        };
        self.answered(from, record).map(Response::new)
    }
}

/// A small answer.
fn json(value: &impl Serialize) -> Response<ReplyBody> {
    as_json(ReplyBody::Whole(json_of(value)))
}

fn json_of(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("it is plain data").into()
}

fn as_json(body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(problem: &Problem) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Whole(problem.to_json().into()));
    *response.status_mut() = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
    response
}
