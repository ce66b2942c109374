//! The drawing as SVG: boxes of the same grid, joined by curves. One document, no script, no outside font or style.

use crate::layers::{Item, Layered};
use crate::place::{Placed, Spot};
use manifest::flow::{Flow, Stage};
use std::fmt::Write;

/// Width of a character and height of a row, in the drawing's units.
const COLUMN: f64 = 8.0;
pub const ROW: f64 = 20.0;
pub const MARGIN: f64 = 16.0;
/// Between workflows.
pub const GAP: f64 = 24.0;
const CORNER: f64 = 5.0;

/// Colours follow the reader's choice of light or dark; kinds differ in their edge too, so that nothing needs colour.
const STYLE: &str = "
  .box { fill: #ffffff; stroke: #4a5568; stroke-width: 1.5 }
  .head { fill: #4a5568; font-size: 11px }
  .name { fill: #1a202c; font-size: 13px }
  .trigger .box { stroke: #2b6cb0; rx: 14px } .trigger .head { fill: #2b6cb0 }
  .sink .box { stroke: #2f855a; stroke-width: 3 } .sink .head { fill: #2f855a }
  .queue .box { stroke-dasharray: 4 3 }
  .line { fill: none; stroke: #718096; stroke-width: 1.5 }
  .back { stroke-dasharray: 5 4 }
  .tip { fill: #718096 }
  text { font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
  @media (prefers-color-scheme: dark) {
    .box { fill: #1a202c; stroke: #a0aec0 } .head { fill: #a0aec0 } .name { fill: #edf2f7 }
    .trigger .box { stroke: #63b3ed } .trigger .head { fill: #63b3ed }
    .sink .box { stroke: #68d391 } .sink .head { fill: #68d391 }
    .line { stroke: #a0aec0 } .tip { fill: #a0aec0 }
  }";

pub fn document(flow: &Flow, drawings: &[(Layered, Placed)]) -> String {
    let width = width(drawings);
    let mut body = String::new();
    let mut top = MARGIN;
    for (layered, placed) in drawings {
        let drawing = Drawing { flow, layered, placed, top };
        top = drawing.write(&mut body) + GAP;
    }
    let height = (top - GAP).max(MARGIN) + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>workflow</title>\n<style>{STYLE}\n</style>\n{body}</svg>\n"
    )
}

/// How wide the drawings are, one below the other.
pub fn width(drawings: &[(Layered, Placed)]) -> f64 {
    drawings.iter().map(|(_, placed)| placed.width).max().unwrap_or(0) as f64 * COLUMN + 2.0 * MARGIN
}

pub struct Drawing<'a> {
    pub flow: &'a Flow,
    pub layered: &'a Layered,
    pub placed: &'a Placed,
    /// Where it begins on the page.
    pub top: f64,
}

/// Where the box of a stage stands.
pub struct Frame {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl Drawing<'_> {
    /// Returns where it ends.
    fn write(&self, body: &mut String) -> f64 {
        for (from, targets) in &self.layered.nets {
            for to in targets {
                self.line(body, *from, *to);
            }
        }
        let mut bottom = self.top + self.placed.height as f64 * ROW;
        for (from, to) in &self.layered.back {
            bottom += ROW;
            self.back(body, *from, *to, bottom);
        }
        for (item, spot) in self.placed.spots.iter().enumerate() {
            if let Item::Stage(stage) = self.layered.items[item] {
                self.card(body, &self.flow.stages[stage], spot);
            }
        }
        bottom
    }

    fn x(&self, column: usize) -> f64 {
        MARGIN + column as f64 * COLUMN
    }

    /// The middle of a row.
    fn y(&self, row: i64) -> f64 {
        self.top + (row as f64 + 0.5) * ROW
    }

    fn line(&self, body: &mut String, from: usize, to: usize) {
        let _ = writeln!(body, "<path class=\"line\" d=\"{}\"/>", self.line_path(from, to));
        if self.layered.items[to] != Item::Line {
            let end = &self.placed.spots[to];
            let (x, y) = (self.x(end.x), self.y(end.row_in(from)));
            let _ = writeln!(body, "<path class=\"tip\" d=\"M{x} {y}l-9 -4.5v9z\"/>");
        }
    }

    /// Straight through the column it leaves, then a curve to the next.
    pub fn line_path(&self, from: usize, to: usize) -> String {
        let (start, end) = (&self.placed.spots[from], &self.placed.spots[to]);
        let (x1, y1) = (self.x(start.x + start.own_width), self.y(start.row_out()));
        let (turn, x2, y2) = (self.x(start.x + start.width), self.x(end.x), self.y(end.row_in(from)));
        let middle = (turn + x2) / 2.0;
        let stop = if self.layered.items[to] == Item::Line { x2 } else { x2 - 7.0 };
        format!("M{x1} {y1}H{turn}C{middle} {y1} {middle} {y2} {stop} {y2}")
    }

    fn back(&self, body: &mut String, from: usize, to: usize, below: f64) {
        let (path, x, y) = self.back_path(from, to, below);
        let _ = writeln!(body, "<path class=\"line back\" d=\"{path}\"/>");
        let _ = writeln!(body, "<path class=\"tip\" d=\"M{x} {y}l-4.5 9h9z\"/>");
    }

    /// A line that goes back passes below everything: the line, and where its tip is.
    pub fn back_path(&self, from: usize, to: usize, below: f64) -> (String, f64, f64) {
        let spot = |stage: usize| {
            let item = self.layered.items.iter().position(|item| *item == Item::Stage(stage));
            &self.placed.spots[item.expect("a stage that a line goes back from is in its drawing")]
        };
        let (start, end) = (spot(from), spot(to));
        let under = |spot: &Spot| self.top + (spot.y + spot.height) as f64 * ROW - ROW / 4.0;
        let (x1, x2) = (self.x(start.x + start.own_width) - 3.0 * COLUMN, self.x(end.x) + 2.0 * COLUMN);
        let (y1, y2) = (under(start), under(end));
        (format!("M{x1} {y1}V{below}H{x2}V{}", y2 + 7.0), x2, y2)
    }

    pub fn frame(&self, spot: &Spot) -> Frame {
        Frame {
            x: self.x(spot.x),
            y: self.top + spot.y as f64 * ROW + ROW / 4.0,
            width: spot.own_width as f64 * COLUMN,
            height: spot.height as f64 * ROW - ROW / 2.0,
        }
    }

    fn card(&self, body: &mut String, stage: &Stage, spot: &Spot) {
        let kind = kind(stage);
        let Frame { x, y, width, height } = self.frame(spot);
        let _ = writeln!(body, "<g class=\"{kind}\"><title>{}</title>", escaped(stage.name()));
        let _ = writeln!(
            body,
            "<rect class=\"box\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{CORNER}\"/>"
        );
        let text_x = x + 2.0 * COLUMN;
        let _ = writeln!(
            body,
            "<text class=\"head\" x=\"{text_x}\" y=\"{}\">{}</text>",
            y + 12.0,
            escaped(&spot.card.edge)
        );
        for (index, line) in spot.card.lines.iter().enumerate() {
            let text_y = self.y(spot.y + 1 + index as i64) + 5.0;
            let _ = writeln!(body, "<text class=\"name\" x=\"{text_x}\" y=\"{text_y}\">{}</text>", escaped(line));
        }
        let _ = writeln!(body, "</g>");
    }
}

/// The word of a stage's kind.
pub fn kind(stage: &Stage) -> &'static str {
    match stage {
        Stage::Trigger { .. } => "trigger",
        Stage::Function { .. } => "function",
        Stage::Queue { .. } => "queue",
        Stage::Sink { .. } => "sink",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
