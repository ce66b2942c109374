//! Where everything stands on a grid of characters: rows of the boxes, and the tracks of the lines between columns.
//!
//! ```text
//!  ┌ queue ──┐     ┌ queue ──┐
//!  │ handler │─┬──▶│ handler │      A line leaves its box in one row, turns on a track of its own,
//!  └─────────┘ │   └─────────┘      and enters each target in a row of its own.
//!              └─▶ …
//! ```
//! No two lines share a row or a track where both are, so that every line can be followed by eye.

use crate::Card;
use crate::layers::{Item, Layered};
use std::collections::BTreeMap;

/// Times rows are evened out from left to right and back.
const ROUNDS: usize = 4;

/// Rows a column is moved by at most, so that no line lies on another.
const SHIFT_MAX: i64 = 4;

/// How far things stand apart.
#[derive(Debug, Clone, Copy)]
pub struct Gaps {
    /// Columns of a line before its track, and between its track and the head of its arrow.
    pub lead: usize,
    /// Rows between boxes.
    pub rows: i64,
}

pub struct Placed {
    /// By item.
    pub spots: Vec<Spot>,
    /// Between each column and the next.
    pub channels: Vec<Channel>,
    pub width: usize,
    pub height: usize,
}

/// Where an item stands. Rows count from the top, columns from the left.
#[derive(Debug, Clone, Default)]
pub struct Spot {
    pub card: Card,
    pub x: usize,
    /// Of its column.
    pub width: usize,
    /// Of itself, edges included; 0 for a line that passes.
    pub own_width: usize,
    pub y: i64,
    pub height: i64,
    /// The row in which each line comes in, by the item it comes from, counted from `y`.
    ports: BTreeMap<usize, i64>,
    /// The row in which the lines go out, counted from `y`.
    out: i64,
}

impl Spot {
    pub fn row_in(&self, from: usize) -> i64 {
        self.y + self.ports[&from]
    }

    pub fn row_out(&self) -> i64 {
        self.y + self.out
    }
}

pub struct Channel {
    pub x: usize,
    pub width: usize,
    /// Which track a line turns on, counted from the left, by the item it comes from; none for one that goes straight.
    pub tracks: BTreeMap<usize, usize>,
}

/// A line between two columns: one row to leave from, rows to arrive in.
#[derive(Debug)]
struct Net {
    item: usize,
    from: i64,
    to: Vec<i64>,
}

pub fn place(layered: &Layered, card: &dyn Fn(usize) -> Card, gaps: Gaps) -> Placed {
    let mut spots: Vec<Spot> = layered.items.iter().map(|item| spot(*item, card)).collect();
    stack(layered, &mut spots, gaps);
    for round in 0..ROUNDS {
        ports(layered, &mut spots);
        even_out(layered, &mut spots, gaps, round % 2 == 0);
    }
    ports(layered, &mut spots);
    let channels: Vec<_> = (1..layered.layers.len()).map(|column| route(layered, &mut spots, column)).collect();
    finish(layered, spots, channels, gaps)
}

fn spot(item: Item, card: &dyn Fn(usize) -> Card) -> Spot {
    match item {
        Item::Line => Spot { height: 1, ..Spot::default() },
        Item::Stage(stage) => {
            let card = card(stage);
            // An edge and a space on either side.
            let own_width = card.width() + 4;
            Spot { own_width, height: card.lines.len() as i64 + 2, card, ..Spot::default() }
        }
    }
}

/// One below the other, high enough for the lines that come in.
fn stack(layered: &Layered, spots: &mut [Spot], gaps: Gaps) {
    for (item, spot) in spots.iter_mut().enumerate() {
        let lines_in = layered.nets.values().filter(|targets| targets.contains(&item)).count() as i64;
        if layered.items[item] != Item::Line {
            spot.height = spot.height.max(lines_in + 2);
        }
    }
    for layer in &layered.layers {
        let mut y = 0;
        for item in layer {
            spots[*item].y = y;
            y += spots[*item].height + gaps.rows;
        }
    }
}

