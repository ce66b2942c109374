//! Sends back what it gets, while it gets it; what a `wasi:http` host must be able to stream.
//!
//! ```text
//! any path       the body comes back piece by piece, then the request's trailers as the reply's trailers
//! /early         the head and `early\n` are sent before the body is read, `read N bytes\n` after it
//! /slow          ten lines, one every 50 ms; ?lines=N and ?pause-ms=N change that
//! /head          the method, the path and every header of the request, a line each
//! ```

use guest_http::wasi::clocks::monotonic_clock;
use guest_http::{
    Guest, IncomingBody, IncomingRequest, Method, Reply, ResponseOutparam, path_and_query, query_value, read,
};

struct EchoHttp;

impl Guest for EchoHttp {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let (path, query) = path_and_query(&request);
        match path.as_str() {
            "/early" => early(&request, out),
            "/slow" => slow(&query, out),
            "/head" => head(&request, out),
            _ => echo(&request, out),
        }
    }
}

fn echo(request: &IncomingRequest, out: ResponseOutparam) {
    let header = |name: &str| request.headers().get(name).pop().and_then(|value| String::from_utf8(value).ok());
    let content_type = header("content-type").unwrap_or_else(|| "application/octet-stream".into());
    let trailer = header("trailer");
    let body = request.consume().expect("the body is taken once");
    let stream = body.stream().expect("the stream is taken once");
    let mut headers = vec![("content-type", content_type.as_str())];
    // HTTP/1.1 sends no trailers but those that the head has named.
    headers.extend(trailer.as_deref().map(|names| ("trailer", names)));
    let reply = Reply::start(out, 200, &headers);
    while let Some(chunk) = read(&stream) {
        if !reply.write(&chunk) {
            break;
        }
    }
    drop(stream);
    let trailers = IncomingBody::finish(body);
    trailers.subscribe().block();
    let trailers = trailers.get().expect("the trailers are ready").expect("the trailers are taken once");
    // A copy: the trailers of a request cannot be changed, nor given away.
    let trailers = trailers.expect("the body is whole").map(|trailers| trailers.clone());
    reply.finish(trailers);
}

fn early(request: &IncomingRequest, out: ResponseOutparam) {
    let reply = Reply::start(out, 200, &[("content-type", "text/plain")]);
    reply.write(b"early\n");
    let body = request.consume().expect("the body is taken once");
    let stream = body.stream().expect("the stream is taken once");
    let mut bytes = 0;
    while let Some(chunk) = read(&stream) {
        bytes += chunk.len();
    }
    reply.write(format!("read {bytes} bytes\n").as_bytes());
    reply.finish(None);
}

fn slow(query: &str, out: ResponseOutparam) {
    let number = |name: &str, default: u64| query_value(query, name).and_then(|n| n.parse().ok()).unwrap_or(default);
    let pause_ns = number("pause-ms", 50).saturating_mul(1_000_000);
    let reply = Reply::start(out, 200, &[("content-type", "text/plain")]);
    for line in 0..number("lines", 10) {
        if line > 0 {
            monotonic_clock::subscribe_duration(pause_ns).block();
        }
        if !reply.write(format!("line {line}\n").as_bytes()) {
            break;
        }
    }
    reply.finish(None);
}

fn head(request: &IncomingRequest, out: ResponseOutparam) {
    let method = match request.method() {
        Method::Other(name) => name,
        known => format!("{known:?}").trim_start_matches("Method::").to_uppercase(),
    };
    let path = request.path_with_query().unwrap_or_default();
    let authority = request.authority().unwrap_or_default();
    let mut text = format!("{method} {path}\nauthority: {authority}\n");
    for (name, value) in request.headers().entries() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(&value));
    }
    Reply::text(out, 200, &text);
}

guest_http::export!(EchoHttp);
