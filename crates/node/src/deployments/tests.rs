//! Records that one node learns, and what it runs then.

use super::answers::ANSWERING_MAX;
use super::shelf::Shelf;
use super::talking::check_said;
use super::{Deployments, Parts};
use crate::link::tests::town::TownNode;
use backup::{Passphrase, Piece, Reader, Secret};
use budget::Purpose;
use bytes::Bytes;
use fleet_agent::Directory;
use fleet_deploy::decide::decide;
use fleet_deploy::talk::Stage;
use fleet_deploy::{Order, SignedRecord, Wish};
use fleet_trust::dates::Dates;
use fleet_trust::{Authority, Clock, Membership, NodeId, NodeKey, Role, Trust};
use futures_util::future::{join, join_all};
use http_body_util::BodyExt;
use manifest::Name;
use problem::{Code, Problem};
use std::fs;
use std::sync::Arc;

const NOW: u64 = 1_795_425_300;
/// Of the fleet's CA.
const CA_SEED: [u8; 32] = [1; 32];

/// A node of a fleet in which it has heard of nobody.
struct Village {
    node: TownNode,
    deployments: Arc<Deployments>,
}

impl Village {
    async fn new() -> Self {
        let node = TownNode::start("one").await;
        let authority = Authority::found("village", &CA_SEED).unwrap();
        let key = NodeKey::from_seed(&[2; 32]);
        let certificate = authority.issue(&key.public(), Role::Member, Dates::from(NOW), [2; 16]).unwrap();
        let ca = authority.certificate().to_vec();
        let membership =
            Membership { fleet_name: "village".into(), ca, certificate, anchors: Vec::new(), incarnation: 1 };
        let trust = Arc::new(Trust::new(key, membership, None, Clock::new(|| NOW, NOW)).unwrap());
        let folder = node.node.config.data.join("fleet");
        let parts = Parts { trust, directory: Directory::default(), anchor: None, folder };
        let deployments = Deployments::open(&node.node, parts).await.unwrap();
        Self { node, deployments }
    }

    /// The next record of a name, as an anchor makes it. An empty text: it is removed.
    fn record(&self, name: &str, text: &str) -> SignedRecord {
        let deploy = || Wish::Deploy(Box::new(self.node.manifest(text)));
        let order = Order {
            fleet: self.deployments.fleet(),
            name: name.parse().unwrap(),
            after: self.deployments.records.lock().get(name).map_or(0, |record| record.record().serial),
            deployer: "ci".to_owned(),
            wish: if text.is_empty() { Wish::Remove } else { deploy() },
        };
        let record = self.deployments.decided(|known| decide(&order, known)).unwrap();
        SignedRecord::sign(record, |purpose, parts| NodeKey::from_seed(&CA_SEED).sign(purpose, parts)).unwrap()
    }

    async fn learn(&self, name: &str, text: &str) -> SignedRecord {
        let record = self.record(name, text);
        self.deployments.learn(record.clone()).await.unwrap();
        record
    }

    /// Learns it and makes it so.
    async fn run(&self, name: &str, text: &str) -> Result<Stage, Problem> {
        let record = self.learn(name, text).await;
        self.deployments.apply(&record).await
    }

    fn functions(&self) -> Vec<String> {
        self.node.node.functions.table().entries().map(|entry| entry.live.name().to_string()).collect()
    }

    async fn answer(&self, path: &str) -> String {
        self.node.ask("POST", path, "", "x").await.body
    }
}

