//! What the fleet should run: look, order, and who may order.

use super::functions::detached;
use super::reply::{Answer, Json, whole};
use super::scope::{MayAdmin, MayDeploy, MayLook};
use api_types::{
    DeployerCreated, DeployerInfo, DeployerRequest, FleetDeployments, OrderTaken, TokenCreated, TokenInfo, TokenRequest,
};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use node::Node;
use node::body::Collected;
use node::deployments::{Deployments, ORDER_BYTES_MAX};
use problem::{Code, Problem};
use std::sync::Arc;

/// All deployments of the fleet and how far each node is with them, as an anchor sees it; as this node does where no
/// anchor answers.
#[utoipa::path(get, path = "/v1/fleet/deployments", tag = "fleet", responses(
    (status = 200, body = FleetDeployments),
    (status = 409, description = "L9116: the node belongs to no fleet"),
))]
pub async fn list(_: MayLook, State(node): State<Arc<Node>>) -> Answer<axum::Json<FleetDeployments>> {
    Ok(axum::Json(of(&node)?.views().await))
}

/// Gives an order of a deployer to an anchor, which decides about it. The images that it names are on this node before,
/// or on another one. The nodes take the deployment after this has been answered: `GET` shows how far they are.
#[utoipa::path(post, path = "/v1/fleet/orders", tag = "fleet",
    request_body(content_type = "application/octet-stream", content = Vec<u8>,
        description = "`contracts/fleet.md` has the bytes"), responses(
    (status = 200, body = OrderTaken),
    (status = 400, description = "L9131: it is no order for this fleet; L1003 to L1005: the manifest is not right"),
    (status = 403, description = "L9130: it is not signed by a deployer of the fleet"),
    (status = 404, description = "L9133: there is no such deployment; L2002: or no such revision"),
    (status = 409, description = "L9110: no node fits; L9132: another order came first; L9135: what is kept would have \
        to move; L9136: another deployment has a function or a route of it; L9116: the node belongs to no fleet"),
    (status = 503, description = "L9105: no anchor answers; L9137: an image is nowhere"),
))]
pub async fn order(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    body: Body,
) -> Answer<axum::Json<OrderTaken>> {
    let deployments = of(&node)?;
    let Collected { data, share } = whole(&node, body, ORDER_BYTES_MAX).await?;
    // To its end even if the client goes away: the anchor decides, whoever hears it.
    let taken = detached(async move {
        let taken = deployments.order(data.into()).await;
        drop(share);
        let target = taken.as_ref().map(|taken| taken.name.clone()).unwrap_or_default();
        who.did(&node, "deploy --fleet", &target, taken).await
    })
    .await?;
    Ok(axum::Json(taken))
}

/// Who may deploy to the fleet. Only an anchor knows.
#[utoipa::path(get, path = "/v1/fleet/deployers", tag = "fleet", responses(
    (status = 200, body = Vec<DeployerInfo>),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn deployers(_: MayLook, State(node): State<Arc<Node>>) -> Answer<axum::Json<Vec<DeployerInfo>>> {
    Ok(axum::Json(of(&node)?.deployers()?))
}

/// Makes a key for a new deployer. The answer is the one time it is shown.
#[utoipa::path(post, path = "/v1/fleet/deployers", tag = "fleet", request_body = DeployerRequest, responses(
    (status = 201, body = DeployerCreated),
    (status = 400, description = "L1101: the name is none, or another key has it"),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn add_deployer(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(DeployerRequest { name }): Json<DeployerRequest>,
) -> Answer<(StatusCode, axum::Json<DeployerCreated>)> {
    let deployments = of(&node)?;
    let key = detached(async move {
        let added = deployments.add_deployer(name.clone()).await;
        who.did(&node, "fleet deployer add", &name, added).await
    })
    .await?;
    Ok((StatusCode::CREATED, axum::Json(DeployerCreated { key: key.secret_text() })))
}

/// From now on no order of this deployer counts. What was deployed stays.
#[utoipa::path(delete, path = "/v1/fleet/deployers/{name}", tag = "fleet", params(("name" = String, Path)), responses(
    (status = 204, description = "The key counts no more"),
    (status = 403, description = "L9130: there is none of this name"),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn remove_deployer(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    let deployments = of(&node)?;
    detached(async move {
        let removed = deployments.remove_deployer(name.clone()).await;
        who.did(&node, "fleet deployer rm", &name, removed).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The tokens that count at every node of the fleet, without their secrets, as this node knows them.
#[utoipa::path(get, path = "/v1/fleet/tokens", tag = "fleet", responses(
    (status = 200, body = Vec<TokenInfo>),
    (status = 409, description = "L9116: the node belongs to no fleet"),
))]
pub async fn tokens(_: MayAdmin, State(node): State<Arc<Node>>) -> Answer<axum::Json<Vec<TokenInfo>>> {
    Ok(axum::Json(of(&node)?.tokens()))
}

/// Makes a token that counts at every node of the fleet. The answer is the one time it is shown.
#[utoipa::path(post, path = "/v1/fleet/tokens", tag = "fleet", request_body = TokenRequest, responses(
    (status = 201, body = TokenCreated),
    (status = 400, description = "L4009: the name is taken or cannot be one, or the scope is admin"),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn create_token(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Json(request): Json<TokenRequest>,
) -> Answer<(StatusCode, axum::Json<TokenCreated>)> {
    let deployments = of(&node)?;
    let created = detached(async move {
        let name = request.name.clone();
        let created = deployments.create_token(request).await;
        who.did(&node, "fleet token add", &name, created).await
    })
    .await?;
    Ok((StatusCode::CREATED, axum::Json(created)))
}

/// Removes a token of the fleet: it stops working here at once, and at the other nodes within seconds.
#[utoipa::path(delete, path = "/v1/fleet/tokens/{name}", tag = "fleet", params(("name" = String, Path)), responses(
    (status = 204, description = "It is gone"),
    (status = 404, description = "L4013: there is none of this name"),
    (status = 409, description = "L9116: the node belongs to no fleet; L9118: it is no anchor"),
))]
pub async fn remove_token(
    MayAdmin(who): MayAdmin,
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    let deployments = of(&node)?;
    detached(async move {
        let removed = deployments.remove_token(&name).await;
        who.did(&node, "fleet token rm", &name, removed).await
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses to change by hand what a deployment of the fleet has on this node: the fleet would not know.
///
/// # Errors
/// [`Code::FleetDeployed`].
pub fn check_own<'a>(node: &Node, mut parts: impl Iterator<Item = &'a str>) -> Result<(), Problem> {
    let Ok(deployments) = of(node) else { return Ok(()) };
    let owned = parts.find_map(|part| Some((part, deployments.owner(part)?)));
    owned.map_or(Ok(()), |(part, owner)| {
        let detail = format!("{part:?} is here because of the deployment {:?} of the fleet", owner.as_str());
        Err(Problem::new(Code::FleetDeployed, detail))
    })
}

fn of(node: &Node) -> Result<Arc<Deployments>, Problem> {
    let link = node.link().ok_or_else(|| Problem::new(Code::NoFleet, "this node belongs to no fleet"))?;
    let deployments = link.deployments().cloned();
    deployments.ok_or_else(|| Problem::new(Code::DataUnusable, "what this node knew of deployments cannot be read"))
}
