//! Which nodes fit, and which of them are taken.

use crate::world::{Anchor, candidate, manifest, node, places};
use fleet_deploy::decide::{decide_again, decide_scaled};
use fleet_deploy::{Scaled, Wish};
use problem::Code;
use std::collections::BTreeSet;

const HELLO: &str = "[function.hello]\nimage = \"IMAGE\"\nhttp = \"/hello\"\n";

fn at(place: &str) -> String {
    format!("{HELLO}[function.hello.place]\n{place}\n")
}

#[test]
fn a_function_without_a_place_is_wherever_it_fits() {
    let mut anchor = Anchor::new(&[candidate(1, &[]), candidate(2, &["site=harbour"])]);
    let record = anchor.deploy("app", &at("where = [\"site=harbour|bridge\"]")).unwrap();
    assert_eq!(places(&record, "hello"), None);
    let share = |number: usize| {
        let one = &anchor.candidates[number];
        record.share(&one.node, one.profile.as_ref().unwrap())
    };
    assert_eq!(share(0), None);
    let here = share(1).unwrap();
    assert_eq!((here.function.len(), &here.function["hello"].place), (1, &None), "where it is, is decided");
}

#[test]
fn of_the_place_a_node_is_told_what_counts_there() {
    let mut anchor = Anchor::new(&[candidate(1, &[])]);
    let record = anchor.deploy("app", &at("copies = 1\nnear = \"pi-1\"\nwarm = 3")).unwrap();
    let share = record.share(&node(1), anchor.candidates[0].profile.as_ref().unwrap()).unwrap();
    let place = share.function["hello"].place.clone().unwrap();
    assert_eq!((place.warm, place.copies, place.near), (Some(3), None, None));
}

#[test]
fn terms_ask_for_labels_words_and_memory_and_can_be_turned_round() {
    let nodes = [candidate(1, &["site=harbour"]), candidate(2, &["site=bridge", "battery=yes"])];
    for (term, fitting) in [
        ("site=harbour", &[1][..]),
        ("site=harbour|bridge", &[1, 2]),
        ("!site=harbour", &[2]),
        ("battery", &[2]),
        ("!battery", &[1]),
        ("aarch64", &[1, 2]),
        ("memory>=512MiB", &[1, 2]),
        ("memory>=513MiB", &[]),
        ("microvm", &[]),
    ] {
        let mut anchor = Anchor::new(&nodes);
        let decided = anchor.deploy("app", &at(&format!("where = [\"{term}\"]\ncopies = 2")));
        let found = decided.map(|record| places(&record, "hello").unwrap()).unwrap_or_default();
        assert_eq!(found, fitting.iter().copied().collect(), "{term}");
    }
}

#[test]
fn where_nothing_fits_the_three_nearest_are_named_with_what_they_lack() {
    let mut away = candidate(5, &[]);
    away.profile = None;
    let mut anchor = Anchor::new(&[
        candidate(1, &[]),
        candidate(2, &["site=bridge"]),
        candidate(3, &["site=harbour"]),
        candidate(4, &["site=harbour", "roof=yes"]),
        away,
    ]);
    let problem = anchor.deploy("app", &at("where = [\"site=harbour\", \"microvm\", \"!roof\"]")).unwrap_err();
    assert_eq!(problem.code, Code::NothingFits);
    assert_eq!(
        problem.detail,
        "function \"hello\": none of 5 nodes fits; nearest: pi-3 lacks microvm; pi-1 lacks microvm and site=harbour (it \
         has no label site); pi-2 lacks microvm and site=harbour (site is bridge)"
    );
}

#[test]
fn copies_are_spread_and_stay_where_they_are() {
    let mut anchor = Anchor::new(&[1, 2, 3, 4].map(|number| candidate(number, &[])));
    anchor.candidates[0].is_there = false;
    let two = "[function.a]\nimage = \"IMAGE\"\nplace.copies = 2\n[function.b]\nimage = \"IMAGE\"\nplace.copies = 1\n";
    let first = anchor.deploy("app", two).unwrap();
    let (a, b) = (places(&first, "a").unwrap(), places(&first, "b").unwrap());
    assert!(a.len() == 2 && b.len() == 1 && a.is_disjoint(&b) && !a.contains(&1) && !b.contains(&1), "{a:?} {b:?}");
    let second = anchor.deploy("app", &two.replace("copies = 2", "copies = 3")).unwrap();
    let more = places(&second, "a").unwrap();
    assert!(more.len() == 3 && more.is_superset(&a), "{more:?} {a:?}");
    let third = anchor.deploy("app", two).unwrap();
    assert!(places(&third, "a").unwrap().is_subset(&more));
}

