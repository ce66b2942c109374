//! The folder of a node: small files for its owner alone.

use fleet_trust::folder::Folder;
use fleet_trust::ledger::Ledger;
use fleet_trust::link::Joined;
use problem::Code;
use std::os::unix::fs::PermissionsExt;

use crate::world::{fleet, key};

#[test]
fn a_key_is_made_once_and_belongs_to_its_owner() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("fleet");
    let id = Folder::open(&path).unwrap().key().unwrap().id();
    assert_eq!(Folder::open(&path).unwrap().key().unwrap().id(), id);
    let mode = |name: &str| std::fs::metadata(path.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("node.key")), (0o700, 0o600));
    std::fs::write(path.join("node.key"), [1; 31]).unwrap();
    assert_eq!(Folder::open(&path).unwrap().key().unwrap_err().code, Code::DataUnusable);
}

#[test]
fn a_fleet_is_founded_once() {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path()).unwrap();
    assert!(folder.authority().unwrap().is_none());
    let id = folder.found("campus").unwrap().fleet();
    assert_eq!(folder.authority().unwrap().unwrap().fleet(), id);
    assert_eq!(folder.found("campus").err().unwrap().code, Code::Usage);
    assert_eq!(folder.ledger().unwrap(), Ledger::default());
    std::fs::remove_file(home.path().join("ca.key")).unwrap();
    assert_eq!(folder.authority().err().unwrap().code, Code::DataUnusable);
    assert!(!home.path().join("ca.key").exists(), "a key that is lost is not replaced in silence");
}

#[tokio::test]
async fn what_a_node_joined_is_there_when_it_starts_again() {
    let fleet = fleet(1).await;
    let (_, victim) = fleet.joined(8).await;
    fleet.anchor.revoke(&victim.node()).unwrap();
    let (Joined { membership, revoked }, _) = fleet.joined(7).await;
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path()).unwrap();
    assert_eq!(folder.membership().unwrap(), None);
    folder.keep_membership(&membership).unwrap();
    assert_eq!(folder.revoked(&membership).unwrap(), None);
    folder.keep_revoked(revoked.as_ref().unwrap()).unwrap();
    let again = Folder::open(home.path()).unwrap();
    assert_eq!(again.membership().unwrap(), Some(membership.clone()));
    assert_eq!(again.revoked(&membership).unwrap(), revoked);
    assert!(again.revoked(&membership).unwrap().unwrap().contains(&key(8).id()));
    // Somebody who writes to the folder without the CA's key takes nobody off the list.
    let mut bytes = std::fs::read(home.path().join("revoked")).unwrap();
    bytes[40] ^= 1;
    std::fs::write(home.path().join("revoked"), bytes).unwrap();
    assert_eq!(again.revoked(&membership).unwrap_err().code, Code::DataUnusable);
}
