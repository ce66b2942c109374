//! The workflow as a list, if it is too wide or too large to draw.

use crate::{Counts, card, svg};
use manifest::flow::{Flow, Stage};
use std::collections::BTreeMap;

/// Each stage with what it leads to.
pub fn list(flow: &Flow, counts: &BTreeMap<String, Counts>, part: &[usize]) -> String {
    let mut text = String::new();
    for place in part {
        let stage = &flow.stages[*place];
        let card = card(flow, counts, *place);
        let kind = match stage {
            Stage::Trigger { gate, .. } => gate.as_str(),
            other => svg::kind(other),
        };
        text += &format!("{kind} {}", card.lines.join(", "));
        if let (Some(queue), false) = (stage.queue(), matches!(stage, Stage::Queue { .. })) {
            text += &format!(" (queue {queue})");
        }
        text.push('\n');
        for edge in flow.edges.iter().filter(|edge| edge.from == *place) {
            text += &format!("  ──▶ {}\n", flow.stages[edge.to].name());
        }
    }
    text
}
