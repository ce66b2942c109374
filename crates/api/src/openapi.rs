//! The API describes itself: the OpenAPI document, and the JSON Schema of manifests.

use api_types::DeployStep;
use axum::Json;
use std::sync::LazyLock;
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
struct Head;

/// Everything but the paths.
fn head() -> OpenApi {
    let mut document = <Head as utoipa::OpenApi>::openapi();
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `lighter token create`"))
        .build();
    let components = document.components.get_or_insert_with(Components::new);
    components.add_security_scheme("token", SecurityScheme::Http(token));
    document.security = Some(vec![SecurityRequirement::new("token", [] as [&str; 0])]);
    document
}

static DOCUMENT: LazyLock<serde_json::Value> = LazyLock::new(|| {
    let mut document = head();
    document.merge(<super::Paths as utoipa::OpenApi>::openapi());
    serde_json::to_value(document).expect("an OpenAPI document can be JSON")
});

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "node", security(()), responses((status = 200, body = Object)))]
pub async fn document() -> Json<&'static serde_json::Value> {
    Json(&*DOCUMENT)
}

/// The JSON Schema of `lighter.toml`.
#[utoipa::path(get, path = "/v1/manifest.schema.json", tag = "node", security(()), responses((status = 200, body = Object)))]
pub async fn manifest_schema() -> Json<serde_json::Value> {
    Json(manifest::json_schema())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/api.json");

    #[test]
    fn the_contract_describes_what_is_served() {
        let written = serde_json::to_string_pretty(&*DOCUMENT).unwrap() + "\n";
        if std::env::var_os("LIGHTER_UPDATE").is_some() {
            std::fs::write(FILE, &written).unwrap();
        }
        let kept = std::fs::read_to_string(FILE).unwrap_or_default();
        assert_eq!(kept, written, "run LIGHTER_UPDATE=1 cargo test -p lighter");
    }

    #[test]
    fn what_is_served_is_what_is_described() {
        let paths = DOCUMENT["paths"].as_object().unwrap();
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
        for (path, operations) in DOCUMENT["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                assert_eq!(operation.get("security").is_some(), open.contains(&path.as_str()), "{method} {path}");
            }
        }
    }
}
