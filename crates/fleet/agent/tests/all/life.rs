//! A fleet from its first node to its last: founded, joined, stopped, started again, made smaller.

use crate::world::{Machine, campus, is_heard, is_whole, names, settings, until};
use fleet_agent::{Agent, Row, Settings, Status};
use fleet_trust::{Address, Clock};
use problem::Code;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn each_of_three_nodes_hears_of_all_three() {
    let fleet = campus().await;
    for (_, agent) in &fleet {
        let status = until(agent, is_whole).await;
        assert_eq!((status.name.as_str(), status.trouble.is_none()), ("campus", true));
        let anchors: Vec<&str> =
            status.rows.iter().filter(|row| row.is_anchor).map(|row| row.record.name.as_str()).collect();
        assert_eq!(anchors, ["server-1"]);
        assert!(status.rows.iter().all(|row| row.record.version == "0.1.0" && row.record.address.is_some()));
    }
}

#[tokio::test]
async fn a_fleet_that_was_stopped_as_a_whole_is_one_again() {
    let fleet = campus().await;
    for (_, agent) in &fleet {
        until(agent, is_whole).await;
    }
    let machines = fleet.map(|(machine, agent)| {
        agent.end();
        machine
    });
    // The anchor last.
    let [anchor, one, other] = machines;
    let (one, other) = (one.start().await, other.start().await);
    // What they know of each other is on their disks, so they need no anchor to meet.
    until(&one, |status| status.rows.iter().any(|row| row.record.name == "pi-8" && is_heard(row))).await;
    let status = until(&one, |status| status.trouble.is_some()).await;
    assert_eq!(status.trouble.unwrap().code, Code::AnchorsAway);
    let anchor = anchor.start().await;
    for agent in [&anchor, &one, &other] {
        until(agent, |status| is_whole(status) && status.trouble.is_none()).await;
    }
}

#[tokio::test]
async fn a_node_that_is_taken_out_is_out_at_once_and_everywhere() {
    let fleet = campus().await;
    let [(_, anchor), (_, stolen), (machine, other)] = &fleet;
    for agent in [anchor, stolen, other] {
        until(agent, is_whole).await;
    }
    let (_, name) = anchor.remove("pi-7").await.unwrap();
    assert_eq!(name, "pi-7");
    // It is gone when the command returns.
    assert_eq!(names(&anchor.status().unwrap()), ["pi-8", "server-1"]);
    until(other, |status| names(status) == ["pi-8", "server-1"]).await;
    // Its link breaks first; why, it is told when it tries again.
    until(stolen, |status| status.trouble.as_ref().is_some_and(|trouble| trouble.code == Code::NodeRevoked)).await;
    // Also after a start, because the list is on the disk.
    other.end();
    assert_eq!(names(&machine.start().await.status().unwrap()), ["pi-8", "server-1"]);
    let token = anchor.invite(1, 60).await.unwrap();
    assert_eq!(stolen.join(&token).await.unwrap().trouble.unwrap().code, Code::NodeRevoked);
}

#[tokio::test]
async fn a_node_that_leaves_is_revoked_and_may_join_as_a_new_one() {
    let fleet = campus().await;
    let [(_, anchor), (machine, one), (_, other)] = &fleet;
    until(one, is_whole).await;
    assert_eq!(anchor.leave().await.unwrap_err().code, Code::FleetAlready);
    let before = one.status().unwrap().rows[0].node;
    assert_eq!(one.leave().await.unwrap(), "campus");
    assert_eq!((one.status().unwrap_err().code, machine.folder().exists()), (Code::NoFleet, false));
    assert_eq!(one.leave().await.unwrap_err().code, Code::NoFleet);
    assert_eq!(names(&anchor.status().unwrap()), ["pi-8", "server-1"]);
    until(other, |status| names(status) == ["pi-8", "server-1"]).await;
    // Its name is free, its key is not.
    let token = anchor.invite(1, 60).await.unwrap();
    let again = one.join(&token).await.unwrap().rows.remove(0);
    assert!(again.node != before && again.record.name == "pi-7", "{again:?}");
    until(other, is_whole).await;
}

