//! A `wasi:http` 0.3 function that misbehaves as its path says, to show that a node and its neighbours do not care.
//!
//! ```text
//! /never            waits for what never comes           /error            answers with an error instead of a reply
//! /loop             never returns, never answers         /early-then-loop  answers, then never returns
//! /half             promises 1,000 bytes, sends 500      /too-much         promises 10 bytes, sends 1,000
//! /trap             traps before its answer              /trap-in-body     traps half-way through its body
//! /sleep            sleeps for an hour in the host       /early-then-sleep answers, then sleeps for an hour
//! /endless          a body without an end                /yield            gives way for ever, and does nothing else
//! /ping-pong        writes to itself for ever            /cancel           begins to sleep and gives up, for ever
//! /keep/streams     a million streams; likewise futures, timers, sets (of waitables), fields, requests, bodies
//! /keep/errors      ten thousand bodies that are said to have failed, each with a megabyte of reasons
//! /full/WHAT        as many of /keep/WHAT as ?count= says; then it sleeps for an hour
//! ```

use guest_http03::wasip3::clocks::monotonic_clock;
use guest_http03::{
    Body, ErrorCode, Fields, Guest, Request, Response, Trailers, fields, path_and_query, query_value, reply,
    spawn_local, text, wasip3, wit_future, wit_stream,
};
use std::future::{Future, pending, poll_fn};
use std::mem::forget;
use std::pin::pin;
use std::task::Poll;

const HOUR_NS: u64 = 3_600_000_000_000;

#[link(wasm_import_module = "$root")]
unsafe extern "C" {
    #[link_name = "[waitable-set-new]"]
    fn waitable_set_new() -> u32;
}

struct AttackHttp;

impl Guest for AttackHttp {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let (path, query) = path_and_query(&request);
        if let Some(what) = path.strip_prefix("/keep/") {
            keep(what, if what == "errors" { 10_000 } else { 1_000_000 }).await;
            return Ok(text(200, "kept them all\n"));
        }
        if let Some(what) = path.strip_prefix("/full/") {
            keep(what, query_value(&query, "count").and_then(|count| count.parse().ok()).unwrap_or(1_000)).await;
            monotonic_clock::wait_for(HOUR_NS).await;
        }
        Ok(match path.as_str() {
            "/never" => pending().await,
            "/error" => return Err(ErrorCode::InternalError(Some("asked to fail".into()))),
            "/loop" => spin(),
            "/early-then-loop" => early(async { spin() }),
            "/half" => promise("1000", 500),
            "/too-much" => promise("10", 1_000),
            "/trap" => core::arch::wasm32::unreachable(),
            "/trap-in-body" => bodied(async |body| {
                body.write(&[b'x'; 500]).await;
                core::arch::wasm32::unreachable()
            }),
            "/sleep" => {
                monotonic_clock::wait_for(HOUR_NS).await;
                text(200, "slept\n")
            }
            "/early-then-sleep" => early(monotonic_clock::wait_for(HOUR_NS)),
            "/endless" => bodied(async |body| while body.write(&[b'x'; 4_096]).await {}),
            "/yield" => loop {
                wasip3::wit_bindgen::yield_async().await;
            },
            "/ping-pong" => {
                ping_pong().await;
                text(200, "nobody listens to itself\n")
            }
            "/cancel" => loop {
                begin(monotonic_clock::wait_for(HOUR_NS)).await;
            },
            _ => text(404, "see the source for the paths\n"),
        })
    }
}

/// Uses its CPU for ever, with no call to the host in which it could be stopped.
fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns).wrapping_add(1);
    }
}

/// Answers, and goes on.
fn early(then: impl Future<Output = ()> + 'static) -> Response {
    let (response, mut body) = reply(200, &[("content-type", "text/plain")]);
    spawn_local(async move {
        body.write(b"early\n").await;
        body.finish(None).await;
        then.await;
    });
    response
}

fn bodied(make: impl AsyncFnOnce(&mut Body) + 'static) -> Response {
    let (response, mut body) = reply(200, &[]);
    spawn_local(async move {
        make(&mut body).await;
        body.finish(None).await;
    });
    response
}

fn promise(length: &str, bytes: usize) -> Response {
    let (response, mut body) = reply(200, &[("content-length", length)]);
    spawn_local(async move {
        body.write(&vec![b'x'; bytes]).await;
        body.finish(None).await;
    });
    response
}

async fn ping_pong() {
    let (mut to, mut from) = wit_stream::new::<u8>();
    spawn_local(async move { while to.write_all(vec![0; 64]).await.is_empty() {} });
    while from.next().await.is_some() {}
}

/// Lets it begin, and drops it.
async fn begin<T>(work: impl Future<Output = T>) {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let _ = work.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

/// Lets it begin, and never looks at it again.
async fn leave<T>(work: impl Future<Output = T> + 'static) {
    let mut work = Box::pin(work);
    poll_fn(|cx| {
        let _ = work.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
    forget(work);
}

async fn keep(what: &str, count: usize) {
    for _ in 0..count {
        match what {
            "streams" => forget(wit_stream::new::<u8>()),
            "futures" => forget(wit_future::new::<Trailers>(|| Ok(None))),
            "timers" => leave(monotonic_clock::wait_for(HOUR_NS)).await,
            // SAFETY: it takes nothing and gives a number.
            "sets" => drop(unsafe { waitable_set_new() }),
            "fields" => forget(full_fields()),
            "requests" => forget(full_request()),
            "bodies" => forget(reply(200, &[])),
            "errors" => failed_body().await,
            _ => panic!("there is no {what}"),
        }
    }
}

fn full_fields() -> Fields {
    let fields = Fields::new();
    let value = [b'x'; 7_000];
    for _ in 0..16 {
        if fields.append("x-full", &value).is_err() {
            break;
        }
    }
    fields
}

fn full_request() -> Request {
    let (_, trailers) = wit_future::new(|| Ok(None));
    let (request, sent) = Request::new(Fields::new(), None, trailers, None);
    forget(sent);
    // Larger and larger: which is the largest that is taken is the host's to say.
    for bytes in [1_000, 8_000, 60_000, 1_000_000] {
        let text = "x".repeat(bytes);
        let _ = request.set_path_with_query(Some(&format!("/{text}")));
        let _ = request.set_authority(Some(&text));
        let _ = request.set_method(&wasip3::http::types::Method::Other(text));
    }
    request
}

/// A body whose reader says that it failed, and why at length; the writer never asks.
async fn failed_body() {
    let (_, trailers) = wit_future::new(|| Ok(None));
    let (response, sent) = Response::new(fields(&[]), None, trailers);
    let (failed, why) = wit_future::new(|| Ok(()));
    drop(Response::consume_body(response, why));
    let _ = failed.write(Err(ErrorCode::InternalError(Some("x".repeat(1 << 20))))).await;
    forget(sent);
}

wasip3::http::service::export!(AttackHttp);
