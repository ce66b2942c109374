//! Whose turn it is to be dialed: pure.
//!
//! ```text
//!   wanted ─▶ next ─▶ a slot each: anchors, members never tried, those tried longest ago ─▶ ended ─▶ a pause
//! ```
//! A member that does not answer is dialed more and more seldom, so that it does not keep those waiting that would.

use crate::active::LINKS_OUT_MAX;
use fleet_trust::{Address, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The longest pause before a member is dialed again that was not reached; up to twice as long by chance.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Whom to dial.
#[derive(Debug, Clone)]
pub struct Destination {
    pub address: Address,
    /// Who has to listen there. None: any anchor.
    pub node: Option<NodeId>,
}

/// What is dialed once at a time.
pub type Key = (Option<NodeId>, String);

/// See the top of this file.
#[derive(Debug, Default)]
pub struct Turns {
    /// Who has a slot.
    dialed: BTreeSet<Key>,
    /// Of those that are wanted, who had one.
    tried: BTreeMap<Key, Tried>,
}

#[derive(Debug)]
struct Tried {
    at: Instant,
    /// When it may be dialed again.
    until: Instant,
    times: u32,
}

impl Destination {
    pub fn key(&self) -> Key {
        (self.node, self.address.to_string())
    }
}

impl Turns {
    /// Gives slots to those whose turn it is. Who is wanted no more has been heard of, and is as one never tried.
    pub fn next(&mut self, mut wanted: Vec<Destination>, now: Instant) -> Vec<Destination> {
        let keys: BTreeSet<Key> = wanted.iter().map(Destination::key).collect();
        self.tried.retain(|key, _| keys.contains(key));
        wanted.retain(|target| {
            let key = target.key();
            !self.dialed.contains(&key) && self.tried.get(&key).is_none_or(|tried| now >= tried.until)
        });
        let tried_at = |target: &Destination| self.tried.get(&target.key()).map(|tried| tried.at);
        wanted.sort_by_cached_key(|target| (target.node.is_some(), tried_at(target)));
        wanted.truncate(LINKS_OUT_MAX.saturating_sub(self.dialed.len()));
        // Two anchors may be told at one address.
        wanted.retain(|target| self.dialed.insert(target.key()));
        wanted
    }

    /// A link has ended, or did not begin. The node is not dialed again for `least`; up to twice as long by `chance`,
    /// and a member for longer each time. An anchor is asked as often as ever: without one a node knows less.
    pub fn ended(&mut self, key: Key, least: Duration, chance: u8, now: Instant) {
        self.dialed.remove(&key);
        let times = self.tried.get(&key).map_or(0, |tried| tried.times);
        let doublings = if key.0.is_some() { times.min(16) } else { 0 };
        let pause = (least * (1 << doublings)).min(PAUSE_MAX.max(least));
        let until = now + pause + pause * u32::from(chance) / 256;
        self.tried.insert(key, Tried { at: now, until, times: times.saturating_add(1) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(1);

    fn target(number: u8) -> Destination {
        let address = Address::read(&format!("192.0.2.{number}:8702")).unwrap();
        Destination { address, node: Some(NodeId([number; 16])) }
    }

    fn numbers(targets: &[Destination]) -> Vec<u8> {
        targets.iter().map(|target| target.node.map_or(0, |node| node.0[0])).collect()
    }

    /// Those that were not heard of for longest were dialed first, and again: while 32 of them hung, nobody dialed
    /// those that had only started again.
    #[test]
    fn nodes_that_do_not_answer_keep_nobody_from_being_dialed() {
        let begin = Instant::now();
        for first_live_at in [0, 100, 1_000] {
            let (mut turns, mut reached) = (Turns::default(), BTreeSet::<u8>::new());
            let mut hanging: Vec<(Instant, Destination)> = Vec::new();
            for second in (0..first_live_at + 60).step_by(2) {
                let now = begin + Duration::from_secs(second);
                for (at, target) in std::mem::take(&mut hanging) {
                    match now.duration_since(at) >= Duration::from_secs(10) {
                        true => turns.ended(target.key(), LEAST, 7, now),
                        false => hanging.push((at, target)),
                    }
                }
                let live = (41..=50).filter(|number| second >= first_live_at && !reached.contains(number));
                let wanted = (1..=40).chain(live).map(target).collect();
                for target in turns.next(wanted, now) {
                    match numbers(std::slice::from_ref(&target))[0] {
                        number @ 41.. => _ = reached.insert(number),
                        _ => hanging.push((now, target)),
                    }
                }
                assert!(hanging.len() + reached.len() <= LINKS_OUT_MAX);
            }
            assert_eq!(reached.len(), 10, "from second {first_live_at} on");
        }
    }

    #[test]
    fn anchors_come_first_then_who_was_never_tried_then_who_was_tried_longest_ago() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let mut turns = Turns::default();
        let anchor = Destination { node: None, ..target(1) };
        let wanted = || vec![target(1), target(2), target(3), anchor.clone()];
        assert_eq!(numbers(&turns.next(wanted(), at(0))), [0, 1, 2, 3], "an anchor and a member at one address");
        assert!(turns.next(wanted(), at(1)).is_empty(), "all have a slot");
        for (target, second) in [(target(2), 2), (target(1), 3), (anchor.clone(), 4)] {
            turns.ended(target.key(), LEAST, 0, at(second));
        }
        assert_eq!(numbers(&turns.next(vec![target(1), target(2), target(4), anchor.clone()], at(5))), [0, 4, 2, 1]);
    }

    #[test]
    fn pauses_of_members_double_up_to_a_bound_and_those_of_anchors_do_not() {
        let begin = Instant::now();
        let pauses = |wanted: Destination| {
            let (mut turns, mut now, mut pauses) = (Turns::default(), begin, Vec::new());
            for _ in 0..8 {
                assert_eq!(turns.next(vec![wanted.clone()], now).len(), 1);
                turns.ended(wanted.key(), LEAST, 0, now);
                let ended = now;
                while turns.next(vec![wanted.clone()], now).is_empty() {
                    now += LEAST;
                }
                turns.dialed.clear();
                pauses.push(now.duration_since(ended).as_secs());
            }
            pauses
        };
        assert_eq!(pauses(target(1)), [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(pauses(Destination { node: None, ..target(1) }), [1; 8]);
        let mut turns = Turns::default();
        turns.ended(target(1).key(), LEAST, 255, begin);
        assert!(turns.next(Vec::new(), begin).is_empty());
        assert_eq!(turns.next(vec![target(1)], begin).len(), 1, "it was heard of meanwhile");
    }
}
