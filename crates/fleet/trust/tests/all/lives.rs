//! Two machines with one key: a copied data folder is noticed.

use crate::world::{Fleet, fleet, key, meet};
use fleet_trust::anchor::Keep;
use fleet_trust::folder::Folder;
use fleet_trust::link::{self, Welcome};
use fleet_trust::{LinkEnd, Trust};
use problem::{Code, Problem};
use std::path::Path;
use tempfile::TempDir;

/// A node with a folder of its own.
struct Node {
    folder: Folder,
    trust: Trust,
}

impl Node {
    fn starts(path: &Path, fleet: &Fleet) -> Self {
        let folder = Folder::open(path).unwrap();
        let membership = folder.membership().unwrap().unwrap();
        let trust = Trust::new(folder.key().unwrap(), membership, None, fleet.hand.clock()).unwrap();
        Self { folder, trust }
    }

    async fn says_hello(&self, fleet: &Fleet) -> Result<Welcome, Problem> {
        link::hello(&self.trust, fleet.address(), |membership| self.folder.keep_membership(membership)).await
    }
}

async fn joined(fleet: &Fleet) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path()).unwrap();
    let token = fleet.anchor.invite(1, 60).unwrap();
    let joined = link::join(&token, &folder.key().unwrap(), "pi-7").await.unwrap();
    folder.keep_membership(&joined.membership).unwrap();
    home
}

fn copied(from: &TempDir) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

#[tokio::test]
async fn a_node_that_starts_again_and_again_is_welcome() {
    let fleet = fleet(1).await;
    let home = joined(&fleet).await;
    for start in 2..5 {
        let node = Node::starts(home.path(), &fleet);
        for _ in 0..2 {
            assert_eq!(node.says_hello(&fleet).await, Ok(Welcome { incarnation: start, is_doubled: false }));
        }
    }
}

#[tokio::test]
async fn a_copied_folder_is_noticed_by_both_machines() {
    let fleet = fleet(1).await;
    let home = joined(&fleet).await;
    let original = Node::starts(home.path(), &fleet);
    original.says_hello(&fleet).await.unwrap();
    let mut open = meet(&original.trust, &fleet.listening).await.unwrap();

    let elsewhere = copied(&home);
    let copy = Node::starts(elsewhere.path(), &fleet);
    assert!(!copy.says_hello(&fleet).await.unwrap().is_doubled);
    // The original's connections end, and it is told why when it asks.
    assert!(open.echo().await.is_err());
    assert_eq!(original.says_hello(&fleet).await.unwrap_err().code, Code::NodeDoubled);
    assert!(copy.says_hello(&fleet).await.unwrap().is_doubled);
    // No restart helps, and an older copy is refused at once.
    let again = Node::starts(home.path(), &fleet);
    assert_eq!(again.says_hello(&fleet).await.unwrap_err().code, Code::NodeDoubled);
    let (_, member) = fleet.anchor.ledger().members().find(|(_, one)| one.name == "pi-7").map(clone).unwrap();
    assert!(member.life.doubled_at.is_some());
}

fn clone<A: Clone, B: Clone>((a, b): (&A, &B)) -> (A, B) {
    (a.clone(), b.clone())
}

#[tokio::test]
async fn a_person_lets_the_right_machine_in_again() {
    let fleet = fleet(1).await;
    let home = joined(&fleet).await;
    let elsewhere = copied(&home);
    Node::starts(elsewhere.path(), &fleet).says_hello(&fleet).await.unwrap();
    let original = Node::starts(home.path(), &fleet);
    original.says_hello(&fleet).await.unwrap_err();
    let token = fleet.anchor.invite(1, 60).unwrap();
    let joined = link::join(&token, &original.folder.key().unwrap(), "pi-7").await.unwrap();
    original.folder.keep_membership(&joined.membership).unwrap();
    Node::starts(home.path(), &fleet).says_hello(&fleet).await.unwrap();
    let copy = Node::starts(elsewhere.path(), &fleet).says_hello(&fleet).await;
    assert_eq!(copy.unwrap_err().code, Code::NodeDoubled);
}

#[tokio::test]
async fn a_life_that_is_not_on_disk_does_not_count() {
    let fleet = fleet(1).await;
    let home = joined(&fleet).await;
    let node = Node::starts(home.path(), &fleet);
    let full = |_: &_| Err(Problem::new(Code::DataUnusable, "the disk is full"));
    let hello = link::hello(&node.trust, fleet.address(), full).await;
    assert_eq!(hello.unwrap_err().code, Code::DataUnusable);
    assert_eq!(node.trust.presence().incarnation, 1);
    assert_eq!(Node::starts(home.path(), &fleet).says_hello(&fleet).await.unwrap().incarnation, 2);
}

#[tokio::test]
async fn a_new_life_ends_the_connections_of_the_old_one() {
    let fleet = fleet(1).await;
    let (_, trust) = fleet.joined(7).await;
    let mut peer = fleet.listening.trust.connected(key(7).id()).unwrap();
    link::hello(&trust, fleet.address(), |_| Ok(())).await.unwrap();
    assert_eq!(peer.ended().await, LinkEnd::NewLife);
}

#[tokio::test]
async fn an_anchor_goes_on_with_what_its_folder_has() {
    let fleet = fleet(1).await;
    fleet.joined(7).await;
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path()).unwrap();
    folder.keep(&fleet.anchor.ledger()).unwrap();
    assert_eq!(folder.ledger().unwrap(), fleet.anchor.ledger());
}
