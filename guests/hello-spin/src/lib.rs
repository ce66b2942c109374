//! A component of Spin, as users of its Rust SDK write them: routes, the key-value store, variables, requests going out.
//!
//! ```text
//! POST   /hello       greets, with query and body         GET /stores/NAME      whether the store opens, 403
//! POST   /count/KEY   adds one to the key                 GET /variables/NAME   a variable, 404 if undefined
//! GET    /keys        all keys, one a line                GET /environment      all of it, NAME=VALUE a line
//! GET    /keys/KEY    the value, 404 if there is none     GET /ask/AUTHORITY    what http://AUTHORITY/ answers
//! DELETE /keys/KEY    deletes it
//! ```
//! The store is the default one. Each request is printed.

use anyhow::Result;
use spin_sdk::http::{Method, Params, Request, Response, Router, send};
use spin_sdk::http_component;
use spin_sdk::key_value::{Error, Store};
use spin_sdk::variables;

#[http_component]
fn handle(request: Request) -> Response {
    println!("{} {}", request.method(), request.path());
    let mut router = Router::new();
    router.post("/hello", hello);
    router.post("/count/:key", count);
    router.get("/keys", keys);
    router.get("/keys/:key", get);
    router.delete("/keys/:key", delete);
    router.get("/stores/:name", open);
    router.get("/variables/:name", variable);
    router.get("/environment", environment);
    router.get_async("/ask/:authority", ask);
    router.handle(request)
}

fn hello(request: Request, _: Params) -> Result<Response> {
    let body = String::from_utf8_lossy(request.body());
    Ok(text(200, format!("hello from Spin: {} {body}\n", request.query())))
}

fn count(_: Request, params: Params) -> Result<Response> {
    let (store, key) = (Store::open_default()?, key(&params));
    let count = store.get_json::<u64>(key)?.unwrap_or(0) + 1;
    store.set_json(key, &count)?;
    Ok(text(200, count.to_string()))
}

fn keys(_: Request, _: Params) -> Result<Response> {
    Ok(text(200, Store::open_default()?.get_keys()?.join("\n")))
}

fn get(_: Request, params: Params) -> Result<Response> {
    let (store, key) = (Store::open_default()?, key(&params));
    let value = store.get(key)?;
    assert_eq!(store.exists(key)?, value.is_some());
    Ok(value.map_or_else(|| text(404, "there is none".into()), |value| Response::new(200, value)))
}

fn delete(_: Request, params: Params) -> Result<Response> {
    Store::open_default()?.delete(key(&params))?;
    Ok(text(200, String::new()))
}

fn open(_: Request, params: Params) -> Result<Response> {
    Ok(match Store::open(params.get("name").unwrap_or_default()) {
        Ok(_) => text(200, "open".into()),
        Err(Error::AccessDenied) => text(403, "access denied".into()),
        Err(error) => text(500, format!("{error:?}")),
    })
}

fn variable(_: Request, params: Params) -> Result<Response> {
    Ok(match variables::get(params.get("name").unwrap_or_default()) {
        Ok(value) => text(200, value),
        Err(variables::Error::Undefined(why)) => text(404, why),
        Err(variables::Error::InvalidName(why)) => text(400, why),
        Err(error) => text(500, error.to_string()),
    })
}

fn environment(_: Request, _: Params) -> Result<Response> {
    Ok(text(200, std::env::vars().map(|(name, value)| format!("{name}={value}\n")).collect()))
}

async fn ask(_: Request, params: Params) -> Result<Response> {
    let uri = format!("http://{}/", params.get("authority").unwrap_or_default());
    let answer: Response = send(Request::builder().method(Method::Get).uri(uri).build()).await?;
    Ok(Response::new(*answer.status(), answer.into_body()))
}

fn key(params: &Params) -> &str {
    params.get("key").unwrap_or_default()
}

fn text(status: u16, body: String) -> Response {
    Response::builder().status(status).header("content-type", "text/plain").body(body).build()
}
