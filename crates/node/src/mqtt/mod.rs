//! The MQTT gate in the node: messages become events of functions, and events of sinks become messages.
//!
//! In reading order: [`config`], [`event`], [`node`], [`sink`], [`crossing`].

mod config;
mod crossing;
mod event;
mod node;
mod sink;

pub use config::{Config, MqttArgs};
pub use crossing::{QUEUE as MQTT_QUEUE, cross};
pub use node::GateNode;
pub use sink::MqttSinks;

use crate::events::Events;
use budget::Budget;
use gate_mqtt::broker::{Counts, SessionInfo, View};
use gate_mqtt::{Bridge, BridgeCounts, Certificates, Gate, Listener, PublishError, Qos, Refused};
use problem::Problem;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The running gate: a broker, a bridge, or both.
pub struct Mqtt {
    gate: Option<Gate<GateNode>>,
    bridge: Option<Bridge>,
    following: Option<JoinHandle<()>>,
    /// Where the broker listens, plain and with TLS.
    pub addresses: Vec<(SocketAddr, bool)>,
}

impl Mqtt {
    /// Listens and connects, as configured.
    ///
    /// # Errors
    /// An address cannot be listened on, or what was kept cannot be read.
    pub fn start(
        config: &Config,
        certificates: Option<&Certificates>,
        node: &Arc<GateNode>,
        budget: &Arc<Budget>,
    ) -> Result<Arc<Self>, Problem> {
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for (address, certificates) in [(config.listen, None), (config.tls_listen, certificates)] {
            let Some(address) = address else { continue };
            let listener = Listener::bind(address, certificates)?;
            addresses.push((listener.address(), certificates.is_some()));
            listeners.push(listener);
        }
        let mut following = None;
        let gate = match listeners.is_empty() {
            true => None,
            false => Some(Gate::start(listeners, config.limits.clone(), config.users()?, node.clone(), budget)?),
        };
        let bridge = match &config.bridge {
            None => None,
            Some(bridge) => {
                let (wanted, filters) = watch::channel(Vec::new());
                following = Some(tokio::spawn(follow_filters(node.events().clone(), wanted)));
                Some(Bridge::start(bridge.clone(), node.clone(), filters)?)
            }
        };
        Ok(Arc::new(Self { gate, bridge, following, addresses }))
    }

    /// Publishes an event of a sink. Returns once it is confirmed: by our own disk, or by the outside broker.
    ///
    /// # Errors
    /// It was not published, or nobody knows.
    pub async fn publish(&self, view: View<'_>, retain: bool, client: &Arc<str>) -> Result<(), PublishError> {
        let refused = |refused| match refused {
            Refused::QueueFull(problem) => PublishError::Refused(problem),
            Refused::Unavailable(problem) => PublishError::Unavailable(problem),
        };
        match (&self.bridge, &self.gate) {
            (Some(bridge), _) => bridge.publish(view, retain).await,
            (None, Some(gate)) => gate.publish(view, retain, client).await.map_err(refused),
            (None, None) => Ok(()),
        }
    }

    /// The broker in the box, if there is one.
    pub fn gate(&self) -> Option<&Gate<GateNode>> {
        self.gate.as_ref()
    }

    /// Numbers for the metrics.
    pub fn counts(&self) -> (Option<Counts>, Option<BridgeCounts>) {
        (self.gate.as_ref().map(Gate::counts), self.bridge.as_ref().map(Bridge::counts))
    }

    /// All sessions of the broker.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.gate.as_ref().map(Gate::sessions).unwrap_or_default()
    }

    /// Ends a session of the broker. Says whether there was one.
    pub fn end_session(&self, user: Option<&str>, client: &str) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.end_session(user, client))
    }

    /// Tells clients and closes their connections; sessions stay.
    pub async fn drain(&self) {
        if let Some(gate) = &self.gate {
            gate.drain().await;
        }
    }
}

impl Drop for Mqtt {
    fn drop(&mut self) {
        self.following.iter().for_each(JoinHandle::abort);
    }
}

/// What the bridge is to subscribe to: the filters of all functions.
async fn follow_filters(events: Arc<Events>, wanted: watch::Sender<Vec<(String, Qos)>>) {
    let mut sources = events.sources();
    loop {
        let now = sources.borrow_and_update().clone();
        let mut filters: Vec<(String, Qos)> = Vec::new();
        for source in &now.mqtt {
            let qos = Qos::new(source.trigger.qos).unwrap_or_default();
            match filters.iter_mut().find(|(filter, _)| *filter == source.trigger.topic) {
                Some((_, known)) => *known = qos.max(*known),
                None => filters.push((source.trigger.topic.clone(), qos)),
            }
        }
        wanted.send_if_modified(|known| {
            let is_new = *known != filters;
            *known = filters;
            is_new
        });
        if sources.changed().await.is_err() {
            return;
        }
    }
}
