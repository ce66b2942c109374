//! The drawing as SVG: boxes of the same grid, joined by curves. One document, no script, no outside font or style.

use crate::layers::{Item, Layered};
use crate::place::{Placed, Spot};
use manifest::flow::{Flow, Stage};
use std::fmt::Write;

/// Width of a character and height of a row, in the drawing's units.
const COLUMN: f64 = 8.0;
const ROW: f64 = 20.0;
const MARGIN: f64 = 16.0;
/// Between workflows.
const GAP: f64 = 24.0;
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
    let width = drawings.iter().map(|(_, placed)| placed.width).max().unwrap_or(0) as f64 * COLUMN + 2.0 * MARGIN;
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

struct Drawing<'a> {
    flow: &'a Flow,
    layered: &'a Layered,
    placed: &'a Placed,
    /// Where it begins on the page.
    top: f64,
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

    /// Straight through the column it leaves, then a curve to the next.
    fn line(&self, body: &mut String, from: usize, to: usize) {
        let (start, end) = (&self.placed.spots[from], &self.placed.spots[to]);
        let (x1, y1) = (self.x(start.x + start.own_width), self.y(start.row_out()));
        let (turn, x2, y2) = (self.x(start.x + start.width), self.x(end.x), self.y(end.row_in(from)));
        let middle = (turn + x2) / 2.0;
        let tip = self.layered.items[to] != Item::Line;
        let stop = if tip { x2 - 7.0 } else { x2 };
        let _ =
            writeln!(body, "<path class=\"line\" d=\"M{x1} {y1}H{turn}C{middle} {y1} {middle} {y2} {stop} {y2}\"/>");
        if tip {
            let _ = writeln!(body, "<path class=\"tip\" d=\"M{x2} {y2}l-9 -4.5v9z\"/>");
        }
    }

    /// A line that goes back passes below everything.
    fn back(&self, body: &mut String, from: usize, to: usize, below: f64) {
        let spot = |stage: usize| {
            let item = self.layered.items.iter().position(|item| *item == Item::Stage(stage));
            &self.placed.spots[item.expect("a stage that a line goes back from is in its drawing")]
        };
        let (start, end) = (spot(from), spot(to));
        let under = |spot: &Spot| self.top + (spot.y + spot.height) as f64 * ROW - ROW / 4.0;
        let (x1, x2) = (self.x(start.x + start.own_width) - 3.0 * COLUMN, self.x(end.x) + 2.0 * COLUMN);
        let (y1, y2) = (under(start), under(end));
        let _ = writeln!(body, "<path class=\"line back\" d=\"M{x1} {y1}V{below}H{x2}V{}\"/>", y2 + 7.0);
        let _ = writeln!(body, "<path class=\"tip\" d=\"M{x2} {y2}l-4.5 9h9z\"/>");
    }

    fn card(&self, body: &mut String, stage: &Stage, spot: &Spot) {
        let kind = match stage {
            Stage::Trigger { .. } => "trigger",
            Stage::Function { .. } => "function",
            Stage::Queue { .. } => "queue",
            Stage::Sink { .. } => "sink",
        };
        let (x, y) = (self.x(spot.x), self.top + spot.y as f64 * ROW + ROW / 4.0);
        let (width, height) = (spot.own_width as f64 * COLUMN, spot.height as f64 * ROW - ROW / 2.0);
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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
