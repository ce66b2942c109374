//! What makes events for a function: MQTT messages, the clock. They go into the queue the function handles.

use crate::{Name, Span};
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// Bytes of an MQTT topic or topic filter (MQTT 5.0, 4.7.3, allows 65,535).
pub const TOPIC_BYTES_MAX: usize = 1_024;

/// Shortest `every`.
pub const EVERY_MIN: Duration = Duration::from_millis(100);

/// Messages published under a topic that `topic` matches become events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MqttTrigger {
    /// A topic filter: `meter/7/power`, `meter/+/power`, `meter/#`.
    pub topic: String,
    /// Highest quality of service that is asked for. A message of 1 or 2 is confirmed once its event is durable.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 2))]
    pub qos: u8,
}

const fn one() -> u8 {
    1
}

impl MqttTrigger {
    pub(crate) fn check(&self, name: &Name) -> Result<(), Problem> {
        if !is_topic_filter(&self.topic) {
            let detail = format!(
                "mqtt.topic is {:?}, write a topic filter of at most {TOPIC_BYTES_MAX} bytes, where + stands for one level and \
                 # at the end for all below",
                self.topic
            );
            return Err(bad(name, detail));
        }
        if self.qos > 2 {
            return Err(bad(name, format!("mqtt.qos is {}, it must be 0, 1 or 2", self.qos)));
        }
        Ok(())
    }
}

/// Whether this is a topic filter (MQTT 5.0, 4.7), without `$share`.
pub fn is_topic_filter(text: &str) -> bool {
    let levels: Vec<&str> = text.split('/').collect();
    !text.is_empty()
        && text.len() <= TOPIC_BYTES_MAX
        && !text.contains('\0')
        && !text.starts_with("$share/")
        && levels.iter().enumerate().all(|(place, level)| match *level {
            "+" => true,
            "#" => place + 1 == levels.len(),
            level => !level.contains(['+', '#']),
        })
}

/// The clock makes events: at a steady pace or by a calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CronTrigger {
    /// Five fields, `minute hour day month weekday`, or six with seconds first: `0 7 * * mon-fri`.
    pub schedule: String,
    /// Name of the time zone in the IANA database.
    #[serde(default = "utc")]
    pub zone: String,
    #[serde(default)]
    pub catch_up: CatchUp,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A steady pace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EveryTrigger {
    /// At least `100ms`.
    pub period: Span,
    #[serde(default)]
    pub catch_up: CatchUp,
}

/// What happens to the times that passed while the node was down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CatchUp {
    /// They are left out.
    Skip,
    /// One event stands for all of them.
    #[default]
    One,
    /// Each makes an event, the oldest first, at most 1,000.
    All,
}

impl EveryTrigger {
    pub(crate) fn check(&self, name: &Name) -> Result<(), Problem> {
        if self.period.duration() < EVERY_MIN {
            return Err(bad(name, format!("every is {}, the least is {}", self.period, Span::from_ms(100))));
        }
        Ok(())
    }
}

fn bad(name: &Name, what: String) -> Problem {
    Problem::new(Code::ManifestValue, format!("function {:?}: {what}", name.as_str()))
}

/// One, or a list; each a text alone or a table.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write a text, a table, or a list of these")]
#[schemars(inline)]
pub(crate) enum Written<Table> {
    Text(String),
    // Before the table: serde also reads a table from a list of its values, and a list of texts is none.
    Many(Vec<TextOrTable<Table>>),
    Table(Table),
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write a text or a table")]
#[schemars(inline)]
pub(crate) enum TextOrTable<Table> {
    Text(String),
    Table(Table),
}

fn read<'de, D, Table>(
    deserializer: D,
    from_text: impl Fn(String) -> Result<Table, String>,
) -> Result<Vec<Table>, D::Error>
where
    D: Deserializer<'de>,
    Table: Deserialize<'de>,
{
    let each = |written| match written {
        TextOrTable::Text(text) => from_text(text).map_err(serde::de::Error::custom),
        TextOrTable::Table(table) => Ok(table),
    };
    match Written::deserialize(deserializer)? {
        Written::Text(text) => Ok(vec![each(TextOrTable::Text(text))?]),
        Written::Table(table) => Ok(vec![table]),
        Written::Many(many) => many.into_iter().map(each).collect(),
    }
}

pub(crate) fn mqtt<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MqttTrigger>, D::Error> {
    read(deserializer, |topic| Ok(MqttTrigger { topic, qos: one() }))
}

pub(crate) fn cron<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<CronTrigger>, D::Error> {
    read(deserializer, |schedule| Ok(CronTrigger { schedule, zone: utc(), catch_up: CatchUp::default() }))
}

pub(crate) fn every<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<EveryTrigger>, D::Error> {
    read(deserializer, |text| Ok(EveryTrigger { period: Span::try_from(text)?, catch_up: CatchUp::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_filters_are_those_of_the_standard() {
        for good in ["a", "/", "a/b", "+", "#", "a/+/c", "a/#", "+/+", "/a", "$SYS/#", "a b/ä"] {
            assert!(is_topic_filter(good), "{good}");
        }
        for bad in ["", "a+", "a/#/b", "a#", "+a/b", "a\0b", "$share/g/a", &"a".repeat(1_025)] {
            assert!(!is_topic_filter(bad), "{bad:?}");
        }
    }
}
