//! Tells the other nodes what is wanted here, whenever that has changed; forgets retained messages that are not.

use super::letter::of_wanted;
use super::wanted::Wanted;
use crate::Node;
use crate::events::{Duty, sources_of};
use crate::functions::Table;
use crate::mail::{Mail, household};
use fleet_trust::NodeId;
use gate_mqtt::Qos;
use gate_mqtt::broker::{Filters, View};
use problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// How often it is looked whether something has changed.
const PERIOD: Duration = Duration::from_millis(100);
/// Nodes that are told. In a larger fleet the others hear nothing of what is wanted here.
const NODES_MAX: usize = 1_000;

/// What is wanted here, and who has been told.
#[derive(Default)]
struct Teller {
    wanted: Wanted,
    /// Counts the forms of `wanted`, from 1.
    version: u64,
    told: BTreeMap<NodeId, u64>,
    filters: BTreeSet<String>,
    /// When the filters were so.
    changes: Option<u64>,
    table: Weak<Table>,
}

pub async fn keep_telling(node: Weak<Node>) {
    let mut teller = Teller::default();
    loop {
        sleep(PERIOD).await;
        let Some(node) = node.upgrade() else { return };
        // Until the gate has started nobody knows what its sessions have subscribed to.
        let is_ready = node.config.mqtt.is_none() || node.mqtt.get().is_some();
        let Some(mail) = node.events.mail().filter(|_| is_ready) else { continue };
        if teller.look(&node) {
            forget_copies(&node, &teller.wanted);
        }
        teller.tell_all(&node, &mail);
    }
}

impl Teller {
    /// Whether something else is wanted than before.
    fn look(&mut self, node: &Node) -> bool {
        let gate = node.mqtt.get().and_then(|mqtt| mqtt.gate());
        let filters = gate.and_then(|gate| gate.filters(self.changes));
        let table = node.events.table();
        let is_same = filters.is_none() && Weak::as_ptr(&self.table) == Arc::as_ptr(&table);
        if is_same && self.version > 0 {
            return false;
        }
        if let Some((changes, filters)) = filters {
            self.changes = Some(changes);
            self.filters = filters;
        }
        self.table = Arc::downgrade(&table);
        let wanted = Wanted::new(self.filters.clone(), triggers(node, &table));
        let is_new = wanted != self.wanted || self.version == 0;
        if is_new {
            self.wanted = wanted;
            self.version += 1;
        }
        is_new
    }

    fn tell_all(&mut self, node: &Node, mail: &Mail) {
        let members = mail.members();
        if let Err(problem) = node.gate_node.far.forget_others(node.events.state(), |node| !mail.is_out(node)) {
            tracing::debug!(%problem, "what a node wanted that is gone is forgotten later");
        }
        if self.wanted.is_empty() && !node.gate_node.far.has_told() {
            return;
        }
        self.told.retain(|node, _| members.contains(node));
        for member in members.into_iter().take(NODES_MAX) {
            let knows = self.told.get(&member) == Some(&self.version);
            if knows || mail.is_behind(&member) {
                continue;
            }
            match self.tell(node, mail, member) {
                Ok(()) => _ = self.told.insert(member, self.version),
                Err(problem) => tracing::debug!(node = %member, %problem, "it is told later what is wanted here"),
            }
        }
    }

    fn tell(&self, node: &Node, mail: &Mail, to: NodeId) -> Result<(), Problem> {
        let id = node.gate_node.next_id();
        let letter = of_wanted(&id, &self.wanted)
            .map_err(|error| Problem::new(problem::Code::Internal, format!("what is wanted here: {error}")))?;
        let letters = [(household(&to), letter)];
        let posted = mail.post_with(&letters, |more| {
            let mut transaction = node.events.state().begin();
            more(&mut transaction)?;
            node.gate_node.far.keep_told(&mut transaction)?;
            Ok::<_, Problem>(transaction.commit()?)
        });
        let full = |error| Problem::new(problem::Code::MailWaits, format!("{error}"));
        let _ticket = posted.map_err(|error: ::mail::PushError| full(error))??;
        node.gate_node.far.set_told();
        Ok(())
    }
}

/// Triggers whose events are handled here.
fn triggers(node: &Node, table: &Table) -> BTreeSet<(String, String)> {
    let sources = sources_of(table, None).mqtt.into_iter();
    let here = sources.filter(|source| !matches!(node.events.duty(&source.queue), Some(Duty::Send(..))));
    here.map(|source| (source.queue.to_string(), source.trigger.topic.clone())).collect()
}

/// Forgets retained messages of other nodes that nobody here subscribes to: nobody would tell how they change.
fn forget_copies(node: &Node, wanted: &Wanted) {
    let far = &node.gate_node.far;
    let copies = far.copies();
    let Some(gate) = node.mqtt.get().and_then(|mqtt| mqtt.gate()).filter(|_| !copies.is_empty()) else { return };
    let filters = Filters::new(wanted.filters.iter().map(|filter| (filter.as_str(), 0)));
    for topic in copies.iter().filter(|topic| filters.matches(topic).is_empty()) {
        let nothing = View { topic, payload: &[], lasting: &[], qos: Qos::AtMostOnce, expires_ms: None };
        if let Err(refused) = gate.publish_soon(nothing, true, &far.nobody) {
            tracing::warn!(topic, problem = %refused.problem(), "a retained message of another node stays");
        }
    }
}
