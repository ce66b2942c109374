//! Boards: which there are, and whether the node trusts them.

use api::{Answer, MayLook};
use api_types::BoardInfo;
use axum::routing::get;
use axum::{Extension, Json, Router};
use node::Node;
use std::sync::Arc;
use unit_metal::MetalClass;

#[derive(utoipa::OpenApi)]
#[openapi(paths(list))]
pub struct Document;

pub fn router(metal: MetalClass) -> Router<Arc<Node>> {
    Router::new().route("/v1/boards", get(list)).layer(Extension(metal))
}

/// The boards that are enrolled or were heard. Those not yet attested since they started are attested now.
#[utoipa::path(get, path = "/v1/boards", tag = "node", responses((status = 200, body = Vec<BoardInfo>)))]
async fn list(_: MayLook, Extension(metal): Extension<MetalClass>) -> Answer<Json<Vec<BoardInfo>>> {
    let described = metal.describe().await?;
    Ok(Json(described.into_iter().map(board_info).collect()))
}

fn board_info(board: unit_metal::Described) -> BoardInfo {
    let unit_metal::Described { name, id, state, detail, machine, kernel, seen } = board;
    let mut info = BoardInfo { name, id, state: state.to_owned(), detail, machine, kernel, ..BoardInfo::default() };
    if let Some((sighting, ago)) = seen {
        let (mut address, beacon) = (sighting.address, sighting.beacon);
        address.set_port(beacon.link_port);
        info.address = Some(address.to_string());
        info.heard_ms_ago = Some(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
        info.architecture = Some(beacon.machine.architecture);
        info.memory_bytes = Some(beacon.machine.memory_bytes);
        info.free_bytes = Some(beacon.load.free_bytes);
        info.uptime_ms = Some(beacon.uptime_ms);
        info.runs = Some(beacon.load.runs);
        info.formats = beacon.formats;
    }
    info
}
