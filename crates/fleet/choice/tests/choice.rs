//! What one gate chooses.

use choice::{Asked, Choice, Judgement, NodeId, Pick, REFUSALS_MAX, Report, Truth, judge};

const IDLE: Truth = Truth { backlog: -0.01 };

fn hears(choice: &mut Choice, node: NodeId, backlog: f64, speed: f64) {
    choice.hear(node, Report { truth: Truth { backlog }, places: 4, speed }, Some(0.001), 0.0);
}

fn asked(here: Option<Truth>, refused: &[NodeId]) -> Asked<'_> {
    Asked { function: "f", bytes: 1_000, usual: Some(0.005), here, refused }
}

fn goes_to(pick: Pick) -> Option<NodeId> {
    match pick {
        Pick::There { node, .. } => Some(node),
        Pick::Here | Pick::Nowhere => None,
    }
}

#[test]
fn a_call_stays_unless_another_node_is_clearly_better() {
    let mut choice = Choice::new(0, 1.0);
    hears(&mut choice, 1, -0.01, 1.0);
    hears(&mut choice, 2, -0.01, 8.0);
    assert_eq!(choice.choose(&asked(Some(IDLE), &[]), &[1], 0.0), Pick::Here);
    assert_eq!(goes_to(choice.choose(&asked(Some(IDLE), &[]), &[1, 2], 0.0)), Some(2));
    let busy = Some(Truth { backlog: 0.1 });
    assert_eq!(goes_to(choice.choose(&asked(busy, &[]), &[1], 0.0)), Some(1));
}

#[test]
fn who_refused_is_not_asked_again_and_who_cannot_run_it_is_no_choice() {
    let mut choice = Choice::new(0, 1.0);
    hears(&mut choice, 1, -0.01, 1.0);
    let busy = Some(Truth { backlog: 0.1 });
    assert_eq!(choice.choose(&asked(busy, &[1]), &[1], 0.0), Pick::Here);
    assert_eq!(goes_to(choice.choose(&asked(None, &[]), &[1], 0.0)), Some(1));
    assert_eq!(choice.choose(&asked(None, &[1]), &[1], 0.0), Pick::Nowhere);
    assert_eq!(choice.choose(&asked(None, &[]), &[7], 0.0), Pick::Nowhere, "nobody has heard of it");
    choice.forget(1);
    assert_eq!(choice.choose(&asked(None, &[]), &[1], 0.0), Pick::Nowhere);
}

/// The herd of one gate: without counting its own calls it would send all of a burst to one node.
#[test]
fn own_calls_on_their_way_count() {
    let mut choice = Choice::new(0, 1.0);
    hears(&mut choice, 1, 0.0, 1.0);
    hears(&mut choice, 2, 0.0, 1.0);
    let picks: Vec<_> = (0..20).filter_map(|_| goes_to(choice.choose(&asked(None, &[]), &[1, 2], 0.0))).collect();
    assert_eq!(picks.iter().filter(|node| **node == 1).count(), 10, "{picks:?}");
}

#[test]
fn an_answer_corrects_what_was_reported() {
    let mut choice = Choice::new(0, 1.0);
    hears(&mut choice, 1, 0.0, 1.0);
    hears(&mut choice, 2, 0.0, 0.9);
    assert_eq!(goes_to(choice.choose(&asked(None, &[]), &[1, 2], 0.0)), Some(1));
    choice.told(1, Truth { backlog: 0.2 }, 0.01);
    assert_eq!(goes_to(choice.choose(&asked(None, &[]), &[1, 2], 0.01)), Some(2));
}

/// A node that lies about its speed attracts only the first calls.
#[test]
fn measured_times_are_believed_and_reports_are_not() {
    let mut choice = Choice::new(0, 1.0);
    hears(&mut choice, 1, 0.0, 50.0);
    hears(&mut choice, 2, 0.0, 1.0);
    assert_eq!(goes_to(choice.choose(&asked(None, &[]), &[1, 2], 0.0)), Some(1));
    for turn in 1..=6 {
        let now = f64::from(turn) * 0.1;
        choice.ran(2, "f", 1_000, 0.005, now);
        choice.ran(1, "f", 1_000, 0.02, now);
        choice.told(1, Truth { backlog: 0.0 }, now);
        choice.told(2, Truth { backlog: 0.0 }, now);
    }
    assert_eq!(goes_to(choice.choose(&asked(None, &[]), &[1, 2], 0.7)), Some(2));
}

