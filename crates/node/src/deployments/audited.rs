//! What an anchor writes into its audit of deployments: orders, steps, and copies that come and go.

use super::Deployments;
use crate::{blocking, clock};
use api_types::AuditEntry;
use fleet_deploy::{Placed, Record};
use fleet_trust::NodeId;
use std::collections::{BTreeMap, BTreeSet};

impl Deployments {
    /// Writes into the audit of the anchor who had what deployed.
    pub(super) async fn audit(&self, action: &str, record: &Record, from: Option<NodeId>) {
        let what =
            if record.manifest.is_some() { format!("revision {}", record.revision) } else { "nothing".to_owned() };
        self.keep_audit(AuditEntry {
            time_ms: clock::now_ms(),
            action: action.to_owned(),
            token: Some(format!("deployer {}", record.deployer)),
            peer: from.map(|from| format!("node {from}")),
            target: format!("{} {what}", record.name),
            outcome: "done".to_owned(),
            count: 1,
        })
        .await;
    }

    /// Writes there which copies have come and gone by the anchor's own decision, and why: a line for each group of
    /// functions whose copies have other nodes than before.
    pub(super) async fn audit_copies(&self, before: &Record, next: &Record, why: &str) {
        let names = self.candidates().into_iter().map(|one| (one.node, one.name)).collect();
        for moved in moves(before, next, &names) {
            self.keep_audit(AuditEntry {
                time_ms: clock::now_ms(),
                action: "fleet copies".to_owned(),
                token: None,
                peer: None,
                target: format!("{} {moved}, {why}", next.name),
                outcome: "done".to_owned(),
                count: 1,
            })
            .await;
        }
    }

    /// It tells of its own failure.
    async fn keep_audit(&self, entry: AuditEntry) {
        let Ok(node) = self.node() else { return };
        let keep = move || {
            node.audit.keep(entry);
            Ok(())
        };
        blocking(keep).await.ok();
    }
}

/// The groups whose copies have other nodes than before, as `plate: 2 copies, comes to pi-8`.
fn moves(before: &Record, next: &Record, names: &BTreeMap<NodeId, String>) -> Vec<String> {
    let named = |nodes: &[&NodeId]| {
        let named = nodes.iter().map(|node| names.get(*node).cloned().unwrap_or_else(|| node.to_string()));
        named.collect::<Vec<_>>().join(", ")
    };
    let moved = |placed: &Placed| {
        let earlier = before.places.iter().find(|earlier| earlier.group.functions == placed.group.functions)?;
        let (none, nodes) = (BTreeSet::new(), placed.nodes.as_ref()?);
        let earlier = earlier.nodes.as_ref().unwrap_or(&none);
        let [come, leave] =
            [(nodes, earlier), (earlier, nodes)].map(|(of, not)| of.difference(not).collect::<Vec<_>>());
        if come.is_empty() && leave.is_empty() {
            return None;
        }
        let functions: Vec<&str> = placed.group.functions.iter().map(|name| name.as_str()).collect();
        let copies = if nodes.len() == 1 { "one copy".to_owned() } else { format!("{} copies", nodes.len()) };
        let mut words = format!("{}: {copies}", functions.join(" and "));
        for (word, nodes) in [("comes to", come), ("leaves", leave)] {
            if !nodes.is_empty() {
                words += &format!(", {word} {}", named(&nodes));
            }
        }
        Some(words)
    };
    next.places.iter().filter_map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_deploy::groups::PartGroup;

    #[test]
    fn it_is_said_which_copies_come_and_go() {
        let [one, two, three] = [1, 2, 3].map(|number| NodeId([number; 16]));
        let names = BTreeMap::from([(one, "pi-7".to_owned()), (two, "pi-8".to_owned())]);
        let record = |all: &[(&str, Option<Vec<NodeId>>)]| {
            let placed = |(function, nodes): &(&str, Option<Vec<NodeId>>)| Placed {
                group: PartGroup { functions: [function.parse().unwrap()].into(), ..PartGroup::default() },
                nodes: nodes.as_ref().map(|nodes| nodes.iter().copied().collect()),
                round_trips_us: BTreeMap::new(),
                scaled: None,
            };
            Record {
                fleet: String::new(),
                name: "app".parse().unwrap(),
                serial: 1,
                revision: 1,
                last: 1,
                deployer: "local".to_owned(),
                made_at: 1,
                manifest: None,
                places: all.iter().map(placed).collect(),
                underway: None,
                returned: None,
            }
        };
        let before = record(&[("plate", Some(vec![one])), ("sum", Some(vec![one])), ("all", None)]);
        assert_eq!(moves(&before, &before, &names), Vec::<String>::new());
        let more = record(&[("plate", Some(vec![one, two, three])), ("sum", Some(vec![one])), ("all", None)]);
        assert_eq!(moves(&before, &more, &names), [format!("plate: 3 copies, comes to pi-8, {three}")]);
        let other = record(&[("plate", Some(vec![two])), ("sum", Some(vec![one])), ("all", None)]);
        assert_eq!(moves(&before, &other, &names), ["plate: one copy, comes to pi-8, leaves pi-7"]);
    }
}
