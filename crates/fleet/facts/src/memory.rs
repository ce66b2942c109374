//! Facts and post in memory: what tests use, and what a simulation puts its faults upon.

use crate::traits::{Answer, Fact, Facts, Heard, News, NotSent, NotSet, Post, Revision, Unavailable, Watch};
use crate::{Key, MESSAGE_BYTES_MAX, NodeName, Prefix, VALUE_BYTES_MAX, Writer};
use std::collections::{BTreeMap, VecDeque};
use std::future::{poll_fn, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Bytes of all facts. A fact beyond them is refused.
const FACTS_BYTES_MAX: usize = 64 << 20;
/// Messages that wait for one node. One more is refused.
const WAITING_MAX: usize = 4_096;

/// An engine in memory. Cheap to clone; all clones are one engine.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Engine>>);

/// One node's way to a [`Memory`].
#[derive(Clone)]
pub struct MemoryNode {
    memory: Memory,
    name: NodeName,
    is_anchor: bool,
}

#[derive(Default)]
struct Engine {
    last: u64,
    /// The newest change of each key; without a value, it was deleted.
    facts: BTreeMap<Key, (Revision, Option<Vec<u8>>)>,
    order: BTreeMap<Revision, Key>,
    bytes: usize,
    waiting: BTreeMap<NodeName, VecDeque<Heard>>,
    /// Counts how often all was lost.
    losses: u64,
    wakers: Vec<Waker>,
}

impl Memory {
    /// The way of a node, which may be an anchor.
    pub fn node(&self, name: NodeName, is_anchor: bool) -> MemoryNode {
        MemoryNode { memory: self.clone(), name, is_anchor }
    }

    /// Everything that the engine kept is gone.
    pub fn wipe(&self) {
        let mut engine = self.lock();
        let Engine { last, losses, wakers, .. } = std::mem::take(&mut *engine);
        *engine = Engine { last, losses: losses + 1, wakers, ..Engine::default() };
        engine.wake();
    }

    /// Puts something into the box of a node.
    pub(crate) fn deliver(&self, to: &NodeName, heard: Heard) -> Result<(), NotSent> {
        let mut engine = self.lock();
        let waiting = engine.waiting.entry(to.clone()).or_default();
        if waiting.len() >= WAITING_MAX {
            return Err(NotSent::Full);
        }
        waiting.push_back(heard);
        engine.wake();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    fn fact(&self, key: &Key) -> Option<Fact> {
        let (revision, value) = self.facts.get(key)?;
        Some(Fact { key: key.clone(), value: value.clone()?, revision: *revision })
    }

    fn all(&self, prefix: &Prefix) -> Vec<Fact> {
        self.facts.keys().filter(|key| prefix.holds(key)).filter_map(|key| self.fact(key)).collect()
    }

    fn set(&mut self, key: &Key, expected: Option<Revision>, value: Option<&[u8]>) -> Result<Revision, NotSet> {
        let before = self.facts.get(key);
        let known = before.and_then(|(_, value)| value.as_ref()).map(Vec::len);
        let is_as_expected = match expected {
            Some(expected) => before.is_some_and(|(last, _)| *last == expected),
            None => known.is_none(),
        };
        if !is_as_expected {
            return Err(NotSet::Changed);
        }
        let freed = known.map_or(0, |bytes| bytes + key.as_str().len());
        let taken = value.map_or(0, |value| value.len() + key.as_str().len());
        if self.bytes - freed + taken > FACTS_BYTES_MAX {
            return Err(NotSet::Full);
        }
        self.bytes = self.bytes - freed + taken;
        if let Some((revision, _)) = before {
            self.order.remove(revision);
        }
        self.last += 1;
        let revision = Revision(self.last);
        self.order.insert(revision, key.clone());
        self.facts.insert(key.clone(), (revision, value.map(<[u8]>::to_vec)));
        self.wake();
        Ok(revision)
    }

    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn keep(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|kept| kept.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }
}

/// What is refused before any engine is asked.
pub fn judge(name: &NodeName, is_anchor: bool, key: &Key, value: Option<&[u8]>) -> Result<(), NotSet> {
    if !is_anchor && key.writer() != Writer::Node(name.clone()) {
        return Err(NotSet::Refused);
    }
    match value.map_or(0, <[u8]>::len) {
        bytes if bytes > VALUE_BYTES_MAX => Err(NotSet::TooLarge(bytes)),
        _ => Ok(()),
    }
}

impl MemoryNode {
    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    pub(crate) fn judge(&self, key: &Key, value: Option<&[u8]>) -> Result<(), NotSet> {
        judge(&self.name, self.is_anchor, key, value)
    }

    pub(crate) fn fact(&self, key: &Key) -> Option<Fact> {
        self.memory.lock().fact(key)
    }

    pub(crate) fn all(&self, prefix: &Prefix) -> Vec<Fact> {
        self.memory.lock().all(prefix)
    }

    pub(crate) fn write(
        &self,
        key: &Key,
        expected: Option<Revision>,
        value: Option<&[u8]>,
    ) -> Result<Revision, NotSet> {
        self.judge(key, value)?;
        self.memory.lock().set(key, expected, value)
    }
}

impl Facts for MemoryNode {
    fn get<'a>(&'a self, key: &'a Key) -> Answer<'a, Result<Option<Fact>, Unavailable>> {
        Box::pin(ready(Ok(self.fact(key))))
    }

    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Result<Vec<Fact>, Unavailable>> {
        Box::pin(ready(Ok(self.all(prefix))))
    }

    fn watch(&self, prefix: &Prefix) -> Box<dyn Watch> {
        Box::new(MemoryWatch { memory: self.memory.clone(), prefix: prefix.clone(), seen: None })
    }

    fn set<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<Revision>,
        value: Option<&'a [u8]>,
    ) -> Answer<'a, Result<Revision, NotSet>> {
        Box::pin(ready(self.write(key, expected, value)))
    }
}

