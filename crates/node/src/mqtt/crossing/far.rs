//! What this node knows of MQTT at the other nodes: what they want, and which retained messages are theirs.
//!
//! | record | key | value |
//! |---|---|---|
//! | what a node wants | `w/` and its id | [`Wanted`] as JSON |
//! | whether others were ever told what is wanted here | `told` | nothing |
//! | a retained message that came from another node | `r/` and its topic | nothing |

use super::wanted::{Elsewhere, Wanted};
use fleet_trust::NodeId;
use parking_lot::{Mutex, RwLock};
use problem::Problem;
use state::{Leased, State, StoreError, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Table of the node's records.
const TABLE: &str = "mqtt.fleet";
const WANTED: &str = "w/";
const RETAINED: &str = "r/";
const TOLD: &str = "told";

/// A message that has come from another node, while the broker takes it.
pub struct Arrived {
    /// Names it: no other message has this very pointer.
    pub token: Arc<str>,
    pub client: String,
    pub user: Option<Arc<str>>,
    /// Whose triggers hear it.
    pub queues: Vec<String>,
    /// How often it was put back for them.
    pub put_back: u32,
    /// Acked by the commit that takes the message.
    pub leased: Leased,
}

/// Whose message the broker commits.
pub enum Whose {
    /// It was published here, and goes on to others.
    Ours,
    /// It came from another node, and goes nowhere else.
    Theirs(Arc<Arrived>),
    /// Nobody hears it: a retained message of another node is forgotten.
    Nobodys,
}

/// See the top of this file.
pub struct Far {
    nodes: Mutex<BTreeMap<NodeId, Wanted>>,
    elsewhere: RwLock<Arc<Elsewhere>>,
    /// Topics of retained messages that came from another node.
    retained: RwLock<BTreeSet<String>>,
    arriving: Mutex<Option<Arc<Arrived>>>,
    /// Publishes what nobody hears.
    pub nobody: Arc<str>,
    dropped: AtomicU64,
    has_told: AtomicBool,
}

impl Far {
    /// # Errors
    /// The records cannot be read.
    pub fn open(state: &State) -> Result<Self, Problem> {
        let (mut nodes, mut retained) = (BTreeMap::new(), BTreeSet::new());
        let has_told = AtomicBool::new(state.records(TABLE).get(TOLD)?.is_some());
        crate::records::each(&state.records(TABLE), |key, value| {
            if let Some(topic) = key.strip_prefix(RETAINED) {
                retained.insert(topic.to_owned());
            } else if let Some(id) = key.strip_prefix(WANTED)
                && let (Some(node), Some(wanted)) = (NodeId::read(id), Wanted::read(value))
            {
                nodes.insert(node, wanted);
            }
            Ok(())
        })?;
        let elsewhere = RwLock::new(Arc::new(compiled(&nodes)));
        let (arriving, dropped) = Default::default();
        let nobody = Arc::from("$fleet");
        Ok(Self {
            nodes: Mutex::new(nodes),
            elsewhere,
            retained: RwLock::new(retained),
            arriving,
            nobody,
            dropped,
            has_told,
        })
    }

    /// Whether a commit has to look at messages of this topic.
    pub fn looks_at(&self, topic: &str) -> bool {
        !self.elsewhere.read().takers(topic, &[]).is_empty() || self.is_copy(topic) || self.arriving.lock().is_some()
    }

    pub fn elsewhere(&self) -> Arc<Elsewhere> {
        self.elsewhere.read().clone()
    }

    /// Whether what is retained under a topic came from another node.
    pub fn is_copy(&self, topic: &str) -> bool {
        self.retained.read().contains(topic)
    }

    pub fn copies(&self) -> BTreeSet<String> {
        self.retained.read().clone()
    }

    /// What a node wanted when it was last heard.
    pub fn wanted(&self, node: &NodeId) -> Wanted {
        self.nodes.lock().get(node).cloned().unwrap_or_default()
    }

    /// Filters of clients and triggers at all other nodes.
    pub fn filters(&self) -> usize {
        self.nodes.lock().values().map(|wanted| wanted.filters.len() + wanted.triggers.len()).sum()
    }

    /// A node wants this from now on. Not on disk before [`Far::keep`].
    pub fn set_wanted(&self, node: NodeId, wanted: Wanted) {
        let mut nodes = self.nodes.lock();
        match wanted.is_empty() {
            true => nodes.remove(&node),
            false => nodes.insert(node, wanted),
        };
        *self.elsewhere.write() = Arc::new(compiled(&nodes));
    }

    /// Nodes that want something and are not `known` want nothing any more.
    pub fn forget_others(&self, state: &State, known: impl Fn(&NodeId) -> bool) -> Result<(), Problem> {
        let gone: Vec<NodeId> = self.nodes.lock().keys().filter(|node| !known(node)).copied().collect();
        for node in gone {
            let mut transaction = state.begin();
            self.keep(&mut transaction, node, &Wanted::default())?;
            let _ticket = transaction.commit()?;
            self.set_wanted(node, Wanted::default());
        }
        Ok(())
    }

    /// Has what a node wants written by a transaction.
    pub fn keep(&self, transaction: &mut Transaction, node: NodeId, wanted: &Wanted) -> Result<(), StoreError> {
        let value = (!wanted.is_empty()).then(|| wanted.write());
        transaction.record(TABLE, &format!("{WANTED}{node}"), value)
    }

    /// Has it written by a transaction whose message is retained under a topic from now on. None: nothing changes.
    pub fn keep_copy(&self, transaction: &mut Transaction, topic: &str, is_copy: bool) -> Result<(), StoreError> {
        if is_copy == self.is_copy(topic) {
            return Ok(());
        }
        transaction.record(TABLE, &format!("{RETAINED}{topic}"), is_copy.then(Vec::new))
    }

    /// That transaction is committed.
    pub fn set_copy(&self, topic: &str, is_copy: bool) {
        if is_copy == self.is_copy(topic) {
            return;
        }
        let mut retained = self.retained.write();
        match is_copy {
            true => retained.insert(topic.to_owned()),
            false => retained.remove(topic),
        };
    }

    /// Whose message it is, by who published it.
    pub fn whose(&self, client: &Arc<str>) -> Whose {
        if Arc::ptr_eq(client, &self.nobody) {
            return Whose::Nobodys;
        }
        let arriving = self.arriving.lock().clone();
        arriving.filter(|arrived| Arc::ptr_eq(&arrived.token, client)).map_or(Whose::Ours, Whose::Theirs)
    }

    /// Does what has the broker take a message of another node.
    pub fn while_arriving<T>(&self, arrived: Arrived, work: impl FnOnce(&Arc<str>) -> T) -> T {
        let token = arrived.token.clone();
        *self.arriving.lock() = Some(Arc::new(arrived));
        let done = work(&token);
        *self.arriving.lock() = None;
        done
    }

    /// Whether others were ever told what is wanted here.
    pub fn has_told(&self) -> bool {
        self.has_told.load(Ordering::Relaxed)
    }

    pub fn keep_told(&self, transaction: &mut Transaction) -> Result<(), StoreError> {
        if self.has_told() { Ok(()) } else { transaction.record(TABLE, TOLD, Some(Vec::new())) }
    }

    pub fn set_told(&self) {
        self.has_told.store(true, Ordering::Relaxed);
    }

    /// Messages that found no room on their way to another node are counted.
    pub fn drop_some(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn compiled(nodes: &BTreeMap<NodeId, Wanted>) -> Elsewhere {
    Elsewhere::of(nodes.iter().map(|(node, wanted)| (*node, wanted)))
}
