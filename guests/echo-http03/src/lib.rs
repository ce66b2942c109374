//! Sends back what it gets, while it gets it: what a host of `wasi:http` 0.3 must be able to stream.
//!
//! ```text
//! any path       the body comes back piece by piece, then the request's trailers as the reply's trailers
//! /pass          the request's own stream becomes the reply's: no byte of it passes through the function
//! /early         the head and `early\n` are sent before the body is read, `read N bytes\n` after it
//! /slow          ten lines, one every 50 ms; ?lines=N and ?pause-ms=N change that
//! /head          the method, the path and every header of the request, a line each
//! ```

use guest_http03::wasip3::clocks::monotonic_clock;
use guest_http03::{
    Body, ErrorCode, Fields, Guest, Method, Request, Response, body_of, fields, path_and_query, query_value, read,
    read_all, reply, spawn_local, text, wasip3,
};

struct EchoHttp;

impl Guest for EchoHttp {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let (path, query) = path_and_query(&request);
        Ok(match path.as_str() {
            "/pass" => pass(request),
            "/early" => {
                let (response, body) = reply(200, &[("content-type", "text/plain")]);
                spawn_local(early(request, body));
                response
            }
            "/slow" => {
                let (response, body) = reply(200, &[("content-type", "text/plain")]);
                spawn_local(slow(query, body));
                response
            }
            "/head" => head(&request),
            _ => echo(request),
        })
    }
}

fn header(request: &Request, name: &str) -> Option<String> {
    request.get_headers().get(name).pop().and_then(|value| String::from_utf8(value).ok())
}

fn pass(request: Request) -> Response {
    let (stream, trailers) = body_of(request);
    Response::new(fields(&[]), Some(stream), trailers).0
}

fn echo(request: Request) -> Response {
    let content_type = header(&request, "content-type").unwrap_or_else(|| "application/octet-stream".into());
    let trailer = header(&request, "trailer");
    let mut headers = vec![("content-type", content_type.as_str())];
    // HTTP/1.1 sends no trailers but those that the head has named.
    headers.extend(trailer.as_deref().map(|names| ("trailer", names)));
    let (response, mut body) = reply(200, &headers);
    spawn_local(async move {
        let (mut stream, trailers) = body_of(request);
        while let Some(chunk) = read(&mut stream).await {
            if !body.write(&chunk).await {
                break;
            }
        }
        drop(stream);
        // A copy: the trailers of a request cannot be changed, nor given away.
        let trailers: Option<Fields> = trailers.await.expect("the body is whole").map(|trailers| trailers.clone());
        body.finish(trailers).await;
    });
    response
}

async fn early(request: Request, mut body: Body) {
    body.write(b"early\n").await;
    let bytes = read_all(request).await.len();
    body.write(format!("read {bytes} bytes\n").as_bytes()).await;
    body.finish(None).await;
}

async fn slow(query: String, mut body: Body) {
    let number = |name: &str, default: u64| query_value(&query, name).and_then(|n| n.parse().ok()).unwrap_or(default);
    let pause_ns = number("pause-ms", 50).saturating_mul(1_000_000);
    for line in 0..number("lines", 10) {
        if line > 0 {
            monotonic_clock::wait_for(pause_ns).await;
        }
        if !body.write(format!("line {line}\n").as_bytes()).await {
            break;
        }
    }
    body.finish(None).await;
}

fn head(request: &Request) -> Response {
    let method = match request.get_method() {
        Method::Other(name) => name,
        known => format!("{known:?}").trim_start_matches("Method::").to_uppercase(),
    };
    let path = request.get_path_with_query().unwrap_or_default();
    let authority = request.get_authority().unwrap_or_default();
    let mut lines = format!("{method} {path}\nauthority: {authority}\n");
    for (name, value) in request.get_headers().copy_all() {
        lines += &format!("{name}: {}\n", String::from_utf8_lossy(&value));
    }
    text(200, lines)
}

wasip3::http::service::export!(EchoHttp);
