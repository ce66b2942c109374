//! Copies that follow load, in virtual time: steps, swings, nodes that die, reports that are late or lost.

use crate::world::{Anchor, candidate, measured, node};
use fleet_deploy::decide::{decide_again, decide_scaled};
use fleet_deploy::elastic::{CopyHeard, Elastic};
use fleet_deploy::talk::{FunctionLoad, Stage};
use fleet_deploy::{Record, Scaled};
use fleet_trust::NodeId;
use manifest::Name;
use problem::Code;
use random::Random;
use std::collections::{BTreeMap, BTreeSet};

const SECOND: u64 = 1_000;
const QUIET: u64 = 60 * SECOND;
/// Calls that one copy runs at once.
const PLACES: u32 = 4;

fn elastic(least: u32, most: u32) -> String {
    format!(
        "[function.hello]\nimage = \"IMAGE\"\nhttp = \"/hello\"\n[function.hello.place]\ncopies = \"{least}..{most}\"\n"
    )
}

fn copies(record: &Record) -> BTreeSet<NodeId> {
    record.places[0].nodes.clone().unwrap()
}

/// A node with its copy, if it has one.
#[derive(Debug, Clone, Default)]
struct Host {
    is_alive: bool,
    /// From when its copy takes calls.
    ready_at: Option<u64>,
    said: Option<(FunctionLoad, u64)>,
    load: FunctionLoad,
    speaks_at: u64,
}

/// A fleet whose anchor looks every four seconds. Calls go to all copies that are ready, as many to each.
struct World {
    random: Random,
    anchor: Anchor,
    hosts: BTreeMap<NodeId, Host>,
    watch: Elastic,
    now: u64,
    /// Of so many reports one is lost; 0: none.
    lost_once_in: u64,
    /// The number of copies, and of changes of it.
    moves: Vec<(u64, usize)>,
    /// Calls that found no copy at all.
    nowhere: u64,
}

impl World {
    fn new(seed: u64, nodes: u8, least: u32, most: u32) -> Self {
        let mut random = Random(seed);
        let mut anchor = Anchor::new(&(1..=nodes).map(|number| candidate(number, &[])).collect::<Vec<_>>());
        anchor.deploy("app", &elastic(least, most)).unwrap();
        let host = |number: u8| {
            let speaks_at = random.below(4 * SECOND);
            (node(number), Host { is_alive: true, speaks_at, ..Host::default() })
        };
        let hosts = (1..=nodes).map(host).collect();
        let (watch, now, moves) = (Elastic::default(), 1_000_000, Vec::new());
        let mut world = Self { random, anchor, hosts, watch, now, lost_once_in: 0, moves, nowhere: 0 };
        world.follow(0);
        world
    }

    fn record(&self) -> Record {
        self.anchor.records.get("app").unwrap().record().clone()
    }

    fn count(&self) -> usize {
        copies(&self.record()).len()
    }

    /// Nodes take what the record says: a new copy is ready after some seconds, one that goes is gone at once.
    fn follow(&mut self, takes_ms: u64) {
        let placed = copies(&self.record());
        for (id, host) in &mut self.hosts {
            match (placed.contains(id), host.ready_at) {
                (true, None) => host.ready_at = Some(self.now + takes_ms),
                (false, Some(_)) => *host = Host { ready_at: None, said: None, ..host.clone() },
                _ => {}
            }
        }
    }

    /// Passes so many seconds in which so many calls are under way at every moment.
    fn pass(&mut self, seconds: u64, calls: f64) {
        for _ in 0..seconds * 4 {
            self.now += SECOND / 4;
            self.work(calls);
            self.speak();
            if self.now.is_multiple_of(4 * SECOND) {
                self.look();
            }
        }
    }

