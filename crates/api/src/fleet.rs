//! The node's fleet: look, found, join, invite, take nodes out.

use super::functions::detached;
use super::reply::{Answer, Json, of_query};
use super::scope::{MayAdmin, MayLook, MayLookSome};
use api_types::{
    FleetDrain, FleetInfo, FleetLeft, FleetPlaces, FleetRemoved, FleetRequest, FleetWhy, InvitationCreated,
    InvitationRequest, JoinRequest,
};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use node::{Node, fleet};
use serde::Deserialize;
use std::sync::Arc;

/// The fleet and its nodes, as this node sees them.
#[utoipa::path(get, path = "/v1/fleet", tag = "fleet", responses(
    (status = 200, body = FleetInfo),
    (status = 409, description = "L9116: the node belongs to no fleet"),
))]
pub async fn get(_: MayLook, State(node): State<Arc<Node>>) -> Answer<axum::Json<FleetInfo>> {
    Ok(axum::Json(fleet::describe(&node, node.fleet.status()?)))
}

/// The nodes that a device can call, this one first: those whose API others reach, and that were heard of lately. So a
/// device has to know one node of the fleet. A token of the fleet counts at all of them.
#[utoipa::path(get, path = "/v1/fleet/places", tag = "fleet", responses(
    (status = 200, body = FleetPlaces),
    (status = 409, description = "L9116: the node belongs to no fleet"),
))]
pub async fn places(MayLookSome(who): MayLookSome, State(node): State<Arc<Node>>) -> Answer<axum::Json<FleetPlaces>> {
    Ok(axum::Json(fleet::places(&node, &who.token)?))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Call {
    /// Bytes of the call's body.
    #[serde(default)]
    bytes: u64,
}

/// Where a call of a function would run that came in here now, and by what that is decided.
#[utoipa::path(get, path = "/v1/fleet/why/{function}", tag = "fleet", params(("function" = String, Path), Call),
    responses(
        (status = 200, body = FleetWhy),
        (status = 404, description = "L2001: no node that was heard has the function"),
        (status = 409, description = "L9116: the node belongs to no fleet"),
    ))]
pub async fn why(
    _: MayLook,
    State(node): State<Arc<Node>>,
    Path(function): Path<String>,
    query: Result<Query<Call>, QueryRejection>,
) -> Answer<axum::Json<FleetWhy>> {
    let Call { bytes } = of_query(query)?;
    Ok(axum::Json(fleet::why(&node, &function, bytes)?))
}

/// Founds a fleet, of which this node is the anchor. From now on the node listens for other nodes.
#[utoipa::path(post, path = "/v1/fleet", tag = "fleet", request_body = FleetRequest, responses(
    (status = 201, body = FleetInfo),
    (status = 409, description = "L9117: the node belongs to a fleet already"),
    (status = 500, description = "L9004: the node cannot listen for others"),
))]
pub async fn found(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(FleetRequest { name }): Json<FleetRequest>,
) -> Answer<(StatusCode, axum::Json<FleetInfo>)> {
    let fleet = detached(async move {
        let founded = node.fleet.found(&name).await;
        let status = who.did(&node, "fleet new", &name, founded).await?;
        // So that the answer says it if there is none.
        if let Some(engine) = node.engine() {
            engine.settle().await;
        }
        Ok(fleet::describe(&node, status))
    })
    .await?;
    Ok((StatusCode::CREATED, axum::Json(fleet)))
}

