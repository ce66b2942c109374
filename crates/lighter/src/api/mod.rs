//! The node's API: what the command line, SDKs and dashboards use to deploy, call and observe. `docs/api.md` tells it.
//!
//! ```text
//!   request ──▶ guard (Host, Origin) ──▶ token and scope ──▶ a handler here ──▶ the node
//!                                                                 └─ Problem ──▶ application/problem+json
//! ```
//! Each handler names the scope it needs in its signature and stands in the OpenAPI document by its attribute, from
//! which its route is made too: what is served and what is written cannot differ.

mod call;
mod functions;
mod health;
mod images;
mod logs;
mod openapi;
mod reply;
mod scope;
mod secrets;
mod tokens;
pub mod types;

use crate::node::{Guard, Node, REQUEST_ID_HEADER};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use problem::{Code, Problem};
use reply::Refused;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Serves the API of one node.
pub fn router(node: Arc<Node>, guard: Guard) -> Router {
    let (router, _) = described().split_for_parts();
    router
        .fallback(async |request: Request| {
            let detail = format!("the API has no {} {}", request.method(), request.uri().path());
            Refused(Problem::new(Code::ApiUnknown, detail))
        })
        .method_not_allowed_fallback(async |request: Request| {
            let detail = format!("{} does not take {}", request.uri().path(), request.method());
            Refused(Problem::new(Code::MethodNotAllowed, detail))
        })
        .layer(from_fn_with_state((node.clone(), Arc::new(guard)), around))
        .with_state(node)
}

/// Every endpoint, with its description.
fn described() -> OpenApiRouter<Arc<Node>> {
    OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(health::node))
        .routes(routes!(health::units))
        .routes(routes!(health::stats))
        .routes(routes!(health::stop))
        .routes(routes!(openapi::document))
        .routes(routes!(openapi::manifest_schema))
        .routes(routes!(functions::list))
        .routes(routes!(functions::get, functions::remove))
        .routes(routes!(functions::rollback))
        .routes(routes!(functions::dump))
        .routes(routes!(functions::deploy))
        .routes(routes!(call::call))
        .routes(routes!(logs::logs))
        .routes(routes!(images::head, images::get, images::put))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::remove))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::put, secrets::remove))
}

/// What every request goes through: the guard before, the request's id after.
async fn around(State((node, guard)): State<(Arc<Node>, Arc<Guard>)>, mut request: Request, next: Next) -> Response {
    let id = node.ids.request_id(request.headers().get(REQUEST_ID_HEADER).map(HeaderValue::as_bytes));
    let header = HeaderValue::from_str(&id);
    request.extensions_mut().insert(RequestId(id));
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let mut response = match guard.check(request.headers(), authority.as_deref()) {
        Ok(()) => next.run(request).await,
        Err(problem) => reply::problem(&problem),
    };
    if let Ok(header) = header {
        response.headers_mut().insert(REQUEST_ID_HEADER, header);
    }
    response
}

/// The id of a request, for handlers.
#[derive(Clone)]
struct RequestId(Arc<str>);
