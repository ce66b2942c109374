//! This node's part in a fleet, as far as calls go: which run elsewhere, and which come from there.
//!
//! ```text
//!   gate ─▶ entry: not here, or sooner elsewhere? ─▶ Link ══▶ another node
//!   another node ══▶ Link ─▶ door: route, token, admission as at the gate ─▶ the path of a call
//!                       ◀─▶ offers: who has what · load: how busy is this node?
//! ```
//! A node that belongs to no fleet has none of this: its calls ask for it with one atomic read.

mod door;
mod entry;
mod hop;
mod load;
mod offers;
mod spread;
#[cfg(test)]
pub(crate) mod tests;

pub use entry::Elsewhere;
pub use offers::FarFunction;
pub use spread::Spread;

use crate::Node;
use crate::deployments::Deployments;
use crate::functions::Table;
use bytes::Bytes;
use fleet_link::{Link, Members, Offers};
use fleet_trust::serve::MemberArrival;
use fleet_trust::{NodeId, Trust};
use load::Means;
use offers::Offered;
use parking_lot::{Mutex, RwLock};
use problem::Problem;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The way to the other nodes of a fleet, and from them. Dropping it cuts all their calls.
pub struct CallLink {
    link: Arc<Link<Door>>,
    tasks: Vec<JoinHandle<()>>,
}

/// This node, as the link sees it.
pub struct Door {
    /// The node has the fleet, and so the door.
    node: Weak<Node>,
    means: Means,
    /// None: it takes no part in the fleet's deployments.
    deployments: Option<Arc<Deployments>>,
    /// What others have said that they have.
    others: Mutex<BTreeMap<NodeId, Vec<Offered>>>,
    seen: RwLock<Arc<Seen>>,
}

/// What is here and elsewhere, as of one table of functions.
#[derive(Default)]
struct Seen {
    table: Option<Arc<Table>>,
    here: Vec<Offered>,
    offers: Offers,
    elsewhere: offers::Others,
}

impl CallLink {
    /// Takes part: asks others for reports, and serves those that have connected for calls. Needs a tokio runtime.
    pub fn start(
        node: &Arc<Node>,
        trust: Arc<Trust>,
        members: Arc<dyn Members>,
        deployments: Option<Arc<Deployments>>,
        calls: mpsc::Receiver<MemberArrival>,
    ) -> Self {
        let door = Door {
            node: Arc::downgrade(node),
            means: Means::default(),
            deployments: deployments.clone(),
            others: Mutex::default(),
            seen: RwLock::default(),
        };
        let link = Link::new(trust, members, Arc::new(door), node.budget.clone());
        let mut tasks = vec![tokio::spawn(link.clone().receive(calls)), tokio::spawn(link.clone().keep_hearing())];
        if let Some(deployments) = deployments {
            tasks.extend(deployments.start(&link));
        }
        Self { link, tasks }
    }

    /// Takes no more calls of other nodes.
    pub fn drain(&self) {
        self.link.drain();
    }

    /// The fleet's deployments. None: this node takes no part in them.
    pub fn deployments(&self) -> Option<&Arc<Deployments>> {
        self.link.local().deployments.as_ref()
    }

    /// What became of calls that went to other nodes, and of those that came from them.
    pub fn counts(&self) -> &fleet_link::Counts {
        self.link.counts()
    }

    /// Sends a message of mail to another node.
    ///
    /// # Errors
    /// It was not taken, or nobody knows.
    pub async fn send_mail(&self, node: NodeId, message: Bytes) -> Result<(), Problem> {
        self.link.send_mail(node, message).await
    }

    fn seen(&self, node: &Node) -> Arc<Seen> {
        self.link.local().seen(node)
    }
}

impl Drop for CallLink {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Door {
    /// What is here and elsewhere now. A deployment since then is noticed here.
    fn seen(&self, node: &Node) -> Arc<Seen> {
        let table = node.functions.table();
        let seen = self.seen.read().clone();
        if seen.table.as_ref().is_some_and(|known| Arc::ptr_eq(known, &table)) {
            return seen;
        }
        self.look(table)
    }

    fn look(&self, table: Arc<Table>) -> Arc<Seen> {
        let here = offers::offered(&table);
        let bytes = offers::write(&here);
        let hash = Sha256::digest(&bytes);
        let revision = u64::from_le_bytes(std::array::from_fn(|at| hash[at]));
        let offers = Offers { revision, bytes: bytes.into() };
        let others = self.others.lock();
        let elsewhere = offers::Others::of(&here, &others);
        let seen = Arc::new(Seen { here, elsewhere, table: Some(table), offers });
        // Under the lock: what is learned later is looked at later.
        *self.seen.write() = seen.clone();
        seen
    }
}
