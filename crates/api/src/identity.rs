//! Who the node is: the one question of the API that a client asks before it trusts the node with a token.

use super::reply::{Answer, of_query};
use api_types::IdentityProof;
use api_types::identity::is_nonce;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use node::{Node, fleet};
use problem::{Code, Problem};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Asking {
    /// 64 random hexadecimal digits in lower case.
    nonce: String,
    /// The first 16 hexadecimal digits of the SHA-256 of a token of the fleet: the proof is by that token.
    token: Option<String>,
}

/// Proves that this is the node of its data folder: HMAC-SHA256 of the API's address and the nonce, by a key made of
/// the token in that folder. A client that reads the folder knows it too, and nobody else. With `token`, the key is
/// made of the hash of that token of the fleet, and the address is the one that devices are told: whoever is no node of
/// the fleet cannot make it, and gets no token. Costs less than reading the request.
#[utoipa::path(get, path = "/v1/identity", tag = "node", security(()), params(Asking), responses(
    (status = 200, body = IdentityProof),
    (status = 400, description = "L4009: that is not a nonce"),
    (status = 404, description = "L4013: the fleet has no token with such a hash"),
    (status = 409, description = "L9116: the node belongs to no fleet"),
))]
pub async fn prove(
    State(node): State<Arc<Node>>,
    query: Result<Query<Asking>, QueryRejection>,
) -> Answer<Json<IdentityProof>> {
    let Asking { nonce, token } = of_query(query)?;
    if !is_nonce(&nonce) {
        return Err(Problem::new(Code::ApiRequest, "a nonce is 64 hexadecimal digits in lower case").into());
    }
    let proof = match token {
        Some(start) => fleet::proof(&node, &nonce, &start)?,
        None => node.proof(&nonce),
    };
    Ok(Json(IdentityProof { proof }))
}
