//! What is forged, cut, changed or of another fleet is refused by its code.

use crate::world::{Anchor, FLEET, ca, candidate, deployer, manifest, order, signed};
use fleet_deploy::profile::LABELS_MAX;
use fleet_deploy::records::DEPLOYMENTS_MAX;
use fleet_deploy::talk::{
    FunctionLoad, LOADS_MAX, NodeTold, Progress, ROUND_TRIPS_MAX, RunCounts, Runs, Stage, TalkReply, Trouble,
};
use fleet_deploy::{DeployerKey, Deployers, Profile, SignedOrder, SignedRecord, Wish};
use fleet_trust::{NodeId, NodeKey};
use manifest::Name;
use problem::{Code, Problem};
use std::collections::BTreeMap;

const HELLO: &str = "[function.hello]\nimage = \"IMAGE\"\nhttp = \"/hello\"\n";

fn sealed_order() -> Vec<u8> {
    let wish = Wish::Deploy(Box::new(manifest(HELLO)));
    SignedOrder::sign(order("app", 0, wish), &deployer()).unwrap().bytes().to_vec()
}

#[test]
fn an_order_counts_with_its_deployers_key_alone() {
    let mut deployers = Deployers::default();
    deployers.add("ci", &deployer().public(), 0).unwrap();
    assert_eq!(deployers.add("ci", &deployer().public(), 0).unwrap_err().code, Code::Usage);
    let read = SignedOrder::read(&sealed_order()).unwrap();
    let key = deployers.key(read.deployer()).unwrap();
    assert_eq!(read.check(&key).unwrap().name.as_str(), "app");

    let thief = DeployerKey::new("ci", [9; 32]).unwrap();
    let forged = SignedOrder::sign(order("app", 0, Wish::Remove), &thief).unwrap();
    assert_eq!(forged.check(&key).unwrap_err().code, Code::DeployerUnknown);
    deployers.remove("ci").unwrap();
    assert_eq!(deployers.key("ci").unwrap_err().code, Code::DeployerUnknown);
}

#[test]
fn an_order_with_another_byte_is_none() {
    let bytes = sealed_order();
    let key = deployer().public();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let refused = SignedOrder::read(&changed).and_then(|order| order.check(&key).cloned());
        let code = refused.unwrap_err().code;
        assert!(matches!(code, Code::DeploymentGarbled | Code::DeployerUnknown), "byte {at}: {code}");
        assert!(SignedOrder::read(&bytes[..at]).is_err());
    }
}

#[test]
fn a_record_is_the_fleets_or_none() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    let record = anchor.deploy("app", HELLO).unwrap();
    let bytes = signed(&record).bytes().to_vec();
    assert_eq!(SignedRecord::read(&bytes, FLEET, &ca().public()).unwrap().record(), &record);
    let refused =
        |bytes: &[u8], fleet: &str| SignedRecord::read(bytes, fleet, &ca().public()).map(|_| ()).unwrap_err().code;
    assert_eq!(refused(&bytes, "another"), Code::DeploymentGarbled);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert_eq!(refused(&changed, FLEET), Code::DeploymentGarbled, "byte {at}");
    }
    let member = NodeKey::from_seed(&[9; 32]);
    let forged = SignedRecord::sign(record.clone(), |purpose, parts| member.sign(purpose, parts)).unwrap();
    assert_eq!(refused(forged.bytes(), FLEET), Code::DeploymentGarbled);
    // The CA signs other things too: none of them is a record.
    let misused = SignedRecord::sign(record.clone(), |_, parts| ca().sign("lighterage order 1", parts)).unwrap();
    assert_eq!(refused(misused.bytes(), FLEET), Code::DeploymentGarbled);

    let mut wrong = record.clone();
    wrong.places.clear();
    assert_eq!(refused(signed(&wrong).bytes(), FLEET), Code::DeploymentGarbled, "not all is placed");
    let mut wrong = record.clone();
    wrong.places.push(record.places[0].clone());
    assert_eq!(refused(signed(&wrong).bytes(), FLEET), Code::DeploymentGarbled, "placed twice");
    let wrong = fleet_deploy::Record { serial: 0, ..record };
    assert_eq!(refused(signed(&wrong).bytes(), FLEET), Code::DeploymentGarbled, "no serial");
}

#[test]
fn a_key_reads_back_and_shows_no_secret() {
    let key = deployer();
    let read = DeployerKey::read(&format!(" {}\n", key.secret_text())).unwrap();
    assert_eq!((read.name.as_str(), read.public()), ("ci", key.public()));
    assert_eq!(format!("{key:?}"), "DeployerKey(ci)");
    let text = key.secret_text();
    for wrong in ["", "lighter-deployer-1.", "lighter-deployer-1.ci.AAAA", "lighter-join-1.x", &text[..text.len() - 1]]
    {
        assert_eq!(DeployerKey::read(wrong).unwrap_err().code, Code::DeployerUnknown, "{wrong}");
    }
}

