//! A new form goes on in steps, or back; and a simulation of fleets with nodes that fail, go away and come back.

use crate::world::{Anchor, NOW, candidate, signed};
use fleet_deploy::rollout::{StepHeard, StepVerdict, Watch, back, on};
use fleet_deploy::talk::{Progress, RunCounts, Runs, Stage, Trouble};
use fleet_deploy::{Record, SignedRecord, Wish};
use fleet_trust::NodeId;
use manifest::Manifest;
use random::Random;
use std::collections::BTreeMap;
use std::sync::Arc;

const WATCH_MS: u64 = 60_000;

fn form(number: u64, steps: &str) -> String {
    format!(
        "[function.hello]\nimage = \"IMAGE\"\nhttp = \"/hello\"\nconfig.form = \"{number}\"\n\
         place.rollout = {{ steps = [{steps}], watch = \"60s\" }}\n"
    )
}

fn anchor_of(count: u8) -> Anchor {
    Anchor::new(&(1..=count).map(|number| candidate(number, &[])).collect::<Vec<_>>())
}

/// The form that a node is to have, by its number.
fn form_at(record: &Record, node: &NodeId) -> u64 {
    let profile = candidate(1, &[]).profile.unwrap();
    let share: Manifest = record.share(node, &profile).expect("it is for all nodes");
    share.function["hello"].config["form"].parse().unwrap()
}

fn new_at(anchor: &Anchor, record: &Record) -> usize {
    anchor.candidates.iter().filter(|one| form_at(record, &one.node) == 2).count()
}

/// What a node says that is ready, and whose runs failed so often in the new form; none did before.
fn ready(record: &Record, node: &NodeId, failed: u64) -> Progress {
    let revision = record.held(node).revision;
    let is_new = revision == record.revision;
    let now = RunCounts { ended: 100, failed: if is_new { failed } else { 0 } };
    let runs = Some(Runs { revision, now, before: RunCounts { ended: 100, failed: 0 } });
    Progress { serial: record.serial, stage: Stage::Ready, trouble: None, runs }
}

/// Looks at nodes that all say the same of themselves, now.
fn look(
    watch: &mut Watch,
    anchor: &Anchor,
    record: &Record,
    now: u64,
    say: impl Fn(&NodeId) -> Progress,
) -> StepVerdict {
    let said: Vec<Progress> = anchor.candidates.iter().map(|one| say(&one.node)).collect();
    let heard = anchor.candidates.iter().zip(&said).map(|(one, progress)| StepHeard {
        node: one.node,
        name: &one.name,
        is_there: one.is_there,
        has_all: progress.serial == record.serial,
        progress: Some(progress),
        at_ms: now,
    });
    watch.look(record, &heard.collect::<Vec<_>>(), now)
}

#[test]
fn a_good_form_goes_on_step_by_step_and_all_have_it_at_the_end() {
    let mut anchor = anchor_of(10);
    let first = anchor.deploy("app", &form(1, "\"1\", \"50%\"")).unwrap();
    assert_eq!(first.underway, None, "there is nothing to go back to");
    let mut record = anchor.deploy("app", &form(2, "\"1\", \"50%\"")).unwrap();
    let mut watch = Watch::new(&record, 0);
    let mut now = 0;
    for count in [1, 5] {
        assert_eq!(new_at(&anchor, &record), count);
        let held = record.underway.as_ref().unwrap().nodes.clone();
        for passed in [0, WATCH_MS / 2, WATCH_MS - 1] {
            let verdict = look(&mut watch, &anchor, &record, now + passed, |one| ready(&record, one, 2));
            assert_eq!(verdict, StepVerdict::Wait, "{passed}");
        }
        now += WATCH_MS;
        assert_eq!(look(&mut watch, &anchor, &record, now, |one| ready(&record, one, 2)), StepVerdict::Good);
        record = on(&record, &anchor.known());
        assert!(anchor.put(&record));
        let more = record.underway.as_ref().map(|underway| underway.nodes.clone());
        assert!(more.is_none_or(|more| more.is_superset(&held)), "nobody goes back in between");
    }
    assert_eq!((new_at(&anchor, &record), record.underway.is_none(), record.revision), (10, true, 2));
    assert_eq!(
        look(&mut watch, &anchor, &record, now, |one| ready(&record, one, 100)),
        StepVerdict::Wait,
        "it is over"
    );
}

