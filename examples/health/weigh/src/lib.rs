//! A weight becomes progress: `health/PERSON/weight` with `{"time": "2026-11-21T08:00:00Z", "weight": 71.5, "unit": "kg"}`
//! pushes what the last day, week and month weigh, and how much that is more than the ones before them.
//!
//! A day weighs what was measured last on it; a week and a month, the mean of their days. Days are those of UTC. What
//! comes twice or late changes nothing that it should not: of a day the latest measurement counts, and a measurement
//! that is known already is left out. Sixty days are kept, in one value, so that one is a read and a write.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use guest_reading::{Reading, Value, json, time_ms};
use lighter::unit::queue::{self, Outgoing};
use lighter::unit::{store, types};
use std::collections::BTreeMap;

const BUCKET: &str = "health-weights";
const DAY_MS: u64 = 86_400_000;

/// Kilograms of a person.
const WEIGHT: (f64, f64) = (1.0, 500.0);

/// What is told, and the days of each.
const SPANS: [(&str, u64); 3] = [("day", 1), ("week", 7), ("month", 30)];

/// Twice the longest span.
const DAYS_KEPT: u64 = 60;

/// When the last weight of a day was measured, and what it was, by day.
type Days = BTreeMap<u64, (u64, f64)>;

struct Weigh;

impl Guest for Weigh {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let reading = Reading::new(event.subject.as_deref(), 1, &event.data).map_err(Failure::Invalid)?;
        let time_ms = reading.field("time").and_then(time_ms).map_err(Failure::Invalid)?;
        if time_ms > event.time_ms + DAY_MS {
            return Err(Failure::Invalid("time is in the future: the clock of the scales is wrong".into()));
        }
        reading.unit("kg").map_err(Failure::Invalid)?;
        let weight = reading.number("weight", WEIGHT.0, WEIGHT.1).map_err(Failure::Invalid)?;
        let person = reading.device;

        let kept = store::get(BUCKET, &person).map_err(refused)?.unwrap_or_default();
        let mut days = read(&String::from_utf8_lossy(&kept));
        let day = time_ms / DAY_MS;
        let newest = days.last_key_value().map_or(day, |(newest, _)| day.max(*newest));
        let is_known = days.get(&day).is_some_and(|(known_ms, _)| *known_ms >= time_ms);
        if is_known || newest - day >= DAYS_KEPT {
            return Ok(b"known".to_vec());
        }
        days.insert(day, (time_ms, weight));
        days.retain(|day, _| newest - day < DAYS_KEPT);
        store::set(BUCKET, &person, written(&days).as_bytes()).map_err(refused)?;
        queue::push("progress", &progress(&person, newest, &days)).map_err(refused)?;
        Ok(Vec::new())
    }
}

/// The progress up to a day.
fn progress(person: &str, until: u64, days: &Days) -> Outgoing {
    let mut said = json!({ "person": person, "last_day": until });
    for (name, length) in SPANS {
        // Of the days (end - length, end].
        let mean = |end: u64| -> Option<f64> {
            let first = (end + 1).saturating_sub(length);
            let weights: Vec<f64> = days.range(first..=end).map(|(_, (_, weight))| *weight).collect();
            (!weights.is_empty()).then(|| weights.iter().sum::<f64>() / weights.len() as f64)
        };
        let (now, before) = (mean(until), until.checked_sub(length).and_then(mean));
        let change = now.zip(before).map(|(now, before)| rounded(now - before));
        said[name] = json!({ "weight": now.map(rounded), "before": before.map(rounded), "change": change });
    }
    Outgoing {
        type_: "health.progress".into(),
        subject: Some(person.to_owned()),
        content_type: Some("application/json".into()),
        attributes: Vec::new(),
        data: said.to_string().into_bytes(),
        delay_ms: None,
        ttl_ms: None,
    }
}

/// To tens of grams, as scales have it.
fn rounded(kg: f64) -> Value {
    Value::from((kg * 100.0).round() / 100.0)
}

/// Lines of `day time_ms weight`.
fn read(text: &str) -> Days {
    let line = |line: &str| {
        let mut parts = line.split(' ');
        let day = parts.next()?.parse().ok()?;
        Some((day, (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?)))
    };
    text.lines().filter_map(line).collect()
}

fn written(days: &Days) -> String {
    days.iter().map(|(day, (time_ms, weight))| format!("{day} {time_ms} {weight}\n")).collect()
}

fn refused(error: types::Error) -> Failure {
    match error {
        types::Error::Unavailable(why) => Failure::Retry(why),
        types::Error::Denied(why) | types::Error::Invalid(why) => Failure::Fatal(why),
    }
}

export!(Weigh);
