//! What the listener of the API hands its requests to: its router.

use api_types::RequestId;
use axum::Router;
use axum::body::Body;
use gate_http::{Arrival, Handled, Handler, RequestBody};
use http::Request;
use std::sync::Arc;
use tower_service::Service;

/// Serves the API.
pub struct Api {
    pub router: Router,
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
