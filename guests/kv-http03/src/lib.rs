//! What one request does to the store, before and after the head of its reply: `wasi:keyvalue` with `wasi:http` 0.3.
//!
//! ```text
//! GET  /keys/K      the value, or 404
//! POST /append/K    reads the key, then the body, and sets the key to both: what it says is in the store
//! POST /after/K     sends its head, reads the body, and sets the key to it before its own body ends
//! POST /fail/K      sets the key, and answers with an error instead of a reply
//! ```

wit_bindgen::generate!({
    inline: "package guests:kv-http03; world guest { import wasi:keyvalue/store@0.2.0-draft; }",
    path: "../../contracts/wit",
    generate_all,
});

use guest_http03::{ErrorCode, Guest, Request, Response, path_and_query, read_all, reply, spawn_local, text, wasip3};
use wasi::keyvalue::store::{self, Bucket};

struct KvHttp;

impl Guest for KvHttp {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let (path, _) = path_and_query(&request);
        let Some((what, key)) = path[1..].split_once('/') else { return Ok(text(404, "no such path\n")) };
        let (bucket, key) = (store::open("default").expect("the bucket is granted"), key.to_owned());
        Ok(match what {
            "keys" => match bucket.get(&key).expect("the store answers") {
                Some(value) => text(200, String::from_utf8_lossy(&value)),
                None => text(404, ""),
            },
            "append" => {
                let mut value = bucket.get(&key).expect("the store answers").unwrap_or_default();
                value.append(&mut read_all(request).await);
                set(&bucket, &key, &value);
                text(200, String::from_utf8_lossy(&value))
            }
            "after" => {
                let (response, mut body) = reply(200, &[("content-type", "text/plain")]);
                spawn_local(async move {
                    body.write(b"early\n").await;
                    set(&bucket, &key, &read_all(request).await);
                    body.finish(None).await;
                });
                response
            }
            "fail" => {
                set(&bucket, &key, b"never");
                return Err(ErrorCode::InternalError(Some("asked to fail".into())));
            }
            _ => text(404, "no such path\n"),
        })
    }
}

fn set(bucket: &Bucket, key: &str, value: &[u8]) {
    bucket.set(key, value).expect("the store takes it");
}

wasip3::http::service::export!(KvHttp);