#[tokio::test]
async fn a_node_leaves_only_where_an_anchor_hears_it() {
    let fleet = campus().await;
    let [(_, anchor), (machine, one), (_, other)] = &fleet;
    for agent in [one, other] {
        until(agent, is_whole).await;
    }
    // It was taken out: it need not be heard to forget its fleet.
    anchor.remove("pi-8").await.unwrap();
    until(other, |status| status.trouble.as_ref().is_some_and(|trouble| trouble.code == Code::NodeRevoked)).await;
    anchor.end();
    assert_eq!(one.leave().await.unwrap_err().code, Code::AnchorsAway);
    assert!(one.status().is_ok() && machine.folder().exists(), "nothing has changed");
    assert_eq!(other.leave().await.unwrap(), "campus");
}

/// The anchor's disk broke, and a copy from before took its place. It took another node out, by a list of a revision
/// that all had already: nobody took that list, and the next one would have let the first node in again.
#[tokio::test]
async fn an_anchor_from_a_backup_lets_nobody_in_again_who_was_taken_out() {
    let [(machine, anchor), (_home, stolen), (home, other)] = campus().await;
    let late = Machine::new("pi-9").start().await;
    late.join(&anchor.invite(1, 60).await.unwrap()).await.unwrap();
    until(&other, |status| names(status) == ["pi-7", "pi-8", "pi-9", "server-1"]).await;
    let [stolen, late] = [&stolen, &late].map(|agent| agent.status().unwrap().rows[0].node);
    anchor.end();
    let restored = Machine { listen: machine.listen, ..machine.copied() };
    let anchor = machine.start().await;
    anchor.remove("pi-7").await.unwrap();
    until(&other, |status| names(status) == ["pi-8", "pi-9", "server-1"]).await;
    other.end();
    anchor.end();

    let anchor = restored.start().await;
    anchor.remove("pi-9").await.unwrap();
    let other = home.start().await;
    for agent in [&anchor, &other] {
        until(agent, |status| names(status) == ["pi-8", "server-1"]).await;
    }
    let folder = fleet_trust::folder::Folder::open(&restored.folder()).unwrap();
    until(&anchor, |_| [stolen, late].iter().all(|node| folder.ledger().unwrap().revoked().contains_key(node))).await;
    // The names of both are free.
    for name in ["pi-7", "pi-9"] {
        let token = anchor.invite(1, 60).await.unwrap();
        Machine::new(name).start().await.join(&token).await.unwrap();
    }
}

/// The last byte of the address that the machine of one test has.
static LAST_BYTE: AtomicU8 = AtomicU8::new(2);

/// Its address was worked out once, when it started, and told for ever.
#[tokio::test]
async fn an_anchor_whose_machine_has_another_address_is_known_there() {
    let home = tempfile::tempdir().unwrap();
    let own = settings(&home.path().join("fleet"), ([0, 0, 0, 0], 0).into(), Some("server-1".to_owned()));
    let anchor = Agent::new(Settings { outward: || Some([127, 0, 0, LAST_BYTE.load(Relaxed)].into()), ..own });
    anchor.found("campus").await.unwrap();
    let machine = Machine::new("pi-7");
    let member = machine.start().await;
    member.join(&anchor.invite(1, 60).await.unwrap()).await.unwrap();
    let is_at = |status: &Status, ip: &str| {
        let address = |row: &Row| row.record.address.as_ref().map(Address::to_string);
        status.rows.iter().any(|row| row.is_anchor && address(row).is_some_and(|at| at.starts_with(ip)))
    };
    until(&member, |status| is_at(status, "127.0.0.2:")).await;
    LAST_BYTE.store(3, Relaxed);
    until(&member, |status| is_at(status, "127.0.0.3:")).await;
    // So do invitations say it, and the member asks there after its next start.
    let token = anchor.invite(1, 60).await.unwrap();
    assert!(token.anchors[0].to_string().starts_with("127.0.0.3:"), "{token:?}");
    let folder = fleet_trust::folder::Folder::open(&machine.folder()).unwrap();
    until(&member, |_| folder.membership().unwrap().unwrap().anchors == token.anchors).await;
}

/// Nothing was written down while a renewal waited for anchors: a minute and more, where they do not answer.
#[tokio::test]
async fn a_renewal_that_waits_for_anchors_holds_nothing_up() {
    let fleet = campus().await;
    for (_, agent) in &fleet {
        until(agent, is_whole).await;
    }
    fleet.iter().for_each(|(_, agent)| agent.end());
    let [(anchor, _), (one, _), (other, _)] = &fleet;
    // Somebody listens where the anchor did, and says nothing.
    let _silent = loop {
        match TcpListener::bind(anchor.listen) {
            Ok(listener) => break listener,
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    };
    let kept = one.folder().join("nodes.json");
    let later = Clock::new(|| Clock::system(0).now() + 20 * 24 * 3_600, 0);
    let _one = one.start_as(|own| Settings { clock: later, ..own }).await;
    let _other = other.start_as(|own| Settings { version: "0.2.0".to_owned(), ..own }).await;
    let written = async {
        while !std::fs::read_to_string(&kept).is_ok_and(|text| text.contains("0.2.0")) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), written).await.expect("it is written down before the renewal ends");
}

