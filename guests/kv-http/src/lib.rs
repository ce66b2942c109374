//! The store, the configuration and the log by their WASI names.
//!
//! ```text
//! GET    /keys/KEY         the value, 404 if there is none      GET    /keys           all keys, one a line
//! PUT    /keys/KEY         sets it to the body                  POST   /increment/KEY  adds 1, or ?by=N
//! DELETE /keys/KEY         deletes it                           POST   /batch          sets the `KEY=VALUE` lines
//! GET    /config/NAME      a value of the configuration, 404    GET    /config         all, `NAME=VALUE` a line
//! POST   /log              logs the body at level ?level=
//! ```
//! The bucket is `?bucket=`, or `default`.

use guest_http::wasi::config::store as config;
use guest_http::wasi::keyvalue::{atomics, batch, store};
use guest_http::wasi::logging::logging;
use guest_http::{Guest, IncomingRequest, Method, Reply, ResponseOutparam, path_and_query, query_value, read_all};

struct KvHttp;

impl Guest for KvHttp {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let (status, text) = match answer(&request) {
            Ok(Some(text)) => (200, text),
            Ok(None) => (404, "there is none\n".into()),
            Err(store::Error::AccessDenied) => (403, "access denied\n".into()),
            Err(store::Error::NoSuchStore) => (404, "no such store\n".into()),
            Err(store::Error::Other(why)) => (500, why),
        };
        Reply::text(out, status, &text);
    }
}

fn answer(request: &IncomingRequest) -> Result<Option<String>, store::Error> {
    let (path, query) = path_and_query(request);
    let open = || store::open(query_value(&query, "bucket").unwrap_or("default"));
    let (_, path) = path.split_once('/').unwrap_or_default();
    let (what, name) = path.split_once('/').unwrap_or((path, ""));
    match (request.method(), what, name) {
        (Method::Get, "keys", "") => keys(&open()?).map(Some),
        (Method::Get, "keys", key) => Ok(open()?.get(key)?.map(|value| String::from_utf8_lossy(&value).into_owned())),
        (Method::Put, "keys", key) => open()?.set(key, &read_all(request)).map(|()| Some(String::new())),
        (Method::Delete, "keys", key) => open()?.delete(key).map(|()| Some(String::new())),
        (Method::Post, "increment", key) => {
            let by = query_value(&query, "by").and_then(|by| by.parse().ok()).unwrap_or(1);
            atomics::increment(&open()?, key, by).map(|sum| Some(sum.to_string()))
        }
        (Method::Post, "batch", "") => {
            let body = read_all(request);
            let lines = String::from_utf8_lossy(&body);
            let pairs = lines.lines().filter_map(|line| line.split_once('='));
            let pairs: Vec<_> = pairs.map(|(key, value)| (key.to_string(), value.as_bytes().to_vec())).collect();
            batch::set_many(&open()?, &pairs).map(|()| Some(pairs.len().to_string()))
        }
        (Method::Get, "config", "") => {
            let all = config::get_all().map_err(broken_config)?;
            Ok(Some(all.iter().map(|(name, value)| format!("{name}={value}\n")).collect()))
        }
        (Method::Get, "config", name) => config::get(name).map_err(broken_config),
        (Method::Post, "log", "") => {
            let level = level(query_value(&query, "level").unwrap_or("info"));
            logging::log(level, "kv-http", &String::from_utf8_lossy(&read_all(request)));
            Ok(Some(String::new()))
        }
        _ => Ok(None),
    }
}

/// Every key, page by page.
fn keys(bucket: &store::Bucket) -> Result<String, store::Error> {
    let mut lines = String::new();
    let mut cursor = None;
    loop {
        let page = bucket.list_keys(cursor)?;
        for key in page.keys {
            lines.push_str(&key);
            lines.push('\n');
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(lines);
        }
    }
}

fn broken_config(error: config::Error) -> store::Error {
    let (config::Error::Upstream(why) | config::Error::Io(why)) = error;
    store::Error::Other(why)
}

fn level(name: &str) -> logging::Level {
    match name {
        "trace" => logging::Level::Trace,
        "debug" => logging::Level::Debug,
        "warn" => logging::Level::Warn,
        "error" => logging::Level::Error,
        "critical" => logging::Level::Critical,
        _ => logging::Level::Info,
    }
}

guest_http::export!(KvHttp);
