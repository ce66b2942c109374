//! Nodes that count together on an engine with faults: nothing that was confirmed is lost, whatever else goes wrong.

use facts::{
    Facts as _, Faults, Heard, Key, News, NodeName, NotSet, Post as _, Prefix, Simulated, SimulatedNode, at_once,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SEEDS: u64 = 200;
const STEPS: u64 = 400;

fn all_faults() -> Faults {
    Faults {
        election_once_in: 40,
        unconfirmed_once_in: 10,
        old_once_in: 5,
        lost_once_in: 10,
        doubled_once_in: 10,
        late: Duration::from_secs(3),
    }
}

fn nodes(engine: &Simulated) -> Vec<SimulatedNode> {
    ["a", "b", "c"].map(|name| engine.node(NodeName::new(name).unwrap(), true)).into()
}

/// Each fact is the list of who wrote it, one after the other, so that a lost write is a missing name.
#[test]
fn what_was_confirmed_stays_and_what_was_refused_is_nowhere() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let engine = Simulated::new(seed, all_faults());
        let nodes = nodes(&engine);
        let keys = ["fn.a", "fn.b"].map(|key| Key::new(key).unwrap());
        let mut fate: BTreeMap<u64, Option<bool>> = BTreeMap::new();
        for step in 0..STEPS {
            engine.advance(Duration::from_millis(step * 300));
            let (node, key) = (&nodes[(step % 3) as usize], &keys[(step / 3 % 2) as usize]);
            let Ok(fact) = at_once(node.get(key)).expect("it is answered at once") else {
                seen.insert("Away".to_owned());
                continue;
            };
            let (revision, mut value) = fact
                .map_or((None, String::new()), |fact| (Some(fact.revision), String::from_utf8(fact.value).unwrap()));
            value += &format!("{step},");
            let set = at_once(node.set(key, revision, Some(value.as_bytes()))).expect("it is answered at once");
            seen.insert(format!("{:?}", set.as_ref().map(|_| ())));
            fate.insert(
                step,
                match set {
                    Ok(_) => Some(true),
                    Err(NotSet::Unknown) => None,
                    Err(_) => Some(false),
                },
            );
        }
        engine.advance(Duration::from_millis(STEPS * 300) + Duration::from_secs(20));
        let listed = at_once(nodes[0].list(&Prefix::ALL)).unwrap().expect("it is there again");
        let values: Vec<String> = listed.into_iter().map(|fact| String::from_utf8(fact.value).unwrap()).collect();
        let written: Vec<u64> =
            values.iter().flat_map(|value| value.split_terminator(',')).map(|step| step.parse().unwrap()).collect();
        assert_eq!(written.len(), written.iter().collect::<BTreeSet<_>>().len(), "seed {seed}: written twice");
        for (step, was_written) in fate {
            if let Some(was_written) = was_written {
                assert_eq!(written.contains(&step), was_written, "seed {seed}, step {step}");
            }
        }
    }
    assert_eq!(seen.len(), 4, "written, changed before, unknown and away: {seen:?}");
}

#[test]
fn a_watch_through_elections_ends_at_what_is_true() {
    for seed in 0..SEEDS {
        let engine = Simulated::new(seed, all_faults());
        let nodes = nodes(&engine);
        let mut watch = nodes[0].watch(&Prefix::ALL);
        let mut known = BTreeMap::new();
        for step in 0..STEPS {
            engine.advance(Duration::from_millis(step * 300));
            let key = Key::new(&format!("fn.{}", step % 5)).unwrap();
            let Some(Ok(fact)) = at_once(nodes[1].get(&key)) else { continue };
            let value = step.to_string();
            let value = (step % 7 != 0).then_some(value.as_bytes());
            let _ = at_once(nodes[1].set(&key, fact.map(|fact| fact.revision), value));
            if step == STEPS / 2 {
                engine.wipe();
            }
            if step % 4 == 0 {
                tell(&mut *watch, &mut known);
            }
        }
        engine.advance(Duration::from_millis(STEPS * 300) + Duration::from_secs(20));
        tell(&mut *watch, &mut known);
        let listed = at_once(nodes[0].list(&Prefix::ALL)).unwrap().expect("it is there again");
        let listed: BTreeMap<_, _> = listed.into_iter().map(|fact| (fact.key, fact.value)).collect();
        assert_eq!(known, listed, "seed {seed}");
    }
}

fn tell(watch: &mut dyn facts::Watch, known: &mut BTreeMap<Key, Vec<u8>>) {
    while let Some(told) = at_once(watch.next()) {
        match told {
            News::All(all) => *known = all.into_iter().map(|fact| (fact.key, fact.value)).collect(),
            News::Set(fact) => _ = known.insert(fact.key, fact.value),
            News::Deleted(key, _) => _ = known.remove(&key),
        }
    }
}

#[test]
fn messages_are_lost_doubled_and_late_and_never_made_up() {
    let (mut lost, mut doubled, mut overtaken, mut back) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let engine = Simulated::new(seed, all_faults());
        let nodes = nodes(&engine);
        let to = NodeName::new("b").unwrap();
        let mut heard = Vec::new();
        for step in 0..200_u64 {
            engine.advance(Duration::from_millis(step * 100));
            if step == 100 {
                engine.cut(Duration::from_secs(11));
            }
            let _ = at_once(nodes[0].send(&to, &step.to_le_bytes()));
            while let Some(one) = at_once(nodes[1].receive()) {
                match one {
                    Heard::Message { from, bytes } => {
                        assert_eq!(from.as_str(), "a");
                        heard.push(u64::from_le_bytes(bytes.try_into().expect("it is as it was sent")));
                    }
                    Heard::Back => back += 1,
                }
            }
        }
        let once: BTreeSet<_> = heard.iter().collect();
        lost += 200 - once.len();
        doubled += heard.len() - once.len();
        overtaken += heard.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(heard.iter().all(|number| *number < 200));
    }
    assert!(lost > 0 && doubled > 0 && overtaken > 0, "{lost} lost, {doubled} doubled, {overtaken} overtaken");
    assert_eq!(back, SEEDS);
}
