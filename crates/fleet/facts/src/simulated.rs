//! Facts and post as a fleet may find them: an engine that is away, answers late or with what was, and forgets.
//!
//! One seed gives the same faults. Time is told by [`Simulated::advance`]. All futures are ready at once, but for those
//! of a watch and of a receiver who has nothing to be told: see [`crate::at_once`].

use crate::traits::{Answer, Fact, Facts, Heard, News, NotSent, NotSet, Post, Revision, Unavailable, Watch};
use crate::{Key, MESSAGE_BYTES_MAX, Memory, MemoryNode, NodeName, Prefix, at_once};
use random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{poll_fn, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

/// How often what goes wrong; each `once_in` of 0 is never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// A write after which anchors elect another leader: nobody answers for 4 to 9 s.
    pub election_once_in: u64,
    /// A write that nobody confirms. Half of these are made, at once or up to 2 s later, if nothing changed before.
    pub unconfirmed_once_in: u64,
    /// A read of what the fact was before its last change.
    pub old_once_in: u64,
    /// A message that was taken and never arrives.
    pub lost_once_in: u64,
    pub doubled_once_in: u64,
    /// The longest time a message is on its way: later ones overtake it.
    pub late: Duration,
}

/// An engine with faults. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Simulated(Arc<Mutex<World>>);

/// One node's way to a [`Simulated`] engine.
pub struct SimulatedNode {
    world: Arc<Mutex<World>>,
    inner: MemoryNode,
}

struct World {
    memory: Memory,
    faults: Faults,
    random: Random,
    now: Duration,
    away_until: Duration,
    /// What comes later, by its time and in the order it was begun.
    later: BTreeMap<(Duration, u64), Later>,
    count: u64,
    /// Facts before their last change.
    old: BTreeMap<Key, Option<Fact>>,
    nodes: BTreeSet<NodeName>,
}

enum Later {
    Message { to: NodeName, from: NodeName, bytes: Vec<u8> },
    Write { node: MemoryNode, key: Key, expected: Option<Revision>, value: Option<Vec<u8>> },
}

impl Simulated {
    pub fn new(seed: u64, faults: Faults) -> Self {
        let (now, away_until) = (Duration::ZERO, Duration::ZERO);
        let (memory, later, old, nodes) = Default::default();
        Self(Arc::new(Mutex::new(World {
            memory,
            faults,
            random: Random(seed),
            now,
            away_until,
            later,
            count: 0,
            old,
            nodes,
        })))
    }

    /// The way of a node, which may be an anchor.
    pub fn node(&self, name: NodeName, is_anchor: bool) -> SimulatedNode {
        let mut world = lock(&self.0);
        world.nodes.insert(name.clone());
        SimulatedNode { world: Arc::clone(&self.0), inner: world.memory.node(name, is_anchor) }
    }

