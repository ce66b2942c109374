//! Passes events on: pushes the data of each to the queues that `config.to` names, and counts it in the store.
//!
//! `config.to` has any number of queues between blanks. The count is in the bucket `counters`, under the key
//! `config.count`, if that is there. All of it is one transaction, so the count is that of the events handled, never more.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use lighter::unit::queue::{self, Outgoing};
use lighter::unit::types::Error;
use lighter::unit::{config, store};

struct Relay;

impl Guest for Relay {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let to = config::get("to").unwrap_or_default();
        for name in to.split_whitespace() {
            let outgoing = Outgoing {
                type_: event.type_.clone(),
                subject: event.subject.clone(),
                content_type: event.content_type.clone(),
                attributes: Vec::new(),
                data: event.data.clone(),
                delay_ms: None,
                ttl_ms: None,
            };
            queue::push(name, &outgoing).map_err(failure)?;
        }
        if let Some(key) = config::get("count") {
            store::increment("counters", &key, 1).map_err(failure)?;
        }
        Ok(Vec::new())
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Denied(why) => Failure::Fatal(why),
        Error::Invalid(why) => Failure::Invalid(why),
        Error::Unavailable(why) => Failure::Retry(why),
    }
}

export!(Relay);
