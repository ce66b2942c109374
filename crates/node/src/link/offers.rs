//! What a node tells the others that it has, and what it makes of what they tell: pure.
//!
//! ```text
//!   functions here ─▶ Offered, as JSON ══ link ══▶ Others ─▶ routes of functions that are not here
//!                                                          └──▶ who has the very same function as one here
//! ```
//! Two functions are the same if manifest and image are: then a call may run at either, if the function keeps nothing.
//! What is here comes before what is elsewhere. Of functions elsewhere with one name, that which most nodes have
//! counts. Of one that keeps something, the node with the least id counts: it has to be the same one for every caller.

use crate::functions::Table;
use fleet_trust::NodeId;
use gate_http::RouteTable;
use http::Request;
use manifest::{Function, HttpTrigger, Name};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Functions that are believed of one node. It has no more.
const OFFERED_MAX: usize = 1_000;

/// A function that a node has, with the routes that other nodes may send it calls of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    pub name: Name,
    /// SHA-256 of the function as it is deployed; that has the hash of its image.
    pub hash: String,
    /// Whether it keeps nothing: no bucket and no queue.
    pub is_stateless: bool,
    pub http: Vec<HttpTrigger>,
}

/// A function that others have.
#[derive(Debug, PartialEq)]
pub struct FarFunction {
    pub name: Arc<str>,
    pub hash: Arc<str>,
    pub is_stateless: bool,
    pub nodes: Vec<NodeId>,
}

/// What others have, made ready for calls.
#[derive(Debug, Default)]
pub struct Others {
    routes: RouteTable<Arc<FarFunction>>,
    /// Functions that are not here, by their names.
    far: BTreeMap<Arc<str>, Arc<FarFunction>>,
    /// Of functions that are here as well.
    same: HashMap<String, Same>,
}

/// The other nodes that have a function as it is here.
#[derive(Debug, Clone, PartialEq)]
pub struct Same {
    pub hash: Arc<str>,
    pub nodes: Arc<[NodeId]>,
}

impl Offered {
    /// None: it has no route that other nodes could send calls of.
    fn of(name: &Name, function: &Function) -> Option<Self> {
        // Events go into the queue of the node where they come in.
        let http: Vec<_> = function.http.iter().filter(|trigger| !trigger.is_async).cloned().collect();
        let json = serde_json::to_vec(function).ok()?;
        let grants = &function.grants;
        let is_stateless = grants.stores.is_empty() && grants.push.is_empty() && grants.pop.is_empty();
        let hash = Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect();
        (!http.is_empty()).then(|| Self { name: name.clone(), hash, is_stateless, http })
    }
}

/// What a node has, by name.
pub fn offered(table: &Table) -> Vec<Offered> {
    let offered = table.entries().filter_map(|entry| Offered::of(entry.live.name(), &entry.live.function));
    let mut offered: Vec<Offered> = offered.collect();
    offered.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    offered
}

/// Whether a node that has these has the function as `hash` says.
pub fn has_form(offered: &[Offered], name: &str, hash: &[u8]) -> bool {
    let found = offered.binary_search_by(|one| one.name.as_str().cmp(name));
    found.is_ok_and(|at| offered[at].hash.as_bytes() == hash)
}

pub fn write(offered: &[Offered]) -> Vec<u8> {
    serde_json::to_vec(offered).unwrap_or_default()
}

/// What another node says. What makes no sense is nothing.
pub fn read(bytes: &[u8]) -> Vec<Offered> {
    let mut offered: Vec<Offered> = serde_json::from_slice(bytes).unwrap_or_default();
    offered.truncate(OFFERED_MAX);
    offered
}

impl Others {
    pub fn of(here: &[Offered], others: &BTreeMap<NodeId, Vec<Offered>>) -> Self {
        let mut nodes: BTreeMap<(&Name, &str), (BTreeSet<NodeId>, &Offered)> = BTreeMap::new();
        for (node, offered) in others {
            for one in offered {
                nodes.entry((&one.name, &one.hash)).or_insert_with(|| (BTreeSet::new(), one)).0.insert(*node);
            }
        }
        let same = here.iter().filter(|one| one.is_stateless).filter_map(|one| {
            let (nodes, _) = nodes.get(&(&one.name, one.hash.as_str()))?;
            let same = Same { hash: one.hash.as_str().into(), nodes: nodes.iter().copied().collect() };
            Some((one.name.as_str().to_owned(), same))
        });
        let mine: BTreeSet<&Name> = here.iter().map(|one| &one.name).collect();
        let mut best: BTreeMap<&Name, (BTreeSet<NodeId>, &Offered)> = BTreeMap::new();
        for ((name, _), (nodes, one)) in &nodes {
            let is_better = best.get(name).is_none_or(|(known, _)| nodes.len() > known.len());
            if is_better && !mine.contains(name) {
                best.insert(name, (nodes.clone(), one));
            }
        }
        let far = best.into_values().map(|(nodes, one)| (FarFunction::of(one, nodes), one));
        let far: Vec<(Arc<FarFunction>, &Offered)> = far.collect();
        let routes = routes_of(&far);
        let far = far.into_iter().map(|(function, _)| (function.name.clone(), function)).collect();
        Self { same: same.collect(), routes, far }
    }

    /// The function elsewhere that a request is for.
    pub fn route<B>(&self, request: &Request<B>) -> Option<Arc<FarFunction>> {
        self.routes.route(request).ok().map(|route| route.target.clone())
    }

    /// The function elsewhere that has this name, where none here has it.
    pub fn far(&self, name: &str) -> Option<Arc<FarFunction>> {
        self.far.get(name).cloned()
    }

