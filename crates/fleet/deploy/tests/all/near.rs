//! Functions that are to be near to somebody: by what nodes have measured.

use crate::world::{Anchor, candidate, measured, node, places};
use fleet_deploy::decide::decide_again;
use fleet_deploy::near::is_measured;
use problem::{Code, Problem};
use std::collections::BTreeSet;

const HELLO: &str = "[function.hello]\nimage = \"IMAGE\"\nhttp = \"/hello\"\n[function.hello.place]\n";

/// Five nodes: 1 is in the harbour, and has measured all others; 2 is nearest to it, 5 is the farthest.
fn coast() -> Anchor {
    let mut anchor = Anchor::new(&[1, 2, 3, 4, 5].map(|number| candidate(number, &[])));
    anchor.candidates[0] = candidate(1, &["site=harbour"]);
    for (to, micros) in [(2, 400), (3, 8_000), (4, 21_000), (5, 60_000)] {
        measured(&mut anchor.candidates, 1, to, micros);
    }
    anchor
}

fn deploy(anchor: &mut Anchor, place: &str) -> Result<BTreeSet<u8>, Problem> {
    let record = anchor.deploy("app", &format!("{HELLO}{place}\n"))?;
    Ok(places(&record, "hello").unwrap())
}

#[test]
fn the_nearest_are_taken_first() {
    for (near, where_, copies, expected) in [
        ("pi-1", "", 1, &[1][..]),
        ("pi-1", "", 3, &[1, 2, 3]),
        ("site=harbour", "!site=harbour", 2, &[2, 3]),
        ("pi-5", "", 2, &[1, 5]),
        (&node(1).to_string(), "!site=harbour", 1, &[2]),
    ] {
        let wanted = if where_.is_empty() { String::new() } else { format!("where = [\"{where_}\"]\n") };
        let place = format!("near = \"{near}\"\n{wanted}copies = {copies}");
        assert_eq!(deploy(&mut coast(), &place).unwrap(), expected.iter().copied().collect(), "{place}");
    }
}

#[test]
fn of_two_measures_the_shorter_counts_and_what_is_not_measured_comes_last() {
    let mut anchor = coast();
    measured(&mut anchor.candidates, 5, 1, 300);
    anchor.candidates[0].round_trips.remove(&node(2));
    assert_eq!(deploy(&mut anchor, "near = \"pi-1\"\ncopies = 2").unwrap(), BTreeSet::from([1, 5]));
    let mut anchor = coast();
    anchor.candidates[0].is_there = false;
    assert_eq!(deploy(&mut anchor, "near = \"pi-1\"\ncopies = 1").unwrap(), BTreeSet::from([2]), "who is there");
}

#[test]
fn where_it_is_and_how_far_that_was_is_in_the_record() {
    let mut anchor = coast();
    let record = anchor.deploy("app", &format!("{HELLO}near = \"pi-1\"\ncopies = 2\n")).unwrap();
    let round_trips = &record.places[0].round_trips_us;
    assert_eq!(round_trips.iter().map(|(node, micros)| (node.0[0], *micros)).collect::<Vec<_>>(), [(1, 0), (2, 400)]);
    // What is measured later moves nothing.
    measured(&mut anchor.candidates, 1, 2, 90_000);
    assert_eq!(decide_again(&record, &anchor.known()), None);
}

#[test]
fn all_within_the_bound_have_it_and_one_that_joins_or_comes_near_gets_it() {
    let mut anchor = coast();
    let record = anchor.deploy("app", &format!("{HELLO}near = \"pi-1\"\nwithin = \"20ms\"\n")).unwrap();
    assert_eq!(places(&record, "hello").unwrap(), BTreeSet::from([1, 2, 3]));
    let mut again = |change: &dyn Fn(&mut Anchor)| {
        change(&mut anchor);
        let newest = anchor.records.get("app").unwrap().record().clone();
        let again = decide_again(&newest, &anchor.known())?;
        anchor.put(&again);
        places(&again, "hello")
    };
    let numbers = |all: &[u8]| Some(all.iter().copied().collect::<BTreeSet<u8>>());
    assert_eq!(again(&|_| ()), None);
    let comes = |anchor: &mut Anchor| measured(&mut anchor.candidates, 1, 4, 19_000);
    assert_eq!(again(&comes), numbers(&[1, 2, 3, 4]));
    // A measure that swings about the bound moves nothing, whichever way.
    for micros in [21_000, 19_000, 25_000, 20_500] {
        assert_eq!(again(&|anchor| measured(&mut anchor.candidates, 1, 4, micros)), None, "{micros}");
    }
    assert_eq!(again(&|anchor| measured(&mut anchor.candidates, 1, 4, 25_001)), numbers(&[1, 2, 3]));
    let joins = |anchor: &mut Anchor| {
        anchor.candidates.push(candidate(6, &[]));
        measured(&mut anchor.candidates, 6, 1, 5_000);
    };
    assert_eq!(again(&joins), numbers(&[1, 2, 3, 6]));
    // Nothing is known any more, as after a start of the anchor; or one is away: both stay.
    assert_eq!(again(&|anchor| anchor.candidates[0].round_trips.clear()), None);
    assert_eq!(again(&|anchor| anchor.candidates[2].is_there = false), None);
    // The node itself was taken out of the fleet.
    assert_eq!(again(&|anchor| _ = anchor.candidates.remove(0)), numbers(&[2, 3, 6]));
}