    fn work(&mut self, calls: f64) {
        let now = self.now;
        let is_ready = |host: &Host| host.is_alive && host.ready_at.is_some_and(|at| at <= now);
        let ready = self.hosts.values().filter(|host| is_ready(host)).count();
        self.nowhere += u64::from(ready == 0);
        for host in self.hosts.values_mut().filter(|host| host.is_alive) {
            host.load.at_ms += SECOND / 4;
            (host.load.places, host.load.cores) = (PLACES, 2);
            if is_ready(host) {
                let here = calls / ready as f64;
                host.load.busy_ms += (here * 250.0) as u64;
                // Ten wait; what is beyond is refused.
                host.load.refused += u64::from(here > f64::from(PLACES + 10));
            }
        }
    }

    fn speak(&mut self) {
        for host in self.hosts.values_mut().filter(|host| host.is_alive && host.speaks_at <= self.now) {
            host.speaks_at = self.now + self.random.between(3_750, 5_000);
            if !self.random.once_in(self.lost_once_in) {
                host.said = Some((host.load, self.now));
            }
        }
    }

    /// What an anchor does in each of its rounds.
    fn look(&mut self) {
        for candidate in &mut self.anchor.candidates {
            candidate.is_there = self.hosts[&candidate.node].is_alive;
        }
        let mut record = self.record();
        if let Some(again) = decide_again(&record, &self.anchor.known()) {
            self.take(&again);
            record = again;
        }
        let place = record.manifest.as_ref().unwrap().function["hello"].place.clone().unwrap();
        let heard: Vec<CopyHeard<'_>> = copies(&record)
            .into_iter()
            .map(|id| {
                let host = &self.hosts[&id];
                let is_ready = host.ready_at.is_some_and(|at| at <= self.now);
                let stage = Some(if is_ready { Stage::Ready } else { Stage::Working });
                CopyHeard { node: id, is_there: host.is_alive, stage, load: host.said.as_ref().map(|(load, _)| load) }
            })
            .collect();
        let wanted = place.copies.unwrap();
        let Some(change) = self.watch.look(&wanted, place.quiet().duration(), &heard, self.now) else { return };
        assert!(change.copies <= wanted.most as usize && change.copies >= wanted.least as usize, "{change:?}");
        assert!(change.copies <= 2 * heard.len() && change.copies + 1 >= heard.len(), "{change:?}");
        let function: Name = "hello".parse().unwrap();
        let scaled = Scaled { function: &function, copies: change.copies, leaves: change.leaves, why: &change.why };
        let Some(next) = decide_scaled(&record, &scaled, &self.anchor.known()) else { return };
        let (before, after) = (copies(&record), copies(&next));
        assert!(before.is_subset(&after) || after.is_subset(&before), "nothing moves: there are more, or fewer");
        assert_eq!(next.places[0].scaled.as_deref(), Some(change.why.as_str()));
        self.moves.push((self.now, after.len()));
        self.take(&next);
    }

    fn take(&mut self, record: &Record) {
        assert!(self.anchor.put(record));
        let takes_ms = self.random.between(500, 6_000);
        self.follow(takes_ms);
    }

    fn kill(&mut self, id: NodeId) {
        *self.hosts.get_mut(&id).unwrap() = Host::default();
    }
}

#[test]
fn a_step_of_load_is_followed_up_and_down() {
    for seed in 0..100 {
        let mut world = World::new(seed, 8, 1, 6);
        world.pass(300, 0.5);
        assert_eq!((world.count(), world.moves.len()), (1, 0), "seed {seed}: little to do");
        // The work of three copies.
        world.pass(90, 12.0);
        let most = world.count();
        assert!((5..=6).contains(&most), "seed {seed}: {:?}", world.moves);
        assert!(world.moves.len() <= 3, "seed {seed}: {:?}", world.moves);
        let before = world.moves.len();
        world.pass(600, 12.0);
        assert_eq!(world.moves.len(), before, "seed {seed}: nothing moves where nothing changes: {:?}", world.moves);
        // One after the other goes, none before it was not needed for a minute.
        let calm = world.now;
        world.pass(8 * 70, 0.2);
        assert_eq!(world.count(), 1, "seed {seed}: {:?}", world.moves);
        let down = &world.moves[before..];
        assert!(down.len() == most - 1 && down[0].0 >= calm + QUIET, "seed {seed}: {down:?}");
        assert!(down.is_sorted_by(|one, next| one.0 + QUIET <= next.0), "seed {seed}: {down:?}");
        assert_eq!(world.nowhere, 0);
    }
}