impl Post for MemoryNode {
    fn send<'a>(&'a self, to: &'a NodeName, bytes: &'a [u8]) -> Answer<'a, Result<(), NotSent>> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Box::pin(ready(Err(NotSent::TooLarge(bytes.len()))));
        }
        let heard = Heard::Message { from: self.name.clone(), bytes: bytes.to_vec() };
        Box::pin(ready(self.memory.deliver(to, heard)))
    }

    fn receive(&self) -> Answer<'_, Heard> {
        Box::pin(poll_fn(|context| {
            let mut engine = self.memory.lock();
            match engine.waiting.get_mut(&self.name).and_then(VecDeque::pop_front) {
                Some(heard) => Poll::Ready(heard),
                None => {
                    engine.keep(context.waker());
                    Poll::Pending
                }
            }
        }))
    }
}

struct MemoryWatch {
    memory: Memory,
    prefix: Prefix,
    /// How often all was lost when all was told, and the last change since.
    seen: Option<(u64, Revision)>,
}

impl Watch for MemoryWatch {
    fn next(&mut self) -> Answer<'_, News> {
        Box::pin(poll_fn(|context| {
            let mut engine = self.memory.lock();
            let told = match self.seen {
                Some((losses, seen)) if losses == engine.losses => {
                    let mut later = engine.order.range(Revision(seen.0 + 1)..);
                    later.find(|(_, key)| self.prefix.holds(key)).map(|(revision, key)| {
                        let told = engine.fact(key).map_or_else(|| News::Deleted(key.clone(), *revision), News::Set);
                        (told, *revision)
                    })
                }
                _ => Some((News::All(engine.all(&self.prefix)), Revision(engine.last))),
            };
            let Some((told, revision)) = told else {
                engine.keep(context.waker());
                return Poll::Pending;
            };
            self.seen = Some((engine.losses, revision));
            Poll::Ready(told)
        }))
    }
}