/// It used to be taken down as soon as the new one was found to have its route, and then the new one did not start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_goes_when_the_one_that_has_its_route_then_runs_and_not_before() {
    let village = Village::new().await;
    let old = "[function.old]\nimage = \"x\"\nhttp = \"/plate\"\nqueue = \"plates\"\n\
               [queue.plates]\nevents_max = 5\n[sink.far]\nqueue = \"out\"\nwebhook.url = \"http://127.0.0.1:9/\"\n";
    assert_eq!(village.run("app", old).await.unwrap(), Stage::Ready);
    // Its route and its queue, which has other bounds now, and the queue of the sink.
    let new = "[function.new]\nimage = \"x\"\nhttp = \"/plate\"\nqueue = \"plates\"\n\
               [queue.plates]\nevents_max = 6\n[sink.near]\nqueue = \"out\"\nwebhook.url = \"http://127.0.0.1:9/\"\n";
    let broken = new.replace("image = \"x\"", "image = \"x\"\nconfig.broken = \"yes\"");
    assert_eq!(village.run("app", &broken).await.unwrap_err().code, Code::StartFailed);
    assert_eq!((village.functions(), village.answer("/plate").await), (vec!["old".into()], "one/old/x".into()));

    // Nor where the route is somebody else's.
    village.node.deploy("[function.hand]\nimage = \"x\"\nhttp = \"/hand\"").await;
    let taken = new.replace("/plate", "/hand");
    assert_eq!(village.run("app", &taken).await.unwrap_err().code, Code::RouteTaken);
    assert_eq!(village.functions(), ["hand", "old"]);

    assert_eq!(village.run("app", new).await.unwrap(), Stage::Ready);
    assert_eq!(
        (village.functions(), village.answer("/plate").await),
        (vec!["hand".into(), "new".into()], "one/new/x".into())
    );
    let table = village.node.node.functions.table();
    assert_eq!(table.parts().sinks.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["near"]);
    assert_eq!(table.parts().queues["plates"].what.events_max, 6);

    assert_eq!(village.run("app", "").await.unwrap(), Stage::Elsewhere);
    assert_eq!((village.functions(), village.deployments.owner("new")), (vec!["hand".into()], None));
    assert!(village.node.node.functions.table().parts().sinks.is_empty());
}

/// A node that was away hears of both at once. The one that had it used to take it from the one that has it now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_deployment_has_taken_over_stays() {
    let village = Village::new().await;
    let plate = "[function.plate]\nimage = \"x\"\nhttp = \"/plate\"\n\
                 [sink.far]\nqueue = \"out\"\nwebhook.url = \"http://127.0.0.1:9/\"\n";
    let first = village.learn("app", plate).await;
    assert_eq!(village.deployments.apply(&first).await.unwrap(), Stage::Ready);
    let without = village.learn("app", "[function.other]\nimage = \"x\"\nhttp = \"/other\"\n").await;
    assert_eq!(village.run("next", plate).await.unwrap(), Stage::Ready);
    // After a restart, before it has heard of the second one.
    assert_eq!(village.deployments.apply(&first).await.unwrap_err().code, Code::FleetDeployed);
    let has = |functions: &[&str]| {
        assert_eq!(village.functions(), functions);
        assert!(village.node.node.functions.table().parts().sinks.contains_key("far"));
        assert_eq!(village.deployments.owner("plate").unwrap().as_str(), "next");
    };
    has(&["plate"]);
    assert_eq!(village.deployments.apply(&without).await.unwrap(), Stage::Ready);
    has(&["other", "plate"]);
    assert_eq!(village.run("app", "").await.unwrap(), Stage::Elsewhere);
    has(&["plate"]);
    assert_eq!(village.run("next", "").await.unwrap(), Stage::Elsewhere);
    assert!(village.functions().is_empty());
}

/// One that asked for records and took none could have this node keep two GiB for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_is_answered_counts_until_it_has_taken_it() {
    let village = Village::new().await;
    let used = || village.node.node.budget.used_bytes(Purpose::Bodies);
    let [one, other] = [5, 6].map(|number| NodeId([number; 16]));
    let answer = |to| village.deployments.answered(to, || Ok(Bytes::from_static(b"a record")));
    let begun = used();
    let mut held: Vec<_> = (0..ANSWERING_MAX).map(|_| answer(one).unwrap()).collect();
    assert_eq!(used() - begun, 8 * ANSWERING_MAX as u64);
    assert_eq!(answer(one).err().unwrap().code, Code::NodeFull);
    drop(answer(other).unwrap());

    let mut body = held.pop().unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a record");
    // The node may not have it yet.
    assert_eq!(answer(one).err().unwrap().code, Code::NodeFull);
    assert!(body.frame().await.is_none());
    drop(answer(one).unwrap());
    drop((held, body));
    assert_eq!(used(), begun);
}

