//! Counts its calls in the store: the bucket is `counters`, the key is the data, or `calls` if there is none.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use lighter::unit::store;
use lighter::unit::types::Error;

struct Counter;

impl Guest for Counter {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let key = if event.data.is_empty() { b"calls".to_vec() } else { event.data };
        let key = String::from_utf8(key).map_err(|_| Failure::Invalid("the key is not UTF-8".into()))?;
        let count = store::increment("counters", &key, 1).map_err(|error| match error {
            Error::Denied(why) => Failure::Fatal(why),
            Error::Invalid(why) => Failure::Invalid(why),
            Error::Unavailable(why) => Failure::Retry(why),
        })?;
        Ok((count.to_string() + "\n").into_bytes())
    }
}

export!(Counter);
