//! The node's API: the command line, SDKs and dashboards deploy, call and observe with it. `docs/api.md` describes it.
//!
//! ```text
//!   request ──▶ guard (Host, Origin) ──▶ token and scope ──▶ a handler here ──▶ the node
//!                                                                 └─ Problem ──▶ application/problem+json
//! ```
//! Each handler names the scope it needs in its signature, and has an attribute from which both its route and its entry
//! in the OpenAPI document are made. So the document cannot differ from what is served.
#![forbid(unsafe_code)]

mod attach;
mod audit;
mod backup;
mod call;
mod dashboard;
mod decisions;
mod deployments;
mod events;
mod fleet;
mod flow;
mod functions;
mod handler;
mod health;
mod identity;
mod images;
mod live;
mod logs;
mod mqtt;
mod openapi;
mod paced;
mod queues;
mod reply;
mod scope;
mod secrets;
mod store;
mod tokens;
mod work;

pub use handler::serve;
pub use openapi::whole as document;
pub use reply::{Answer, Refused};
pub use scope::MayLook;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing;
use axum::{Extension, Router};
use node::{Guard, Node};
use openapi::Described;
use problem::{Code, Problem};
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// Lists every endpoint once, and makes of the list both the router and the OpenAPI document.
macro_rules! endpoints {
    ($($method:ident $path:literal $($handler:ident)::+;)*) => {
        fn endpoints() -> Router<Arc<Node>> {
            Router::new()$(.route($path, routing::$method($($handler)::+)))*
        }

        #[cfg(test)]
        const ENDPOINTS: &[(&str, &str)] = &[$((stringify!($method), $path),)*];

        #[derive(utoipa::OpenApi)]
        #[openapi(paths($($($handler)::+),*))]
        struct Paths;
    };
}

