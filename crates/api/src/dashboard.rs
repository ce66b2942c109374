//! The dashboard: its page at `/` and its files below `/dashboard/`, without a token, since they hold no data.
//!
//! Every answer carries a policy that lets the page run its own files and talk to this node alone, and lets no text
//! become markup. The page itself asks the API, with the token of its user.

use super::reply::Answer;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dashboard::{INDEX, Packed, is_name, media_type};
use node::{Node, blocking};
use problem::{Code, Problem};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

/// Where the files are, apart from the page itself.
pub const FOLDER: &str = "/dashboard/";

/// Bytes of a file that a folder may serve in place of ours; a larger one is refused.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What the page may do: run its own scripts, and ask this node. No text becomes markup (Trusted Types), and no other
/// page can frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

pub fn routes() -> Router<Arc<Node>> {
    Router::new().route("/", get(index)).route(&format!("{FOLDER}{{file}}"), get(file))
}

/// Whether this path is the dashboard's: a link on another page may lead there, since it shows nothing by itself.
pub fn is_ours(path: &str) -> bool {
    path == "/" || path.starts_with(FOLDER)
}

async fn index(State(node): State<Arc<Node>>, headers: HeaderMap) -> Answer<Response> {
    serve(&node, INDEX.to_owned(), &headers).await
}

async fn file(State(node): State<Arc<Node>>, Path(name): Path<String>, headers: HeaderMap) -> Answer<Response> {
    serve(&node, name, &headers).await
}

async fn serve(node: &Node, name: String, headers: &HeaderMap) -> Answer<Response> {
    let unknown = || Problem::new(Code::ApiUnknown, format!("the dashboard has no file {name:?}"));
    let media_type = media_type(&name).filter(|_| is_name(&name)).ok_or_else(unknown)?;
    let mut response = match &node.config.dashboard {
        None => packed(Packed::find(&name).ok_or_else(unknown)?, headers),
        Some(folder) => {
            let path = folder.join(&name);
            let content = blocking(move || read(path)).await?.ok_or_else(unknown)?;
            content.into_response()
        }
    };
    for (name, value) in [
        (CONTENT_TYPE, media_type),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ] {
        response.headers_mut().insert(name, value.parse().expect("it is one line of ASCII"));
    }
    Ok(response)
}

fn packed(file: &'static Packed, headers: &HeaderMap) -> Response {
    let about = [(ETAG, file.etag), (VARY, "accept-encoding")];
    let says =
        |name, word| headers.get_all(name).iter().any(|value| value.to_str().is_ok_and(|text| text.contains(word)));
    match (says(IF_NONE_MATCH, file.etag), says(ACCEPT_ENCODING, "gzip")) {
        (true, _) => (StatusCode::NOT_MODIFIED, about).into_response(),
        (false, true) => (about, [(CONTENT_ENCODING, "gzip")], Bytes::from_static(file.gzip)).into_response(),
        (false, false) => (about, file.content().into_owned()).into_response(),
    }
}

/// A file of the folder that is served in place of ours; none if there is none.
fn read(path: PathBuf) -> Result<Option<Vec<u8>>, Problem> {
    let Ok(about) = fs::metadata(&path) else { return Ok(None) };
    if !about.is_file() || about.len() > FILE_BYTES_MAX {
        let detail = format!("{} is not a file of at most {FILE_BYTES_MAX} bytes", path.display());
        return Err(Problem::new(Code::FileUnusable, detail));
    }
    let failed = |error| Problem::new(Code::FileUnusable, format!("{}: {error}", path.display()));
    fs::read(&path).map(Some).map_err(failed)
}
