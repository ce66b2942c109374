//! A member becomes an anchor and stops being one, over real connections: and nobody else makes it one.

use crate::world::{DAY, Fleet, NOW, fleet, key, raw_as};
use fleet_trust::folder::Folder;
use fleet_trust::link::ANCHOR;
use fleet_trust::office::{self, Estate, Nominee, OfficeAnswer, OfficeQuestion};
use fleet_trust::serve::{MemberArrival, serve};
use fleet_trust::{Address, Trust, link};
use problem::Code;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A member that lets anchors make an anchor of it.
struct Willing {
    home: TempDir,
    at: Address,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Willing {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn willing(fleet: &Fleet, seed: u8) -> Willing {
    let (joined, trust) = fleet.joined(seed).await;
    let home = tempfile::tempdir().unwrap();
    let folder = Folder::open(home.path()).unwrap();
    folder.keep_membership(&joined.membership).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = Address::Ip(listener.local_addr().unwrap());
    let trust = Arc::new(trust);
    let (sender, mut arrivals) = mpsc::channel(16);
    let serving = tokio::spawn(serve(listener, trust.clone(), None, sender));
    let answering = tokio::spawn(async move {
        while let Some(arrival) = arrivals.recv().await {
            let _ = answer(&folder, &trust, arrival, seed).await;
        }
    });
    Willing { home, at, tasks: [serving, answering] }
}

async fn answer(folder: &Folder, trust: &Trust, arrival: MemberArrival, seed: u8) -> Result<(), problem::Problem> {
    let MemberArrival { mut stream, .. } = arrival;
    let mut candidate = Nominee::new(stream.get_ref().1)?;
    loop {
        let answered = match office::receive::<OfficeQuestion>(&mut stream).await? {
            OfficeQuestion::Ready => candidate.show(&key(seed)),
            OfficeQuestion::Become { from, sealed, ledger } => candidate
                .open(&from, &sealed)
                .and_then(|ca| folder.become_anchor(&trust.membership(), &ca, &ledger).map(|()| OfficeAnswer::Done)),
            OfficeQuestion::Cease { certificate } => {
                let membership = office::as_member(trust, &certificate)?;
                folder.cease_anchor(&membership).map(|()| OfficeAnswer::Done)
            }
            OfficeQuestion::Ledger | OfficeQuestion::Adopt { .. } => {
                Ok(OfficeAnswer::Refused { code: Code::NotAnchor.to_string(), detail: String::new() })
            }
        };
        office::send(&mut stream, &answered.unwrap_or_else(|problem| OfficeAnswer::from(&problem))).await?;
    }
}

#[tokio::test]
async fn a_member_is_given_the_key_of_the_ca_once_the_ledger_has_it_as_an_anchor() {
    let fleet = fleet(1).await;
    let (one, other) = (willing(&fleet, 2).await, willing(&fleet, 3).await);
    let trust = &fleet.listening.trust;
    office::ready(trust, &one.at, &key(2).id()).await.unwrap();
    let early = office::appoint(trust, &fleet.anchor, &one.at, &key(2).id()).await.unwrap_err();
    assert_eq!(early.code, Code::Internal, "no person has said that it is to be one");
    let new = [(key(2).id(), one.at.clone()), (key(3).id(), other.at.clone())];
    fleet.anchor.appoint(&trust.node(), &new, &Estate::default()).unwrap();
    office::appoint(trust, &fleet.anchor, &one.at, &key(2).id()).await.unwrap();
    let folder = Folder::open(one.home.path()).unwrap();
    let authority = folder.authority().unwrap().expect("it is an anchor");
    assert_eq!(authority.fleet(), trust.fleet());
    assert_eq!(authority.secret_for("a"), fleet.anchor.secret_for("a"));
    assert_eq!(folder.ledger().unwrap(), fleet.anchor.ledger());
    assert_eq!(office::ledger_of(trust, &one.at, &key(2).id()).await.unwrap_err().code, Code::NotAnchor);
    // Another node listens there.
    assert!(office::appoint(trust, &fleet.anchor, &other.at, &key(2).id()).await.is_err());
    assert!(Folder::open(other.home.path()).unwrap().authority().unwrap().is_none());

    office::dismiss(trust, &fleet.anchor, &one.at, &key(2).id()).await.unwrap();
    assert!(folder.authority().unwrap().is_none() && !one.home.path().join("ca.key").exists());
    let membership = folder.membership().unwrap().unwrap();
    assert!(membership.dates().unwrap().ends > NOW + 29 * DAY);
}

#[tokio::test]
async fn what_is_no_message_between_anchors_ends_the_connection() {
    let fleet = fleet(1).await;
    let member = willing(&fleet, 2).await;
    let (joined, _) = fleet.joined(4).await;
    for wrong in [&[0xff, 0xff, 0xff, 0xff][..], &[2, 0, 0, 0, b'{', b'}'], &[3, 0, 0, 0, b'"']] {
        let mut stream = raw_as(&member.at, ANCHOR, &joined.membership, 4).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, wrong).await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        let answered = office::receive::<OfficeAnswer>(&mut stream).await;
        assert!(answered.is_err(), "{answered:?}");
    }
    assert!(link::connect(&fleet.listening.trust, &member.at, &key(2).id()).await.is_ok());
}