#[test]
fn load_that_swings_moves_little() {
    for seed in 0..100 {
        for period in [5, 20, 50] {
            let mut world = World::new(seed, 8, 1, 6);
            for _ in 0..3_600 / (2 * period) {
                world.pass(period, 0.2);
                world.pass(period, 7.0);
            }
            // Up once, in some moves, and then no minute is quiet.
            assert!(world.moves.len() <= 5, "seed {seed}, {period} s: {:?}", world.moves);
        }
        // An hour in which load comes for two minutes of every six: at most up and down again each time.
        let mut world = World::new(seed, 8, 1, 6);
        for _ in 0..10 {
            world.pass(240, 0.2);
            world.pass(120, 7.0);
        }
        assert!(world.moves.len() <= 10 * 2 * 3, "seed {seed}: {:?}", world.moves);
    }
}

#[test]
fn a_copy_that_dies_is_made_elsewhere_and_reports_that_get_lost_move_nothing_down() {
    for seed in 0..100 {
        let mut world = World::new(seed, 8, 1, 6);
        world.lost_once_in = 4;
        world.pass(120, 7.0);
        let count = world.count();
        assert!(count >= 3, "seed {seed}: {:?}", world.moves);
        let dies = *copies(&world.record()).first().unwrap();
        world.kill(dies);
        world.pass(30, 7.0);
        assert!(!copies(&world.record()).contains(&dies), "seed {seed}");
        assert!(world.count() >= count, "seed {seed}: {:?}", world.moves);
        // Nobody speaks any more, though all are there.
        world.pass(60, 7.0);
        let (count, moves) = (world.count(), world.moves.len());
        world.lost_once_in = 1;
        world.pass(15, 7.0);
        let settled = world.moves.len();
        world.pass(1_200, 0.0);
        assert_eq!(world.moves.len(), settled, "seed {seed}: {:?}", &world.moves[moves..]);
        assert!(world.count() >= count);
        world.lost_once_in = 6;
        world.pass(3_000, 0.1);
        assert_eq!(world.count(), 1, "seed {seed}: {:?}", world.moves);
    }
}

fn load(at_ms: u64, busy_ms: u64, refused: u64) -> FunctionLoad {
    FunctionLoad { at_ms, busy_ms, cpu_ms: 0, refused, places: 1, cores: 1 }
}

fn heard(number: u8, load: &FunctionLoad) -> CopyHeard<'_> {
    CopyHeard { node: node(number), is_there: true, stage: Some(Stage::Ready), load: Some(load) }
}

#[test]
fn refusals_count_at_once_and_a_node_that_starts_again_counts_from_there() {
    let wanted = manifest::Copies { least: 1, most: 8 };
    let quiet = std::time::Duration::from_secs(60);
    let mut watch = Elastic::default();
    let mut look = |load: FunctionLoad, now| watch.look(&wanted, quiet, &[heard(1, &load)], now);
    assert_eq!(look(load(1_000, 0, 0), 1_000), None, "one report says nothing");
    let grown = look(load(6_000, 3_000, 12), 6_000).unwrap();
    assert_eq!((grown.copies, grown.why.as_str()), (2, "1 was used to 60 %, and refused 12 calls"));
    assert_eq!(look(load(500, 0, 0), 11_000), None, "started again");
    assert_eq!(look(load(400, 0, 0), 12_000), None, "an old word that was late");
    assert_eq!(look(load(5_500, 300, 0), 16_000), None);
}