#[test]
fn a_form_whose_runs_fail_goes_back_and_says_why() {
    let mut anchor = anchor_of(4);
    anchor.deploy("app", &form(1, "\"1\"")).unwrap();
    let record = anchor.deploy("app", &form(2, "\"1\"")).unwrap();
    let verdict = look(&mut Watch::new(&record, 0), &anchor, &record, 0, |one| ready(&record, one, 40));
    let StepVerdict::Bad(why) = verdict else { panic!("{verdict:?}") };
    assert_eq!(why, "40 of 100 runs failed, of revision 1 0 of 400");
    let returned = back(&record, why.clone(), &anchor.known()).unwrap();
    assert!(anchor.put(&returned));
    assert_eq!((new_at(&anchor, &returned), returned.revision, returned.last, returned.serial), (0, 1, 2, 3));
    let told = returned.returned.as_ref().unwrap();
    assert_eq!((told.revision, &told.why), (2, &why));
    assert_eq!(back(&returned, why, &anchor.known()), None, "there is no way further back");
    let third = anchor.deploy("app", &form(3, "\"1\"")).unwrap();
    assert_eq!((third.revision, third.returned), (3, None));
    // Failures that were there before are no fault of the new form.
    let as_before = look(&mut Watch::new(&record, 0), &anchor, &record, 0, |one| {
        let mut progress = ready(&record, one, 40);
        let runs = progress.runs.as_mut().unwrap();
        (runs.before.failed, runs.now.failed) = (40, 40);
        progress
    });
    assert_eq!(as_before, StepVerdict::Wait);
}

#[test]
fn a_form_that_does_not_start_or_takes_its_nodes_away_goes_back() {
    let mut anchor = anchor_of(3);
    anchor.deploy("app", &form(1, "\"1\"")).unwrap();
    let record = anchor.deploy("app", &form(2, "\"1\"")).unwrap();
    let first = *record.underway.as_ref().unwrap().nodes.first().unwrap();
    let trouble = Trouble { code: "L2013".to_owned(), detail: "it traps".to_owned(), hint: String::new() };
    let failed = |one: &NodeId| match *one == first {
        true => Progress { stage: Stage::Failed, trouble: Some(trouble.clone()), ..ready(&record, one, 0) },
        false => ready(&record, one, 0),
    };
    let mut watch = Watch::new(&record, 0);
    assert_eq!(look(&mut watch, &anchor, &record, 0, failed), StepVerdict::Wait, "it tries again");
    let tries = |one: &NodeId| Progress { stage: Stage::Working, trouble: None, ..failed(one) };
    assert_eq!(look(&mut watch, &anchor, &record, 9_000, tries), StepVerdict::Wait);
    let name = format!("pi-{}", first.0[0]);
    let why = StepVerdict::Bad(format!("{name} cannot run it: L2013 it traps"));
    assert_eq!(look(&mut watch, &anchor, &record, 10_000, failed), why);

    let mut watch = Watch::new(&record, 0);
    anchor.candidates.iter_mut().find(|one| one.node == first).unwrap().is_there = false;
    let fine = |one: &NodeId| ready(&record, one, 0);
    assert_eq!(look(&mut watch, &anchor, &record, 119_000, fine), StepVerdict::Wait, "it may come back");
    let why = StepVerdict::Bad("no node that has it was heard of for 120 s".to_owned());
    assert_eq!(look(&mut watch, &anchor, &record, 120_000, fine), why);
}

