//! Draws a workflow from left to right: in a terminal with box characters, as SVG, or as places for others to draw.
//!
//! ```text
//!  Flow ──labels──▶ Card a stage ──layers──▶ columns in order ──place──▶ rows and tracks ──▶ text, svg, layout
//! ```
//! A box is a handler, and the word in its upper edge the queue it handles. Pure: the same flow gives the same drawing.
#![forbid(unsafe_code)]

mod layers;
mod layout;
mod list;
mod place;
mod svg;
mod text;

pub use layout::{Layout, StageBox, Way};

use layers::Layered;
use manifest::flow::{Flow, Stage};
use serde::Serialize;
use std::collections::BTreeMap;

/// Stages that are drawn together at most. A larger workflow is listed.
pub const STAGES_MAX: usize = 200;

/// Characters of a name at least, before a drawing that is too wide becomes a list.
const NAME_MIN: usize = 8;

/// Characters of a name in an SVG.
const SVG_NAME_MAX: usize = 40;

/// What waits in a queue now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub ready: u64,
    pub leased: u64,
    pub delayed: u64,
    pub dead: u64,
}

/// Draws with at most `width` characters a line; what does not fit is listed instead. `counts` are by queue.
pub fn text(flow: &Flow, counts: &BTreeMap<String, Counts>, width: usize) -> String {
    let parts = Parts::of(flow);
    let mut text = String::new();
    for part in &parts.joined {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &drawn(flow, counts, part, width).unwrap_or_else(|| list::list(flow, counts, part));
    }
    if !parts.alone.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &format!("without a queue: {}\n", parts.alone.join(", "));
    }
    text
}

/// The narrowest cut of the names that fits, if there is one.
fn drawn(flow: &Flow, counts: &BTreeMap<String, Counts>, part: &[usize], width: usize) -> Option<String> {
    let layered = (part.len() <= STAGES_MAX).then(|| Layered::of(flow, part))?;
    let longest =
        part.iter().flat_map(|stage| card(flow, counts, *stage).lines).map(|line| line.chars().count()).max()?;
    let mut limit = longest.max(NAME_MIN);
    loop {
        let cards = |stage| card(flow, counts, stage).cut(limit);
        let placed = place::place(&layered, &cards, place::Gaps { lead: 1, rows: 1 });
        if placed.width <= width {
            return Some(text::draw(flow, &layered, &placed));
        }
        if limit == NAME_MIN {
            return None;
        }
        limit = (limit - (placed.width - width).div_ceil(layered.layers.len()).max(1)).clamp(NAME_MIN, limit - 1);
    }
}

/// The whole workflow as one SVG document, readable on light and dark ground.
pub fn svg(flow: &Flow, counts: &BTreeMap<String, Counts>) -> String {
    let parts = Parts::of(flow);
    let mut drawings = Vec::new();
    for part in parts.joined.iter().filter(|part| part.len() <= STAGES_MAX) {
        let layered = Layered::of(flow, part);
        let cards = |stage| card(flow, counts, stage).cut(SVG_NAME_MAX);
        let placed = place::place(&layered, &cards, place::Gaps { lead: 3, rows: 1 });
        drawings.push((layered, placed));
    }
    svg::document(flow, &drawings)
}

/// Where everything stands in a picture that somebody else draws: the same places as in the SVG. Below each name is
/// room for a line of numbers.
pub fn layout(flow: &Flow) -> Layout {
    let parts = Parts::of(flow);
    let (drawn, left_out): (Vec<_>, Vec<_>) =
        parts.joined.iter().partition::<Vec<_>, _>(|part| part.len() <= layout::STAGES_MAX);
    let drawings = drawn.into_iter().map(|part| {
        let layered = Layered::of(flow, part);
        let placed = place::place(&layered, &|stage| layout::card(flow, stage), place::Gaps { lead: 3, rows: 1 });
        (layered, placed)
    });
    let left_out = left_out.into_iter().map(Vec::len).sum();
    Layout::of(flow, &drawings.collect::<Vec<_>>(), parts.alone, left_out)
}

/// What is joined by queues is drawn together; functions that only calls reach are named.
struct Parts {
    joined: Vec<Vec<usize>>,
    alone: Vec<String>,
}

impl Parts {
    fn of(flow: &Flow) -> Self {
        let mut group: Vec<usize> = (0..flow.stages.len()).collect();
        let find = |group: &[usize], mut place: usize| {
            while group[place] != place {
                place = group[place];
            }
            place
        };
        for edge in &flow.edges {
            let (a, b) = (find(&group, edge.from), find(&group, edge.to));
            group[a.max(b)] = a.min(b);
        }
        let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for place in 0..flow.stages.len() {
            parts.entry(find(&group, place)).or_default().push(place);
        }
        let (joined, alone): (Vec<_>, Vec<_>) =
            parts.into_values().partition(|part| part.iter().any(|place| flow.stages[*place].queue().is_some()));
        let functions =
            alone.into_iter().flatten().filter(|place| matches!(flow.stages[*place], Stage::Function { .. }));
        Self { joined, alone: functions.map(|place| flow.stages[place].name().to_owned()).collect() }
    }
}

/// The words of a box: one in its upper edge, and lines within.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Card {
    edge: String,
    lines: Vec<String>,
}

impl Card {
    /// Names cut to `limit` characters.
    fn cut(mut self, limit: usize) -> Self {
        for text in self.lines.iter_mut().chain([&mut self.edge]) {
            if text.chars().count() > limit {
                *text = text.chars().take(limit - 1).chain(['…']).collect();
            }
        }
        self
    }

    /// Characters of the longest of its words.
    fn width(&self) -> usize {
        self.lines.iter().chain([&self.edge]).map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

fn card(flow: &Flow, counts: &BTreeMap<String, Counts>, place: usize) -> Card {
    let stage = &flow.stages[place];
    let name = stage.name().to_owned();
    let (edge, mut lines) = match stage {
        Stage::Trigger { gate, .. } => (gate.as_str().to_owned(), vec![name]),
        Stage::Function { queue, .. } => (queue.as_ref().map(ToString::to_string).unwrap_or_default(), vec![name]),
        Stage::Queue { .. } => ("queue".to_owned(), vec![name]),
        Stage::Sink { queue, to, .. } => (queue.to_string(), vec![name, format!("to {}", to.as_str())]),
    };
    if flow.edges.iter().any(|edge| edge.from == place && edge.to == place) {
        lines.push("and again".to_owned());
    }
    let counts = stage.queue().and_then(|queue| counts.get(queue.as_str())).copied().unwrap_or_default();
    let words =
        [("ready", counts.ready), ("leased", counts.leased), ("delayed", counts.delayed), ("dead", counts.dead)];
    lines.extend(words.iter().filter(|(_, count)| *count > 0).map(|(word, count)| format!("{count} {word}")));
    Card { edge, lines }
}