/// Others are judged by their own times, however wrong the speed is that one of them says.
#[test]
fn a_liar_does_not_change_what_is_thought_of_the_others() {
    let mut choice = Choice::new(0, 1.0);
    for (node, speed) in [(1, 80.0), (2, 1.0), (3, 1.0)] {
        hears(&mut choice, node, 0.0, speed);
    }
    for turn in 1..=40 {
        let now = f64::from(turn) * 0.1;
        for node in [1, 2, 3] {
            choice.ran(node, "f", 1_000, 0.005, now);
        }
    }
    let runs = choice.predict(&asked(None, &[]), &[1, 2, 3], 4.0);
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|one| (0.004..0.007).contains(&one.run)), "{runs:?}");
}

#[test]
fn numbers_that_are_none_attract_no_calls() {
    let mut choice = Choice::new(0, 1.0);
    hears(&mut choice, 1, 0.0, 1.0);
    for (node, backlog, speed) in [(2, f64::NAN, 1.0), (3, -f64::NAN, 1.0), (4, 0.0, f64::NAN), (5, 0.0, -1.0)] {
        hears(&mut choice, node, backlog, speed);
    }
    hears(&mut choice, 6, f64::NEG_INFINITY, f64::INFINITY);
    let runs = choice.predict(&asked(None, &[]), &[1, 2, 3, 4, 5, 6], 0.0);
    assert!(runs.iter().all(|one| one.total().is_finite() && one.total() > 0.0), "{runs:?}");
    assert_eq!(goes_to(choice.choose(&asked(None, &[]), &[1, 2, 3, 4, 5], 0.0)), Some(1));
}

#[test]
fn nodes_that_are_remembered_are_bounded() {
    let mut choice = Choice::new(0, 1.0);
    for node in 1..=1_025 {
        let report = Report { truth: IDLE, places: 4, speed: 1.0 };
        choice.hear(node, report, None, f64::from(node));
    }
    assert_eq!(choice.predict(&asked(None, &[]), &[1], 2_000.0), [], "it was heard longest ago");
    assert_eq!(choice.predict(&asked(None, &[]), &[2, 1_025], 2_000.0).len(), 2);
}

#[test]
fn what_was_measured_on_the_way_counts() {
    let mut choice = Choice::new(0, 1.0);
    hears(&mut choice, 1, 0.0, 1.0);
    for turn in 0..5 {
        choice.travelled(1, 0.05, Some((1_000_000, 1.0)), f64::from(turn) * 0.01);
    }
    let call = Asked { bytes: 1_000_000, ..asked(None, &[]) };
    let seen = choice.predict(&call, &[1], 0.05)[0];
    assert!((0.04..0.06).contains(&seen.hop) && (0.8..1.3).contains(&seen.transfer), "{seen:?}");
}

#[test]
fn a_receiver_refuses_what_would_wait_longer_than_was_thought_twice_at_most() {
    let truth = Truth { backlog: 0.030 };
    assert_eq!(judge(truth, 0.0, 0), Judgement::Refuses(truth));
    assert_eq!(judge(truth, 0.028, 0), Judgement::Refuses(truth));
    assert_eq!(judge(truth, 0.0295, 0), Judgement::Runs, "refusing is work, too");
    assert_eq!(judge(truth, 0.0, REFUSALS_MAX), Judgement::Runs);
    assert_eq!(judge(IDLE, 0.0, 0), Judgement::Runs);
}

/// A refusal costs the way there and back: a gate puts up with a wait of that length beyond the one that it expects.
#[test]
fn a_gate_puts_up_with_what_a_refusal_would_cost() {
    let mut choice = Choice::new(0, 1.0);
    hears(&mut choice, 1, 0.020, 1.0);
    choice.travelled(1, 0.001, None, 0.0);
    let seen = choice.predict(&asked(None, &[]), &[1], 0.0)[0];
    let Pick::There { bears, .. } = choice.choose(&asked(None, &[]), &[1], 0.0) else { panic!("it is the only one") };
    assert!((bears - seen.wait - seen.hop).abs() < 1e-12 && seen.hop > 0.0005, "{bears} beside {seen:?}");
    let is_run = |wait| judge(Truth { backlog: wait }, bears, 0) == Judgement::Runs;
    assert!(is_run(seen.wait + seen.hop) && !is_run(seen.wait + seen.hop + 0.002));
}
