//! Smoke becomes one alert, however often the detector repeats it: `home/ROOM/smoke` with
//! `{"sequence": 7, "density": 0.02, "unit": "1/m"}` becomes an event of the queue `alarms` when the air turns bad, and
//! another when it is good again.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use guest_reading::{Reading, json};
use lighter::unit::queue::{self, Outgoing};
use lighter::unit::{store, types};

const BUCKET: &str = "alert";

/// Optical density a metre from which it burns, and below which it no longer does: one limit alone would flutter.
const ALARM: f64 = 0.15;
const CLEAR: f64 = 0.05;

/// No detector measures more; it is broken, not in a fire.
const DENSITY_MAX: f64 = 10.0;

struct Smoke;

impl Guest for Smoke {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let reading = Reading::new(event.subject.as_deref(), 1, &event.data).map_err(Failure::Invalid)?;
        let sequence = reading.whole("sequence", 0, u64::MAX).map_err(Failure::Invalid)?;
        reading.unit("1/m").map_err(Failure::Invalid)?;
        let density = reading.number("density", 0.0, DENSITY_MAX).map_err(Failure::Invalid)?;
        let room = reading.device;

        let (newest, burns) = known(&room)?;
        if newest.is_some_and(|newest| sequence <= newest) {
            return Ok(b"known".to_vec());
        }
        let burns_now = density >= if burns { CLEAR } else { ALARM };
        store::set(BUCKET, &room, format!("{sequence} {burns_now}").as_bytes()).map_err(refused)?;
        if burns_now != burns {
            let state = if burns_now { "smoke" } else { "clear" };
            let alert = Outgoing {
                type_: format!("air.{state}"),
                subject: Some(room.clone()),
                content_type: Some("application/json".into()),
                attributes: Vec::new(),
                data: json!({ "room": room, "state": state, "density": density }).to_string().into_bytes(),
                delay_ms: None,
                ttl_ms: None,
            };
            queue::push("alarms", &alert).map_err(refused)?;
        }
        Ok(Vec::new())
    }
}

/// The newest sequence seen from a room, and whether it burns there.
fn known(room: &str) -> Result<(Option<u64>, bool), Failure> {
    let value = store::get(BUCKET, room).map_err(refused)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&value);
    let (newest, burns) = text.split_once(' ').unwrap_or_default();
    Ok((newest.parse().ok(), burns == "true"))
}

fn refused(error: types::Error) -> Failure {
    match error {
        types::Error::Unavailable(why) => Failure::Retry(why),
        types::Error::Denied(why) | types::Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Smoke);