/// Nobody was told before other nodes refused this one: certificates end 16 to 31 days after the anchors have gone.
#[tokio::test]
async fn a_certificate_that_ends_soon_is_said_while_no_anchor_answers() {
    let [(_home, anchor), (machine, member), _other] = campus().await;
    until(&member, is_whole).await;
    anchor.end();
    member.end();
    let said = [(20, None), (25, Some("within 5 days")), (29, Some("within a day")), (31, Some("has ended"))];
    for (days, said) in said {
        let clock = Clock::new(move || Clock::system(0).now() + days * 24 * 3_600, 0);
        let member = machine.start_as(|own| Settings { clock, ..own }).await;
        let status = until(&member, |status| status.trouble.is_some()).await;
        let trouble = status.trouble.unwrap();
        let code = said.map_or(Code::AnchorsAway, |_| Code::CertificateEnded);
        assert!(trouble.code == code && said.is_none_or(|said| trouble.detail.contains(said)), "{trouble}");
        member.end();
    }
}

fn is_told_of_another(status: &Status) -> bool {
    status.trouble.as_ref().is_some_and(|trouble| trouble.code == Code::NodeDoubled)
}

#[tokio::test]
async fn a_copied_folder_is_noticed_and_a_person_says_which_machine_it_is() {
    let fleet = campus().await;
    let [(_, anchor), (machine, original), _] = &fleet;
    until(original, is_whole).await;
    let copied = machine.copied();
    let copy = copied.start().await;
    until(&copy, |status| status.rows.iter().any(|row| row.is_anchor && is_heard(row))).await;
    until(original, is_told_of_another).await;
    // An invitation lets the original in again, and then the copy is the one that is refused.
    let token = anchor.invite(1, 60).await.unwrap();
    original.join(&token).await.unwrap();
    until(&copy, is_told_of_another).await;
    until(original, |status| status.trouble.is_none() && is_whole(status)).await;
}

#[tokio::test]
async fn a_member_that_joins_again_stays_what_it_is() {
    let fleet = campus().await;
    let [(_, anchor), (_, member), _] = &fleet;
    // Even with an invitation that is used up: it is not looked at.
    let token = anchor.invite(1, 60).await.unwrap();
    member.join(&token).await.unwrap();
    until(anchor, is_whole).await;
}

#[tokio::test]
async fn machines_of_one_name_become_nodes_of_two_names() {
    let fleet = campus().await;
    let [(_, anchor), ..] = &fleet;
    let token = anchor.invite(2, 60).await.unwrap();
    for count in [4, 5] {
        let home = tempfile::tempdir().unwrap();
        let member = Agent::new(settings(&home.path().join("fleet"), ([127, 0, 0, 1], 0).into(), None));
        member.join(&token).await.unwrap();
        until(anchor, |status| status.rows.len() == count).await;
    }
}

#[tokio::test]
async fn a_lone_node_has_no_folder_and_no_socket() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let home = tempfile::tempdir().unwrap();
    let agent = Agent::new(settings(&home.path().join("fleet"), taken.local_addr().unwrap(), None));
    agent.open().await.unwrap();
    assert_eq!(agent.status().unwrap_err().code, Code::NoFleet);
    assert!(!home.path().join("fleet").exists());
    // It is asked to listen when there is a fleet, and not before.
    assert_eq!(agent.found("campus").await.unwrap_err().code, Code::ListenFailed);
    assert!(!home.path().join("fleet").exists());
    drop(taken);
    agent.found("campus").await.unwrap();
}

#[tokio::test]
async fn a_founding_that_a_crash_cut_short_is_finished_by_the_next_start() {
    let machine = Machine::new("server-1");
    fleet_trust::folder::Folder::open(&machine.folder()).unwrap().found("campus").unwrap();
    let agent = machine.start().await;
    assert_eq!(agent.status().unwrap().name, "campus");
    agent.invite(1, 60).await.unwrap();
}
