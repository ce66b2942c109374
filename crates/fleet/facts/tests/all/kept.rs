//! The contract, on the two engines of this crate; and that they end what they have lost.

use facts::checks::{ALL, Ground, Way};
use facts::{Answer, Faults, Key, Memory, News, NodeName, Prefix, Simulated, at_once, wait};
use facts::{Facts as _, NotSet};
use std::future::ready;
use std::sync::Arc;

pub struct InMemory(pub Memory);

impl Ground for InMemory {
    fn node<'a>(&'a self, name: &'a NodeName, is_anchor: bool) -> Answer<'a, Arc<dyn Way>> {
        let node: Arc<dyn Way> = Arc::new(self.0.node(name.clone(), is_anchor));
        Box::pin(ready(node))
    }
}

struct InSimulation(Simulated);

impl Ground for InSimulation {
    fn node<'a>(&'a self, name: &'a NodeName, is_anchor: bool) -> Answer<'a, Arc<dyn Way>> {
        let node: Arc<dyn Way> = Arc::new(self.0.node(name.clone(), is_anchor));
        Box::pin(ready(node))
    }
}

#[test]
fn memory_keeps_the_contract() {
    let ground = InMemory(Memory::default());
    for (_, check) in ALL {
        wait(check(&ground));
    }
}

#[test]
fn a_simulated_engine_without_faults_keeps_the_contract() {
    let ground = InSimulation(Simulated::new(1, Faults::default()));
    for (_, check) in ALL {
        wait(check(&ground));
    }
}

#[test]
fn a_watch_tells_everything_again_after_a_loss() {
    let memory = Memory::default();
    let node = memory.node(NodeName::new("a").unwrap(), true);
    let key = Key::new("fn.a").unwrap();
    let old = wait(node.set(&key, None, Some(b"1"))).unwrap();
    let mut watch = node.watch(&Prefix::ALL);
    assert!(matches!(wait(watch.next()), News::All(all) if all.len() == 1));
    memory.wipe();
    assert_eq!(wait(watch.next()), News::All(Vec::new()));
    assert_eq!(wait(node.set(&key, Some(old), Some(b"2"))), Err(NotSet::Changed), "no revision outlives the loss");
    assert!(wait(node.set(&key, None, Some(b"2"))).unwrap() > old);
    assert!(matches!(wait(watch.next()), News::Set(_)));
    assert!(at_once(watch.next()).is_none());
}
