//! Engines that are broken on purpose, each in one way: the check that is meant for it finds it.

use crate::kept::InMemory;
use facts::checks::{ALL, Ground, Way};
use facts::{
    Answer, Fact, Facts, Heard, Key, Memory, MemoryNode, NodeName, NotSent, NotSet, Post, Prefix, Revision,
    Unavailable, Watch, at_once,
};
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plant {
    None,
    /// The last one to write wins.
    NotCompared,
    /// What was deleted is still listed, with nothing in it.
    DeletedListed,
    /// A prefix is any beginning.
    PrefixCut,
    /// Everybody may write everything.
    NoRights,
    /// All messages come from one node.
    SenderNotTold,
    /// Only what is sent to those who listen arrives.
    AwayForgotten,
}

struct Broken {
    memory: Memory,
    plant: Plant,
}

struct BrokenNode {
    inner: MemoryNode,
    as_anchor: MemoryNode,
    plant: Plant,
}

impl Ground for Broken {
    fn node<'a>(&'a self, name: &'a NodeName, is_anchor: bool) -> Answer<'a, Arc<dyn Way>> {
        let inner = self.memory.node(name.clone(), is_anchor);
        if self.plant == Plant::AwayForgotten {
            while at_once(inner.receive()).is_some() {}
        }
        let as_anchor = self.memory.node(name.clone(), true);
        let node: Arc<dyn Way> = Arc::new(BrokenNode { inner, as_anchor, plant: self.plant });
        Box::pin(ready(node))
    }
}

impl Facts for BrokenNode {
    fn get<'a>(&'a self, key: &'a Key) -> Answer<'a, Result<Option<Fact>, Unavailable>> {
        self.inner.get(key)
    }

    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Result<Vec<Fact>, Unavailable>> {
        Box::pin(async move {
            let mut listed = self.inner.list(prefix).await?;
            if self.plant == Plant::DeletedListed && listed.is_empty() {
                listed.push(Fact { key: Key::new("a").unwrap(), value: Vec::new(), revision: Revision(1) });
            }
            if self.plant == Plant::PrefixCut {
                let is_held = |fact: &Fact| prefix.words().is_none_or(|words| fact.key.as_str().starts_with(words));
                listed = self.inner.list(&Prefix::ALL).await?.into_iter().filter(is_held).collect();
            }
            Ok(listed)
        })
    }

    fn watch(&self, prefix: &Prefix) -> Box<dyn Watch> {
        self.inner.watch(prefix)
    }

    fn set<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<Revision>,
        value: Option<&'a [u8]>,
    ) -> Answer<'a, Result<Revision, NotSet>> {
        match self.plant {
            Plant::NotCompared => Box::pin(async move {
                let known = self.inner.get(key).await.expect("it is in memory").map(|fact| fact.revision);
                self.inner.set(key, known, value).await
            }),
            Plant::NoRights => self.as_anchor.set(key, expected, value),
            _ => self.inner.set(key, expected, value),
        }
    }
}

impl Post for BrokenNode {
    fn send<'a>(&'a self, to: &'a NodeName, bytes: &'a [u8]) -> Answer<'a, Result<(), NotSent>> {
        self.inner.send(to, bytes)
    }

    fn receive(&self) -> Answer<'_, Heard> {
        Box::pin(async move {
            match self.inner.receive().await {
                Heard::Message { bytes, .. } if self.plant == Plant::SenderNotTold => {
                    Heard::Message { from: NodeName::new("somebody").unwrap(), bytes }
                }
                heard => heard,
            }
        })
    }
}

fn found(plant: Plant, claim: &str) -> bool {
    let (_, check) = ALL.into_iter().find(|(name, _)| *name == claim).expect("there is such a check");
    let ground = Broken { memory: Memory::default(), plant };
    // A check that waits for what never comes would wait for ever.
    !matches!(catch_unwind(AssertUnwindSafe(|| at_once(check(&ground)))), Ok(Some(())))
}

#[test]
fn checks_find_what_is_broken() {
    let plants = [
        (Plant::NotCompared, "of two who create a fact one does"),
        (Plant::NotCompared, "an old revision changes nothing"),
        (Plant::DeletedListed, "a deleted fact is gone and can be made again"),
        (Plant::PrefixCut, "a list has the facts of its prefix"),
        (Plant::NoRights, "a node writes its own record only"),
        (Plant::SenderNotTold, "a message arrives as it was sent, with its sender"),
        (Plant::AwayForgotten, "what is sent to a node that is away arrives later"),
    ];
    for (plant, claim) in plants {
        assert!(found(plant, claim), "not found: {claim}");
        assert!(!found(Plant::None, claim), "found where it is not: {claim}");
    }
    let ground = InMemory(Memory::default());
    assert!(ALL.into_iter().all(|(_, check)| at_once(check(&ground)).is_some()), "memory never waits");
}
