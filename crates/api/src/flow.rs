//! The workflows on the node, placed as `lighter flow` draws them.

use super::reply::Answer;
use super::scope::MayLook;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use manifest::flow::Flow;
use node::{Node, Table, blocking};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// The last answer, and of which table. It is made anew when another is deployed, and by one request at a time.
#[derive(Clone, Default)]
pub struct Drawn(Arc<Mutex<(Weak<Table>, Bytes)>>);

impl Drawn {
    fn of(&self, table: &Arc<Table>) -> Bytes {
        let mut last = self.0.lock();
        if !std::ptr::eq(last.0.as_ptr(), Arc::as_ptr(table)) {
            let layout = drawing::layout(&Flow::of(&table.manifest()));
            let json = serde_json::to_vec(&layout).expect("a layout can be JSON");
            *last = (Arc::downgrade(table), json.into());
        }
        last.1.clone()
    }
}

/// Triggers, functions, queues and sinks of all workflows, and the ways of events between them, with places: `x`, `y`,
/// `width` and `height` of each of `stages`, and the `path` of each of `edges` as SVG has it. `from` and `to` are
/// places in `stages`.
#[utoipa::path(get, path = "/v1/flow", tag = "functions", responses((status = 200, body = Object)))]
pub async fn flow(
    _: MayLook,
    Extension(drawn): Extension<Drawn>,
    State(node): State<Arc<Node>>,
) -> Answer<impl IntoResponse> {
    let table = node.functions.table();
    let json = blocking(move || Ok(drawn.of(&table))).await?;
    Ok(([(CONTENT_TYPE, "application/json")], json))
}