/// Lines come in from top to bottom as those they come from stand.
fn ports(layered: &Layered, spots: &mut [Spot]) {
    for item in 0..spots.len() {
        let mut sources: Vec<usize> =
            layered.nets.iter().filter(|(_, targets)| targets.contains(&item)).map(|(from, _)| *from).collect();
        sources.sort_by_key(|source| spots[*source].row_out());
        let spot = &mut spots[item];
        let (first, inner) = if layered.items[item] == Item::Line { (0, 1) } else { (1, spot.height - 2) };
        spot.out = first + (inner - 1) / 2;
        let top = first + (inner - sources.len() as i64) / 2;
        // A single line goes through in one row.
        let top = if sources.len() == 1 { spot.out } else { top };
        spot.ports = sources.into_iter().enumerate().map(|(index, source)| (source, top + index as i64)).collect();
    }
}

/// Moves each column's items towards the rows of those they are joined to, without changing their order.
fn even_out(layered: &Layered, spots: &mut [Spot], gaps: Gaps, from_left: bool) {
    let count = layered.layers.len();
    let columns: Vec<usize> = if from_left { (0..count).collect() } else { (0..count).rev().collect() };
    for column in columns {
        let wanted: Vec<f64> =
            layered.layers[column].iter().map(|item| wish(layered, spots, *item, from_left)).collect();
        let heights: Vec<i64> = layered.layers[column].iter().map(|item| spots[*item].height + gaps.rows).collect();
        for (item, y) in layered.layers[column].iter().zip(nearest(&wanted, &heights)) {
            spots[*item].y = y;
        }
    }
}

/// The row an item would stand in, if it were alone. A line that passes pulls harder, so that long lines are straight.
fn wish(layered: &Layered, spots: &[Spot], item: usize, from_left: bool) -> f64 {
    let spot = &spots[item];
    let weight = |other: usize| if layered.items[other] == Item::Line { 4.0 } else { 1.0 };
    let rows: Vec<(f64, i64)> = match from_left {
        true => spot.ports.iter().map(|(from, port)| (weight(*from), spots[*from].row_out() - port)).collect(),
        false => layered.targets(item).iter().map(|to| (weight(*to), spots[*to].row_in(item) - spot.out)).collect(),
    };
    match rows.is_empty() {
        true => spot.y as f64,
        false => {
            rows.iter().map(|(weight, row)| weight * *row as f64).sum::<f64>()
                / rows.iter().map(|(weight, _)| weight).sum::<f64>()
        }
    }
}

/// The places nearest to those wanted, each at least `heights` below the one before: neighbours that want to overlap
/// are moved together, by the mean of what they want.
fn nearest(wanted: &[f64], heights: &[i64]) -> Vec<i64> {
    // Blocks of neighbours that touch: how many, and where the first would stand at the mean.
    let mut blocks: Vec<(usize, f64)> = Vec::new();
    let mut offset = 0;
    let mut offsets = Vec::new();
    for (place, wanted) in wanted.iter().enumerate() {
        offsets.push(offset);
        let mut block = (1, wanted - offset as f64);
        while let Some(before) = blocks.last().filter(|before| before.1 > block.1) {
            let count = before.0 + block.0;
            block = (count, (before.1 * before.0 as f64 + block.1 * block.0 as f64) / count as f64);
            blocks.pop();
        }
        blocks.push(block);
        offset += heights[place];
    }
    let starts = blocks.iter().flat_map(|(count, start)| std::iter::repeat_n(start.round() as i64, *count));
    starts.zip(offsets).map(|(start, offset)| start + offset).collect()
}

