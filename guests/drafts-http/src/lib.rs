//! The store and the configuration by the drafts that Spin's components import: wasi:keyvalue 0.2.0-draft2 and
//! wasi:config 0.2.0-draft-2024-09-27.
//!
//! ```text
//! POST /set/KEY/VALUE      sets it                          POST /increment/KEY/BY   the sum; BY may be negative
//! GET  /get/KEY            the value, 404 if there is none  POST /swap/KEY/VALUE     compare and swap: what was there
//! GET  /keys               all keys, one a line             POST /swap-stale/KEY/VALUE   with a handle that is too old
//! GET  /many/KEY/KEY       both values, - for none          GET  /config/NAME        a value of the configuration, 404
//! GET  /full/values        sets values, and asks for all of them at once, again and again; for an hour
//! GET  /full/swaps         as many handles as there can be, each with a large value; /full/buckets, each with a long name;
//!                          /full/pollables; /full/store, all of these in turn; then sleeps for an hour
//! ```
//! The bucket is `default`.

wit_bindgen::generate!({
    inline: "
        package guests:drafts;
        world guest {
            include wasi:http/proxy@0.2.12;
            include wasi:keyvalue/imports@0.2.0-draft2;
            import wasi:config/store@0.2.0-draft-2024-09-27;
        }
    ",
    path: [
        "../../contracts/wit/deps/io.wit",
        "../../contracts/wit/deps/clocks.wit",
        "../../contracts/wit/deps/random.wit",
        "../../contracts/wit/deps/filesystem.wit",
        "../../contracts/wit/deps/sockets.wit",
        "../../contracts/wit/deps/cli.wit",
        "../../contracts/wit/deps/http.wit",
        "../../contracts/wit-drafts/keyvalue",
        "../../contracts/wit-drafts/config",
    ],
    generate_all,
});

use exports::wasi::http::incoming_handler::Guest;
use wasi::clocks::monotonic_clock;
use wasi::config::store as config;
use wasi::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam};
use wasi::keyvalue::atomics::{self, Cas, CasError};
use wasi::keyvalue::{batch, store};

/// What `blocking-write-and-flush` takes at most.
const CHUNK_BYTES: usize = 4_096;

struct DraftsHttp;

impl Guest for DraftsHttp {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        let words: Vec<&str> = path.split('/').skip(1).collect();
        let (status, text) = match answer(&words) {
            Ok(Some(text)) => (200, text),
            Ok(None) => (404, "there is none".into()),
            Err(store::Error::AccessDenied) => (403, "access denied".into()),
            Err(error) => (500, format!("{error:?}")),
        };
        reply(out, status, &text);
    }
}

fn answer(words: &[&str]) -> Result<Option<String>, store::Error> {
    if let ["full", what] = words {
        return fill(what).map(|()| None);
    }
    if let ["config", name] = words {
        return config::get(name).map_err(|error| store::Error::Other(format!("{error:?}")));
    }
    let bucket = store::open("default")?;
    match words {
        ["set", key, value] => bucket.set(key, value.as_bytes()).map(|()| Some(String::new())),
        ["get", key] => Ok(bucket.get(key)?.map(text)),
        ["keys"] => keys(&bucket).map(Some),
        ["many", one, other] => {
            let pairs = batch::get_many(&bucket, &[(*one).to_string(), (*other).to_string()])?;
            let values = pairs.into_iter().map(|(key, value)| format!("{key}={}\n", value.map_or("-".into(), text)));
            Ok(Some(values.collect()))
        }
        ["increment", key, by] => {
            let by = by.parse().map_err(|_| store::Error::Other("not a number".into()))?;
            atomics::increment(&bucket, key, by).map(|sum| Some(sum.to_string()))
        }
        ["swap", key, value] => {
            let cas = Cas::new(&bucket, key)?;
            let before = cas.current()?.map_or("-".into(), text);
            swap(cas, value).map_err(|_| store::Error::Other("too old".into()))?;
            Ok(Some(before))
        }
        ["swap-stale", key, value] => {
            let cas = Cas::new(&bucket, key)?;
            bucket.set(key, b"meanwhile")?;
            // The refusal comes with a handle that is up to date.
            let fresh = swap(cas, value).err().ok_or_else(|| store::Error::Other("an old handle swapped".into()))?;
            let found = fresh.current()?.map_or("-".into(), text);
            swap(fresh, value).map_err(|_| store::Error::Other("too old again".into()))?;
            Ok(Some(found))
        }
        _ => Ok(None),
    }
}

/// Keeps what the host lets a unit keep, and then stays: a unit that is alive and full.
fn fill(what: &str) -> Result<(), store::Error> {
    /// Below the bound of handles.
    const EACH: usize = 900;
    const HOUR_NS: u64 = 3_600_000_000_000;
    // As large as a value may be, about.
    let large = vec![b'x'; 1_000_000];
    let bucket = store::open("default")?;
    if what == "values" {
        let keys: Vec<String> = (0..30).map(|number| format!("large-{number}")).collect();
        // Up to what one transaction takes.
        for key in &keys {
            if bucket.set(key, &large[..400_000]).is_err() {
                break;
            }
        }
        // The same key a thousand times is a thousand values.
        let asked: Vec<String> = keys.iter().cycle().take(1_000).cloned().collect();
        loop {
            let _ = batch::get_many(&bucket, &asked);
        }
    }
    bucket.set("large", &large)?;
    let names: Vec<String> = (0..EACH).map(|number| format!("{}-{number}", "n".repeat(900))).collect();
    for (number, name) in names.iter().enumerate() {
        let turn = if what == "store" { ["swaps", "buckets", "pollables"][number % 3] } else { what };
        match turn {
            "swaps" => std::mem::forget(Cas::new(&bucket, "large")?),
            "buckets" => {
                // One that is not granted is refused, and holds nothing; its name was handed over all the same.
                let _ = store::open(name);
                std::mem::forget(store::open("default")?);
            }
            _ => std::mem::forget(monotonic_clock::subscribe_duration(HOUR_NS)),
        }
    }
    monotonic_clock::subscribe_duration(HOUR_NS).block();
    Ok(())
}

/// The new handle, if the old one was too old.
fn swap(cas: Cas, value: &str) -> Result<(), Cas> {
    match atomics::swap(cas, value.as_bytes()) {
        Ok(()) => Ok(()),
        Err(CasError::CasFailed(fresh)) => Err(fresh),
        Err(CasError::StoreError(error)) => panic!("{error:?}"),
    }
}

/// Every key, page by page.
fn keys(bucket: &store::Bucket) -> Result<String, store::Error> {
    let mut lines = String::new();
    let mut cursor = None;
    loop {
        let page = bucket.list_keys(cursor.as_deref())?;
        page.keys.iter().for_each(|key| lines.extend([key, "\n"]));
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(lines);
        }
    }
}

fn text(value: Vec<u8>) -> String {
    String::from_utf8_lossy(&value).into_owned()
}

fn reply(out: ResponseOutparam, status: u16, text: &str) {
    let response = OutgoingResponse::new(Fields::new());
    response.set_status_code(status).expect("a status the host takes");
    let body = response.body().expect("the body is taken once");
    ResponseOutparam::set(out, Ok(response));
    {
        let stream = body.write().expect("the stream is taken once");
        for chunk in text.as_bytes().chunks(CHUNK_BYTES) {
            stream.blocking_write_and_flush(chunk).expect("the host takes it");
        }
    }
    OutgoingBody::finish(body, None).expect("the body is whole");
}

export!(DraftsHttp);
