//! The smallest `wasi:http` function: any request gets a line of text. It is what the HTTP benchmarks run.
//!
//! Whatever fails here can only be a caller that has gone, so failures are dropped rather than unwrapped: that keeps
//! the formatting of panics, most of a small guest, out of the binary.

wit_bindgen::generate!({
    inline: "package guests:hello-http; world guest { include wasi:http/proxy@0.2.12; }",
    path: "../../contracts/wit",
    generate_all,
});

use exports::wasi::http::incoming_handler::Guest;
use wasi::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam};

#[global_allocator]
static ARENA: guest_arena::Arena = guest_arena::Arena::new();

struct HelloHttp;

impl Guest for HelloHttp {
    fn handle(_request: IncomingRequest, out: ResponseOutparam) {
        let headers = Fields::new();
        let _ = headers.append("content-type", b"text/plain");
        let response = OutgoingResponse::new(headers);
        let Ok(body) = response.body() else { return };
        ResponseOutparam::set(out, Ok(response));
        if let Ok(stream) = body.write() {
            let _ = stream.blocking_write_and_flush(b"hello, world\n");
        }
        let _ = OutgoingBody::finish(body, None);
    }
}

export!(HelloHttp);
