//! Sinks that publish: to the broker in the box, or, where there is a bridge, to the outside broker.

use super::Mqtt;
use super::event::to_message;
use crate::events::{Consumer, Outcome, SinkKind, Tried};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gate_mqtt::broker::View;
use gate_mqtt::{PublishError, Qos};
use manifest::{MqttSink, Name, Retry, Sink};
use problem::{Code, Problem};
use state::Leased;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a publish may wait for its confirmation.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Publishes of one sink at once: with QoS 1 and 2 each waits for its confirmation.
const WORKERS_MAX: u32 = 16;

/// How long the queue rests while there is nowhere to publish to.
const REST: Duration = Duration::from_secs(2);

/// The kind. The gate is put in when it has started.
#[derive(Default)]
pub struct MqttSinks {
    gate: Arc<OnceLock<Arc<Mqtt>>>,
    is_configured: bool,
}

impl MqttSinks {
    pub fn new(is_configured: bool) -> Self {
        Self { gate: Arc::default(), is_configured }
    }

    /// Where sinks publish from now on.
    pub fn set_gate(&self, gate: Arc<Mqtt>) {
        self.gate.set(gate).ok();
    }
}

impl SinkKind for MqttSinks {
    fn takes(&self, sink: &Sink) -> bool {
        sink.mqtt.is_some()
    }

    fn check(&self, name: &Name, _sink: &Sink) -> Result<(), Problem> {
        if self.is_configured {
            return Ok(());
        }
        let detail = format!("sink {:?} publishes by MQTT, and this node has no MQTT gate", name.as_str());
        Err(Problem::new(Code::ManifestValue, detail).with_hint("start the node with --mqtt 127.0.0.1:1883"))
    }

    fn open(&self, name: &Name, sink: &Arc<Sink>) -> Arc<dyn Consumer> {
        let client = Arc::from(format!("$sink/{}", name.as_str()));
        Arc::new(Publisher { gate: self.gate.clone(), sink: sink.clone(), client })
    }
}

struct Publisher {
    gate: Arc<OnceLock<Arc<Mqtt>>>,
    sink: Arc<Sink>,
    /// Who publishes, in logs and events.
    client: Arc<str>,
}

impl Consumer for Publisher {
    fn time_max(&self) -> Duration {
        TIME_MAX
    }

    fn workers_max(&self) -> u32 {
        WORKERS_MAX
    }

    fn retry(&self) -> &Retry {
        &self.sink.retry
    }

    fn handle(self: Arc<Self>, leased: Arc<Leased>) -> BoxFuture<'static, Tried> {
        async move { self.publish(&leased).await.into() }.boxed()
    }
}

impl Publisher {
    async fn publish(&self, leased: &Leased) -> Outcome {
        let (Some(gate), Some(MqttSink { topic, qos, retain })) = (self.gate.get(), &self.sink.mqtt) else {
            let problem = Problem::new(Code::SinkFailed, "the MQTT gate has not started");
            return Outcome::Postponed { problem, after: Some(REST) };
        };
        let (topic, lasting) = match to_message(&leased.event, topic) {
            Ok(made) => made,
            Err(problem) => return Outcome::Dead(problem),
        };
        let qos = Qos::new(*qos).unwrap_or_default();
        let view = View { topic: &topic, payload: &leased.event.data, lasting: &lasting, qos, expires_ms: None };
        match gate.publish(view, *retain, &self.client).await {
            Ok(()) => Outcome::Done,
            Err(PublishError::Refused(problem)) => Outcome::Retry { problem, after: None },
            Err(PublishError::Unavailable(problem)) => Outcome::Postponed { problem, after: Some(REST) },
        }
    }
}
