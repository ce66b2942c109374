//! Outgoing `wasi:http`: fetches the URL in `?url=` with the request's method, body and `x-` headers, streams the
//! answer back. `502` and the error's name if the host or the network refuses. `&connect=`, `&first=` and `&between=` are
//! milliseconds it waits for a connection, for the head of the answer and between two parts of its body, which breaks off then.

use guest_http::wasi::http::outgoing_handler;
use guest_http::wasi::http::types::{
    ErrorCode, IncomingResponse, OutgoingBody, OutgoingRequest, RequestOptions, Scheme,
};
use guest_http::{
    CHUNK_BYTES, Fields, Guest, IncomingRequest, Reply, ResponseOutparam, path_and_query, query_value, read, read_all,
};

struct FetchHttp;

impl Guest for FetchHttp {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let (_, query) = path_and_query(&request);
        let Some(url) = query_value(&query, "url") else {
            return Reply::text(out, 400, "say which ?url= to fetch\n");
        };
        match fetch(url, &query, &request) {
            Ok(response) => pass_on(&response, out),
            Err(why) => Reply::text(out, 502, &(why + "\n")),
        }
    }
}

fn options(query: &str) -> Result<RequestOptions, String> {
    let options = RequestOptions::new();
    let ns = |name: &str| query_value(query, name).and_then(|ms| ms.parse::<u64>().ok()).map(|ms| ms * 1_000_000);
    options.set_connect_timeout(ns("connect")).map_err(|()| "no connect timeout is taken")?;
    options.set_first_byte_timeout(ns("first")).map_err(|()| "no first byte timeout is taken")?;
    options.set_between_bytes_timeout(ns("between")).map_err(|()| "no between bytes timeout is taken")?;
    Ok(options)
}

fn fetch(url: &str, query: &str, request: &IncomingRequest) -> Result<IncomingResponse, String> {
    let (scheme, rest) = url.split_once("://").ok_or("the URL is not absolute")?;
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_string()),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let fields = Fields::new();
    for (name, value) in request.headers().entries().iter().filter(|(name, _)| name.starts_with("x-")) {
        fields.append(name, value).map_err(|error| format!("header {name}: {error:?}"))?;
    }
    let outgoing = OutgoingRequest::new(fields);
    outgoing.set_method(&request.method()).map_err(|()| "the method is malformed")?;
    outgoing.set_scheme(Some(&scheme)).map_err(|()| "the scheme is malformed")?;
    outgoing.set_authority(Some(authority)).map_err(|()| "the host is malformed")?;
    outgoing
        .set_path_with_query(Some(if path.is_empty() { "/" } else { path }))
        .map_err(|()| "the path is malformed")?;
    let body = outgoing.body().expect("the body is taken once");
    let answer = outgoing_handler::handle(outgoing, Some(options(query)?)).map_err(name)?;
    {
        let stream = body.write().expect("the stream is taken once");
        for chunk in read_all(request).chunks(CHUNK_BYTES as usize) {
            stream.blocking_write_and_flush(chunk).map_err(|error| format!("{error:?}"))?;
        }
    }
    OutgoingBody::finish(body, None).map_err(name)?;
    answer.subscribe().block();
    answer.get().expect("the answer is ready").expect("the answer is taken once").map_err(name)
}

fn name(error: ErrorCode) -> String {
    format!("{error:?}")
}

fn pass_on(response: &IncomingResponse, out: ResponseOutparam) {
    let reply = Reply::start(out, response.status(), &[]);
    let body = response.consume().expect("the body is taken once");
    let stream = body.stream().expect("the stream is taken once");
    while let Some(chunk) = read(&stream) {
        if !reply.write(&chunk) {
            break;
        }
    }
    reply.finish(None);
}

guest_http::export!(FetchHttp);
