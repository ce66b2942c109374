//! The node's fleet: look, found, join, invite, take nodes out.

use super::functions::detached;
use super::reply::{Answer, Json, of_query};
use super::scope::{MayAdmin, MayLook, MayLookSome, Who};
use api_types::{
    FleetAnchor, FleetAnchors, FleetDigits, FleetDrain, FleetInfo, FleetKnock, FleetKnocking, FleetLeft, FleetPlaces,
    FleetRemoved, FleetRequest, FleetShown, FleetWhy, InvitationCreated, InvitationRequest, JoinRequest,
};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use node::{Node, fleet};
use problem::Problem;
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
    let token = fleet::read_token(&token)?;
    let (joining, to) = (node.clone(), token.fleet());
    let work = async move { joining.fleet.join(&token).await };
    let status = done(who, &node, "fleet join", work, move |_| to.to_string()).await?;
    Ok(axum::Json(fleet::describe(&node, status)))
}

/// Asks an anchor to be let in without an invitation, and says which digits a person has to type there: within five
/// minutes. What was shown before counts no more.
#[utoipa::path(post, path = "/v1/fleet/knock", tag = "fleet", request_body = FleetKnock, responses(
    (status = 200, body = FleetShown),
    (status = 400, description = "L1101: the address is none"),
    (status = 403, description = "L9102: the name that was chosen for this node is another node's"),
    (status = 409, description = "L9117: the node belongs to a fleet; L9125: several fleets answer"),
    (status = 503, description = "L9105: no anchor is found, or none answers; L9114: too many have asked it"),
))]
pub async fn knock(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(FleetKnock { at }): Json<FleetKnock>,
) -> Answer<axum::Json<FleetShown>> {
    let at = at.as_deref().map(fleet::read_address).transpose()?;
    let knocking = node.clone();
    let work = async move { knocking.fleet.knock(at).await };
    let shown =
        done(who, &node, "fleet knock", work, |shown| shown.map(|shown| shown.anchor.to_string()).unwrap_or_default());
    Ok(axum::Json(fleet::shown(shown.await?)))
}

/// Says that the anchor took the digits that this node shows: a person has seen that. Answers when the node is a
/// member.
#[utoipa::path(post, path = "/v1/fleet/knock/confirm", tag = "fleet", request_body = FleetDigits, responses(
    (status = 200, body = FleetInfo),
    (status = 403, description = "L9102: the node does not wait with these digits, or nobody let it in in time"),
    (status = 409, description = "L9117: the node belongs to a fleet"),
))]
pub async fn confirm(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(FleetDigits { digits }): Json<FleetDigits>,
) -> Answer<axum::Json<FleetInfo>> {
    let (joining, digits) = (node.clone(), fleet::read_digits(&digits)?);
    let work = async move { joining.fleet.confirm(digits).await };
    let status = done(who, &node, "fleet join", work, |status| {
        status.map(|status| status.fleet.to_string()).unwrap_or_default()
    });
    Ok(axum::Json(fleet::describe(&node, status.await?)))
}

/// The nodes that wait here to be let in by digits. The digits are not told: they have to be read on the node.
#[utoipa::path(get, path = "/v1/fleet/knocking", tag = "fleet", responses(
    (status = 200, body = Vec<FleetKnocking>),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn knocking(_: MayAdmin, State(node): State<Arc<Node>>) -> Answer<axum::Json<Vec<FleetKnocking>>> {
    Ok(axum::Json(node.fleet.knocking()?.into_iter().map(fleet::knocking).collect()))
}

