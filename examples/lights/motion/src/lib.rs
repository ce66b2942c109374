//! Motion in a room switches its bulb: `home/ROOM/motion` with `{"sequence": 7, "motion": true}` becomes an event of
//! the queue `bulbs`, whose sink publishes it.
//!
//! A sensor sends what it did not get confirmed again, and a slow network mixes the order up: only what is newer than the
//! newest seen counts, so that a late "no motion" does not switch a light off.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use guest_reading::Reading;
use lighter::unit::queue::{self, Outgoing};
use lighter::unit::{store, types};

const BUCKET: &str = "lights";

struct Motion;

impl Guest for Motion {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let reading = Reading::new(event.subject.as_deref(), 1, &event.data).map_err(Failure::Invalid)?;
        let sequence = reading.whole("sequence", 0, u64::MAX).map_err(Failure::Invalid)?;
        let motion = reading.boolean("motion").map_err(Failure::Invalid)?;
        let room = reading.device;

        let newest =
            store::get(BUCKET, &room).map_err(refused)?.and_then(|value| String::from_utf8(value).ok()?.parse().ok());
        if newest.is_some_and(|newest: u64| sequence <= newest) {
            return Ok(b"known".to_vec());
        }
        store::set(BUCKET, &room, sequence.to_string().as_bytes()).map_err(refused)?;
        let bulb = Outgoing {
            type_: "bulb.set".into(),
            subject: Some(room),
            content_type: Some("text/plain".into()),
            attributes: Vec::new(),
            data: if motion { b"on".to_vec() } else { b"off".to_vec() },
            delay_ms: None,
            ttl_ms: None,
        };
        queue::push("bulbs", &bulb).map_err(refused)?;
        Ok(b"switched".to_vec())
    }
}

fn refused(error: types::Error) -> Failure {
    match error {
        types::Error::Unavailable(why) => Failure::Retry(why),
        types::Error::Denied(why) | types::Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Motion);
