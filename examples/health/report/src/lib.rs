//! Once a day, and whenever it is asked: publishes the statistics of each finished day and forgets them.
//!
//! Data of `today` reports the day that is not over as well, which goes on.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use guest_reading::json;
use lighter::unit::queue::{self, Outgoing};
use lighter::unit::{store, types};

const DAYS: &str = "health-days";
const DAY_MS: u64 = 86_400_000;

/// People and days of one handling; the rest is done by another that it asks for.
const PAGE: u32 = 500;

/// The type of the event that asks for the rest. Its subject is the key after which that begins.
const REST: &str = "health.rest";

struct Report;

impl Guest for Report {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let today = event.time_ms / DAY_MS;
        let end = if event.data == b"today" { today + 1 } else { today };
        let after = event.subject.filter(|_| event.type_ == REST);
        let page = store::list(DAYS, "", after.as_deref(), PAGE).map_err(refused)?;
        let mut reports = Vec::new();
        for entry in &page.entries {
            let Some((day, person)) = entry.key.split_once('/') else { continue };
            let Some(day) = day.parse().ok().filter(|day: &u64| *day < end) else { break };
            reports.push(report(day, person, &String::from_utf8_lossy(&entry.value)));
            if day < today {
                store::delete(DAYS, &entry.key).map_err(refused)?;
            }
        }
        queue::push_all("reports", &reports).map_err(refused)?;
        if reports.len() == page.entries.len() && page.next.is_some() {
            let rest = Outgoing { type_: REST.into(), subject: page.next, data: event.data, ..report(0, "", "") };
            queue::push("report", &rest).map_err(refused)?;
        }
        Ok(reports.len().to_string().into_bytes())
    }
}

fn report(day: u64, person: &str, statistics: &str) -> Outgoing {
    let mut parts = statistics.split(' ').filter_map(|part| part.parse::<f64>().ok());
    let (count, sum) = (parts.next().unwrap_or(0.0), parts.next().unwrap_or(0.0));
    let (least, most) = (parts.next().unwrap_or(0.0), parts.next().unwrap_or(0.0));
    let mean = (sum / count.max(1.0) * 10.0).round() / 10.0;
    let data = json!({ "person": person, "day": day, "count": count, "mean": mean, "least": least, "most": most });
    Outgoing {
        type_: "health.report".into(),
        subject: Some(person.to_owned()),
        content_type: Some("application/json".into()),
        attributes: Vec::new(),
        data: data.to_string().into_bytes(),
        delay_ms: None,
        ttl_ms: None,
    }
}

fn refused(error: types::Error) -> Failure {
    match error {
        types::Error::Unavailable(why) => Failure::Retry(why),
        types::Error::Denied(why) | types::Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Report);