/// A node with a full disk, or an older program, is heard of and never has the form. Its step used to stand for ever.
#[test]
fn a_form_whose_record_a_node_does_not_take_goes_back() {
    let mut anchor = anchor_of(3);
    let before = anchor.deploy("app", &form(1, "\"1\"")).unwrap();
    let record = anchor.deploy("app", &form(2, "\"1\"")).unwrap();
    let first = *record.underway.as_ref().unwrap().nodes.first().unwrap();
    let name = format!("pi-{}", first.0[0]);
    let why = StepVerdict::Bad(format!("{name} has not taken the record for 120 s"));
    let as_before = |one: &NodeId| ready(&before, one, 0);
    let set_there = |anchor: &mut Anchor, is_there| {
        anchor.candidates.iter_mut().find(|one| one.node == first).unwrap().is_there = is_there;
    };
    let mut watch = Watch::new(&record, 0);
    for now in [0, 60_000, 119_000] {
        assert_eq!(look(&mut watch, &anchor, &record, now, as_before), StepVerdict::Wait, "{now}");
    }
    assert_eq!(look(&mut watch, &anchor, &record, 120_000, as_before), why);
    // One that was away meanwhile could not take it.
    set_there(&mut anchor, false);
    assert_eq!(look(&mut watch, &anchor, &record, 121_000, as_before), StepVerdict::Wait);
    set_there(&mut anchor, true);
    for now in [200_000, 319_000] {
        assert_eq!(look(&mut watch, &anchor, &record, now, as_before), StepVerdict::Wait, "{now}");
    }
    assert_eq!(look(&mut watch, &anchor, &record, 320_000, as_before), why);
    // One that has it may still be busy with other deployments.
    let mut watch = Watch::new(&record, 0);
    let progress = as_before(&first);
    for now in [0, 1_000_000] {
        let (progress, name) = (Some(&progress), "pi");
        let busy = StepHeard { node: first, name, is_there: true, has_all: true, progress, at_ms: now };
        assert_eq!(watch.look(&record, &[busy], now), StepVerdict::Wait, "{now}");
    }
}

#[test]
fn a_node_that_does_not_say_how_its_runs_end_does_not_let_a_form_go_on() {
    let mut anchor = anchor_of(3);
    anchor.deploy("app", &form(1, "\"1\"")).unwrap();
    let record = anchor.deploy("app", &form(2, "\"1\"")).unwrap();
    let mut watch = Watch::new(&record, 0);
    let silent = |one: &NodeId| Progress { runs: None, ..ready(&record, one, 0) };
    for now in [0, WATCH_MS, WATCH_MS * 100] {
        assert_eq!(look(&mut watch, &anchor, &record, now, silent), StepVerdict::Wait, "{now}");
    }
}

#[test]
fn an_order_in_between_begins_anew_from_what_all_had() {
    let mut anchor = anchor_of(4);
    anchor.deploy("app", &form(1, "\"1\"")).unwrap();
    anchor.deploy("app", &form(2, "\"1\"")).unwrap();
    let third = anchor.deploy("app", &form(3, "\"2\"")).unwrap();
    assert_eq!(third.underway.as_ref().map(|one| (one.before.revision, one.nodes.len())), Some((1, 2)));
    let back = anchor.take("app", Wish::RollBack { to: Some(1) }).unwrap();
    assert_eq!((back.revision, back.underway), (1, None), "by a person's word all go at once");
    let removed = anchor.take("app", Wish::Remove).unwrap();
    assert_eq!((removed.manifest, removed.underway), (None, None));
}

#[test]
fn other_deployments_keep_off_both_forms() {
    let mut anchor = anchor_of(4);
    anchor.deploy("app", &form(1, "\"1\"")).unwrap();
    anchor.deploy("app", &form(2, "\"1\"").replace("/hello", "/hi").replace("function.hello", "function.hi")).unwrap();
    for text in ["[function.hello]\nimage = \"IMAGE\"\n", "[function.x]\nimage = \"IMAGE\"\nhttp = \"/hello\"\n"] {
        assert!(anchor.deploy("other", text).is_err(), "{text}");
    }
}

/// One fleet: nodes with progress of their own, and an anchor that is started again now and then.
struct World {
    random: Random,
    anchor: Anchor,
    /// Of each node: the form that runs, runs of it and of the one before.
    nodes: BTreeMap<NodeId, (Progress, u64)>,
    /// Of a hundred runs so many fail in the new form.
    fails: u64,
    now: u64,
}

impl World {
    fn new(seed: u64, fails: u64) -> Self {
        let mut random = Random(seed);
        let count = random.between(3, 12) as u8;
        let mut anchor = anchor_of(count);
        let first = anchor.deploy("app", &form(1, "\"1\", \"30%\"")).unwrap();
        let nodes = anchor.candidates.iter().map(|one| {
            let progress = Progress { serial: first.serial, stage: Stage::Ready, trouble: None, runs: None };
            (one.node, (progress, 0))
        });
        let nodes = nodes.collect();
        Self { random, nodes, anchor, fails, now: 1_000 }
    }

