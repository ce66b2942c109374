//! The drawing as places: boxes and lines for others to draw and move, such as the dashboard.

use crate::layers::{Item, Layered};
use crate::place::Placed;
use crate::svg::{Drawing, Frame, GAP, MARGIN, ROW, kind, width};
use crate::{Card, SVG_NAME_MAX};
use manifest::flow::{EdgeKind, Flow};
use serde::Serialize;
use std::collections::BTreeMap;

/// Stages that are placed together at most: a node does it for whoever asks, and the work grows much faster than the
/// number. Larger workflows are left out, and counted.
pub const STAGES_MAX: usize = 80;

/// Characters of a box at least: room for its numbers.
const CARD_WIDTH_MIN: usize = 14;

/// All workflows, one below the other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Layout {
    pub width: f64,
    pub height: f64,
    pub stages: Vec<StageBox>,
    pub edges: Vec<Way>,
    /// Functions that no queue joins.
    pub alone: Vec<String>,
    /// Stages of workflows that are too large to be placed.
    pub left_out: usize,
}

/// The box of a stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageBox {
    /// `trigger`, `function`, `queue` or `sink`.
    pub kind: &'static str,
    pub name: String,
    /// The word in its upper edge: its queue, or the gate of a trigger.
    pub head: String,
    /// The name, as it fits.
    pub text: String,
    /// The queue whose events wait there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// The line of an edge. Both ends are places in [`Layout::stages`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Way {
    pub from: usize,
    pub to: usize,
    pub kind: EdgeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// As `d` of a path in SVG; empty where a stage leads to itself.
    pub path: String,
}

/// The words of a box, with an empty line where it has a queue.
pub fn card(flow: &Flow, stage: usize) -> Card {
    let mut card = crate::card(flow, &BTreeMap::new(), stage).cut(SVG_NAME_MAX);
    card.lines.truncate(1);
    card.lines.push(" ".repeat(CARD_WIDTH_MIN));
    card
}

impl Layout {
    pub(crate) fn of(flow: &Flow, drawings: &[(Layered, Placed)], alone: Vec<String>, left_out: usize) -> Self {
        let mut layout =
            Self { width: width(drawings), height: MARGIN, stages: Vec::new(), edges: Vec::new(), alone, left_out };
        for (layered, placed) in drawings {
            let top = if layout.stages.is_empty() { MARGIN } else { layout.height - MARGIN + GAP };
            layout.add(flow, &Drawing { flow, layered, placed, top });
        }
        layout
    }

    fn add(&mut self, flow: &Flow, drawing: &Drawing<'_>) {
        let Drawing { layered, placed, top, .. } = drawing;
        // Places among the boxes, and among the items, by stage.
        let (mut boxes, mut items) = (BTreeMap::new(), BTreeMap::new());
        for (item, spot) in placed.spots.iter().enumerate() {
            let Item::Stage(stage) = layered.items[item] else { continue };
            boxes.insert(stage, self.stages.len());
            items.insert(stage, item);
            let Frame { x, y, width, height } = drawing.frame(spot);
            let about = &flow.stages[stage];
            self.stages.push(StageBox {
                kind: kind(about),
                name: about.name().to_owned(),
                head: spot.card.edge.clone(),
                text: spot.card.lines[0].clone(),
                queue: about.queue().map(ToString::to_string),
                x,
                y,
                width,
                height,
            });
        }
        let mut bottom = top + placed.height as f64 * ROW;
        for edge in &flow.edges {
            let (Some(from), Some(to)) = (items.get(&edge.from), items.get(&edge.to)) else { continue };
            let path = match layered.back.iter().any(|back| *back == (edge.from, edge.to)) {
                false => forward(drawing, *from, *to),
                true if edge.from == edge.to => String::new(),
                true => {
                    bottom += ROW;
                    drawing.back_path(edge.from, edge.to, bottom).0
                }
            };
            let queue = edge.queue.as_ref().map(ToString::to_string);
            self.edges.push(Way { from: boxes[&edge.from], to: boxes[&edge.to], kind: edge.kind, queue, path });
        }
        self.height = bottom + MARGIN;
    }
}

/// The line from a stage to another, through the columns between: of the lines that a stage sends on, one passes.
fn forward(drawing: &Drawing<'_>, from: usize, to: usize) -> String {
    let (mut path, mut at) = (String::new(), from);
    loop {
        let targets = drawing.layered.targets(at);
        let next = if targets.contains(&to) {
            to
        } else {
            let passing = targets.iter().find(|target| drawing.layered.items[**target] == Item::Line);
            *passing.expect("a line that is not there yet passes on")
        };
        path += &drawing.line_path(at, next);
        if next == to {
            return path;
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: &str = r#"
[function.take]
image = "x"
http = "/orders"
grants.push = ["stock", "letters"]
[function.stock]
image = "x"
queue = "stock"
grants.push = ["letters", "stock"]
[function.alone]
image = "x"
http = "/alone"
[queue.stock]
cycle = true
[sink.letters]
queue = "letters"
webhook.url = "http://x"
"#;

    fn layout() -> Layout {
        crate::layout(&Flow::of(&manifest::parse(FLOW).unwrap()))
    }

    #[test]
    fn every_stage_has_a_place_of_its_own_within_the_picture() {
        let Layout { width, height, stages, alone, left_out, .. } = layout();
        assert_eq!((alone, left_out), (vec!["alone".to_owned()], 0));
        let names: Vec<_> = stages.iter().map(|stage| (stage.kind, stage.name.as_str())).collect();
        for expected in [("trigger", "/orders"), ("function", "take"), ("function", "stock"), ("sink", "letters")] {
            assert!(names.contains(&expected), "{names:?}");
        }
        for (place, a) in stages.iter().enumerate() {
            assert!(a.x >= 0.0 && a.y >= 0.0 && a.x + a.width <= width && a.y + a.height <= height, "{a:?}");
            for b in &stages[place + 1..] {
                let beside = a.x + a.width <= b.x || b.x + b.width <= a.x;
                let below = a.y + a.height <= b.y || b.y + b.height <= a.y;
                assert!(beside || below, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn the_line_of_an_edge_leads_from_the_right_of_one_box_to_the_left_of_the_other() {
        let Layout { stages, edges, .. } = layout();
        for Way { from, to, path, .. } in edges.iter().filter(|edge| edge.from != edge.to) {
            let (from, to) = (&stages[*from], &stages[*to]);
            let number = |text: &str| text.parse::<f64>().unwrap();
            let start = number(path[1..].split(' ').next().unwrap());
            let (x, y) = path.rsplit_once(' ').map(|(rest, y)| (rest.rsplit_once(' ').unwrap().1, y)).unwrap();
            assert_eq!(start, from.x + from.width, "{path}");
            assert_eq!(number(x) + 7.0, to.x, "{path}");
            assert!((to.y..=to.y + to.height).contains(&number(y)), "{path}");
        }
        let itself = edges.iter().find(|edge| edge.from == edge.to).unwrap();
        assert_eq!((itself.path.as_str(), itself.queue.as_deref()), ("", Some("stock")));
    }
}
