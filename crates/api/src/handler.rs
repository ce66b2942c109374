//! What the listener of the API hands its requests to: its router.

use api_types::RequestId;
use axum::Router;
use axum::body::Body;
use gate_http::{Arrival, Config, Gate, Handled, Handler, Listener, RequestBody};
use http::Request;
use problem::Problem;
use std::sync::Arc;
use tower_service::Service;

/// Serves the API until the gate is drained or dropped. Generic code of the gate is compiled here for it, and not where
/// this is called.
///
/// # Errors
/// The system gives no random numbers.
pub fn serve(listener: Listener, config: Config, router: Router) -> Result<Gate, Problem> {
    Gate::start(vec![listener], config, Arc::new(Api { router }))
}

struct Api {
    router: Router,
}

impl Handler for Api {
    type Body = Body;

    async fn handle(self: &Arc<Self>, request: Request<RequestBody>, arrival: Arrival) -> Handled<Body> {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(RequestId(arrival.request_id));
        request.extensions_mut().insert(arrival.trust);
        request.extensions_mut().insert(arrival.peer);
        let Ok(response) = self.router.clone().call(request).await;
        response.into()
    }
}