    /// Some seconds of all nodes: they take what holds, run, tell, go away and come back.
    fn pass(&mut self, record: &Record) {
        self.now += self.random.between(1_000, 6_000);
        for candidate in &mut self.anchor.candidates {
            // Never all at once for long, and they come back soon.
            candidate.is_there = if candidate.is_there { !self.random.once_in(40) } else { self.random.once_in(3) };
            let (progress, said_at) = self.nodes.get_mut(&candidate.node).unwrap();
            if !candidate.is_there {
                continue;
            }
            let revision = record.held(&candidate.node).revision;
            let runs = progress.runs.get_or_insert_default();
            if runs.revision != revision {
                *runs = Runs { revision, now: RunCounts::default(), before: runs.now };
            }
            for _ in 0..self.random.below(20) {
                runs.now.ended += 1;
                let fails = if revision == 2 { self.fails } else { 1 };
                runs.now.failed += u64::from(self.random.below(100) < fails);
            }
            (progress.serial, progress.stage, *said_at) = (record.serial, Stage::Ready, self.now);
        }
    }

    fn look(&self, watch: &mut Watch, record: &Record) -> StepVerdict {
        let heard = self.anchor.candidates.iter().map(|one| {
            let (progress, at_ms) = &self.nodes[&one.node];
            let (is_there, has_all) = (one.is_there, progress.serial == record.serial);
            let progress = Some(progress);
            StepHeard { node: one.node, name: &one.name, is_there, has_all, progress, at_ms: *at_ms }
        });
        watch.look(record, &heard.collect::<Vec<_>>(), self.now)
    }

    /// Runs until no form is on its way any more. The most nodes that had the new one, and the end.
    fn run(&mut self) -> (usize, Record) {
        let mut record = self.anchor.deploy("app", &form(2, "\"1\", \"30%\"")).unwrap();
        let mut watch = Watch::new(&record, self.now);
        let mut most = 0;
        for _ in 0..10_000 {
            if record.underway.is_none() {
                return (most, record);
            }
            most = most.max(new_at(&self.anchor, &record));
            self.pass(&record);
            // The anchor starts again: what it knows is what its disk has.
            if self.random.once_in(30) {
                let bytes = signed(&record).bytes().to_vec();
                let read = SignedRecord::read(&bytes, crate::world::FLEET, &crate::world::ca().public()).unwrap();
                record = read.record().clone();
                watch = Watch::new(&record, self.now);
            }
            let next = match self.look(&mut watch, &record) {
                StepVerdict::Wait => continue,
                StepVerdict::Good => on(&record, &self.anchor.known()),
                StepVerdict::Bad(why) => back(&record, why, &self.anchor.known()).unwrap(),
            };
            assert_eq!((next.serial, next.made_at), (record.serial + 1, NOW));
            assert!(self.anchor.records.put(Arc::new(signed(&next))).unwrap());
            record = next;
        }
        panic!("it never ends");
    }
}

#[test]
fn in_simulation_bad_forms_end_at_the_first_step_and_good_ones_everywhere() {
    for seed in 0..200 {
        let (most, end) = World::new(seed, 60).run();
        assert_eq!((most, end.revision, end.returned.is_some()), (1, 1, true), "bad, seed {seed}");
        let (most, end) = World::new(seed, 1).run();
        assert!(most >= 1 && end.revision == 2 && end.returned.is_none(), "good, seed {seed}: {:?}", end.returned);
    }
}

#[test]
fn a_record_that_no_anchor_makes_is_refused() {
    let mut anchor = anchor_of(3);
    anchor.deploy("app", &form(1, "\"1\"")).unwrap();
    let record = anchor.deploy("app", &form(2, "\"1\"")).unwrap();
    let is_read = |record: &Record| {
        SignedRecord::read(signed(record).bytes(), crate::world::FLEET, &crate::world::ca().public()).is_ok()
    };
    assert!(is_read(&record));
    let breaks: [fn(&mut fleet_deploy::Underway); 5] = [
        |one| one.step = 0,
        |one| one.step = 2,
        |one| one.nodes.clear(),
        |one| one.before.revision = 2,
        |one| one.before.places.clear(),
    ];
    for (at, harm) in breaks.into_iter().enumerate() {
        let mut harmed = record.clone();
        harm(harmed.underway.as_mut().unwrap());
        assert!(!is_read(&harmed), "{at}");
    }
}
