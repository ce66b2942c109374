//! A `wasi:http` function that misbehaves as its path says, to show that a node and its neighbours do not care.
//!
//! ```text
//! /silent           returns without an answer            /error            answers with an error instead of a reply
//! /loop             never returns, never answers         /early-then-loop  answers, then never returns
//! /half             promises 1,000 bytes, sends 500      /too-much         promises 10 bytes, sends 1,000
//! /trap             traps before its answer              /trap-in-body     traps half-way through its body
//! /set-twice        tries to answer twice                /endless          a body without an end
//! /sleep            sleeps for an hour in the host       /early-then-sleep answers, then sleeps for an hour
//! /bad-header       a header no HTTP allows              /bad-status       a status no HTTP allows
//! /many-headers     10,000 headers                       /keep-resources   makes resources until there are none
//! /leave            answers, and leaves a hundred resources behind
//! /unfinished       sends half of a body, and says neither that it is whole nor that it is not
//! /upload?to=HOST   sends half of a request's body, and traps when the answer has begun
//! /full/fields      as many sets of header fields as there can be, each full; likewise /full/requests (their texts),
//!                   /full/bodies (what was written to them and not sent), /full/mixed; then sleeps for an hour
//! /stdout           a gigabyte of standard output, unless it is cut short
//! ```

use guest_http::wasi::cli::stdout;
use guest_http::wasi::clocks::monotonic_clock;
use guest_http::wasi::http::outgoing_handler;
use guest_http::wasi::http::types::{ErrorCode, Method, OutgoingRequest, OutgoingResponse, Scheme};
use guest_http::{CHUNK_BYTES, Fields, Guest, IncomingRequest, Reply, ResponseOutparam, path_and_query, query_value};

const HOUR_NS: u64 = 3_600_000_000_000;

struct AttackHttp;

impl Guest for AttackHttp {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let (path, query) = path_and_query(&request);
        match path.as_str() {
            "/silent" => drop(out),
            "/error" => ResponseOutparam::set(out, Err(ErrorCode::InternalError(Some("asked to fail".into())))),
            "/loop" => spin(),
            "/early-then-loop" => {
                Reply::text(out, 200, "early\n");
                spin()
            }
            "/half" => promise(out, "1000", 500),
            "/too-much" => promise(out, "10", 1_000),
            "/trap" => core::arch::wasm32::unreachable(),
            "/trap-in-body" => {
                let reply = Reply::start(out, 200, &[]);
                reply.write(&[b'x'; 500]);
                core::arch::wasm32::unreachable()
            }
            "/set-twice" => set_twice(out),
            "/endless" => {
                let reply = Reply::start(out, 200, &[]);
                while reply.write(&[b'x'; CHUNK_BYTES as usize]) {}
            }
            "/sleep" => monotonic_clock::subscribe_duration(HOUR_NS).block(),
            "/early-then-sleep" => {
                Reply::text(out, 200, "early\n");
                monotonic_clock::subscribe_duration(HOUR_NS).block();
            }
            "/bad-header" => Reply::start(out, 200, &[("bad header\r\n", "value\r\nsmuggled: yes")]).finish(None),
            "/bad-status" => Reply::start(out, 9_999, &[]).finish(None),
            "/many-headers" => Reply::start(out, 200, &vec![("x-many", "value"); 10_000]).finish(None),
            "/keep-resources" => loop {
                std::mem::forget(Fields::new());
            },
            "/leave" => {
                (0..100).for_each(|_| std::mem::forget(Fields::new()));
                Reply::text(out, 200, "left\n");
            }
            "/unfinished" => {
                let reply = Reply::start(out, 200, &[]);
                reply.write(&[b'x'; 500]);
                std::mem::forget(reply);
            }
            "/upload" => upload(query_value(&query, "to").expect("it says where to")),
            "/full/fields" => fill(&[full_fields]),
            "/full/requests" => fill(&[full_request]),
            "/full/bodies" => fill(&[full_body]),
            "/full/mixed" => fill(&[full_fields, full_request, full_body]),
            "/stdout" => {
                flood_stdout();
                Reply::text(out, 200, "done\n");
            }
            _ => Reply::text(out, 404, "see the source for the paths\n"),
        }
    }
}

