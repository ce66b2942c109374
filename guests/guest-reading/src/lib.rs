//! What a sensor sent, checked: sensors leave fields out, send words for numbers, and values that cannot be.
//!
//! Whatever is wrong is said in one sentence, for the dead letter. The error is a `String`, since each function has a
//! `Failure` type of its own.

pub use serde_json::{Map, Value, json};

/// A JSON object and who sent it.
pub struct Reading {
    /// The level of the topic that names the sensor, or the room.
    pub device: String,
    fields: Map<String, Value>,
}

impl Reading {
    /// `topic` is the event's subject; `level` counts its parts from 0.
    pub fn new(topic: Option<&str>, level: usize, data: &[u8]) -> Result<Self, String> {
        let topic = topic.unwrap_or_default();
        let device = topic.split('/').nth(level).filter(|device| (1..=100).contains(&device.len()));
        let device = device.ok_or_else(|| format!("no device in the topic {topic:?}"))?.to_owned();
        match serde_json::from_slice(data) {
            Ok(Value::Object(fields)) => Ok(Self { device, fields }),
            Ok(_) => Err("the data is no JSON object".to_owned()),
            // JSON has no NaN, so a sensor that sends one ends here.
            Err(error) => Err(format!("the data is no JSON: {error}")),
        }
    }

    pub fn field(&self, name: &str) -> Result<&Value, String> {
        self.fields.get(name).ok_or_else(|| format!("{name} is missing"))
    }

    /// A number from `least` to `most`: beyond them the sensor is broken.
    pub fn number(&self, name: &str, least: f64, most: f64) -> Result<f64, String> {
        number(name, self.field(name)?, least, most)
    }

    pub fn whole(&self, name: &str, least: u64, most: u64) -> Result<u64, String> {
        let value = self.field(name)?;
        let number = value.as_u64().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("{name} is {value}, it should be a whole number from {least} to {most}"))
    }

    pub fn boolean(&self, name: &str) -> Result<bool, String> {
        let value = self.field(name)?;
        value.as_bool().ok_or_else(|| format!("{name} is {value}, it should be true or false"))
    }

    /// The unit a sensor was set to by somebody may not be the one that is expected.
    pub fn unit(&self, expected: &str) -> Result<(), String> {
        match self.field("unit")? {
            Value::String(unit) if unit == expected => Ok(()),
            unit => Err(format!("unit is {unit}, it should be {expected:?}")),
        }
    }
}

/// JSON that this function or another has written.
pub fn parsed(data: &[u8]) -> Option<Value> {
    serde_json::from_slice(data).ok()
}

/// A number from `least` to `most`, called `name` where it is not.
pub fn number(name: &str, value: &Value, least: f64, most: f64) -> Result<f64, String> {
    let number = value.as_f64().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{name} is {value}, it should be a number from {least} to {most}"))
}

/// Milliseconds since 1970 of `2026-11-21T08:00:00Z`, which is also taken with a space and without the Z.
pub fn time_ms(value: &Value) -> Result<u64, String> {
    let bad = || format!("{value} is no time like \"2026-11-21T08:00:00Z\"");
    let text = value.as_str().ok_or_else(bad)?.trim_end_matches('Z');
    let (date, time) = text.split_once(['T', ' ']).ok_or_else(bad)?;
    let part = |text: Option<&str>, least: u64, most: u64| {
        let number: Option<u64> = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok();
        number.filter(|number| (least..=most).contains(number))
    };
    let (mut date, mut time) = (date.split('-'), time.split(':'));
    let mut day = || Some((part(date.next(), 1970, 2999)?, part(date.next(), 1, 12)?, part(date.next(), 1, 31)?));
    let mut clock = || Some((part(time.next(), 0, 23)?, part(time.next(), 0, 59)?, part(time.next(), 0, 60)?));
    let ((year, month, day), (hour, minute, second)) = (day().ok_or_else(bad)?, clock().ok_or_else(bad)?);
    Ok((((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * 1_000)
}

/// Days since 1970-01-01, in the Gregorian calendar. Years are counted from March, so that the leap day is the last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month < 3 { year - 1 } else { year };
    let month = (month + 9) % 12;
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 306 + 5) / 10 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(data: &str) -> Result<Reading, String> {
        Reading::new(Some("home/hall/motion"), 1, data.as_bytes())
    }

    #[test]
    fn what_sensors_get_wrong_is_said() {
        let good = reading(r#"{"a": 1.5, "n": 3, "b": true, "unit": "ppm", "word": "NaN", "huge": 1e300}"#).unwrap();
        assert_eq!((good.device.as_str(), good.number("a", 0.0, 2.0), good.whole("n", 0, 3)), ("hall", Ok(1.5), Ok(3)));
        assert_eq!((good.boolean("b"), good.unit("ppm")), (Ok(true), Ok(())));
        assert!(good.number("word", 0.0, 2.0).unwrap_err().contains("NaN"));
        assert!(good.number("huge", 0.0, 2.0).unwrap_err().contains("from 0 to 2"));
        assert!(good.number("none", 0.0, 2.0).unwrap_err().contains("missing"));
        assert!(good.whole("a", 0, 3).is_err() && good.boolean("n").is_err() && good.unit("ppb").is_err());
        for bad in ["", "NaN", "[1]", r#"{"a": NaN}"#, r#"{"a": 1"#] {
            assert!(reading(bad).is_err(), "{bad}");
        }
        assert!(Reading::new(None, 1, b"{}").is_err());
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let ms = |text: &str| time_ms(&Value::from(text));
        assert_eq!(ms("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(ms("2000-02-29 12:00:00"), Ok(951_825_600_000));
        assert_eq!(ms("2026-11-21T08:00:00Z"), Ok(1_795_248_000_000));
        for bad in ["", "2026-13-01T00:00:00Z", "2026-11-21", "0000-00-00T00:00:00Z", "2026-11-21T25:00:00Z", "x"] {
            assert!(ms(bad).is_err(), "{bad}");
        }
    }
}