/// Joins a fleet by an invitation. A node that is a member of it already stays one.
#[utoipa::path(post, path = "/v1/fleet/join", tag = "fleet", request_body = JoinRequest, responses(
    (status = 200, body = FleetInfo),
    (status = 400, description = "L9106: the text is no invitation"),
    (status = 403, description = "L9107, L9108, L9109: the invitation is unknown, has ended or is used up; L9111: the \
        node was taken out of the fleet"),
    (status = 409, description = "L9117: the node belongs to another fleet"),
    (status = 503, description = "L9105: no anchor answers; L9101: what answers is of another fleet"),
))]
pub async fn join(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(JoinRequest { token }): Json<JoinRequest>,
) -> Answer<axum::Json<FleetInfo>> {
    let fleet = detached(async move {
        let token = fleet::read_token(&token)?;
        let joined = node.fleet.join(&token).await;
        let status = who.did(&node, "fleet join", &token.fleet().to_string(), joined).await?;
        Ok(fleet::describe(&node, status))
    })
    .await?;
    Ok(axum::Json(fleet))
}

/// Takes no new work until the node is started again, and says what still runs: ask again until that is nothing. Events
/// that come in meanwhile wait on its disk.
#[utoipa::path(post, path = "/v1/fleet/drain", tag = "fleet", responses(
    (status = 200, body = FleetDrain),
    (status = 409, description = "L9116: the node belongs to no fleet"),
))]
pub async fn drain(MayAdmin(who): MayAdmin, State(node): State<Arc<Node>>) -> Answer<axum::Json<FleetDrain>> {
    node.fleet.status()?;
    let left = detached(async move {
        if node.is_draining() {
            return Ok(node.drain().await);
        }
        let left = node.drain().await;
        who.did(&node, "fleet drain", "", Ok(left)).await
    })
    .await?;
    Ok(axum::Json(left))
}

/// Leaves the fleet. The node's key is revoked for good; it may join again as a new node.
#[utoipa::path(post, path = "/v1/fleet/leave", tag = "fleet", responses(
    (status = 200, body = FleetLeft),
    (status = 409, description = "L9116: the node belongs to no fleet; L9117: it is an anchor"),
    (status = 503, description = "L9105: no anchor answers, and nothing has changed"),
))]
pub async fn leave(MayAdmin(who): MayAdmin, State(node): State<Arc<Node>>) -> Answer<axum::Json<FleetLeft>> {
    let name = detached(async move {
        let left = fleet::leave(&node).await;
        who.did(&node, "fleet leave", "", left).await
    })
    .await?;
    Ok(axum::Json(FleetLeft { name }))
}

/// Makes an invitation. The answer is the one time it is shown.
#[utoipa::path(post, path = "/v1/fleet/invitations", tag = "fleet", request_body = InvitationRequest, responses(
    (status = 201, body = InvitationCreated),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn invite(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(InvitationRequest { times, seconds }): Json<InvitationRequest>,
) -> Answer<(StatusCode, axum::Json<InvitationCreated>)> {
    let token = detached(async move {
        let made = node.fleet.invite(times, seconds).await;
        who.did(&node, "fleet invite", &format!("{times} nodes, {seconds} s"), made).await
    })
    .await?;
    Ok((StatusCode::CREATED, axum::Json(InvitationCreated { token: token.to_string() })))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Why {
    /// Whether a thief has the node. It is what the audit says.
    #[serde(default)]
    stolen: bool,
}

/// Takes a node out of the fleet for good. Its connections end at once where the list of revoked nodes arrives.
#[utoipa::path(delete, path = "/v1/fleet/nodes/{node}", tag = "fleet", params(
    ("node" = String, Path, description = "Its id, the beginning of its id, or its name"), Why), responses(
    (status = 200, body = FleetRemoved),
    (status = 404, description = "L9119: there is none of this id or name"),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn remove(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Path(which): Path<String>,
    query: Result<Query<Why>, QueryRejection>,
) -> Answer<axum::Json<FleetRemoved>> {
    let Why { stolen } = of_query(query)?;
    let (id, name) = detached(async move {
        let removed = node.fleet.remove(&which).await;
        who.did(&node, if stolen { "fleet rm --stolen" } else { "fleet rm" }, &which, removed).await
    })
    .await?;
    Ok(axum::Json(FleetRemoved { id: id.to_string(), name }))
}