/// Uses its CPU for ever, with no call to the host in which it could be stopped.
fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns).wrapping_add(1);
    }
}

/// Keeps what each of these makes, as much as a unit may hold by number, and then stays: a unit that is alive and full.
fn fill(makers: &[fn()]) {
    /// Below the bound of handles, of which one of these takes at most three.
    const EACH: usize = 300;
    for _ in 0..EACH / makers.len() {
        makers.iter().for_each(|make| make());
    }
    monotonic_clock::subscribe_duration(HOUR_NS).block();
}

fn full_fields() {
    // Three sets, as a body takes three handles.
    for _ in 0..3 {
        let fields = Fields::new();
        let value = [b'x'; 7_000];
        for _ in 0..16 {
            if fields.append("x-full", &value).is_err() {
                break;
            }
        }
        std::mem::forget(fields);
    }
}

fn full_request() {
    let request = OutgoingRequest::new(Fields::new());
    // Larger and larger: which is the largest that is taken is the host's to say.
    for bytes in [1_000, 8_000, 60_000, 1_000_000] {
        let text = "x".repeat(bytes);
        let _ = request.set_path_with_query(Some(&format!("/{text}")));
        let _ = request.set_authority(Some(&text));
        let _ = request.set_method(&Method::Other(text));
    }
    std::mem::forget(request);
}

fn full_body() {
    let response = OutgoingResponse::new(Fields::new());
    let Ok(body) = response.body() else { return };
    let Ok(stream) = body.write() else { return };
    while let Ok(bytes) = stream.check_write() {
        if bytes == 0 || stream.write(&vec![b'x'; bytes as usize]).is_err() || stream.flush().is_err() {
            break;
        }
    }
    std::mem::forget((stream, body, response));
}

fn promise(out: ResponseOutparam, promised: &str, sent: usize) {
    let reply = Reply::start(out, 200, &[("content-length", promised)]);
    reply.write(&vec![b'x'; sent]);
    reply.finish(None);
}

fn upload(authority: &str) {
    let request = OutgoingRequest::new(Fields::new());
    request.set_method(&Method::Post).expect("it is a method");
    request.set_scheme(Some(&Scheme::Http)).expect("it is a scheme");
    request.set_authority(Some(authority)).expect("it is a host");
    request.set_path_with_query(Some("/")).expect("it is a path");
    let body = request.body().expect("the body is taken once");
    let answer = outgoing_handler::handle(request, None).expect("it leaves");
    let stream = body.write().expect("the stream is taken once");
    stream.blocking_write_and_flush(b"half").expect("it is taken");
    answer.subscribe().block();
    core::arch::wasm32::unreachable()
}

/// The type says that an answer is given once, so the second one uses a handle that the host has taken back.
fn set_twice(out: ResponseOutparam) {
    let handle = out.handle();
    let first = OutgoingResponse::new(Fields::new());
    // Under way when the second one comes: without a body it would be whole.
    let _body = first.body().expect("the body is taken once");
    ResponseOutparam::set(out, Ok(first));
    // SAFETY: not a handle of ours any more, on purpose; it is only a number, which the host checks.
    let again = unsafe { ResponseOutparam::from_handle(handle) };
    ResponseOutparam::set(again, Ok(OutgoingResponse::new(Fields::new())));
}

/// A gigabyte, or as much as the host takes.
fn flood_stdout() {
    let stream = stdout::get_stdout();
    let line = [[b'x'; 1_023].as_slice(), b"\n"].concat();
    for _ in 0..1 << 20 {
        if stream.blocking_write_and_flush(&line).is_err() {
            break;
        }
    }
}

guest_http::export!(AttackHttp);
