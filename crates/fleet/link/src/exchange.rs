//! A question of one member to another that is neither a call nor a report: under a path of its own.
//!
//! What is asked and answered is up to [`Local::answer`]; the link brings it there, to a member alone, and bounds it.

use crate::body::CallBody;
use crate::limits::OFFERS_BYTES_MAX;
use crate::link::Link;
use crate::local::Local;
use crate::pump::Pump;
use crate::reply::{CallHold, FarReply};
use budget::Purpose;
use bytes::Bytes;
use fleet_trust::NodeId;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use problem::{Code, Problem};
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

impl<L: Local> Link<L> {
    /// Asks a member, which may think for so long; if it refuses, it has said why by then. The path is not `/`.
    /// Dropping the future, or the body of the reply, ends the exchange.
    ///
    /// # Errors
    /// [`Code::MemberAway`]: it cannot be reached, or has not begun to answer in time, or not refused whole; whether it
    /// has heard the question is not known. The problem that it answered, if it did.
    pub async fn exchange(
        &self,
        node: NodeId,
        request: Request<Bytes>,
        patience: Duration,
    ) -> Result<Response<FarReply>, Problem> {
        let asked = async {
            let response = self.exchange_now(node, request).await?;
            if response.status().is_success() { Ok(response) } else { Err(refusal(node, response).await) }
        };
        let late = |_| Problem::new(Code::MemberAway, format!("the node {node} has not answered"));
        timeout(patience, asked).await.map_err(late)?
    }

    async fn exchange_now(&self, node: NodeId, request: Request<Bytes>) -> Result<Response<FarReply>, Problem> {
        let lane = self.pool(node).lane(&self.dialer).await?;
        let lost = |error: h2::Error| Problem::new(Code::MemberAway, format!("the node {node} is gone: {error}"));
        let room = lane.wire.room.call(request.headers(), true)?;
        let (mut head, body) = request.into_parts();
        let mut uri = std::mem::take(&mut head.uri).into_parts();
        uri.scheme = Some(Scheme::HTTP);
        uri.authority = Some(Authority::from_static("fleet.invalid"));
        head.uri = Uri::from_parts(uri)
            .map_err(|error| Problem::new(Code::Internal, format!("a question to a node: {error}")))?;
        let body = CallBody::new(Full::new(body));
        let mut sender = lane.wire.sender.clone().ready().await.map_err(lost)?;
        let (response, stream) =
            sender.send_request(Request::from_parts(head, ()), body.is_end_stream()).map_err(lost)?;
        let mut pump = Pump::new(body, stream, self.dialer.budget.share(Purpose::Bodies));
        let mut response = pin!(response);
        let response = loop {
            tokio::select! {
                biased;
                response = &mut response => break response.map_err(lost)?,
                pumped = pump.run(), if !pump.is_over() => pumped?,
            }
        };
        let held = CallHold { _permit: lane.permit, _room: room, _pumping: pump.go_on() };
        Ok(FarReply::of(response, held))
    }
}

/// What a member says that refuses.
async fn refusal(node: NodeId, response: Response<FarReply>) -> Problem {
    let status = response.status();
    let unsaid =
        || Problem::new(Code::FleetMessage, format!("the node {node} answers with {status} and says nothing else"));
    match whole(response, OFFERS_BYTES_MAX).await {
        Ok(bytes) => Problem::from_json(&bytes).unwrap_or_else(unsaid),
        Err(problem) => problem,
    }
}

/// The whole body of an answer, of at most so many bytes.
///
/// # Errors
/// [`Code::FleetMessage`]: it has more. [`Code::MemberAway`]: it broke off.
pub async fn whole(response: Response<FarReply>, bytes_max: usize) -> Result<Bytes, Problem> {
    let collected = Limited::new(response.into_body(), bytes_max).collect().await.map_err(|error| {
        match error.downcast::<Problem>() {
            Ok(problem) => Problem { code: Code::MemberAway, ..*problem },
            Err(_) => Problem::new(Code::FleetMessage, format!("an answer of more than {bytes_max} bytes")),
        }
    });
    Ok(collected?.to_bytes())
}
