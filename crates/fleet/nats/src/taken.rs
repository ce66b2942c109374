//! Mail that was taken goes from the engine: its node says so, and an anchor, which has the right, deletes it.
//!
//! ```text
//!   node ── taken.NODE ───────▶ anchor ── how far is the stream? ──────────────▶ engine
//!        ◀── { "last": N } ───                                    (all of that has come to the node, or comes now)
//!   node ── taken.NODE, N ────▶ anchor ── purge the node's subjects up to N ───▶ engine
//!        ◀── { "purged": … } ─
//! ```
//! A purge names its subjects in its body, so a right to it would be one to the mail of all. What a node says to an
//! anchor has its name in the subject, which the engine compares with the node's rights.

use crate::api::{Ask, answered, ask, call};
use crate::link::EngineLink;
use crate::streams::{mail_stream, subjects_of_mail};
use async_nats::Client;
use facts::NodeName;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// Anchors take turns.
const GROUP: &str = "anchors";
/// Before what has failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// The subject on which a node says what it has taken.
pub fn subject_of_taken(node: &NodeName) -> String {
    format!("taken.{node}")
}

/// The last number of the stream that has a node's mail. What lies there up to it was sent to the node before the
/// answer.
pub async fn last(link: &EngineLink, node: &NodeName) -> Result<u64, Ask> {
    let answer = answered(ask(link, subject_of_taken(node), None, "".into()).await?)?;
    answer["last"].as_u64().ok_or(Ask::Silent)
}

/// Has a node's mail deleted up to this number.
pub async fn delete(link: &EngineLink, node: &NodeName, upto: u64) -> Result<(), Ask> {
    answered(ask(link, subject_of_taken(node), None, upto.to_string().into()).await?).map(|_| ())
}

/// Does what nodes ask for, on an anchor, until it is dropped. One after the other: what waits for longer than its node
/// is asked again, later.
pub async fn serve(link: EngineLink) {
    loop {
        let connection = link.connection().await;
        tokio::select! {
            () = serve_on(&link, &connection.client) => {}
            () = link.lost(connection.number) => {}
        }
        sleep(PAUSE).await;
    }
}

async fn serve_on(link: &EngineLink, client: &Client) {
    let Ok(mut asked) = client.queue_subscribe("taken.*", GROUP.to_owned()).await else { return };
    while let Some(message) = asked.next().await {
        let node = message.subject.strip_prefix("taken.").and_then(NodeName::new);
        let (Some(node), Some(reply)) = (node, message.reply) else { continue };
        match answer(link, &node, &message.payload).await {
            Ok(answer) => _ = client.publish(reply, answer.to_string().into()).await,
            Err(error) => tracing::debug!(%node, ?error, "mail that was taken stays in the engine for now"),
        }
    }
}

async fn answer(link: &EngineLink, node: &NodeName, upto: &[u8]) -> Result<Value, Ask> {
    let stream = mail_stream(node);
    if upto.is_empty() {
        let info = call(link, &format!("STREAM.INFO.{stream}"), &json!({})).await?;
        return Ok(json!({ "last": info["state"]["last_seq"] }));
    }
    let upto: u64 = std::str::from_utf8(upto).ok().and_then(|upto| upto.parse().ok()).ok_or(Ask::Silent)?;
    // The engine keeps what has the number that it is told.
    let body = json!({ "filter": subjects_of_mail(node), "seq": upto.saturating_add(1) });
    let purged = call(link, &format!("STREAM.PURGE.{stream}"), &body).await?;
    Ok(json!({ "purged": purged["purged"] }))
}
