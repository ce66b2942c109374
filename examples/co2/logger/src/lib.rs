//! Keeps what was measured, and shows the newest: an event of the queue `log` is written to the bucket `readings`, a
//! request gets the last reading of each kit as JSON.
//!
//! A reading that was sent twice has the same key, so it is kept once. The bucket's bounds say how much and how long.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use guest_reading::{Map, Reading, Value};
use lighter::unit::{store, types};

const READINGS: &str = "readings";
const NEWEST: &str = "newest";

/// Kits a request is told of.
const KITS_MAX: u32 = 1_000;

struct Logger;

impl Guest for Logger {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        if event.type_ == "http.request" {
            return newest();
        }
        let reading = Reading::new(event.subject.as_deref(), 0, &event.data).map_err(Failure::Invalid)?;
        let time_ms = reading.whole("time_ms", 0, u64::MAX).map_err(Failure::Invalid)?;
        let kit = &reading.device;
        store::set(READINGS, &format!("{kit}/{time_ms:013}"), &event.data).map_err(refused)?;
        let known = store::get(NEWEST, kit).map_err(refused)?;
        let known_ms =
            known.and_then(|value| Reading::new(Some(kit), 0, &value).ok()?.whole("time_ms", 0, u64::MAX).ok());
        if known_ms.is_none_or(|known_ms| time_ms > known_ms) {
            store::set(NEWEST, kit, &event.data).map_err(refused)?;
        }
        Ok(Vec::new())
    }
}

fn newest() -> Result<Vec<u8>, Failure> {
    let page = store::list(NEWEST, "", None, KITS_MAX).map_err(refused)?;
    let value = |bytes: &[u8]| guest_reading::parsed(bytes).unwrap_or(Value::Null);
    let kits: Map<String, Value> = page.entries.iter().map(|entry| (entry.key.clone(), value(&entry.value))).collect();
    Ok((Value::from(kits).to_string() + "\n").into_bytes())
}

fn refused(error: types::Error) -> Failure {
    match error {
        types::Error::Unavailable(why) => Failure::Retry(why),
        types::Error::Denied(why) | types::Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Logger);
