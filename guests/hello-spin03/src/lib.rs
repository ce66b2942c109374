//! A component of Spin, as users of its Rust SDK for WASI 0.3 write them: the key-value store, variables, requests
//! going out.
//!
//! ```text
//! POST /hello        greets, with query and body        GET /variables/NAME   a variable, 404 if undefined
//! POST /count/KEY    adds one to the key                GET /environment      all of it, NAME=VALUE a line
//! GET  /keys         all keys, one a line               GET /ask/AUTHORITY    what http://AUTHORITY/ answers
//! GET  /keys/KEY     the value, 404 if there is none    GET /stores/NAME      whether the store opens, 403
//! ```
//! The store is the default one. Each request is printed.

use anyhow::Result;
use spin_sdk::http::body::IncomingBodyExt;
use spin_sdk::http::{IntoResponse, Request, StatusCode, get};
use spin_sdk::http_service;
use spin_sdk::key_value::{Error, Store};
use spin_sdk::variables;

#[http_service]
async fn handle(request: Request) -> Result<impl IntoResponse> {
    println!("{} {}", request.method(), request.uri().path());
    let path = request.uri().path().to_owned();
    let (what, name) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    match what {
        "hello" => hello(request).await,
        "count" => count(name).await,
        "keys" => keys(name).await,
        "stores" => open(name).await,
        "variables" => variable(name).await,
        "environment" => {
            text(StatusCode::OK, std::env::vars().map(|(name, value)| format!("{name}={value}\n")).collect())
        }
        "ask" => ask(name).await,
        _ => text(StatusCode::NOT_FOUND, "no such path".into()),
    }
}

type Reply = Result<(StatusCode, String)>;

fn text(status: StatusCode, body: String) -> Reply {
    Ok((status, body))
}

async fn hello(request: Request) -> Reply {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().bytes().await?;
    text(StatusCode::OK, format!("hello from Spin: {query} {}\n", String::from_utf8_lossy(&body)))
}

async fn count(key: &str) -> Reply {
    let store = Store::open_default().await?;
    let count = store.get_json::<u64>(key).await?.unwrap_or(0) + 1;
    store.set_json(key, &count).await?;
    text(StatusCode::OK, count.to_string())
}

async fn keys(key: &str) -> Reply {
    let store = Store::open_default().await?;
    if key.is_empty() {
        return text(StatusCode::OK, store.get_keys().await.collect().await?.join("\n"));
    }
    let value = store.get(key).await?;
    assert_eq!(store.exists(key).await?, value.is_some());
    match value {
        Some(value) => text(StatusCode::OK, String::from_utf8(value)?),
        None => text(StatusCode::NOT_FOUND, "there is none".into()),
    }
}

async fn open(name: &str) -> Reply {
    match Store::open(name).await {
        Ok(_) => text(StatusCode::OK, "open".into()),
        Err(Error::AccessDenied) => text(StatusCode::FORBIDDEN, "access denied".into()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")),
    }
}

async fn variable(name: &str) -> Reply {
    match variables::get(name).await {
        Ok(value) => text(StatusCode::OK, value),
        Err(variables::Error::Undefined(why)) => text(StatusCode::NOT_FOUND, why),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")),
    }
}

async fn ask(authority: &str) -> Reply {
    let answer = get(format!("http://{authority}/")).await?;
    let status = answer.status();
    text(status, String::from_utf8_lossy(&answer.into_body().bytes().await?).into_owned())
}
