//! Any bytes are an order, a record, what a node says of deployments, or a fault; what is read is written as it was,
//! and a record says of every node what is for it.
#![no_main]

use fleet_deploy::talk::{NodeTold, TalkReply};
use fleet_deploy::{DeployerKey, Profile, SignedOrder, SignedRecord};
use fleet_trust::{NodeId, NodeKey};
use lighter_fuzz::fuzz_target;
use std::sync::LazyLock;

/// The fleet of the seeds, and the key of its CA.
const FLEET: &str = "0011223344556677";
static CA: LazyLock<NodeKey> = LazyLock::new(|| NodeKey::from_seed(&[7; 32]));

fuzz_target!(|data: &[u8]| {
    // As it came, and as JSON that the CA has signed: chance alone never gets past a signature.
    record(data);
    let signature = CA.sign("lighterage record 1", &[data]);
    record(&[&b"LREC\x01"[..], &signature, data].concat());
    let head = &[&b"LORD\x01"[..], &[0; 64]].concat();
    for bytes in [data, &[head, data].concat()] {
        if let Ok(order) = SignedOrder::read(bytes) {
            assert_eq!(SignedOrder::read(order.bytes()).as_ref(), Ok(&order));
            let _ = order.check(&CA.public());
        }
    }
    if let Ok(told) = NodeTold::read(data) {
        let written = serde_json::to_vec(&told).expect("it is plain data");
        assert_eq!(NodeTold::read(&written), Ok(told));
    }
    let _ = TalkReply::read(data);
    if let Ok(text) = str::from_utf8(data)
        && let Ok(key) = DeployerKey::read(text)
    {
        assert_eq!(DeployerKey::read(&key.secret_text()).map(|read| read.public()), Ok(key.public()));
    }
});

fn record(bytes: &[u8]) {
    let Ok(signed) = SignedRecord::read(bytes, FLEET, &CA.public()) else { return };
    let again = SignedRecord::sign(signed.record().clone(), |purpose, parts| CA.sign(purpose, parts));
    assert_eq!(again.as_ref().map(SignedRecord::record), Ok(signed.record()));
    let profile = Profile { words: ["wasm".to_owned()].into(), memory_bytes: u64::MAX, ..Profile::default() };
    let all = signed.record().manifest.as_ref().map_or(0, |manifest| manifest.function.len());
    let share = signed.record().share(&NodeId([1; 16]), &profile);
    assert!(share.is_none_or(|share| share.function.len() <= all));
}