#[test]
fn what_shares_a_bucket_or_a_queue_is_together_on_one_node_and_stays_there() {
    let text = "[function.a]\nimage = \"IMAGE\"\ngrants.stores = [\"s\"]\n\
                [function.b]\nimage = \"IMAGE\"\ngrants.stores = [\"s\"]\ngrants.push = [\"jobs\"]\n\
                [function.c]\nimage = \"IMAGE\"\nqueue = \"jobs\"\n\
                [function.d]\nimage = \"IMAGE\"\nhttp = \"/d\"\n\
                [bucket.s]\nkeys_max = 5\n";
    let mut anchor = Anchor::new(&[1, 2, 3].map(|number| candidate(number, &[])));
    let record = anchor.deploy("app", text).unwrap();
    let home = places(&record, "a").unwrap();
    assert_eq!((home.len(), places(&record, "c"), places(&record, "d")), (1, Some(home.clone()), None));
    let at_home = node(*home.first().unwrap());
    let profile = anchor.candidates[0].profile.clone().unwrap();
    let share = record.share(&at_home, &profile).unwrap();
    assert_eq!((share.function.len(), share.bucket.len()), (4, 1));

    // The home goes away, and another node would do: what is kept does not move.
    let at = anchor.candidates.iter().position(|one| one.node == at_home).unwrap();
    anchor.candidates[at].is_there = false;
    anchor.candidates[at].profile = None;
    // Renamed: the bucket is the same.
    let again = anchor.deploy("app", &text.replace("function.a", "function.z")).unwrap();
    assert_eq!(places(&again, "z"), Some(home));
    assert_eq!(decide_again(&again, &anchor.known()), None);

    anchor.candidates[at] = candidate(at_home.0[0], &[]);
    let elsewhere = text.replace("queue = \"jobs\"", "queue = \"jobs\"\nplace.where = [\"microvm\"]");
    assert_eq!(anchor.deploy("app", &elsewhere).unwrap_err().code, Code::HomeHeld);
    let many = text.replace("queue = \"jobs\"", "queue = \"jobs\"\nplace.copies = 2");
    assert_eq!(anchor.deploy("app", &many).unwrap_err().code, Code::ManifestConflict);
}

/// What a revision had dropped was looked for nowhere else: a rollback, and an order while that revision went out in
/// steps, began with nothing on another node.
#[test]
fn what_an_earlier_revision_keeps_is_where_it_was_when_it_comes_back() {
    let kept = |bucket: &str| format!("[function.a]\nimage = \"IMAGE\"\ngrants.stores = [\"{bucket}\"]\n");
    let in_steps = format!("{HELLO}place.rollout = {{ steps = [\"1\"], watch = \"60s\" }}\n");
    let back = || Wish::RollBack { to: Some(1) };
    let all = [1, 2, 3].map(|number| candidate(number, &[]));
    for home in &all {
        let take = |later: &[&str], wish: Wish| {
            let mut anchor = Anchor::new(std::slice::from_ref(home));
            anchor.deploy("app", &kept("s")).unwrap();
            anchor.candidates = all.to_vec();
            later.iter().for_each(|text| _ = anchor.deploy("app", text).unwrap());
            assert_eq!(places(&anchor.take("app", wish).unwrap(), "a"), Some(BTreeSet::from([home.node.0[0]])));
        };
        take(&[HELLO], back());
        take(&[&in_steps], back());
        take(&[&in_steps], Wish::Deploy(Box::new(manifest(&kept("s")))));
        // The function keeps something else by now, perhaps elsewhere.
        take(&[HELLO, &kept("t")], back());
    }
}

#[test]
fn two_homes_are_not_joined() {
    let apart = "[function.a]\nimage = \"IMAGE\"\ngrants.stores = [\"s\"]\n\
                 [function.b]\nimage = \"IMAGE\"\ngrants.stores = [\"t\"]\n";
    let mut anchor = Anchor::new(&[candidate(1, &[]), candidate(2, &[])]);
    let record = anchor.deploy("app", apart).unwrap();
    assert_ne!(places(&record, "a"), places(&record, "b"), "homes are spread");
    let problem = anchor.deploy("app", &apart.replace("[\"t\"]", "[\"s\", \"t\"]")).unwrap_err();
    assert_eq!(problem.code, Code::HomeHeld);
}

#[test]
fn copies_of_a_node_that_is_away_are_made_elsewhere() {
    let mut anchor = Anchor::new(&[1, 2, 3].map(|number| candidate(number, &[])));
    let record = anchor.deploy("app", &at("copies = 2")).unwrap();
    assert_eq!(decide_again(&record, &anchor.known()), None, "all are there");
    let before = places(&record, "hello").unwrap();
    let lost = *before.first().unwrap();
    anchor.candidates[usize::from(lost) - 1].is_there = false;
    let again = decide_again(&record, &anchor.known()).unwrap();
    let expected: BTreeSet<u8> = [1, 2, 3].into_iter().filter(|number| *number != lost).collect();
    assert_eq!((places(&again, "hello"), again.serial, again.revision), (Some(expected), 2, 1));
    // Nobody is left who could take more: the rest stays as it is.
    anchor.put(&again);
    anchor.candidates.iter_mut().for_each(|one| one.is_there = false);
    assert_eq!(decide_again(&again, &anchor.known()), None);
}

