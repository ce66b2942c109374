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

#[test]
fn a_receiver_refuses_what_would_wait_longer_than_was_thought_twice_at_most() {
    let truth = Truth { backlog: 0.030 };
    assert_eq!(judge(truth, 0.0, 0), Judgement::Refuses(truth));
    assert_eq!(judge(truth, 0.021, 0), Judgement::Runs);
    assert_eq!(judge(truth, 0.0, REFUSALS_MAX), Judgement::Runs);
    assert_eq!(judge(IDLE, 0.0, 0), Judgement::Runs);
}
