//! Every function and every route at one moment. Never changed: a change makes another one and puts it in its place.

use super::{Change, History, Live};
use gate_http::RouteTable;
use http::HeaderValue;
use manifest::{HttpTrigger, Manifest, Name, RouteAuth};
use problem::{Code, Problem};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use unit::Contract;
use warehouse::ImageHash;

/// Media type of a `lighter:unit` function's reply when its trigger does not say.
pub const REPLY_TYPE: &str = "application/octet-stream";

#[derive(Default)]
pub struct Table {
    functions: BTreeMap<Name, Entry>,
    pub routes: RouteTable<Arc<Target>>,
}

/// A function that is deployed.
#[derive(Clone)]
pub struct Entry {
    pub live: Arc<Live>,
    pub history: Arc<History>,
}

/// What a route leads to, with all that a call needs to know worked out.
pub struct Target {
    pub live: Arc<Live>,
    pub needs_token: bool,
    pub reply_type: HeaderValue,
    /// `/http/NAME`: the source of its events.
    pub source: String,
}

impl Table {
    pub fn new(functions: BTreeMap<Name, Entry>, token_by_default: bool) -> Result<Self, Problem> {
        let mut routes = Vec::new();
        for entry in functions.values() {
            for trigger in &entry.live.function.http {
                routes.push((trigger.clone(), Arc::new(Target::new(entry.live.clone(), trigger, token_by_default)?)));
            }
        }
        Ok(Self { functions, routes: RouteTable::build(routes)? })
    }

    /// # Errors
    /// [`Code::FunctionUnknown`].
    pub fn get(&self, name: &str) -> Result<Entry, Problem> {
        self.functions.get(name).cloned().ok_or_else(|| {
            Problem::new(Code::FunctionUnknown, format!("there is no function {name:?}"))
        })
    }

    /// In the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.functions.values()
    }

    pub fn count(&self) -> usize {
        self.functions.len()
    }

    /// The images of all versions that are kept.
    pub fn images(&self) -> HashSet<ImageHash> {
        let versions = self.functions.values().flat_map(|entry| &entry.history.versions);
        versions.filter_map(|version| version.function.image.parse().ok()).collect()
    }

    /// The table after these changes.
    ///
    /// # Errors
    /// [`Code::RouteTaken`] names the function that has a route already.
    pub fn changed(&self, changes: &[Change], token_by_default: bool) -> Result<Self, Problem> {
        let mut functions = self.functions.clone();
        for change in changes {
            match change {
                Change::Put { live, history } => {
                    let entry = Entry { live: live.clone(), history: history.clone() };
                    functions.insert(live.name().clone(), entry);
                }
                Change::Remove(name) => _ = functions.remove(name),
            }
        }
        let put: HashSet<&Name> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Put { live, .. } => Some(live.name()),
                Change::Remove(_) => None,
            })
            .collect();
        // Those that stay come first: a route belongs to who has it already.
        let (new, old): (Vec<_>, Vec<_>) = functions.iter().partition(|(name, _)| put.contains(name));
        let triggers = old.iter().chain(&new).map(|(name, entry)| (*name, &*entry.live.function.http));
        one_owner_each(triggers)?;
        Self::new(functions, token_by_default)
    }

    /// # Errors
    /// [`Code::RouteTaken`]: a function outside of the manifest has a route of one inside.
    pub fn check_routes(&self, manifest: &Manifest) -> Result<(), Problem> {
        let old = self.functions.iter().filter(|(name, _)| !manifest.function.contains_key(*name));
        let old = old.map(|(name, entry)| (name, &*entry.live.function.http));
        one_owner_each(old.chain(manifest.function.iter().map(|(name, function)| (name, &*function.http))))
    }
}

/// Checks that no two functions have the same route; of two that do, the first keeps it.
fn one_owner_each<'a>(functions: impl Iterator<Item = (&'a Name, &'a [HttpTrigger])>) -> Result<(), Problem> {
    let mut owners = HashMap::new();
    for (name, triggers) in functions {
        for trigger in triggers {
            if let Some(owner) = owners.insert((trigger.host.as_deref(), &*trigger.route), name) {
                let (name, owner, route) = (name.as_str(), owner.as_str(), &trigger.route);
                let detail = format!("function {name:?} wants the route {route:?}, which function {owner:?} has");
                return Err(Problem::new(Code::RouteTaken, detail));
            }
        }
    }
    Ok(())
}

impl Target {
    fn new(live: Arc<Live>, trigger: &HttpTrigger, token_by_default: bool) -> Result<Self, Problem> {
        let reply_type = trigger.reply_type.as_deref().unwrap_or(REPLY_TYPE);
        let bad = |_| Problem::new(Code::ManifestValue, format!("http.reply_type {reply_type:?} cannot stand in a header"));
        Ok(Self {
            needs_token: trigger.auth.map_or(token_by_default, |auth| auth == RouteAuth::Token),
            reply_type: reply_type.parse().map_err(bad)?,
            source: format!("/http/{}", live.name()),
            live,
        })
    }

    pub fn takes_events(&self) -> bool {
        self.live.contract == Contract::Unit
    }
}
