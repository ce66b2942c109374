//! Outgoing `wasi:http` 0.3: fetches the URL in `?url=` with the request's method, body and `x-` headers, and gives the
//! answer's stream to whoever asked. `502` and the error's name if the host or the network refuses. `&connect=`,
//! `&first=` and `&between=` are milliseconds, as in `fetch-http`. With `&times=N` it asks N times at once and says
//! what came of it.

use guest_http03::wasip3::http::client;
use guest_http03::wasip3::http::types::{RequestOptions, Scheme};
use guest_http03::{
    ErrorCode, Fields, Guest, Request, Response, body_of, fields, path_and_query, query_value, text, wasip3, wit_future,
};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

struct FetchHttp;

impl Guest for FetchHttp {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let (_, query) = path_and_query(&request);
        let Some(url) = query_value(&query, "url") else { return Ok(text(400, "say which ?url= to fetch\n")) };
        if let Some(times) = query_value(&query, "times").and_then(|times| times.parse().ok()) {
            return Ok(many(url, times).await);
        }
        Ok(match fetch(url, &query, request).await {
            Ok(answer) => pass_on(answer),
            Err(why) => text(502, why + "\n"),
        })
    }
}

fn options(query: &str) -> Result<RequestOptions, String> {
    let options = RequestOptions::new();
    let ns = |name: &str| query_value(query, name).and_then(|ms| ms.parse::<u64>().ok()).map(|ms| ms * 1_000_000);
    options.set_connect_timeout(ns("connect")).map_err(|_| "no connect timeout is taken")?;
    options.set_first_byte_timeout(ns("first")).map_err(|_| "no first byte timeout is taken")?;
    options.set_between_bytes_timeout(ns("between")).map_err(|_| "no between bytes timeout is taken")?;
    Ok(options)
}

/// Says where a request goes.
fn aim(outgoing: &Request, url: &str) -> Result<(), String> {
    let (scheme, rest) = url.split_once("://").ok_or("the URL is not absolute")?;
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_string()),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    outgoing.set_scheme(Some(&scheme)).map_err(|()| "the scheme is malformed")?;
    outgoing.set_authority(Some(authority)).map_err(|()| "the host is malformed")?;
    outgoing
        .set_path_with_query(Some(if path.is_empty() { "/" } else { path }))
        .map_err(|()| "the path is malformed")?;
    Ok(())
}

async fn fetch(url: &str, query: &str, request: Request) -> Result<Response, String> {
    let headers = Fields::new();
    for (name, value) in request.get_headers().copy_all().iter().filter(|(name, _)| name.starts_with("x-")) {
        headers.append(name, value).map_err(|error| format!("header {name}: {error:?}"))?;
    }
    let method = request.get_method();
    let (stream, trailers) = body_of(request);
    let (outgoing, _) = Request::new(headers, Some(stream), trailers, Some(options(query)?));
    outgoing.set_method(&method).map_err(|()| "the method is malformed")?;
    aim(&outgoing, url)?;
    client::send(outgoing).await.map_err(|error| format!("{error:?}"))
}

fn pass_on(answer: Response) -> Response {
    let status = answer.get_status_code();
    let (_, all_is_well) = wit_future::new(|| Ok(()));
    let (stream, trailers) = Response::consume_body(answer, all_is_well);
    let (response, _) = Response::new(fields(&[]), Some(stream), trailers);
    response.set_status_code(status).expect("a status that came over HTTP");
    response
}

/// How many were answered, and what was said to the others.
async fn many(url: &str, times: usize) -> Response {
    let mut sent: Vec<Pin<Box<dyn Future<Output = Result<Response, ErrorCode>>>>> = Vec::new();
    for _ in 0..times {
        let (_, trailers) = wit_future::new(|| Ok(None));
        let (outgoing, _) = Request::new(Fields::new(), None, trailers, None);
        if let Err(why) = aim(&outgoing, url) {
            return text(502, why + "\n");
        }
        sent.push(Box::pin(client::send(outgoing)));
    }
    let mut said = Vec::new();
    poll_fn(|cx| {
        sent.retain_mut(|one| match one.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                said.push(answer);
                false
            }
        });
        if sent.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let answered = said.iter().filter(|answer| answer.is_ok()).count();
    let mut lines = format!("answered {answered}\n");
    for error in said.iter().filter_map(|answer| answer.as_ref().err()) {
        lines += &format!("{error:?}\n");
    }
    text(200, lines)
}

wasip3::http::service::export!(FetchHttp);
