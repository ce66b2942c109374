//! What the dashboard shows, as it changes: one stream of lines in place of asking nine endpoints again and again.

mod hub;
mod rows;

pub use hub::Hub;

use super::reply::{Answer, NDJSON, of_query};
use super::scope::MayLookSome;
use api_types::{LiveLine, Scope};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt as _};
use hub::{Sight, VIEWERS_MAX, VIEWERS_OF_TOKEN_MAX, Viewer};
use node::{Node, clock};
use problem::{Code, Problem};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Wish {
    /// Also the units that exist. Default false.
    #[serde(default)]
    units: bool,
    /// Also all numbers of this function, with the spread of its times.
    function: Option<String>,
}

/// One who looks, and all that their lines are made of.
struct Stream {
    viewer: Viewer,
    node: Arc<Node>,
    /// What they came with: the token in it is looked at before each line, because it may have ended.
    headers: HeaderMap,
    wish: Wish,
}

/// What the node does now, and then what of it changes: lines of JSON, one a second, or each two seconds with more than
/// 200 functions. The first line has everything. A slow reader gets fewer lines, and misses no change. The stream ends
/// when the token does, and when the node stops.
///
/// All viewers share one look at the node; without viewers it costs nothing.
#[utoipa::path(get, path = "/v1/live", tag = "node", params(Wish), responses(
    (status = 200, content_type = "application/x-ndjson", body = LiveLine),
    (status = 403, description = "L4006: the token is bound, and wants to see units or a function it is not for"),
    (status = 404, description = "L2001: there is no such function"),
    (status = 503, description = "L3007: there are 32 viewers already, or 16 with this token"),
))]
pub async fn live(
    MayLookSome(who): MayLookSome,
    State(node): State<Arc<Node>>,
    Extension(hub): Extension<Arc<Hub>>,
    headers: HeaderMap,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Answer<Response> {
    let wish = of_query(wish)?;
    if let Some(name) = &wish.function {
        who.token.may_call(name)?;
        node.functions.get(name)?;
    }
    if wish.units && who.token.is_bound() {
        return Err(Problem::new(Code::ScopeMissing, "the token is for some functions and queues only").into());
    }
    let viewer = hub.enter(&who.token.name).ok_or_else(|| {
        let detail =
            format!("{VIEWERS_MAX} look at the node already, or {VIEWERS_OF_TOKEN_MAX} of them with this token");
        Problem::new(Code::ConcurrencyExceeded, detail).with_hint("close a dashboard")
    })?;
    let stream = Stream { viewer, node, headers, wish };
    let lines = stream::unfold(stream, async |mut stream| Some((stream::iter(stream.next().await?), stream)));
    let pieces = lines.flatten().map(Ok::<_, Infallible>);
    Ok(([(CONTENT_TYPE, NDJSON)], Body::from_stream(pieces)).into_response())
}

impl Stream {
    /// None once there is nobody to tell, or nothing more to tell.
    async fn next(&mut self) -> Option<Vec<Bytes>> {
        let token = self.node.access.check(&self.headers, Scope::Look, clock::now_ms()).ok()?;
        let wanted = Sight { token: &token, units: self.wish.units, function: self.wish.function.as_deref() };
        let line = tokio::select! {
            line = self.viewer.next(&self.node, wanted) => line.ok()?,
            () = self.node.stop_wanted() => return None,
        };
        Some(line)
    }
}
