//! Sessions of MQTT clients: list, end.

use super::reply::{Answer, of_query};
use super::scope::MayAdmin;
use api_types::MqttSession;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use gate_mqtt::broker::SessionInfo;
use node::Node;
use problem::{Code, Problem};
use serde::Deserialize;
use std::sync::Arc;

/// Every session of the broker, by user and client; none where there is no broker.
#[utoipa::path(get, path = "/v1/mqtt/sessions", tag = "events", responses((status = 200, body = Vec<MqttSession>)))]
pub async fn list(_: MayAdmin, State(node): State<Arc<Node>>) -> axum::Json<Vec<MqttSession>> {
    let mut sessions: Vec<MqttSession> =
        node.mqtt.get().map(|mqtt| mqtt.sessions()).unwrap_or_default().into_iter().map(describe).collect();
    sessions.sort_by(|one, other| (&one.user, &one.client).cmp(&(&other.user, &other.client)));
    axum::Json(sessions)
}

fn describe(info: SessionInfo) -> MqttSession {
    MqttSession {
        client: info.client.to_string(),
        user: info.user.map(|user| user.to_string()),
        connected: info.is_connected,
        kept: info.is_kept,
        expires_ms: info.expires_ms,
        subscriptions: info.subscriptions,
        messages: info.messages,
        bytes: info.bytes,
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Which {
    /// The client's id.
    client: String,
    /// Its user. Without it the session of a client that gave no name.
    user: Option<String>,
}

/// Ends a session with all it holds, and closes its client's connection. Its will, if it has one, is published.
#[utoipa::path(delete, path = "/v1/mqtt/sessions", tag = "events", params(Which), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "L4015: there is none of this client and user"),
))]
pub async fn remove(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    query: Result<Query<Which>, QueryRejection>,
) -> Answer<StatusCode> {
    let Which { client, user } = of_query(query)?;
    if !node.mqtt.get().is_some_and(|mqtt| mqtt.end_session(user.as_deref(), &client)) {
        let whose = user.map_or_else(|| "no user".to_owned(), |user| format!("user {user:?}"));
        let detail = format!("there is no MQTT session of client {client:?} and {whose}");
        return Err(Problem::new(Code::MqttSessionUnknown, detail).into());
    }
    who.did(&node, "mqtt sessions rm", &client, Ok(())).await?;
    tracing::info!(client, user, "ended an MQTT session");
    Ok(StatusCode::NO_CONTENT)
}
