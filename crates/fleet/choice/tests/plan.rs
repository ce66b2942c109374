//! Where copies are: within reach of callers, enough for the load, and still where nothing changes.

use choice::{Copies, Demand, NodeId, Planner, Step, Town};

/// Nodes on a line, a millisecond from each to the next.
struct Street {
    near: Vec<Vec<NodeId>>,
    spare: Vec<f64>,
}

impl Street {
    fn new(nodes: NodeId) -> Self {
        let near = (0..nodes).map(|node| {
            let mut others: Vec<NodeId> = (0..nodes).collect();
            others.sort_by_key(|other| other.abs_diff(node));
            others
        });
        Self { near: near.collect(), spare: vec![1.0; nodes as usize] }
    }
}

impl Town for Street {
    fn round_trip(&self, from: NodeId, to: NodeId) -> f64 {
        f64::from(from.abs_diff(to)) * 1e-3
    }

    fn near(&self, node: NodeId) -> &[NodeId] {
        &self.near[node as usize]
    }

    fn fits(&self, _: &str, node: NodeId) -> bool {
        self.spare[node as usize] > 0.0
    }

    fn spare(&self, node: NodeId) -> f64 {
        self.spare[node as usize]
    }
}

fn demand(entries: &[(NodeId, f64)], copies: Copies) -> Vec<Demand> {
    vec![Demand { function: "plate".into(), entries: entries.into(), run: 0.005, copies }]
}

const NEAR: Copies = Copies { least: 1, most: 20, round_trip: Some(2.5e-3) };

fn prepared(steps: &[Step]) -> Vec<NodeId> {
    let nodes = steps.iter().filter_map(|step| match step {
        Step::Prepare { node, .. } => Some(*node),
        Step::Drop { .. } => None,
    });
    nodes.collect()
}

#[test]
fn one_copy_serves_all_that_reach_it() {
    let mut planner = Planner::default();
    let steps = planner.plan(&Street::new(30), &demand(&[(3, 10.0), (5, 10.0), (7, 10.0)], NEAR), 0.0);
    assert_eq!(prepared(&steps), [5]);
    let steps = planner.plan(&Street::new(30), &demand(&[(3, 10.0), (5, 10.0), (20, 10.0)], NEAR), 1.0);
    assert_eq!(steps.len(), 1, "what is there stays: {steps:?}");
    assert!(prepared(&steps)[0].abs_diff(20) <= 2, "{steps:?}");
}

#[test]
fn five_of_a_hundred_calls_are_worth_no_copy() {
    let mut planner = Planner::default();
    planner.plan(&Street::new(30), &demand(&[(3, 96.0), (20, 4.0)], NEAR), 0.0);
    assert_eq!(planner.copies("plate").len(), 1);
}

#[test]
fn load_asks_for_more_copies_and_bounds_hold() {
    let street = Street::new(30);
    let mut planner = Planner::default();
    // Two and a half nodes' work; each gives 70 %.
    planner.plan(&street, &demand(&[(10, 500.0)], NEAR), 0.0);
    assert_eq!(planner.copies("plate").len(), 4);
    let mut planner = Planner::default();
    planner.plan(&street, &demand(&[(10, 500.0)], Copies { most: 2, ..NEAR }), 0.0);
    assert_eq!(planner.copies("plate").len(), 2);
    let mut planner = Planner::default();
    planner.plan(&street, &demand(&[(10, 1.0)], Copies { least: 3, ..NEAR }), 0.0);
    assert_eq!(planner.copies("plate").len(), 3);
}

#[test]
fn a_copy_that_is_lost_is_replaced_at_once() {
    let mut street = Street::new(30);
    let mut planner = Planner::default();
    let demand = demand(&[(5, 10.0)], NEAR);
    let steps = planner.plan(&street, &demand, 0.0);
    let lost = prepared(&steps)[0];
    street.spare[lost as usize] = 0.0;
    let steps = planner.plan(&street, &demand, 0.5);
    let next = prepared(&steps);
    assert!(next.len() == 1 && next[0] != lost && next[0].abs_diff(5) <= 2, "{steps:?}");
    assert_eq!(planner.copies("plate"), next);
}

#[test]
fn nothing_moves_where_nothing_changes_and_little_where_load_varies() {
    let street = Street::new(30);
    let mut planner = Planner::default();
    let mut steps = 0;
    for second in 0..600u32 {
        // Callers by turns a little more here and a little more there.
        let swing = f64::from(second % 20) - 10.0;
        let demand = demand(&[(5, 60.0 + swing), (8, 60.0 - swing), (20, 30.0)], NEAR);
        steps += planner.plan(&street, &demand, f64::from(second)).len();
    }
    assert!(steps <= 4, "{steps} steps in ten minutes");
}

/// Looking at everything again each time would cost most where it finds nothing.
#[test]
fn what_cannot_be_had_is_looked_for_now_and_then() {
    let mut street = Street::new(30);
    street.spare[18..=22].fill(0.0);
    let mut planner = Planner::default();
    let demand = demand(&[(5, 10.0), (20, 10.0)], NEAR);
    planner.plan(&street, &demand, 0.0);
    assert_eq!(planner.copies("plate").len(), 1, "nobody near 20 fits");
    street.spare[20] = 1.0;
    assert_eq!(planner.plan(&street, &demand, 1.0), []);
    assert_eq!(prepared(&planner.plan(&street, &demand, 6.0)), [20]);
    planner.forget("plate");
    assert_eq!(planner.copies("plate"), []);
}

#[test]
fn a_copy_nobody_needs_goes_after_a_while() {
    let street = Street::new(30);
    let mut planner = Planner::default();
    planner.plan(&street, &demand(&[(5, 10.0), (20, 10.0)], NEAR), 0.0);
    assert_eq!(planner.copies("plate").len(), 2);
    let alone = demand(&[(5, 10.0)], NEAR);
    assert_eq!(planner.plan(&street, &alone, 30.0), []);
    let steps: Vec<Step> = (1..6).flat_map(|turn| planner.plan(&street, &alone, 60.0 * f64::from(turn))).collect();
    assert!(matches!(steps[..], [Step::Drop { .. }]), "{steps:?}");
    assert_eq!(planner.copies("plate").len(), 1);
}
