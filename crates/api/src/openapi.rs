//! The API describes itself: the OpenAPI document, and the JSON Schema of manifests.

use api_types::DeployStep;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use bytes::Bytes;
use std::sync::{Arc, LazyLock};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Components, OpenApi, SecurityRequirement};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Lighterage node",
        description = "Deploy, call and observe functions on one node. Every error is an `application/problem+json` \
            document (RFC 9457) with a stable `code`; `contracts/errors.toml` lists them."
    ),
    components(schemas(DeployStep))
)]
struct Preamble;

/// Everything but the paths.
fn head() -> OpenApi {
    let mut document = <Preamble as utoipa::OpenApi>::openapi();
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `lighter token create`"))
        .build();
    let components = document.components.get_or_insert_with(Components::new);
    components.add_security_scheme("token", SecurityScheme::Http(token));
    document.security = Some(vec![SecurityRequirement::new("token", [] as [&str; 0])]);
    document
}

/// The document of the API with what is added to it.
pub fn whole(added: &[fn() -> OpenApi]) -> serde_json::Value {
    let mut document = head();
    document.merge(<super::Paths as utoipa::OpenApi>::openapi());
    added.iter().for_each(|add| document.merge(add()));
    serde_json::to_value(document).expect("an OpenAPI document can be JSON")
}

/// The document, made once somebody asks for it.
#[derive(Clone)]
pub struct Described(Arc<LazyLock<Bytes, Box<dyn FnOnce() -> Bytes + Send>>>);

impl Described {
    pub fn new(added: Vec<fn() -> OpenApi>) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(move || whole(&added).to_string().into()))))
    }
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "node", security(()), responses((status = 200, body = Object)))]
pub async fn document(Extension(described): Extension<Described>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], LazyLock::force(&described.0).clone())
}

/// The JSON Schema of `lighter.toml`.
#[utoipa::path(get, path = "/v1/manifest.schema.json", tag = "node", security(()), responses((status = 200, body = Object)))]
pub async fn manifest_schema() -> Json<serde_json::Value> {
    Json(manifest::json_schema())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_what_is_described() {
        let document = whole(&[]);
        let paths = document["paths"].as_object().unwrap();
        let described = paths.iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (method.as_str(), path.as_str()))
        });
        let mut described: Vec<(&str, &str)> = described.collect();
        let mut served = super::super::ENDPOINTS.to_vec();
        described.sort_unstable();
        served.sort_unstable();
        assert_eq!(described, served);
    }

    #[test]
    fn every_path_but_the_open_ones_needs_a_token() {
        let open = ["/healthz", "/readyz", "/v1/identity", "/v1/openapi.json", "/v1/manifest.schema.json"];
        for (path, operations) in whole(&[])["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                assert_eq!(operation.get("security").is_some(), open.contains(&path.as_str()), "{method} {path}");
            }
        }
    }
}
