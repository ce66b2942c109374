//! Questions to JetStream and its answers: JSON over the plain client, each with an end.

use crate::link::EngineLink;
use async_nats::{HeaderMap, Message, Request, RequestErrorKind};
use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

/// JetStream's number for a stream that is not there.
pub const STREAM_MISSING: u64 = 10059;

/// Why a question has no good answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Nobody was asked, or nobody heard it.
    Away,
    /// It was asked, and nobody has answered.
    Silent,
    Refused(Objection),
}

/// An answer that says no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// JetStream's number of the error.
    pub code: u64,
    pub words: String,
}

/// What refusals mean, by JetStream's `errors.json`.
pub mod refused {
    use super::Objection;

    /// Another change came first.
    pub fn has_changed(refusal: &Objection) -> bool {
        matches!(refusal.code, 10071 | 10164)
    }

    pub fn is_full(refusal: &Objection) -> bool {
        matches!(refusal.code, 10023 | 10028 | 10047 | 10077 | 10122)
    }

    /// No leader, or not yet.
    pub fn is_temporary(refusal: &Objection) -> bool {
        matches!(refusal.code, 10005 | 10008 | 10009 | 10163)
    }

    pub fn name_is_taken(refusal: &Objection) -> bool {
        refusal.code == 10058
    }

    pub fn has_no_message(refusal: &Objection) -> bool {
        refusal.code == 10037
    }
}

/// Asks JetStream's API.
pub async fn call(link: &EngineLink, path: &str, body: &Value) -> Result<Value, Ask> {
    answered(ask(link, format!("$JS.API.{path}"), None, body.to_string().into()).await?)
}

/// Asks on a subject and waits for one answer.
pub async fn ask(
    link: &EngineLink,
    subject: String,
    headers: Option<HeaderMap>,
    payload: Bytes,
) -> Result<Message, Ask> {
    let deadline = Instant::now() + link.answer_timeout();
    let connection = timeout_at(deadline, link.connection()).await.map_err(|_| Ask::Away)?;
    let mut request = Request::new().payload(payload).timeout(Some(link.answer_timeout()));
    if let Some(headers) = headers {
        request = request.headers(headers);
    }
    let answer = tokio::select! {
        answer = timeout_at(deadline, connection.client.send_request(subject, request)) => answer,
        () = link.lost(connection.number) => return Err(Ask::Silent),
    };
    match answer {
        Ok(Ok(message)) => Ok(message),
        Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => Err(Ask::Away),
        Ok(Err(_)) | Err(_) => {
            connection.doubt();
            Err(Ask::Silent)
        }
    }
}

/// The JSON of an answer, if it is a good one.
pub fn answered(message: Message) -> Result<Value, Ask> {
    // What cannot be read is no answer.
    let value: Value = serde_json::from_slice(&message.payload).map_err(|_| Ask::Silent)?;
    match value.get("error") {
        Some(error) => Err(Ask::Refused(Objection {
            code: error["err_code"].as_u64().unwrap_or_default(),
            words: error["description"].as_str().unwrap_or_default().to_owned(),
        })),
        None => Ok(value),
    }
}
