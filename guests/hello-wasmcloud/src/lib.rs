//! A component of wasmCloud, as users of its Rust crate write them: `http::Server`, the key-value store, the
//! configuration and the log.
//!
//! ```text
//! POST /hello          greets, with the body              GET /config/NAME      a value of the configuration, 404
//! POST /count/KEY      adds one to the key                GET /config           all, NAME=VALUE a line
//! GET  /keys/KEY       the value, 404 if there is none    GET /environment      all of it, NAME=VALUE a line
//! GET  /guid           a random one
//! ```
//! The bucket is `default`. Each request is logged.

use std::io::Read;

use wasmcloud_component::http::{self, ErrorCode, Method, Response, StatusCode};
use wasmcloud_component::wasi::config::store as config;
use wasmcloud_component::wasi::keyvalue::{atomics, store};
use wasmcloud_component::{HostRng, info, warn};

struct Hello;

http::export!(Hello);

impl http::Server for Hello {
    fn handle(request: http::IncomingRequest) -> http::Result<Response<impl http::OutgoingBody>> {
        let (head, mut body) = request.into_parts();
        info!(context: "hello", "{} {}", head.method, head.uri.path());
        let words: Vec<&str> = head.uri.path().split('/').skip(1).collect();
        let text = match (head.method, words.as_slice()) {
            (Method::POST, ["hello"]) => {
                let mut text = String::from("hello from wasmCloud: ");
                body.read_to_string(&mut text).map_err(failed)?;
                Some(text + "\n")
            }
            (Method::POST, ["count", key]) => Some(count(key).map_err(failed)?.to_string()),
            (Method::GET, ["keys", key]) => stored(key).map_err(failed)?,
            (Method::GET, ["config"]) => Some(lines(config::get_all().map_err(failed)?)),
            (Method::GET, ["config", name]) => config::get(name).map_err(failed)?,
            (Method::GET, ["environment"]) => Some(lines(std::env::vars())),
            (Method::GET, ["guid"]) => Some(HostRng::generate_guid().to_string()),
            _ => None,
        };
        let status = if text.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let response = Response::builder().status(status).header("content-type", "text/plain");
        response.body(text.unwrap_or_else(|| "there is none\n".into())).map_err(failed)
    }
}

fn count(key: &str) -> Result<u64, store::Error> {
    atomics::increment(&store::open("default")?, key, 1)
}

fn stored(key: &str) -> Result<Option<String>, store::Error> {
    let value = store::open("default")?.get(key)?;
    Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

fn lines(pairs: impl IntoIterator<Item = (String, String)>) -> String {
    pairs.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

fn failed(error: impl std::fmt::Debug) -> ErrorCode {
    warn!("{error:?}");
    ErrorCode::InternalError(Some(format!("{error:?}")))
}