/// One function whose home was taken out, or for which no node was left, used to keep the copies of all others on nodes
/// that were gone, and their number where it was.
#[test]
fn what_no_node_can_take_keeps_its_place_and_holds_up_nothing_else() {
    let two = "[function.hello]\nimage = \"IMAGE\"\n[function.hello.place]\ncopies = \"1..3\"\nwhere = [\"!site=x\"]\n";
    let kept = "grants.stores = [\"s\"]\nplace.where = [\"site=x\"]";
    let home = "queue = \"jobs\"\n[queue.jobs]\nhome = \"pi-9\"";
    for other in [kept, home, "place.copies = 1\nplace.where = [\"site=x\"]"] {
        let text = format!("{two}[function.other]\nimage = \"IMAGE\"\n{other}\n");
        let nodes = [candidate(1, &[]), candidate(2, &[]), candidate(9, &["site=x"])];
        for harm in [true, false] {
            let mut anchor = Anchor::new(&nodes);
            let record = anchor.deploy("app", &text).unwrap();
            assert_eq!(places(&record, "other"), Some(BTreeSet::from([9])), "{other}");
            // It is taken out, or loses its label.
            match harm {
                true => _ = anchor.candidates.pop(),
                false => anchor.candidates[2].profile.as_mut().unwrap().labels.clear(),
            }
            let lost = *places(&record, "hello").unwrap().first().unwrap();
            anchor.candidates[usize::from(lost) - 1].is_there = false;
            let again = decide_again(&record, &anchor.known()).unwrap();
            assert!(!places(&again, "hello").unwrap().contains(&lost), "{other}");
            assert_eq!(places(&again, "other"), Some(BTreeSet::from([9])), "{other}");

            let function = "hello".parse().unwrap();
            let scaled = Scaled { function: &function, copies: 2, leaves: None, why: "so" };
            anchor.candidates.iter_mut().for_each(|one| one.is_there = true);
            let more = decide_scaled(&record, &scaled, &anchor.known()).unwrap();
            assert_eq!(places(&more, "hello").map(|nodes| nodes.len()), Some(2), "{other}");
        }
    }
}

const ALERTS: &str = r#"
[function.threshold]
image = "IMAGE"
grants.push = ["alerts"]
mqtt = "sensors/#"
[function.tell]
image = "IMAGE"
queue = "alerts"
grants.stores = ["told"]
[queue.alerts]
home = "pi-2"
events_max = 7
"#;

#[test]
fn a_queue_with_a_home_is_there_with_who_handles_it_and_others_send_to_it() {
    let mut anchor = Anchor::new(&[1, 2, 3].map(|number| candidate(number, &[])));
    let text = format!("{ALERTS}[function.threshold.place]\nwhere = [\"!site=x\"]\n");
    let record = anchor.deploy("app", &text).unwrap();
    assert_eq!(places(&record, "tell"), Some(BTreeSet::from([2])));
    let threshold = places(&record, "threshold").unwrap();
    assert_eq!(threshold.len(), 1, "its own queue keeps something");
    let share = |number: u8| record.share(&node(number), anchor.candidates[0].profile.as_ref().unwrap());
    let at = share(*threshold.first().unwrap()).unwrap();
    assert!(at.function.contains_key("threshold"));
    assert_eq!((at.queue["alerts"].home.as_deref(), at.queue["alerts"].events_max), (Some("pi-2"), 7));
    assert!(share(2).unwrap().function.contains_key("tell"));

    // What is kept does not move, and a home has to be there and to fit.
    let refused = |anchor: &mut Anchor, text: &str| anchor.deploy("app", text).unwrap_err();
    assert_eq!(refused(&mut anchor, &ALERTS.replace("pi-2", "pi-3")).code, Code::HomeHeld);
    let mut other = Anchor::new(&anchor.candidates);
    let unknown = refused(&mut other, &ALERTS.replace("pi-2", "pi-7"));
    assert_eq!(unknown.code, Code::NothingFits);
    assert!(unknown.detail.contains("home on pi-7, and no node of the fleet is called so"), "{}", unknown.detail);
    let lacking = refused(&mut other, &format!("{ALERTS}[function.tell.place]\nwhere = [\"site=x\"]\n"));
    assert!(lacking.code == Code::NothingFits && lacking.detail.contains("which lacks site=x"), "{}", lacking.detail);
    let two = format!(
        "{}\n[queue.more]\nhome = \"pi-1\"\n",
        ALERTS.replace("[\"told\"]", "[\"told\"]\ngrants.pop = [\"more\"]")
    );
    assert_eq!(refused(&mut other, &two).code, Code::ManifestConflict);
    // By its id too.
    let by_id = ALERTS.replace("pi-2", &node(3).to_string());
    assert_eq!(places(&other.deploy("app", &by_id).unwrap(), "tell"), Some(BTreeSet::from([3])));
}