/// Lets the node in that shows these digits.
#[utoipa::path(post, path = "/v1/fleet/admit", tag = "fleet", request_body = FleetDigits, responses(
    (status = 200, body = FleetKnocking),
    (status = 403, description = "L9102: no node waits with these digits, or two do"),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn admit(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(FleetDigits { digits }): Json<FleetDigits>,
) -> Answer<axum::Json<FleetKnocking>> {
    let (anchor, digits) = (node.clone(), fleet::read_digits(&digits)?);
    let work = async move { anchor.fleet.admit(digits).await };
    let admitted = done(who, &node, "fleet admit", work, move |admitted| match admitted {
        Some(knocking) => format!("{} ({})", knocking.name, knocking.node),
        None => digits.to_string(),
    });
    Ok(axum::Json(fleet::knocking(admitted.await?)))
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
    let leaving = node.clone();
    let work = async move { fleet::leave(&leaving).await };
    let name = done(who, &node, "fleet leave", work, |_| String::new()).await?;
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
    let anchor = node.clone();
    let work = async move { anchor.fleet.invite(times, seconds).await };
    let token = done(who, &node, "fleet invite", work, move |_| format!("{times} nodes, {seconds} s")).await?;
    Ok((StatusCode::CREATED, axum::Json(InvitationCreated { token: token.to_string() })))
}

/// Makes members anchors beside this one: two at once, so that there are three. They are given the key of the fleet's
/// CA, sealed to each. Answers when they are anchors, or when they have had 45 seconds; then they become it as soon as
/// they are reached.
#[utoipa::path(post, path = "/v1/fleet/anchors", tag = "fleet", request_body = FleetAnchors, responses(
    (status = 200, body = Vec<FleetAnchor>),
    (status = 400, description = "L1101: there would be two anchors, or more than three"),
    (status = 404, description = "L9119: there is none of this id or name"),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
    (status = 503, description = "L9103: a node has no nats-server; L9122: one is away; L9105: no majority answers"),
))]
pub async fn appoint(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(FleetAnchors { nodes }): Json<FleetAnchors>,
) -> Answer<axum::Json<Vec<FleetAnchor>>> {
    let (anchor, target) = (node.clone(), nodes.join(" "));
    let work = async move { fleet::appoint(&anchor, &nodes).await };
    Ok(axum::Json(done(who, &node, "fleet anchor add", work, move |_| target).await?))
}

/// An anchor is a member like others from now on. It deletes the key of the fleet's CA when it hears of that; one that
/// was stolen does not, and the fleet has to be founded anew.
#[utoipa::path(delete, path = "/v1/fleet/anchors/{node}", tag = "fleet", params(
    ("node" = String, Path, description = "Its id, the beginning of its id, or its name")), responses(
    (status = 200, body = FleetAnchor),
    (status = 400, description = "L1101: it is no anchor, or the only one"),
    (status = 404, description = "L9119: there is none of this id or name"),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
    (status = 503, description = "L9105: no majority of anchors answers, and nothing has changed"),
))]
pub async fn dismiss(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Path(which): Path<String>,
) -> Answer<axum::Json<FleetAnchor>> {
    let (anchor, dismissed) = (node.clone(), which.clone());
    let work = async move { anchor.fleet.dismiss(&dismissed).await };
    let (id, name) = done(who, &node, "fleet anchor rm", work, move |_| which).await?;
    Ok(axum::Json(FleetAnchor { id: id.to_string(), name }))
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
    let (anchor, removed) = (node.clone(), which.clone());
    let work = async move { anchor.fleet.remove(&removed).await };
    let action = if stolen { "fleet rm --stolen" } else { "fleet rm" };
    let (id, name) = done(who, &node, action, work, move |_| which).await?;
    Ok(axum::Json(FleetRemoved { id: id.to_string(), name }))
}

/// Works to the end, whoever waits for it, and writes into the audit what became of it; `target` says to what it was
/// done, by the result if there is one.
async fn done<T: Send + 'static>(
    who: Who,
    node: &Arc<Node>,
    action: &'static str,
    work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    target: impl FnOnce(Option<&T>) -> String + Send + 'static,
) -> Result<T, Problem> {
    let node = node.clone();
    detached(async move {
        let worked = work.await;
        let target = target(worked.as_ref().ok());
        who.did(&node, action, &target, worked).await
    })
    .await
}
