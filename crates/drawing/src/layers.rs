//! Columns: which stage stands in which, and in what order, so that lines go right and cross little.
//!
//! A stage stands one column right of the last that leads to it. Lines that would go back are left out here and drawn
//! apart. A line over several columns passes each of them in an item of its own; lines of one stage share them.

use manifest::flow::Flow;
use std::collections::{BTreeMap, BTreeSet};

/// Times the order is improved from left to right and back.
const SWEEPS: usize = 8;

pub struct Layered {
    pub items: Vec<Item>,
    /// Items of each column, from top to bottom.
    pub layers: Vec<Vec<usize>>,
    /// Lines from a column to the next, by the item they begin at.
    pub nets: BTreeMap<usize, Vec<usize>>,
    /// Lines that go back or stay, as stages.
    pub back: Vec<(usize, usize)>,
}

/// A place in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    Stage(usize),
    /// A line that passes.
    Line,
}

impl Layered {
    pub fn of(flow: &Flow, part: &[usize]) -> Self {
        let within: BTreeSet<usize> = part.iter().copied().collect();
        let edges: BTreeSet<(usize, usize)> =
            flow.edges.iter().filter(|edge| within.contains(&edge.from)).map(|edge| (edge.from, edge.to)).collect();
        let back = back_edges(part, &edges);
        let forward: Vec<(usize, usize)> = edges.difference(&back).copied().collect();
        let depth = depths(part, &forward);
        let mut layered = Self::columns(part, &forward, &depth);
        layered.back = back.into_iter().collect();
        layered.order();
        layered
    }

    fn columns(part: &[usize], forward: &[(usize, usize)], depth: &BTreeMap<usize, usize>) -> Self {
        let mut items: Vec<Item> = part.iter().map(|stage| Item::Stage(*stage)).collect();
        let place: BTreeMap<usize, usize> = part.iter().enumerate().map(|(item, stage)| (*stage, item)).collect();
        let mut layers = vec![Vec::new(); depth.values().max().map_or(0, |deepest| deepest + 1)];
        for stage in part {
            layers[depth[stage]].push(place[stage]);
        }
        let mut nets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        // The item that carries the lines of a stage through a column.
        let mut lines: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (from, to) in forward {
            let mut at = place[from];
            for (column, layer) in layers.iter_mut().enumerate().take(depth[to]).skip(depth[from] + 1) {
                let next = *lines.entry((*from, column)).or_insert_with(|| {
                    items.push(Item::Line);
                    layer.push(items.len() - 1);
                    items.len() - 1
                });
                join(&mut nets, at, next);
                at = next;
            }
            join(&mut nets, at, place[to]);
        }
        Self { items, layers, nets, back: Vec::new() }
    }

    /// Puts each item at the mean place of those it is joined to, to and fro, and keeps the best order seen.
    fn order(&mut self) {
        let mut best = (self.crossings(), self.layers.clone());
        for sweep in 0..SWEEPS {
            let columns: Vec<usize> = match sweep % 2 {
                0 => (1..self.layers.len()).collect(),
                _ => (0..self.layers.len().saturating_sub(1)).rev().collect(),
            };
            for column in columns {
                self.order_column(column, sweep % 2 == 0);
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    fn order_column(&mut self, column: usize, from_left: bool) {
        let beside = &self.layers[if from_left { column - 1 } else { column + 1 }];
        let place: BTreeMap<usize, usize> = beside.iter().enumerate().map(|(place, item)| (*item, place)).collect();
        let mean = |item: usize, now: usize| -> usize {
            let joined: Vec<usize> = match from_left {
                true => beside
                    .iter()
                    .filter(|other| self.targets(**other).contains(&item))
                    .map(|other| place[other])
                    .collect(),
                false => self.targets(item).iter().filter_map(|other| place.get(other)).copied().collect(),
            };
            // Thousandths, so that the order is exact; what is joined to nothing stays where it is.
            match joined.len() {
                0 => now * 1_000,
                count => joined.iter().sum::<usize>() * 1_000 / count,
            }
        };
        let mut keyed: Vec<(usize, usize)> =
            self.layers[column].iter().enumerate().map(|(now, item)| (mean(*item, now), *item)).collect();
        keyed.sort_by_key(|(mean, _)| *mean);
        self.layers[column] = keyed.into_iter().map(|(_, item)| item).collect();
    }

    fn crossings(&self) -> usize {
        let mut count = 0;
        for pair in self.layers.windows(2) {
            let place = |item: &usize| pair[1].iter().position(|other| other == item);
            let lines: Vec<(usize, usize)> = pair[0]
                .iter()
                .enumerate()
                .flat_map(|(from, item)| self.targets(*item).iter().filter_map(move |to| Some((from, place(to)?))))
                .collect();
            for (index, a) in lines.iter().enumerate() {
                count +=
                    lines[index + 1..].iter().filter(|b| (a.0 < b.0 && a.1 > b.1) || (a.0 > b.0 && a.1 < b.1)).count();
            }
        }
        count
    }

    pub fn targets(&self, item: usize) -> &[usize] {
        self.nets.get(&item).map_or(&[], Vec::as_slice)
    }
}

fn join(nets: &mut BTreeMap<usize, Vec<usize>>, from: usize, to: usize) {
    let targets = nets.entry(from).or_default();
    if !targets.contains(&to) {
        targets.push(to);
    }
}

/// The edges that close a cycle, found depth first from the stages in their order; and those that stay.
fn back_edges(part: &[usize], edges: &BTreeSet<(usize, usize)>) -> BTreeSet<(usize, usize)> {
    fn visit(
        stage: usize,
        edges: &BTreeSet<(usize, usize)>,
        open: &mut BTreeMap<usize, bool>,
        back: &mut BTreeSet<(usize, usize)>,
    ) {
        open.insert(stage, true);
        for edge in edges.range((stage, 0)..=(stage, usize::MAX)) {
            match open.get(&edge.1) {
                Some(true) => drop(back.insert(*edge)),
                Some(false) => {}
                None => visit(edge.1, edges, open, back),
            }
        }
        open.insert(stage, false);
    }
    let (mut open, mut back) = (BTreeMap::new(), BTreeSet::new());
    for stage in part {
        if !open.contains_key(stage) {
            visit(*stage, edges, &mut open, &mut back);
        }
    }
    back
}

/// The column of each stage: behind all that lead to it. What nothing leads to stands right before what it leads to.
fn depths(part: &[usize], forward: &[(usize, usize)]) -> BTreeMap<usize, usize> {
    let mut depth: BTreeMap<usize, usize> = part.iter().map(|stage| (*stage, 0)).collect();
    // A path has fewer edges than there are stages.
    for _ in part {
        for (from, to) in forward {
            let least = depth[from] + 1;
            depth.entry(*to).and_modify(|depth| *depth = least.max(*depth));
        }
    }
    for stage in part.iter().filter(|stage| forward.iter().all(|(_, to)| to != *stage)) {
        if let Some(first) = forward.iter().filter(|(from, _)| from == stage).map(|(_, to)| depth[to]).min() {
            depth.insert(*stage, first - 1);
        }
    }
    depth
}
