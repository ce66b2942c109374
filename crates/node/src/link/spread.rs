//! How the calls of one function are spread over the nodes that have it, and why.

use super::CallLink;
use super::offers::Offered;
use crate::Node;
use api_types::{FleetReason, FleetRule};
use fleet_link::{Neighbour, Undecided, Weighed};
use fleet_trust::NodeId;
use std::collections::BTreeSet;
use std::time::Instant;

/// See the top of this file.
pub struct Spread {
    pub rule: FleetRule,
    pub weighed: Weighed,
    /// Nodes that have a function of this name and get no call of it.
    pub others: Vec<(NodeId, FleetReason)>,
}

impl CallLink {
    /// Names of the functions here that other nodes can send calls to.
    pub fn offered_here(&self, node: &Node) -> Vec<String> {
        names(&self.seen(node).here)
    }

    /// The same of another node, as it has said.
    pub fn offered_by(&self, node: &NodeId) -> Vec<String> {
        self.link.local().others.lock().get(node).map(|offered| names(offered)).unwrap_or_default()
    }

    /// Those of them that keep nothing: here, or at another node that can be reached.
    pub fn copies_at(&self, node: &Node, other: Option<&NodeId>) -> Vec<String> {
        let stateless = |offered: &[Offered]| {
            let offered = offered.iter().filter(|one| one.is_stateless);
            offered.map(|one| one.name.as_str().to_owned()).collect()
        };
        match other {
            None => stateless(&self.seen(node).here),
            Some(other) if self.neighbour(other).is_none() => Vec::new(),
            Some(other) => {
                let others = self.link.local().others.lock();
                others.get(other).map(|offered| stateless(offered)).unwrap_or_default()
            }
        }
    }

    /// How a node was when it was last heard.
    pub fn neighbour(&self, node: &NodeId) -> Option<Neighbour> {
        self.link.neighbour(node)
    }

    /// None: nobody that was heard has the function.
    pub fn spread(&self, node: &Node, function: &str, bytes: u64) -> Option<Spread> {
        let seen = self.seen(node);
        let here = node.functions.table().entry(function).map(|entry| entry.live.clone());
        let truth = here.as_ref().map(|live| self.link.local().means.truth(node, live, Instant::now()));
        let offered = seen.here.iter().find(|one| one.name.as_str() == function);
        let same = seen.elsewhere.same(function);
        let far = seen.elsewhere.far(function);
        let (rule, nodes) = match (&here, offered, same, &far) {
            (Some(_), None, ..) => (FleetRule::NoRoute, Vec::new()),
            (Some(_), Some(own), ..) if !own.is_stateless => (FleetRule::KeepsHere, Vec::new()),
            (Some(_), Some(_), Some(same), _) => (FleetRule::Soonest, same.nodes.to_vec()),
            (Some(_), Some(_), None, _) => (FleetRule::OnlyHere, Vec::new()),
            (None, _, _, Some(far)) if far.is_stateless => (FleetRule::SoonestElsewhere, far.nodes.clone()),
            (None, _, _, Some(far)) => (FleetRule::KeepsElsewhere, far.nodes.clone()),
            (None, _, _, None) => return None,
        };
        let weighed = self.link.weigh(&Undecided { function, bytes, here: truth, nodes: &nodes });
        let hash = offered.map(|own| own.hash.as_str()).or(far.as_ref().map(|far| &*far.hash));
        let others = self.others(function, hash, &weighed, &nodes);
        Some(Spread { rule, weighed, others })
    }

    fn others(
        &self,
        function: &str,
        hash: Option<&str>,
        weighed: &Weighed,
        nodes: &[NodeId],
    ) -> Vec<(NodeId, FleetReason)> {
        let heard: BTreeSet<NodeId> = weighed.forecasts.iter().filter_map(|forecast| forecast.node).collect();
        let all = self.link.local().others.lock();
        let named = all.iter().filter_map(|(node, offered)| {
            let one = offered.iter().find(|one| one.name.as_str() == function)?;
            let reason = match () {
                () if heard.contains(node) => return None,
                () if nodes.contains(node) => FleetReason::NotHeard,
                () if hash != Some(one.hash.as_str()) => FleetReason::Different,
                () => FleetReason::Keeps,
            };
            Some((*node, reason))
        });
        named.collect()
    }
}

fn names(offered: &[Offered]) -> Vec<String> {
    offered.iter().map(|one| one.name.as_str().to_owned()).collect()
}
