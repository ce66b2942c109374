//! What the `wasi:http` 0.3 fixtures share: a reply and the body that follows it.
//!
//! A step that the host refuses panics: a fixture that cannot go on must trap, so that a test sees it.

pub use wasip3;
pub use wasip3::exports::http::handler::Guest;
pub use wasip3::http::types::{ErrorCode, Fields, Method, Request, Response};
pub use wasip3::wit_bindgen::{FutureReader, StreamReader, StreamResult, spawn_local};
use wasip3::wit_bindgen::{FutureWriter, StreamWriter};
pub use wasip3::{wit_future, wit_stream};

/// Bytes of one read.
pub const CHUNK_BYTES: usize = 4_096;

/// What follows a body.
pub type Trailers = Result<Option<Fields>, ErrorCode>;

/// The request's path and its query, `""` where there is none.
pub fn path_and_query(request: &Request) -> (String, String) {
    let whole = request.get_path_with_query().unwrap_or_default();
    match whole.split_once('?') {
        Some((path, query)) => (path.to_string(), query.to_string()),
        None => (whole, String::new()),
    }
}

/// The value of `name` in a query, as it stands there.
pub fn query_value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// A request's body, and what follows it.
pub fn body_of(request: Request) -> (StreamReader<u8>, FutureReader<Trailers>) {
    let (_, all_is_well) = wit_future::new(|| Ok(()));
    Request::consume_body(request, all_is_well)
}

/// The next bytes of a body, as they come; none at its end.
pub async fn read(stream: &mut StreamReader<u8>) -> Option<Vec<u8>> {
    match stream.read(Vec::with_capacity(CHUNK_BYTES)).await {
        (StreamResult::Complete(_), chunk) => Some(chunk),
        (StreamResult::Dropped, _) => None,
        (StreamResult::Cancelled, _) => panic!("nobody cancels a read"),
    }
}

/// The whole body of a request. One that broke off is a panic.
pub async fn read_all(request: Request) -> Vec<u8> {
    let (stream, trailers) = body_of(request);
    let whole = stream.collect().await;
    trailers.await.expect("the body is whole");
    whole
}

/// The body of a reply that is given away: what is written here follows its head.
pub struct Body {
    stream: StreamWriter<u8>,
    trailers: FutureWriter<Trailers>,
}

impl Body {
    /// Sends bytes, and waits until the host has taken them. Says whether anyone still listens.
    pub async fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes.to_vec()).await.is_empty()
    }

    /// Ends the body, with trailers if there are any.
    pub async fn finish(self, trailers: Option<Fields>) {
        drop(self.stream);
        // An error says that the caller is gone. It is the host's.
        let _ = self.trailers.write(Ok(trailers)).await;
    }
}

/// Header fields, all of which the host takes.
pub fn fields(headers: &[(&str, &str)]) -> Fields {
    let fields = Fields::new();
    for (name, value) in headers {
        fields.append(name, value.as_bytes()).expect("a header the host takes");
    }
    fields
}

/// A reply whose body follows.
pub fn reply(status: u16, headers: &[(&str, &str)]) -> (Response, Body) {
    let (stream, contents) = wit_stream::new();
    let (trailers, follows) = wit_future::new(|| Ok(None));
    let (response, _) = Response::new(fields(headers), Some(contents), follows);
    response.set_status_code(status).expect("a status the host takes");
    (response, Body { stream, trailers })
}

/// A whole reply of text.
pub fn text(status: u16, text: impl Into<String>) -> Response {
    let (response, mut body) = reply(status, &[("content-type", "text/plain")]);
    let text = text.into();
    spawn_local(async move {
        body.write(text.as_bytes()).await;
        body.finish(None).await;
    });
    response
}
