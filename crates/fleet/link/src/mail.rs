//! Messages beside calls: what mail sends to another node, whole. The answer comes once that has taken it.
//!
//! ```text
//!   send_mail ── lighter-fleet-mail, body ══▶ take_mail ─▶ Local::mail ─▶ 204 taken, or 503 not now
//! ```
//! Nobody has to believe an answer: mail confirms its letters by messages of its own.

use crate::fields::MAIL;
use crate::limits::{MAIL_BYTES_MAX, MAIL_REST_MAX, MAIL_TIMEOUT};
use crate::link::Link;
use crate::local::Local;
use crate::room::WireRoom;
use budget::Purpose;
use bytes::Bytes;
use fleet_trust::NodeId;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, Response, StatusCode, Uri, response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use problem::{Code, Problem};
use std::sync::Arc;
use tokio::time::{sleep, timeout};

impl<L: Local> Link<L> {
    /// Sends a message of at most [`MAIL_BYTES_MAX`] to a member. `Ok`: it was taken, which says nothing of a disk.
    /// Dropping the future leaves open whether it was.
    ///
    /// # Errors
    /// [`Code::MemberAway`], [`Code::CallsRefused`], [`Code::MemoryFull`], or what TLS says: it was not taken, or
    /// nobody knows.
    pub async fn send_mail(&self, node: NodeId, message: Bytes) -> Result<(), Problem> {
        let late = |_| away(node, "it has not answered in time");
        timeout(MAIL_TIMEOUT, self.deliver(node, message)).await.map_err(late)?
    }

    async fn deliver(&self, node: NodeId, message: Bytes) -> Result<(), Problem> {
        let lane = self.pool(node).lane(&self.dialer).await?;
        let mut share = self.dialer.budget.share(Purpose::Bodies);
        share.grow(message.len() as u64)?;
        let mut request = Request::new(());
        *request.uri_mut() = Uri::from_static("http://fleet.invalid/");
        let headers = request.headers_mut();
        headers.insert(MAIL, HeaderValue::from_static("1"));
        headers.insert(CONTENT_LENGTH, message.len().into());
        let ended = |error: h2::Error| away(node, &error.to_string());
        let mut sender = lane.wire.sender.clone().ready().await.map_err(ended)?;
        let (response, mut stream) = sender.send_request(request, false).map_err(ended)?;
        stream.send_data(message, true).map_err(ended)?;
        match response.await.map_err(ended)?.status() {
            StatusCode::NO_CONTENT => Ok(()),
            StatusCode::SERVICE_UNAVAILABLE => Err(away(node, "it takes no mail now")),
            other => Err(away(node, &format!("it answered mail with {}", other.as_u16()))),
        }
    }

    /// The head of the answer to a message of mail.
    pub(crate) async fn take_mail(
        &self,
        from: NodeId,
        room: &Arc<WireRoom>,
        request: Request<Incoming>,
    ) -> response::Parts {
        let status = match self.read_mail(room, request).await {
            Ok(message) => match self.local.mail(from, message).await {
                Some(rest) => {
                    sleep(rest.min(MAIL_REST_MAX)).await;
                    StatusCode::NO_CONTENT
                }
                None => StatusCode::SERVICE_UNAVAILABLE,
            },
            Err(status) => status,
        };
        let mut response = Response::new(());
        *response.status_mut() = status;
        response.into_parts().0
    }

    async fn read_mail(&self, room: &Arc<WireRoom>, request: Request<Incoming>) -> Result<Bytes, StatusCode> {
        if *self.draining.borrow() {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let bytes = request.body().size_hint().upper().unwrap_or(MAIL_BYTES_MAX as u64);
        if bytes > MAIL_BYTES_MAX as u64 {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let full = |_| StatusCode::SERVICE_UNAVAILABLE;
        let mut share = self.dialer.budget.share(Purpose::Bodies);
        share.grow(bytes).map_err(full)?;
        let _room = room.call(request.headers(), true).map_err(full)?;
        let whole = Limited::new(request.into_body(), MAIL_BYTES_MAX).collect();
        let read = timeout(MAIL_TIMEOUT, whole).await.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
        Ok(read.map_err(|_| StatusCode::BAD_REQUEST)?.to_bytes())
    }
}

fn away(node: NodeId, why: &str) -> Problem {
    Problem::new(Code::MemberAway, format!("the node {node}: {why}"))
}