#[test]
fn what_a_node_says_is_bounded_and_plain() {
    let good =
        r#"{"profile":{"labels":{"site":"a"},"words":["wasm"],"memory_bytes":1,"new":true},"digest":1,"progress":{}}"#;
    assert_eq!(NodeTold::read(good.as_bytes()).unwrap().profile.labels["site"], "a");
    let ways: Vec<String> = (0..=ROUND_TRIPS_MAX as u8).map(|at| format!("\"{}\":1", NodeId([at; 16]))).collect();
    let many = good.replace("\"digest\"", &format!("\"round_trips_us\":{{{}}},\"digest\"", ways.join(",")));
    for wrong in [
        r#"{"profile":{"labels":{"site":"\u001b[2J"},"words":[],"memory_bytes":1},"digest":1,"progress":{}}"#,
        r#"{"profile":{"labels":{},"words":["a b"],"memory_bytes":1},"digest":1,"progress":{}}"#,
        r#"{"profile":{"labels":{},"words":[],"memory_bytes":1},"digest":1,"progress":{"../x":{"serial":1,"stage":"ready"}}}"#,
        "[]",
        &many,
    ] {
        assert_eq!(NodeTold::read(wrong.as_bytes()).unwrap_err().code, Code::FleetMessage, "{wrong}");
    }
    assert_eq!(TalkReply::read(b"{}").unwrap_err().code, Code::FleetMessage);
    assert_eq!(TalkReply::read(br#"{"digest":7}"#).unwrap(), TalkReply { digest: 7, ..TalkReply::default() });
}

/// A node whose disk was full, with many deployments that failed, used to say more than anybody read.
#[test]
fn a_node_can_say_that_everything_fails() {
    let profile = Profile {
        labels: (0..LABELS_MAX).map(|at| (format!("{:a>24}{at}", ""), "b".repeat(24))).collect(),
        words: ["wasm", "aarch64"].map(str::to_owned).into(),
        memory_bytes: u64::MAX,
    };
    // Each byte of the text takes six in JSON.
    let problem = Problem::new(Code::DiskFull, "\u{1}".repeat(1_000)).with_hint("\u{1}".repeat(1_000));
    let counts = RunCounts { ended: u64::MAX, failed: u64::MAX };
    let runs = Some(Runs { revision: u64::MAX, now: counts, before: counts });
    let progress = Progress { serial: u64::MAX, stage: Stage::Failed, trouble: Some(Trouble::from(&problem)), runs };
    let far: BTreeMap<NodeId, u64> = (0..ROUND_TRIPS_MAX as u8).map(|at| (NodeId([at; 16]), u64::MAX)).collect();
    let load = FunctionLoad { at_ms: u64::MAX, busy_ms: u64::MAX, cpu_ms: u64::MAX, ..FunctionLoad::default() };
    let named = |at: usize| -> Name { format!("f{:a>55}{at}", "").parse().unwrap() };
    let loads: BTreeMap<Name, FunctionLoad> = (0..LOADS_MAX).map(|at| (named(at), load)).collect();
    for (count, text_bytes) in [(1, 1_000), (20, 1_000), (60, 300), (250, 60), (DEPLOYMENTS_MAX, 0)] {
        let name = |at: usize| -> Name { format!("d{:a>55}{at}", "").parse().unwrap() };
        let failed = (0..count).map(|at| (name(at), progress.clone())).collect();
        let told = NodeTold {
            profile: profile.clone(),
            digest: u64::MAX,
            tokens: 0,
            progress: failed,
            round_trips_us: far.clone(),
            loads: loads.clone(),
        };
        let read = NodeTold::read(&told.write()).unwrap();
        assert_eq!((read.progress.len(), &read.profile), (count, &profile));
        let said = read.progress.values().next().unwrap().trouble.as_ref().unwrap();
        assert_eq!((said.code.as_str(), said.detail.len(), said.hint.len()), ("L5003", text_bytes, text_bytes));
        let ready = Progress { stage: Stage::Ready, trouble: None, ..progress.clone() };
        let progress = (0..count).map(|at| (name(at), ready.clone())).collect();
        let told = NodeTold {
            profile: profile.clone(),
            digest: u64::MAX,
            tokens: 0,
            progress,
            round_trips_us: far.clone(),
            loads: loads.clone(),
        };
        let read = NodeTold::read(&told.write()).unwrap();
        assert_eq!(read.progress.values().next().unwrap().runs, runs.filter(|_| count < DEPLOYMENTS_MAX));
    }
}
