//! Orders become records one after the other, and can be gone back from.

use crate::world::{Anchor, candidate, manifest, order, signed};
use fleet_deploy::decide::decide;
use fleet_deploy::{Record, Wish};
use problem::Code;
use std::sync::Arc;

fn form(number: u8) -> String {
    format!("[function.hello]\nimage = \"IMAGE\"\nhttp = \"/hello\"\nconfig.form = \"{number}\"\n")
}

fn shown(record: &Record) -> (u64, u64, Option<String>) {
    let form = record.manifest.as_ref().map(|manifest| manifest.function["hello"].config["form"].clone());
    (record.serial, record.revision, form)
}

#[test]
fn a_deployment_goes_on_goes_back_and_ends() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    let back = |to| Wish::RollBack { to };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(anchor.take("app", back(None)).unwrap_err().code, Code::DeploymentUnknown);
    for number in 1..=3 {
        assert_eq!(shown(&anchor.deploy("app", &form(number)).unwrap()).1, u64::from(number));
    }
    assert_eq!(shown(&anchor.take("app", back(None)).unwrap()), (4, 2, some("2")));
    assert_eq!(shown(&anchor.take("app", back(None)).unwrap()), (5, 1, some("1")));
    assert_eq!(shown(&anchor.take("app", back(Some(3))).unwrap()), (6, 3, some("3")));
    assert_eq!(anchor.take("app", back(Some(9))).unwrap_err().code, Code::VersionUnknown);
    assert_eq!(shown(&anchor.take("app", back(Some(1))).unwrap()), (7, 1, some("1")));
    assert_eq!(shown(&anchor.deploy("app", &form(4)).unwrap()), (8, 4, some("4")), "a number is never used again");
    assert_eq!(shown(&anchor.take("app", Wish::Remove).unwrap()), (9, 4, None));
    assert_eq!(anchor.take("app", Wish::Remove).unwrap_err().code, Code::DeploymentUnknown);
    assert_eq!(shown(&anchor.deploy("app", &form(5)).unwrap()), (10, 5, some("5")));
}

#[test]
fn the_last_five_revisions_are_kept() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    for number in 1..=9 {
        anchor.deploy("app", &form(number)).unwrap();
    }
    let kept: Vec<u64> = anchor.records.earlier("app").map(|record| record.revision).collect();
    assert_eq!(kept, [8, 7, 6, 5]);
    assert_eq!(anchor.records.all("app").len(), 5);
}

#[test]
fn of_two_orders_from_one_record_the_second_is_refused() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    let deploy = |number| Wish::Deploy(Box::new(manifest(&form(number))));
    let first = decide(&order("app", 0, deploy(1)), &anchor.known()).unwrap();
    anchor.put(&first);
    for (after, number) in [(0, 2), (0, 1), (2, 2)] {
        let refused = decide(&order("app", after, deploy(number)), &anchor.known()).unwrap_err();
        assert_eq!(refused.code, Code::DeploymentChanged, "made from {after}");
    }
    assert!(decide(&order("app", 1, deploy(2)), &anchor.known()).is_ok());
}

#[test]
fn two_deployments_have_no_function_sink_or_route_in_common() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    anchor.deploy("app", &form(1)).unwrap();
    assert_eq!(anchor.deploy("other", &form(1)).unwrap_err().code, Code::FleetDeployed);
    let route = form(1).replace("function.hello", "function.other");
    assert_eq!(anchor.deploy("other", &route).unwrap_err().code, Code::FleetDeployed);
    let sink = |queue: &str| format!("[sink.far]\nqueue = \"{queue}\"\nwebhook.url = \"http://example.org/\"\n");
    anchor.deploy("sinks", &sink("a")).unwrap();
    let problem = anchor.deploy("more", &sink("b")).unwrap_err();
    assert!(problem.code == Code::FleetDeployed && problem.detail.contains("the sink \"far\""), "{problem}");
    anchor.take("app", Wish::Remove).unwrap();
    anchor.deploy("other", &route).unwrap();
}

#[test]
fn a_path_is_no_image_and_another_fleet_is_none() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    let path = anchor.deploy("app", "[function.a]\nimage = \"a.wasm\"\n").unwrap_err();
    assert_eq!(path.code, Code::ManifestValue);
    let mut other = order("app", 0, Wish::Deploy(Box::new(manifest(&form(1)))));
    other.fleet = "ff".repeat(8);
    assert_eq!(decide(&other, &anchor.known()).unwrap_err().code, Code::DeploymentGarbled);
}

#[test]
fn the_highest_serial_holds_in_whatever_order_records_come() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    let records: Vec<Record> = (1..=3).map(|number| anchor.deploy("app", &form(number)).unwrap()).collect();
    for sequence in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let mut other = fleet_deploy::Records::default();
        sequence.iter().for_each(|at| _ = other.put(Arc::new(signed(&records[*at]))).unwrap());
        assert_eq!(other.get("app").unwrap().record(), &records[2]);
        let kept: Vec<u64> = other.earlier("app").map(|record| record.revision).collect();
        assert_eq!((kept, other.digest()), (vec![2, 1], anchor.records.digest()));
    }
}

/// It used to be refused before anything was dropped, so that not even a removal was possible.
#[test]
fn what_fills_all_room_can_be_changed_and_removed() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    let large = |name: u8, form: u8| format!("[function.f{name}]\nimage = \"IMAGE\"\nconfig.form = \"{form}\"\n");
    let serial =
        |anchor: &Anchor, name: u8| anchor.records.get(&format!("d{name}")).map_or(0, |record| record.record().serial);
    let put = |anchor: &mut Anchor, name: u8, form: u8| {
        let wish = Wish::Deploy(Box::new(manifest(&large(name, form))));
        let order = order(&format!("d{name}"), serial(anchor, name), wish);
        let record = decide(&order, &anchor.known()).unwrap();
        // So that few of them take all room.
        anchor.records.put(Arc::new(signed(&Record { deployer: "x".repeat(1_000_000), ..record })))
    };
    (1..=5).for_each(|form| _ = put(&mut anchor, 1, form).unwrap());
    (2..=12).for_each(|name| _ = put(&mut anchor, name, 1).unwrap());
    let kept = |anchor: &Anchor| anchor.records.earlier("d1").map(|record| record.revision).collect::<Vec<_>>();
    assert_eq!(kept(&anchor), [4, 3, 2, 1]);
    assert_eq!(put(&mut anchor, 13, 1).unwrap_err().code, Code::DeploymentFull);
    assert_eq!(anchor.records.get("d13"), None);
    // As many as before, and then one more, for which an earlier revision of its deployment goes.
    assert!(put(&mut anchor, 1, 6).unwrap());
    assert_eq!(kept(&anchor), [5, 4, 3, 2]);
    assert!(put(&mut anchor, 2, 2).unwrap());
    assert_eq!(anchor.records.earlier("d2").count(), 0);

    anchor.take("d1", Wish::Remove).unwrap();
    assert_eq!((kept(&anchor), anchor.records.all("d1").len()), (vec![], 1));
    assert!(put(&mut anchor, 13, 1).unwrap());
}