/// A member that said that it had refused as many calls as a number can hold used to end the anchor's watch over all.
#[test]
fn copies_that_refuse_more_calls_than_can_be_counted_are_counted_all_the_same() {
    let wanted = manifest::Copies { least: 1, most: 8 };
    let quiet = std::time::Duration::from_secs(60);
    let mut watch = Elastic::default();
    let mut look =
        |said: [FunctionLoad; 2], now| watch.look(&wanted, quiet, &[heard(1, &said[0]), heard(2, &said[1])], now);
    assert_eq!(look([load(1_000, 0, 0); 2], 1_000), None);
    let most = FunctionLoad { busy_ms: u64::MAX, cpu_ms: u64::MAX, ..load(6_000, 0, u64::MAX) };
    let grown = look([most; 2], 6_000).unwrap();
    assert_eq!((grown.copies, grown.why), (4, format!("2 were used to 800 %, and refused {} calls", u64::MAX)));
}

#[test]
fn one_that_cannot_run_it_is_the_first_to_go() {
    let wanted = manifest::Copies { least: 1, most: 8 };
    let quiet = std::time::Duration::from_secs(5);
    let mut watch = Elastic::default();
    let mut gone = None;
    for second in (0..20).step_by(5) {
        let [one, other] = [load(second * SECOND, second * 50, 0), load(second * SECOND, 0, 0)];
        let failed = CopyHeard { node: node(3), is_there: true, stage: Some(Stage::Failed), load: None };
        gone = gone.or(watch.look(&wanted, quiet, &[heard(1, &one), heard(2, &other), failed], second * SECOND));
    }
    let gone = gone.unwrap();
    assert_eq!((gone.copies, gone.leaves), (2, Some(node(3))));
    assert_eq!(gone.why, "2 were used to 3 % for 5s");
}

#[test]
fn more_copies_are_near_and_the_one_that_leaves_is_the_one_that_was_named() {
    let mut anchor = Anchor::new(&[1, 2, 3].map(|number| candidate(number, &[])));
    measured(&mut anchor.candidates, 1, 2, 90_000);
    measured(&mut anchor.candidates, 1, 3, 500);
    let first = anchor.deploy("app", &(elastic(1, 3) + "near = \"pi-1\"\n")).unwrap();
    assert_eq!(copies(&first), BTreeSet::from([node(1)]), "the fewest, at first");
    let function: Name = "hello".parse().unwrap();
    let scaled = |copies, leaves| Scaled { function: &function, copies, leaves, why: "so" };
    let two = decide_scaled(&first, &scaled(2, None), &anchor.known()).unwrap();
    assert_eq!((copies(&two), two.serial, two.revision), (BTreeSet::from([node(1), node(3)]), 2, 1));
    anchor.put(&two);
    // A new form, or going back to an old one, has as many copies.
    let again = anchor.deploy("app", &elastic(1, 3)).unwrap();
    assert_eq!((copies(&again), again.places[0].scaled.as_deref()), (copies(&two), Some("so")));
    let one = decide_scaled(&again, &scaled(1, Some(node(1))), &anchor.known()).unwrap();
    assert_eq!(copies(&one), BTreeSet::from([node(3)]));
    assert_eq!(decide_scaled(&again, &scaled(2, None), &anchor.known()), None, "as many as there are");
    let most = decide_scaled(&again, &scaled(9, None), &anchor.known()).unwrap();
    assert_eq!(copies(&most).len(), 3, "never more than is said");
}

#[test]
fn what_keeps_something_does_not_follow_load() {
    let mut anchor = Anchor::new(&[1, 2].map(|number| candidate(number, &[])));
    for keeps in ["grants.stores = [\"s\"]", "queue = \"jobs\"", "every = \"10s\"", "mqtt = \"a/b\""] {
        let text = elastic(1, 3).replace("http = \"/hello\"", keeps);
        let problem = anchor.deploy("app", &text).unwrap_err();
        assert_eq!(problem.code, Code::ManifestConflict, "{keeps}");
        assert!(problem.detail.contains("it keeps something (") && problem.detail.contains("1..3"), "{problem}");
    }
}
