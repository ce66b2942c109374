//! The store, the configuration and the log by their WASI names, and what is one transaction of them.
//!
//! ```text
//! GET    /keys/KEY         the value, 404 if there is none      GET    /keys           all keys, one a line
//! PUT    /keys/KEY         sets it to the body                  POST   /increment/KEY  adds 1, or ?by=N
//! DELETE /keys/KEY         deletes it                           POST   /batch          sets the `KEY=VALUE` lines
//! GET    /config/NAME      a value of the configuration, 404    GET    /config         all, `NAME=VALUE` a line
//! POST   /log              logs the body at level ?level=
//! POST   /append/KEY       reads the value, then the body, and sets the value with the body behind it; with ?to=HOST:PORT
//!                          asks that host for / before
//! POST   /push/QUEUE       sets the key `pushed` to the body and pushes an event with it
//! POST   /late/KEY         sets it to `early`, sends the head, puts the body behind it; traps then if there is a ?trap=
//! POST   /error/KEY        sets it, and replies with an error instead of a response
//! ```
//! The bucket is `?bucket=`, or `default`.

use guest_http::lighter::unit::queue::{self, Outgoing};
use guest_http::wasi::config::store as config;
use guest_http::wasi::http::outgoing_handler;
use guest_http::wasi::http::types::{ErrorCode, OutgoingRequest, Scheme};
use guest_http::wasi::keyvalue::{atomics, batch, store};
use guest_http::wasi::logging::logging;
use guest_http::{
    Fields, Guest, IncomingRequest, Method, Reply, ResponseOutparam, path_and_query, query_value, read_all,
};

struct KvHttp;

impl Guest for KvHttp {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let (path, query) = path_and_query(&request);
        if let Some(key) = path.strip_prefix("/late/") {
            return late(key, query_value(&query, "trap").is_some(), &request, out);
        }
        if let Some(key) = path.strip_prefix("/error/") {
            bucket(&query).and_then(|bucket| bucket.set(key, b"never to be seen")).expect("it can be written");
            return ResponseOutparam::set(out, Err(ErrorCode::InternalError(None)));
        }
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
    let open = || bucket(&query);
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
        (Method::Post, "append", key) => {
            let bucket = open()?;
            let mut value = bucket.get(key)?.unwrap_or_default();
            if let Some(host) = query_value(&query, "to") {
                ask(host);
            }
            value.extend(read_all(request));
            bucket.set(key, &value)?;
            Ok(Some(String::from_utf8_lossy(&value).into_owned()))
        }
        (Method::Post, "push", queue) => {
            let data = read_all(request);
            open()?.set("pushed", &data)?;
            let (type_, attributes) = ("kv.pushed".into(), Vec::new());
            let (subject, content_type, delay_ms, ttl_ms) = (None, None, None, None);
            let event = Outgoing { type_, subject, content_type, attributes, data, delay_ms, ttl_ms };
            queue::push(queue, &event).map_err(|error| store::Error::Other(format!("{error:?}")))?;
            Ok(Some("pushed".into()))
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

fn bucket(query: &str) -> Result<store::Bucket, store::Error> {
    store::open(query_value(query, "bucket").unwrap_or("default"))
}

/// Does half of its work before the head of the reply, and half after it.
fn late(key: &str, traps: bool, request: &IncomingRequest, out: ResponseOutparam) {
    let body = read_all(request);
    let bucket = store::open("default").expect("it is granted");
    bucket.set(key, b"early").expect("it can be written");
    let reply = Reply::start(out, 200, &[]);
    let mut value = bucket.get(key).expect("it can be read").expect("what was written is there");
    value.extend(body);
    bucket.set(key, &value).expect("it can be written");
    if traps {
        core::arch::wasm32::unreachable();
    }
    reply.write(&value);
    reply.finish(None);
}

/// Sends a request, and waits for the answer.
fn ask(host: &str) {
    let request = OutgoingRequest::new(Fields::new());
    request.set_scheme(Some(&Scheme::Http)).expect("a scheme the host takes");
    request.set_authority(Some(host)).expect("an authority the host takes");
    request.set_path_with_query(Some("/")).expect("a path the host takes");
    let answer = outgoing_handler::handle(request, None).expect("it is granted");
    answer.subscribe().block();
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
