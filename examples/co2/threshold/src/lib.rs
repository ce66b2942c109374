//! Bad air becomes an alert: takes the readings of a Smart Citizen Kit, sends each to the queue `log`, and one to
//! `alerts` when a sensor goes over the limit, another when it is below it again. `config.sensor` says which, CO2 where it
//! says nothing; `config.log = "no"` leaves the log to another workflow that takes the same readings.
//!
//! ```json
//! {"data": [{"recorded_at": "2026-11-21T08:00:00Z", "sensors": [{"id": 158, "value": 412.5}, …]}],
//!  "slack": {"organisation": "lab", "channel": "#air"}}
//! ```
//! `slack` says who is told; it may be left out, and so may each of its two. The alert passes it on.
//! A message may hold several readings, a kit that was offline sends them late and twice. Each reading is logged; only one
//! that is newer than all before it can change the alarm. A message with anything wrong in it is a dead letter, whole.

wit_bindgen::generate!({ world: "lighter:unit/function", path: "../../../contracts/wit", generate_all });

use exports::lighter::unit::handler::{Event, Failure, Guest};
use guest_reading::{Reading, Value, json, number, time_ms};
use lighter::unit::queue::{self, Outgoing};
use lighter::unit::{config, store, types};

/// The sensors of a kit: id, name, and what it can measure at all.
const SENSORS: [(u64, &str, f64, f64); 3] =
    [(158, "co2_ppm", 250.0, 40_000.0), (55, "temperature_c", -40.0, 85.0), (53, "noise_dba", 20.0, 140.0)];
const SENSOR_DEFAULT: &str = "co2_ppm";

/// Letters of the name of an organisation or a channel.
const NAME_MAX: usize = 80;

/// Readings of one message.
const READINGS_MAX: usize = 1_000;

/// How far the clock of a kit may be ahead.
const AHEAD_MS: u64 = 86_400_000;

struct Threshold;

struct Measured {
    time_ms: u64,
    /// Of the sensor that is watched.
    value: f64,
    /// As it is logged.
    values: Value,
}

impl Guest for Threshold {
    fn handle(event: Event) -> Result<Vec<u8>, Failure> {
        let message = Reading::new(event.subject.as_deref(), 2, &event.data).map_err(Failure::Invalid)?;
        let sensor = config::get("sensor").unwrap_or_else(|| SENSOR_DEFAULT.to_owned());
        let (bucket, unit) =
            sensor.split_once('_').ok_or_else(|| Failure::Fatal("config.sensor has no unit".into()))?;
        let readings = message.field("data").and_then(|data| measured(data, &sensor, event.time_ms));
        let readings = readings.map_err(Failure::Invalid)?;
        let slack = message.field("slack").ok().map(named).transpose().map_err(Failure::Invalid)?;
        let kit = message.device;
        let (limit, clear) = (configured(&format!("limit_{unit}"))?, configured(&format!("clear_{unit}"))?);

        let (mut newest_ms, mut alarm) = known(bucket, &kit)?;
        let mut alerts = Vec::new();
        for reading in &readings {
            if newest_ms.is_some_and(|newest_ms| reading.time_ms <= newest_ms) {
                continue;
            }
            newest_ms = Some(reading.time_ms);
            let alarm_now = reading.value >= if alarm { clear } else { limit };
            if alarm_now != alarm {
                alarm = alarm_now;
                let state = if alarm { "high" } else { "normal" };
                let limit = if alarm { limit } else { clear };
                let mut alert = json!({ "kit": kit, "state": state, "time_ms": reading.time_ms });
                alert[&sensor] = reading.value.into();
                alert[format!("limit_{unit}")] = limit.into();
                if let Some(slack) = &slack {
                    alert["slack"] = slack.clone();
                }
                alerts.push(outgoing("co2.alert", &kit, &alert));
            }
        }
        if let Some(newest_ms) = newest_ms {
            store::set(bucket, &kit, format!("{newest_ms} {alarm}").as_bytes()).map_err(refused)?;
        }
        queue::push_all("alerts", &alerts).map_err(refused)?;
        if config::get("log").as_deref() == Some("no") {
            return Ok(Vec::new());
        }
        let log: Vec<_> = readings.iter().map(|reading| outgoing("co2.reading", &kit, &reading.values)).collect();
        queue::push_all("log", &log).map_err(refused)?;
        Ok(Vec::new())
    }
}

/// The readings, oldest first.
fn measured(data: &Value, sensor: &str, now_ms: u64) -> Result<Vec<Measured>, String> {
    let readings = data.as_array().filter(|readings| (1..=READINGS_MAX).contains(&readings.len()));
    let readings = readings.ok_or_else(|| format!("data should be a list of 1 to {READINGS_MAX} readings"))?;
    let mut readings: Vec<Measured> =
        readings.iter().map(|reading| one(reading, sensor, now_ms)).collect::<Result<_, _>>()?;
    readings.sort_by_key(|reading| reading.time_ms);
    Ok(readings)
}

fn one(reading: &Value, watched: &str, now_ms: u64) -> Result<Measured, String> {
    let time_ms = time_ms(reading.get("recorded_at").ok_or("recorded_at is missing")?)?;
    if time_ms > now_ms + AHEAD_MS {
        return Err("recorded_at is in the future: the clock of the kit is wrong".to_owned());
    }
    let mut values = json!({ "time_ms": time_ms });
    for sensor in reading.get("sensors").and_then(Value::as_array).ok_or("sensors is missing")? {
        let id = sensor.get("id").and_then(Value::as_u64).ok_or("a sensor has no id")?;
        // Kits have dozens of sensors; those that nobody here knows are left out.
        if let Some((_, name, least, most)) = SENSORS.iter().find(|(known, ..)| *known == id) {
            let value = sensor.get("value").ok_or_else(|| format!("{name} has no value"))?;
            values[*name] = number(name, value, *least, *most)?.into();
        }
    }
    let value = values.get(watched).and_then(Value::as_f64).ok_or_else(|| format!("sensors has no {watched}"))?;
    Ok(Measured { time_ms, value, values })
}

/// Who is told: an organisation and a channel, of which each may be missing.
fn named(slack: &Value) -> Result<Value, String> {
    let fields = slack.as_object().ok_or_else(|| format!("slack is {slack}, it should be an object"))?;
    for (name, value) in fields {
        let is_name = value.as_str().is_some_and(|text| (1..=NAME_MAX).contains(&text.len()));
        if !["organisation", "channel"].contains(&name.as_str()) || !is_name {
            return Err(format!(
                "slack.{name} is {value}, it should be organisation or channel, a text of 1 to {NAME_MAX} bytes"
            ));
        }
    }
    Ok(slack.clone())
}

/// When the newest reading of a kit was made, and whether it was over the limit.
fn known(bucket: &str, kit: &str) -> Result<(Option<u64>, bool), Failure> {
    let value = store::get(bucket, kit).map_err(refused)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&value);
    let (newest_ms, alarm) = text.split_once(' ').unwrap_or_default();
    Ok((newest_ms.parse().ok(), alarm == "true"))
}

fn configured(name: &str) -> Result<f64, Failure> {
    let value = config::get(name).and_then(|value| value.parse().ok());
    value.ok_or_else(|| Failure::Fatal(format!("config.{name} is not set to a number")))
}

fn outgoing(kind: &str, kit: &str, data: &Value) -> Outgoing {
    Outgoing {
        type_: kind.into(),
        subject: Some(kit.to_owned()),
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

export!(Threshold);
