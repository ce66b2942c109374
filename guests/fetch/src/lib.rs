//! Outgoing HTTP by the portable contract: sends a GET to the URL in the data, replies with status and body.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use lighter::unit::http;
use lighter::unit::types::Error;

struct Fetch;

impl Guest for Fetch {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let url = String::from_utf8(event.data).map_err(|_| Failure::Invalid("the URL is not UTF-8".into()))?;
        let request = http::Request {
            method: "GET".into(),
            url: url.trim().into(),
            headers: vec![("x-attempt".into(), event.attempt.to_string())],
            body: Vec::new(),
            timeout_ms: None,
        };
        let response = http::send(&request).map_err(|error| match error {
            Error::Denied(why) => Failure::Fatal(why),
            Error::Invalid(why) => Failure::Invalid(why),
            Error::Unavailable(why) => Failure::Retry(why),
        })?;
        Ok([response.status.to_string().as_bytes(), b"\n", &response.body].concat())
    }
}

export!(Fetch);