#[test]
fn what_keeps_something_is_at_the_nearest_node_and_stays() {
    let text = |near: &str| {
        format!("[function.count]\nimage = \"IMAGE\"\ngrants.stores = [\"s\"]\n[function.count.place]\n{near}\n")
    };
    let mut anchor = coast();
    let record = anchor.deploy("app", &text("near = \"pi-5\"\nwhere = [\"!site\"]\nwithin = \"70ms\"")).unwrap();
    assert_eq!(places(&record, "count"), Some(BTreeSet::from([5])));
    // It was measured to be out of bounds since then: what is kept does not move, and a demand is a demand.
    let refused = anchor.deploy("app", &text("near = \"pi-1\"\nwithin = \"20ms\"")).unwrap_err();
    assert_eq!(refused.code, Code::HomeHeld);
    assert!(refused.detail.contains("on pi-5, which lacks place.within of 20 ms (pi-1 is 60 ms away)"), "{refused}");
    let stays = anchor.deploy("app", &text("near = \"pi-1\"")).unwrap();
    assert_eq!(places(&stays, "count"), Some(BTreeSet::from([5])));
}

#[test]
fn where_nobody_is_near_enough_the_three_nearest_are_named() {
    let mut anchor = coast();
    anchor.candidates.push(candidate(6, &[]));
    let place = "near = \"site=harbour\"\nwithin = \"5ms\"\nwhere = [\"!site\"]\ncopies = 2";
    assert_eq!(deploy(&mut anchor, place).unwrap(), BTreeSet::from([2]), "as many as there are");
    let problem = deploy(&mut coast(), &place.replace("\"5ms\"", "\"1ms\"").replace("!site", "!aarch64")).unwrap_err();
    assert_eq!(problem.code, Code::NothingFits);
    assert_eq!(
        problem.detail,
        "function \"hello\": none of 5 nodes fits; nearest: pi-1 lacks !aarch64; pi-2 lacks !aarch64; pi-3 lacks \
         !aarch64 and place.within of 1 ms (site=harbour is 8 ms away)"
    );
    let mut anchor = coast();
    anchor.candidates[0].round_trips.clear();
    let problem = deploy(&mut anchor, place).unwrap_err();
    assert!(problem.detail.contains("(its way to site=harbour is not measured)"), "{problem}");
}

#[test]
fn nearness_without_a_choice_or_to_nobody_is_refused() {
    for (place, code, words) in [
        ("near = \"pi-1\"", Code::ManifestConflict, "all that fit have it"),
        ("near = \"pi-9\"\ncopies = 1", Code::NothingFits, "near pi-9, and no node of the fleet is called so"),
        ("near = \"site=moon\"\ncopies = 1", Code::NothingFits, "near site=moon, and no node of the fleet has that"),
    ] {
        let problem = deploy(&mut coast(), place).unwrap_err();
        assert!(problem.code == code && problem.detail.contains(words), "{problem}");
    }
}

#[test]
fn it_is_known_whether_all_that_are_there_are_measured() {
    let mut anchor = coast();
    let manifest = |near: &str| crate::world::manifest(&format!("{HELLO}near = \"{near}\"\ncopies = 1\n"));
    let all = |anchor: &Anchor, near: &str| is_measured(&manifest(near), &anchor.candidates);
    assert!(all(&anchor, "pi-1") && !all(&anchor, "pi-3") && all(&anchor, "pi-9"));
    anchor.candidates.push(candidate(6, &[]));
    assert!(!all(&anchor, "pi-1"));
    anchor.candidates[5].is_there = false;
    assert!(all(&anchor, "pi-1"));
}