/// Chooses the tracks between a column and the one before it; moves the column (and all behind it) down where lines
/// would lie on each other otherwise.
fn route(layered: &Layered, spots: &mut [Spot], column: usize) -> BTreeMap<usize, usize> {
    let mut best: Option<(usize, i64, Vec<usize>)> = None;
    for shift in 0..=SHIFT_MAX {
        let nets = nets(layered, spots, column, shift);
        let (cost, order) = tracks(&nets);
        let order = order.into_iter().map(|net| nets[net].item).collect();
        let better = best.as_ref().is_none_or(|best| cost < best.0);
        if better {
            best = Some((cost, shift, order));
        }
        if best.as_ref().is_some_and(|best| best.0 < OVERLAP) {
            break;
        }
    }
    let (_, shift, order) = best.expect("no shift at all was tried");
    for item in layered.layers[column..].iter().flatten() {
        spots[*item].y += shift;
    }
    order.into_iter().enumerate().map(|(track, item)| (item, track)).collect()
}

fn nets(layered: &Layered, spots: &[Spot], column: usize, shift: i64) -> Vec<Net> {
    let net = |item: &usize| {
        let to = layered.targets(*item).iter().map(|to| spots[*to].row_in(*item) + shift).collect();
        Net { item: *item, from: spots[*item].row_out(), to }
    };
    layered.layers[column - 1].iter().map(net).filter(|net| !net.to.is_empty()).collect()
}

/// What it costs that two lines lie on each other: more than all crossings.
const OVERLAP: usize = 1_000_000;

/// The order of tracks that costs least, as far as swapping two of them finds it. Nets that go straight have none.
fn tracks(nets: &[Net]) -> (usize, Vec<usize>) {
    let turning: Vec<usize> = (0..nets.len()).filter(|net| nets[*net].to != [nets[*net].from]).collect();
    let improved = |mut order: Vec<usize>| {
        let mut least = cost(nets, &order);
        loop {
            let before = least;
            for a in 0..order.len() {
                for b in a + 1..order.len() {
                    order.swap(a, b);
                    let cost = cost(nets, &order);
                    if cost < least {
                        least = cost;
                    } else {
                        order.swap(a, b);
                    }
                }
            }
            if least == before {
                return (least, order);
            }
        }
    };
    let reversed = turning.iter().rev().copied().collect();
    improved(turning).min(improved(reversed))
}

fn cost(nets: &[Net], order: &[usize]) -> usize {
    let track = |net: usize| order.iter().position(|other| *other == net);
    let mut cost = 0;
    for a in 0..nets.len() {
        let Some(track_a) = track(a) else { continue };
        let rows = || nets[a].to.iter().chain([&nets[a].from]);
        let (top, bottom) = (*rows().min().expect("a net has rows"), *rows().max().expect("a net has rows"));
        for b in (0..nets.len()).filter(|b| *b != a) {
            let crossed = |row: &i64| (top..=bottom).contains(row);
            match track(b) {
                None => cost += usize::from(crossed(&nets[b].from)),
                Some(track_b) if track_b > track_a => {
                    cost += usize::from(crossed(&nets[b].from));
                    // Where b leaves in a row in which a arrives, they lie on each other between the tracks.
                    cost += OVERLAP * usize::from(nets[a].to.contains(&nets[b].from));
                }
                Some(_) => cost += nets[b].to.iter().filter(|row| crossed(row)).count(),
            }
        }
    }
    cost
}

fn finish(layered: &Layered, mut spots: Vec<Spot>, tracks: Vec<BTreeMap<usize, usize>>, gaps: Gaps) -> Placed {
    let top = spots.iter().map(|spot| spot.y).min().unwrap_or(0);
    let (mut x, mut channels) = (0, Vec::new());
    let mut tracks = tracks.into_iter();
    for layer in &layered.layers {
        let width = layer.iter().map(|item| spots[*item].own_width).max().unwrap_or(0);
        for item in layer {
            (spots[*item].x, spots[*item].width) = (x, width);
            spots[*item].y -= top;
        }
        x += width;
        if let Some(tracks) = tracks.next() {
            let width = tracks.len() + 2 * gaps.lead + 1;
            channels.push(Channel { x, width, tracks });
            x += width;
        }
    }
    let height = spots.iter().map(|spot| spot.y + spot.height).max().unwrap_or(0) as usize;
    Placed { spots, channels, width: x, height }
}