    /// It is `now`: what was on its way until then arrives.
    pub fn advance(&self, now: Duration) {
        let mut world = lock(&self.0);
        let was_away = world.is_away();
        world.now = world.now.max(now);
        while let Some(entry) = world.later.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Later::Message { to, from, bytes } => world.deliver(&to, from, bytes),
                Later::Write { node, key, expected, value } => {
                    // Nobody waits for its answer any more.
                    let _ = world.write(&node, &key, expected, value.as_deref());
                }
            }
        }
        if was_away && !world.is_away() {
            for node in &world.nodes {
                // A box that is full has enough to be woken by.
                let _ = world.memory.deliver(node, Heard::Back);
            }
        }
    }

    /// Nobody answers until `time`.
    pub fn cut(&self, time: Duration) {
        let mut world = lock(&self.0);
        world.away_until = world.away_until.max(time);
    }

    /// Everything that the engine kept is gone, what it had confirmed too.
    pub fn wipe(&self) {
        let mut world = lock(&self.0);
        world.memory.wipe();
        world.later.clear();
        world.old.clear();
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn is_away(&self) -> bool {
        self.now < self.away_until
    }

    fn once_in(&mut self, times: u64) -> bool {
        times > 0 && self.random.next().is_multiple_of(times)
    }

    /// A time from now, of at most `longest`.
    fn after(&mut self, longest: Duration) -> Duration {
        let nanos = self.random.next() % (longest.as_nanos() as u64 + 1);
        self.now + Duration::from_nanos(nanos)
    }

    fn begin(&mut self, at: Duration, later: Later) {
        self.count += 1;
        self.later.insert((at, self.count), later);
    }

    fn deliver(&mut self, to: &NodeName, from: NodeName, bytes: Vec<u8>) {
        // A box that is full loses it, as the engine may.
        let _ = self.memory.deliver(to, Heard::Message { from, bytes });
    }

    fn write(
        &mut self,
        node: &MemoryNode,
        key: &Key,
        expected: Option<Revision>,
        value: Option<&[u8]>,
    ) -> Result<Revision, NotSet> {
        let before = node.fact(key);
        let revision = node.write(key, expected, value)?;
        self.old.insert(key.clone(), before);
        Ok(revision)
    }

    fn set(
        &mut self,
        node: &MemoryNode,
        key: &Key,
        expected: Option<Revision>,
        value: Option<&[u8]>,
    ) -> Result<Revision, NotSet> {
        node.judge(key, value)?;
        if self.is_away() {
            return Err(NotSet::Away);
        }
        if self.once_in(self.faults.election_once_in) {
            let ends = self.after(Duration::from_secs(5)) + Duration::from_secs(4);
            self.away_until = self.away_until.max(ends);
        }
        if !self.once_in(self.faults.unconfirmed_once_in) {
            return self.write(node, key, expected, value);
        }
        match self.random.next() % 4 {
            0 => {
                let _ = self.write(node, key, expected, value);
            }
            1 => {
                let at = self.after(Duration::from_secs(2));
                let value = value.map(<[u8]>::to_vec);
                self.begin(at, Later::Write { node: node.clone(), key: key.clone(), expected, value });
            }
            _ => {}
        }
        Err(NotSet::Unknown)
    }

    fn read(&mut self, node: &MemoryNode, key: &Key) -> Result<Option<Fact>, Unavailable> {
        match self.is_away() {
            true => Err(Unavailable),
            false if self.once_in(self.faults.old_once_in) => {
                Ok(self.old.get(key).cloned().unwrap_or_else(|| node.fact(key)))
            }
            false => Ok(node.fact(key)),
        }
    }

    fn send(&mut self, from: &NodeName, to: &NodeName, bytes: &[u8]) -> Result<(), NotSent> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(NotSent::TooLarge(bytes.len()));
        }
        if self.is_away() {
            return Err(NotSent::Away);
        }
        let copies = match (self.once_in(self.faults.lost_once_in), self.once_in(self.faults.doubled_once_in)) {
            (true, _) => 0,
            (false, doubled) => 1 + u8::from(doubled),
        };
        for _ in 0..copies {
            let (to, from, bytes) = (to.clone(), from.clone(), bytes.to_vec());
            match self.after(self.faults.late) {
                at if at <= self.now => self.deliver(&to, from, bytes),
                at => self.begin(at, Later::Message { to, from, bytes }),
            }
        }
        Ok(())
    }
}

impl Facts for SimulatedNode {
    fn get<'a>(&'a self, key: &'a Key) -> Answer<'a, Result<Option<Fact>, Unavailable>> {
        Box::pin(ready(lock(&self.world).read(&self.inner, key)))
    }

    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Result<Vec<Fact>, Unavailable>> {
        let is_away = lock(&self.world).is_away();
        Box::pin(ready(if is_away { Err(Unavailable) } else { Ok(self.inner.all(prefix)) }))
    }

    fn watch(&self, prefix: &Prefix) -> Box<dyn Watch> {
        Box::new(SimulatedWatch { world: Arc::clone(&self.world), inner: self.inner.watch(prefix) })
    }

    fn set<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<Revision>,
        value: Option<&'a [u8]>,
    ) -> Answer<'a, Result<Revision, NotSet>> {
        Box::pin(ready(lock(&self.world).set(&self.inner, key, expected, value)))
    }
}

impl Post for SimulatedNode {
    fn send<'a>(&'a self, to: &'a NodeName, bytes: &'a [u8]) -> Answer<'a, Result<(), NotSent>> {
        Box::pin(ready(lock(&self.world).send(self.inner.name(), to, bytes)))
    }

    fn receive(&self) -> Answer<'_, Heard> {
        self.inner.receive()
    }
}

struct SimulatedWatch {
    world: Arc<Mutex<World>>,
    inner: Box<dyn Watch>,
}

impl Watch for SimulatedWatch {
    fn next(&mut self) -> Answer<'_, News> {
        Box::pin(poll_fn(|context| {
            let is_away = lock(&self.world).is_away();
            if is_away {
                // Nothing is told meanwhile; the node hears when the engine is back, and asks again.
                return Poll::Pending;
            }
            match at_once(self.inner.next()) {
                Some(told) => Poll::Ready(told),
                None => self.inner.next().as_mut().poll(context),
            }
        }))
    }
}
