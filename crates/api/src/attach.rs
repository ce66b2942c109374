//! Attaching to a unit that works: where it is, and its memory, while its neighbours go on.

use super::reply::{Answer, line, of_query};
use super::scope::MayDeploy;
use api_types::{LogLine, SeenUnit, UnitInfo};
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use node::Node;
use problem::{Code, Problem};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use unit::Seen;

/// Lines of the log that are looked through for those of the unit.
const LOG_LINES: usize = 1_000;

#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// With a core file. In the class `wasm` the call ends for it.
    core: bool,
}

/// Looks at a working unit: its log and the answer say where in its code it is. The unit goes on, and its neighbours
/// are not stopped. The answer is a line of JSON, and after it the core file, if one was asked for.
#[utoipa::path(post, path = "/v1/functions/{name}/units/{unit}/attach", tag = "functions",
    params(("name" = String, Path), ("unit" = u64, Path), Wanted), responses(
    (status = 200, description = "A line of JSON, then the core file", content_type = "application/octet-stream", body = SeenUnit),
    (status = 404, description = "L2001, L2034: no such function or unit"),
    (status = 409, description = "L2035: it ended meanwhile"),
    (status = 422, description = "L2036: nobody can attach to it"),
))]
pub async fn attach(
    MayDeploy(who): MayDeploy,
    State(node): State<Arc<Node>>,
    Path((name, unit)): Path<(String, String)>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Answer<Response> {
    let Wanted { core } = of_query(wanted)?;
    let seen = see(&node, &name, &unit, core).await;
    // Who looked at somebody's memory is to be found, whatever came of it.
    let (seen, Seen { lines, core }, log) = who.did(&node, "attach", &format!("{name}#{unit}"), seen).await?;
    let core_bytes = core.as_ref().map(|core| core.len() as u64);
    let first = line(&SeenUnit { unit: seen, log, lines, core_bytes });
    let parts = [Some(first), core.map(Bytes::from)].into_iter().flatten();
    let body = Body::from_stream(stream::iter(parts.map(Ok::<_, Infallible>)));
    Ok(([(CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

async fn see(node: &Node, name: &str, unit: &str, core: bool) -> Result<(UnitInfo, Seen, Vec<LogLine>), Problem> {
    let live = node.functions.get(name)?.live;
    let unknown = || Problem::new(Code::UnitUnknown, format!("function {name:?} has no unit {unit:?}"));
    let unit: u64 = unit.parse().map_err(|_| unknown())?;
    let info = node.units().into_iter().find(|one| one.function == name && one.unit == unit);
    let (info, prepared) = info.zip(live.prepared()).ok_or_else(unknown)?;
    let tail = || node.logs.tail(Some(live.name()), LOG_LINES);
    let before = tail().last().map(|line| line.sequence);
    let seen = prepared.attach(unit, core).await?;
    let is_new = |line: &LogLine| line.unit == unit && before.is_none_or(|before| line.sequence > before);
    let log = tail().into_iter().filter(is_new).collect();
    Ok((info, seen, log))
}