/// It used to hold in memory and be passed on though its writing had failed, and after a restart the anchor made
/// another one with its serial.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_the_disk_refuses_is_not_known() {
    let village = Village::new().await;
    let learned = |text| village.deployments.learn(village.record("app", text));
    let text = |form: &str| format!("[function.plate]\nimage = \"x\"\nconfig.form = \"{form}\"\n");
    let [one, other] = ["a", "b"].map(text);
    let folder = village.node.node.config.data.join("fleet/deployments");
    fs::remove_dir(&folder).unwrap();
    let digest = village.deployments.records.lock().digest();
    assert_eq!(learned(&one).await.unwrap_err().code, Code::DataUnusable);
    assert_eq!(village.deployments.records.lock().digest(), digest);

    fs::create_dir(&folder).unwrap();
    // What a failure half-way left there.
    fs::write(folder.join("app.1"), village.record("app", &one).bytes()).unwrap();
    let second = village.record("app", &other);
    assert!(learned(&other).await.unwrap());
    assert_eq!(fs::read(folder.join("app.1")).unwrap(), second.bytes());
    assert!(!village.deployments.learn(second).await.unwrap());
}

/// What deployments had here was read at the end of a backup, when it was of another instant than the functions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_says_what_a_deployment_had_here_at_its_instant() {
    let village = Village::new().await;
    let plate = "[function.plate]\nimage = \"x\"\nhttp = \"/plate\"\n";
    assert_eq!(village.run("app", plate).await.unwrap(), Stage::Ready);
    let file = village.node.node.config.data.join("fleet/deployed.json");
    let then = fs::read(&file).unwrap();
    let mut backup = village.node.node.backup(Some("open sesame".to_owned())).await.unwrap();
    assert_eq!(village.run("app", "").await.unwrap(), Stage::Elsewhere);
    assert_ne!(fs::read(&file).unwrap(), then);
    let pieces: Vec<u8> = std::iter::from_fn(|| backup.next().unwrap()).flatten().collect();
    let mut reader = Reader::new(&pieces[..]).unwrap();
    let mut passphrase = Passphrase::new(b"open sesame", reader.head().seal.as_ref().unwrap()).unwrap();
    let mut found = Vec::new();
    while let Some(piece) = reader.next().unwrap() {
        let Piece::Sealed(sealed) = piece else { continue };
        match Secret::from_bytes(&passphrase.open(sealed).unwrap()).unwrap() {
            Secret::File { name, bytes } if name == "fleet/deployed.json" => found.push(bytes),
            _ => {}
        }
    }
    assert_eq!(found, [then]);
}

/// An old record that came at the same moment used to take the newest one from the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_records_that_come_again_leave_the_newest_on_disk() {
    let village = Village::new().await;
    let text = |form: u32| format!("[function.plate]\nimage = \"x\"\nconfig.form = \"{form}\"\n");
    let first = village.learn("app", &text(1)).await;
    for form in 2..=20 {
        let next = village.record("app", &text(form));
        let old = (0..4).map(|_| village.deployments.learn(first.clone()));
        let (is_news, again) = join(village.deployments.learn(next), join_all(old)).await;
        assert!(is_news.unwrap() && !again.into_iter().any(|again| again.unwrap()));
        let known = village.deployments.records.lock().all("app");
        let shelf = Shelf::open(&village.node.node.config.data.join("fleet")).unwrap();
        let ca = NodeKey::from_seed(&CA_SEED).public();
        assert_eq!(shelf.records(&village.deployments.fleet(), &ca).unwrap().all("app"), known);
        assert_eq!(known[0].record().serial, u64::from(form));
    }
}

/// One that promised a thousand newest records and gave old ones, slowly, used to hold up an anchor's round for hours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_gives_another_record_than_it_promised_is_asked_for_no_more() {
    let village = Village::new().await;
    let app: Name = "app".parse().unwrap();
    let first = village.learn("app", "[function.plate]\nimage = \"x\"\n").await;
    let next = village.learn("app", "").await;
    // It has heard of the next one meanwhile.
    assert!(check_said(first.record(), &app, 1).is_ok() && check_said(next.record(), &app, 1).is_ok());
    for (name, serial) in [(&app, 2), (&app, u64::MAX), (&"other".parse().unwrap(), 1)] {
        assert_eq!(check_said(first.record(), name, serial).unwrap_err().code, Code::FleetMessage);
    }
}
