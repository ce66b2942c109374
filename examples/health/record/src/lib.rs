//! Adds each heart rate to the statistics of its person and day: `health/PERSON/heart` with
//! `{"time": "2026-11-21T08:00:00Z", "rate": 72, "unit": "bpm"}`.
//!
//! The order does not matter for a sum, repetitions do: which minutes were counted is kept for as long as the bucket
//! `health-seen` says, in the transaction of the sum itself.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use guest_reading::{Reading, time_ms};
use lighter::unit::{store, types};

const SEEN: &str = "health-seen";
const DAYS: &str = "health-days";
const DAY_MS: u64 = 86_400_000;

/// Beats a minute of somebody alive.
const RATE: (f64, f64) = (20.0, 250.0);

struct Record;

impl Guest for Record {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let reading = Reading::new(event.subject.as_deref(), 1, &event.data).map_err(Failure::Invalid)?;
        let time_ms = reading.field("time").and_then(time_ms).map_err(Failure::Invalid)?;
        if time_ms > event.time_ms + DAY_MS {
            return Err(Failure::Invalid("time is in the future: the clock of the sensor is wrong".into()));
        }
        reading.unit("bpm").map_err(Failure::Invalid)?;
        let rate = reading.number("rate", RATE.0, RATE.1).map_err(Failure::Invalid)?;
        let person = reading.device;

        if !store::compare_and_set(SEEN, &format!("{person}/{time_ms}"), None, Some(b"1")).map_err(refused)? {
            return Ok(b"known".to_vec());
        }
        // The day first, so that a report lists one day.
        let key = format!("{:08}/{person}", time_ms / DAY_MS);
        let day = store::get(DAYS, &key).map_err(refused)?.unwrap_or_default();
        store::set(DAYS, &key, added(&String::from_utf8_lossy(&day), rate).as_bytes()).map_err(refused)?;
        Ok(Vec::new())
    }
}

/// `count sum least most`, one more.
fn added(day: &str, rate: f64) -> String {
    let mut parts = day.split(' ').filter_map(|part| part.parse::<f64>().ok());
    let (count, sum) = (parts.next().unwrap_or(0.0), parts.next().unwrap_or(0.0));
    let (least, most) = (parts.next().unwrap_or(rate), parts.next().unwrap_or(rate));
    format!("{} {} {} {}", count + 1.0, sum + rate, least.min(rate), most.max(rate))
}

fn refused(error: types::Error) -> Failure {
    match error {
        types::Error::Unavailable(why) => Failure::Retry(why),
        types::Error::Denied(why) | types::Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Record);