    /// The other nodes that have the same function as this one does.
    pub fn same(&self, function: &str) -> Option<Same> {
        self.same.get(function).cloned()
    }
}

impl FarFunction {
    fn of(one: &Offered, nodes: BTreeSet<NodeId>) -> Arc<Self> {
        let counted = if one.is_stateless { nodes.len() } else { 1 };
        Arc::new(Self {
            name: one.name.as_str().into(),
            hash: one.hash.as_str().into(),
            is_stateless: one.is_stateless,
            nodes: nodes.into_iter().take(counted).collect(),
        })
    }
}

/// A route that two functions want belongs to the first by name.
fn routes_of(functions: &[(Arc<FarFunction>, &Offered)]) -> RouteTable<Arc<FarFunction>> {
    let mut owners: BTreeMap<(Option<&str>, &str), &Name> = BTreeMap::new();
    let mut routes = Vec::new();
    for (target, one) in functions {
        let name = one.name.as_str();
        // A function whose own routes make no table is left out, so that it does not spoil that of all.
        if RouteTable::build(one.http.iter().map(|trigger| (name, trigger, ()))).is_err() {
            continue;
        }
        for trigger in &one.http {
            let owner = *owners.entry((trigger.host.as_deref(), &trigger.route)).or_insert(&one.name);
            if owner == &one.name {
                routes.push((name, trigger, target.clone()));
            }
        }
    }
    RouteTable::build(routes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 3] = [NodeId([1; 16]), NodeId([2; 16]), NodeId([3; 16])];

    fn one(name: &str, hash: &str, is_stateless: bool, routes: &[&str]) -> Offered {
        let http = routes.iter().map(|route| HttpTrigger::new(*route)).collect();
        Offered { name: name.parse().unwrap(), hash: hash.to_owned(), is_stateless, http }
    }

    fn found(elsewhere: &Others, path: &str) -> Option<(String, Vec<NodeId>)> {
        let found = elsewhere.route(&Request::get(path).body(()).unwrap())?;
        Some((found.name.to_string(), found.nodes.clone()))
    }

    #[test]
    fn a_function_that_is_not_here_has_its_routes_elsewhere() {
        let others = BTreeMap::from([
            (NODES[0], vec![one("plate", "a", true, &["/plate", "/plate/*"]), one("old", "a", true, &["/old"])]),
            (NODES[1], vec![one("plate", "b", true, &["/plate"]), one("here", "x", true, &["/else"])]),
            (NODES[2], vec![one("plate", "b", true, &["/plate"])]),
        ]);
        let elsewhere = Others::of(&[one("here", "y", true, &["/here"])], &others);
        assert_eq!(found(&elsewhere, "/plate"), Some(("plate".into(), NODES[1..].to_vec())), "most nodes have it");
        assert_eq!(found(&elsewhere, "/plate/7"), None, "that is a route of the other one");
        assert_eq!(found(&elsewhere, "/old"), Some(("old".into(), NODES[..1].to_vec())));
        assert_eq!((&*elsewhere.far("plate").unwrap().hash, elsewhere.far("here")), ("b", None));
        assert_eq!((found(&elsewhere, "/else"), found(&elsewhere, "/here")), (None, None), "it is here");
    }

    #[test]
    fn a_function_that_keeps_something_is_called_at_one_node() {
        let others = BTreeMap::from(NODES.map(|node| (node, vec![one("sum", "a", false, &["/sum"])])));
        let elsewhere = Others::of(&[], &others);
        assert_eq!(found(&elsewhere, "/sum"), Some(("sum".into(), NODES[..1].to_vec())));
        assert_eq!(Others::of(&others[&NODES[0]], &others).same("sum"), None, "what is here is not sent away");
    }

    #[test]
    fn a_node_knows_which_form_of_a_function_it_has() {
        let here = [one("a", "1", true, &["/a"]), one("b", "2", true, &["/b"]), one("c", "3", true, &["/c"])];
        let has = |name: &str, hash: &str| has_form(&here, name, hash.as_bytes());
        assert!(has("a", "1") && has("b", "2") && has("c", "3"));
        assert!(!has("b", "1") && !has("b", "") && !has("d", "1"));
    }

    #[test]
    fn the_very_same_function_may_run_elsewhere() {
        let others = BTreeMap::from([
            (NODES[0], vec![one("plate", "a", true, &["/plate"])]),
            (NODES[1], vec![one("plate", "b", true, &["/plate"])]),
        ]);
        let elsewhere = Others::of(&[one("plate", "a", true, &["/plate"])], &others);
        assert_eq!(elsewhere.same("plate").map(|same| same.nodes).as_deref(), Some(&NODES[..1]));
        assert_eq!(found(&elsewhere, "/plate"), None);
    }

    #[test]
    fn what_one_node_says_does_not_spoil_what_others_say() {
        let others = BTreeMap::from([
            (NODES[0], vec![one("a", "a", true, &["/x", "/x"]), one("b", "b", true, &["/y"])]),
            (NODES[1], vec![one("c", "c", true, &["/y", "/z"])]),
        ]);
        let elsewhere = Others::of(&[], &others);
        assert_eq!(found(&elsewhere, "/x"), None);
        assert_eq!(found(&elsewhere, "/y").unwrap().0, "b", "the first by name");
        assert_eq!(found(&elsewhere, "/z").unwrap().0, "c");
        for garbage in [&b""[..], b"{}", b"[{}]", br#"[{"name":"../x","hash":"","is_stateless":true,"http":[]}]"#] {
            assert_eq!(read(garbage), []);
        }
        let written = write(&others[&NODES[1]]);
        assert_eq!(read(&written), others[&NODES[1]]);
    }
}
