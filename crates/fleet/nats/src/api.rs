//! Questions to JetStream and its answers: JSON over the plain client, each with an end.

use crate::link::{Connection, EngineLink};
use async_nats::{HeaderMap, Message, Request, RequestErrorKind};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// JetStream's number for a stream that is not there.
pub const STREAM_MISSING: u64 = 10059;

/// After which pauses a question without an answer is asked again.
const AGAIN_AFTER: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

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

/// Asks JetStream's API, and again until one of the questions is answered: servers never answer what they were asked
/// before they had a leader. So nothing may be asked here that means something else the second time.
pub async fn call(link: &EngineLink, path: &str, body: &Value) -> Result<Value, Ask> {
    let way = Way::open(link).await?;
    let (subject, payload) = (format!("$JS.API.{path}"), Bytes::from(body.to_string()));
    let once = || way.ask(subject.clone(), None, payload.clone());
    let mut asked = FuturesUnordered::from_iter([once()]);
    for pause in AGAIN_AFTER {
        tokio::select! {
            Some(answer) = asked.next() => return answered(answer?),
            () = sleep(pause) => asked.push(once()),
        }
    }
    answered(asked.next().await.unwrap_or(Err(Ask::Silent))?)
}

/// Asks on a subject and waits for one answer.
pub async fn ask(
    link: &EngineLink,
    subject: String,
    headers: Option<HeaderMap>,
    payload: Bytes,
) -> Result<Message, Ask> {
    Way::open(link).await?.ask(subject, headers, payload).await
}

/// A connection, and until when its answers are waited for.
struct Way<'a> {
    link: &'a EngineLink,
    connection: Connection,
    deadline: Instant,
}

impl<'a> Way<'a> {
    async fn open(link: &'a EngineLink) -> Result<Self, Ask> {
        let deadline = Instant::now() + link.answer_timeout();
        let connection = timeout_at(deadline, link.connection()).await.map_err(|_| Ask::Away)?;
        Ok(Self { link, connection, deadline })
    }

    async fn ask(&self, subject: String, headers: Option<HeaderMap>, payload: Bytes) -> Result<Message, Ask> {
        let Self { link, connection, deadline } = self;
        let mut request = Request::new().payload(payload).timeout(Some(link.answer_timeout()));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let answer = tokio::select! {
            answer = timeout_at(*deadline, connection.client.send_request(subject, request)) => answer,
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
