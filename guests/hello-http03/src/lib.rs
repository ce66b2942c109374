//! The smallest `wasi:http` 0.3 function: any request gets a line of text. The benchmark compares it with `hello-http`.
//!
//! Whatever fails here can only be a caller that has gone, so failures are dropped rather than unwrapped, as there.

use wasip3::exports::http::handler::Guest;
use wasip3::http::types::{ErrorCode, Fields, Request, Response};
use wasip3::wit_bindgen::spawn_local;
use wasip3::{wit_future, wit_stream};

#[global_allocator]
static ARENA: guest_arena::Arena = guest_arena::Arena::new();

struct HelloHttp;

impl Guest for HelloHttp {
    async fn handle(_request: Request) -> Result<Response, ErrorCode> {
        let headers = Fields::new();
        let _ = headers.append("content-type", b"text/plain");
        let (mut body, contents) = wit_stream::new();
        // Dropped unwritten, it says that there are no trailers.
        let (_, trailers) = wit_future::new(|| Ok(None));
        let (response, _) = Response::new(headers, Some(contents), trailers);
        spawn_local(async move {
            let _ = body.write_all(b"hello, world\n".to_vec()).await;
        });
        Ok(response)
    }
}

wasip3::http::service::export!(HelloHttp);
