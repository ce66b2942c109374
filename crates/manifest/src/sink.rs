//! A sink: where the events of a queue leave the node, by HTTP or MQTT.

use crate::queue::Retry;
use crate::{Name, is_secret_name};
use problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Delivers each event of `queue` at least once. It has exactly one of `webhook` and `mqtt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    pub queue: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mqtt: Option<MqttSink>,
    #[serde(default)]
    pub retry: Retry,
}

/// An HTTP request for each event. A reply of 2xx acks it; 408, 425, 429 and 5xx lead to another try; any other makes a
/// dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// `http` or `https`. `{SECRET:NAME}` stands for a secret of the node.
    pub url: String,
    /// Headers sent with each request; `{SECRET:NAME}` as in the url.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub format: Format,
    /// How long one request may take, in milliseconds.
    #[serde(default = "ten_seconds")]
    #[schemars(range(min = 1, max = 600_000))]
    pub time_ms: u64,
    /// Requests at once.
    #[serde(default = "four")]
    #[schemars(range(min = 1, max = 1_000))]
    pub concurrency: u32,
}

const fn ten_seconds() -> u64 {
    10_000
}

const fn four() -> u32 {
    4
}

/// How an event becomes a request (CloudEvents 1.0, HTTP protocol binding).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The data as the body, the attributes as `ce-` headers.
    #[default]
    Binary,
    /// One JSON document.
    Structured,
    /// Only the data.
    Data,
}

/// A publish for each event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MqttSink {
    /// `{subject}` stands for the subject of the event.
    pub topic: String,
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 2))]
    pub qos: u8,
    #[serde(default)]
    pub retain: bool,
}

const fn one() -> u8 {
    1
}

impl Sink {
    pub(crate) fn check(&self, name: &Name) -> Result<(), Problem> {
        let bad = |what: String| Err(Problem::new(Code::ManifestValue, format!("sink {:?}: {what}", name.as_str())));
        self.retry.check(name)?;
        match (&self.webhook, &self.mqtt) {
            (Some(webhook), None) => webhook.check().or_else(bad),
            (None, Some(mqtt)) => mqtt.check().or_else(bad),
            _ => bad("write exactly one of webhook and mqtt".to_owned()),
        }
    }
}

impl Webhook {
    fn check(&self) -> Result<(), String> {
        if !self.url.starts_with("http://") && !self.url.starts_with("https://") && !self.url.starts_with("{SECRET:") {
            return Err(format!("webhook.url is {:?}, it must begin with http:// or https://", self.url));
        }
        if !(1..=600_000).contains(&self.time_ms) {
            return Err(format!("webhook.time_ms is {}, it must be between 1 and 600000", self.time_ms));
        }
        if !(1..=1_000).contains(&self.concurrency) {
            return Err(format!("webhook.concurrency is {}, it must be between 1 and 1000", self.concurrency));
        }
        for text in self.headers.values().chain([&self.url]) {
            if let Some(name) = secrets(text).find(|name| !is_secret_name(name)) {
                return Err(format!("webhook names the secret {name:?}: 1 to 64 of A-Z, a-z, 0-9 and '_'"));
            }
        }
        Ok(())
    }

    /// The secrets that url and headers name.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.headers.values().chain([&self.url]).flat_map(|text| secrets(text))
    }
}

/// The names in `{SECRET:NAME}`.
fn secrets(text: &str) -> impl Iterator<Item = &str> {
    text.split("{SECRET:").skip(1).map(|rest| rest.split('}').next().unwrap_or(rest))
}

impl MqttSink {
    fn check(&self) -> Result<(), String> {
        let topic = self.topic.replace("{subject}", "x");
        if topic.is_empty() || topic.len() > crate::trigger::TOPIC_BYTES_MAX || topic.contains(['+', '#', '\0']) {
            return Err(format!("mqtt.topic is {:?}, write a topic without + and #", self.topic));
        }
        if self.qos > 2 {
            return Err(format!("mqtt.qos is {}, it must be 0, 1 or 2", self.qos));
        }
        Ok(())
    }
}
