//! What the `wasi:http` fixtures share: the bindings and the few steps that every reply takes.
//!
//! The world names all that any of them uses; what a guest does not call is not in its component. A step that the
//! host refuses panics: a fixture that cannot go on must trap, so that a test sees it.

wit_bindgen::generate!({
    inline: "
        package guests:http;
        world guest {
            include wasi:http/proxy@0.2.12;
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:keyvalue/atomics@0.2.0-draft;
            import wasi:keyvalue/batch@0.2.0-draft;
            import wasi:config/store@0.2.0-rc.1;
            import wasi:logging/logging@0.1.0-draft;
            import lighter:unit/queue@0.1.0;
        }
    ",
    path: "../../contracts/wit",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "guest_http",
});

pub use exports::wasi::http::incoming_handler::Guest;
pub use wasi::http::types::{Fields, IncomingBody, IncomingRequest, Method, ResponseOutparam};
use wasi::http::types::{OutgoingBody, OutgoingResponse};
use wasi::io::streams::{InputStream, OutputStream, StreamError};

/// Bytes of one read, and of one write: what `blocking-write-and-flush` takes at most.
pub const CHUNK_BYTES: u64 = 4_096;

/// The request's path and its query, `""` where there is none.
pub fn path_and_query(request: &IncomingRequest) -> (String, String) {
    let whole = request.path_with_query().unwrap_or_default();
    match whole.split_once('?') {
        Some((path, query)) => (path.to_string(), query.to_string()),
        None => (whole, String::new()),
    }
}

/// The value of `name` in a query, as it stands there.
pub fn query_value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The whole body of a request.
pub fn read_all(request: &IncomingRequest) -> Vec<u8> {
    let body = request.consume().expect("the body is taken once");
    let stream = body.stream().expect("the stream is taken once");
    let mut whole = Vec::new();
    while let Some(mut chunk) = read(&stream) {
        whole.append(&mut chunk);
    }
    whole
}

/// The next bytes of a body, as they come; none at its end. A body that broke off is a panic.
pub fn read(stream: &InputStream) -> Option<Vec<u8>> {
    match stream.blocking_read(CHUNK_BYTES) {
        Ok(chunk) => Some(chunk),
        Err(StreamError::Closed) => None,
        Err(StreamError::LastOperationFailed(error)) => panic!("the body broke off: {}", error.to_debug_string()),
    }
}

/// A reply under way: its head is with the host, its body may follow in pieces.
pub struct Reply {
    // Before the body: a stream must be gone when its body is finished.
    stream: OutputStream,
    body: OutgoingBody,
}

impl Reply {
    /// Sends the head.
    pub fn start(out: ResponseOutparam, status: u16, headers: &[(&str, &str)]) -> Self {
        let fields = Fields::new();
        for (name, value) in headers {
            fields.append(name, value.as_bytes()).expect("a header the host takes");
        }
        let response = OutgoingResponse::new(fields);
        response.set_status_code(status).expect("a status the host takes");
        let body = response.body().expect("the body is taken once");
        let stream = body.write().expect("the stream is taken once");
        ResponseOutparam::set(out, Ok(response));
        Self { stream, body }
    }

    /// Sends bytes of the body, and waits until the host has taken them. Says whether anyone still listens.
    pub fn write(&self, bytes: &[u8]) -> bool {
        bytes.chunks(CHUNK_BYTES as usize).all(|chunk| self.stream.blocking_write_and_flush(chunk).is_ok())
    }

    /// Ends the body, with trailers if there are any.
    pub fn finish(self, trailers: Option<Fields>) {
        drop(self.stream);
        // An error says that the body is not of the promised length, or that the caller is gone. It is the host's.
        let _ = OutgoingBody::finish(self.body, trailers);
    }

    /// A whole reply of text.
    pub fn text(out: ResponseOutparam, status: u16, text: &str) {
        let reply = Self::start(out, status, &[("content-type", "text/plain")]);
        reply.write(text.as_bytes());
        reply.finish(None);
    }
}