endpoints! {
    get "/healthz" health::healthz;
    get "/readyz" health::readyz;
    get "/metrics" health::metrics;
    get "/v1/identity" identity::prove;
    get "/v1/node" health::node;
    get "/v1/units" health::units;
    get "/v1/stats" health::stats;
    get "/v1/live" live::live;
    post "/v1/stop" health::stop;
    post "/v1/restart" health::restart;
    post "/v1/backup" backup::make;
    get "/v1/openapi.json" openapi::document;
    get "/v1/manifest.schema.json" openapi::manifest_schema;
    get "/v1/functions" functions::list;
    get "/v1/functions/{name}" functions::get;
    delete "/v1/functions/{name}" functions::remove;
    post "/v1/functions/{name}/rollback" functions::rollback;
    post "/v1/functions/{name}/call" call::call;
    get "/v1/functions/{name}/logs" logs::logs;
    get "/v1/functions/{name}/dump" functions::dump;
    post "/v1/functions/{name}/units/{unit}/attach" attach::attach;
    post "/v1/functions/{name}/events" queues::push_to_function;
    get "/v1/flow" flow::flow;
    get "/v1/decisions" decisions::list;
    post "/v1/decisions" decisions::tell;
    get "/v1/deployments" functions::deployed;
    post "/v1/deployments" functions::deploy;
    get "/v1/events" events::list;
    get "/v1/queues" queues::list;
    post "/v1/pause" queues::pause;
    post "/v1/resume" queues::resume;
    get "/v1/queues/{name}" queues::get;
    delete "/v1/queues/{name}" queues::remove;
    post "/v1/queues/{name}/events" queues::push;
    get "/v1/queues/{name}/events" queues::peek;
    delete "/v1/queues/{name}/events" queues::purge;
    post "/v1/queues/{name}/replay" queues::replay;
    post "/v1/queues/{name}/lease" work::lease;
    post "/v1/queues/{name}/renew" work::renew;
    post "/v1/queues/{name}/ack" work::ack;
    post "/v1/queues/{name}/fail" work::fail;
    delete "/v1/sinks/{name}" queues::remove_sink;
    get "/v1/mqtt/sessions" mqtt::list;
    delete "/v1/mqtt/sessions" mqtt::remove;
    get "/v1/buckets" store::buckets;
    get "/v1/buckets/{bucket}/keys" store::list;
    get "/v1/buckets/{bucket}/value" store::get;
    put "/v1/buckets/{bucket}/value" store::set;
    delete "/v1/buckets/{bucket}/value" store::delete;
    post "/v1/buckets/{bucket}/delete" store::delete_many;
    get "/v1/buckets/{bucket}/export" store::export;
    post "/v1/buckets/{bucket}/import" store::import;
    head "/v1/images/{sha256}" images::head;
    get "/v1/images/{sha256}" images::get;
    put "/v1/images/{sha256}" images::put;
    get "/v1/audit" audit::list;
    get "/v1/fleet" fleet::get;
    post "/v1/fleet" fleet::found;
    post "/v1/fleet/join" fleet::join;
    post "/v1/fleet/knock" fleet::knock;
    post "/v1/fleet/knock/confirm" fleet::confirm;
    get "/v1/fleet/knocking" fleet::knocking;
    post "/v1/fleet/admit" fleet::admit;
    post "/v1/fleet/drain" fleet::drain;
    post "/v1/fleet/leave" fleet::leave;
    post "/v1/fleet/invitations" fleet::invite;
    post "/v1/fleet/anchors" fleet::appoint;
    delete "/v1/fleet/anchors/{node}" fleet::dismiss;
    get "/v1/fleet/why/{function}" fleet::why;
    get "/v1/fleet/places" fleet::places;
    get "/v1/fleet/tokens" deployments::tokens;
    post "/v1/fleet/tokens" deployments::create_token;
    delete "/v1/fleet/tokens/{name}" deployments::remove_token;
    delete "/v1/fleet/nodes/{node}" fleet::remove;
    get "/v1/fleet/deployments" deployments::list;
    post "/v1/fleet/orders" deployments::order;
    get "/v1/fleet/deployers" deployments::deployers;
    post "/v1/fleet/deployers" deployments::add_deployer;
    delete "/v1/fleet/deployers/{name}" deployments::remove_deployer;
    get "/v1/tokens" tokens::list;
    post "/v1/tokens" tokens::create;
    delete "/v1/tokens/{name}" tokens::remove;
    get "/v1/secrets" secrets::list;
    put "/v1/secrets/{name}" secrets::put;
    delete "/v1/secrets/{name}" secrets::remove;
}

/// What an isolation class adds to the API.
pub struct Routes {
    pub router: Router<Arc<Node>>,
    pub document: fn() -> OpenApi,
}

/// Serves the API of one node, with what its classes add. A request carries its [`api_types::RequestId`].
pub fn router(node: Arc<Node>, guard: Guard, added: Vec<Routes>) -> Router {
    let described = Described::new(added.iter().map(|routes| routes.document).collect());
    let routes = added.into_iter().fold(endpoints(), |all, routes| all.merge(routes.router));
    routes
        .merge(dashboard::routes())
        .fallback(async |request: Request| {
            let detail = format!("the API has no {} {}", request.method(), request.uri().path());
            Refused::from(Problem::new(Code::ApiUnknown, detail))
        })
        .method_not_allowed_fallback(async |request: Request| {
            let detail = format!("{} does not take {}", request.uri().path(), request.method());
            Refused::from(Problem::new(Code::MethodNotAllowed, detail))
        })
        .layer(Extension(described))
        .layer(Extension(flow::Drawn::default()))
        .layer(Extension(Arc::<live::Hub>::default()))
        .layer(from_fn_with_state(Arc::new(guard), keep_out))
        .with_state(node)
}

/// Nothing is looked at before this.
async fn keep_out(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let is_page = request.method() == Method::GET && dashboard::is_ours(request.uri().path());
    match guard.check(request.headers(), authority.as_deref(), is_page) {
        Ok(()) => next.run(request).await,
        Err(problem) => reply::problem(&problem),
    }
}
