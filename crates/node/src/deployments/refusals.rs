//! Records that a node could not take, so that each is logged once for a reason, and not with each talk. Pure.

use fleet_trust::NodeId;
use manifest::Name;
use problem::Code;
use std::collections::BTreeMap;

/// Reasons of one node and one record that are logged. A member that goes on naming others is not heard.
const REASONS_MAX: usize = 3;

/// Of each node and name the last record that it did not take.
#[derive(Debug, Default)]
pub struct Refusals(BTreeMap<(NodeId, Name), Refused>);

#[derive(Debug)]
struct Refused {
    serial: u64,
    reasons: Vec<Code>,
}

impl Refusals {
    /// Whether it is to be logged that a node did not take a record. Then it has been. The record was read and is the
    /// fleet's: so there are as many names as it has deployments.
    pub fn is_news(&mut self, node: NodeId, name: &Name, serial: u64, reason: Code) -> bool {
        let new = || Refused { serial, reasons: Vec::new() };
        let refused = self.0.entry((node, name.clone())).or_insert_with(new);
        if refused.serial != serial {
            *refused = new();
        }
        let is_news = refused.reasons.len() < REASONS_MAX && !refused.reasons.contains(&reason);
        if is_news {
            refused.reasons.push(reason);
        }
        is_news
    }

    pub fn forget_others(&mut self, is_there: impl Fn(&NodeId) -> bool) {
        self.0.retain(|(node, _), _| is_there(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 2] = [NodeId([1; 16]), NodeId([2; 16])];

    #[test]
    fn a_record_that_is_not_taken_is_news_once_for_each_node_and_reason() {
        let (mut refusals, app): (_, Name) = (Refusals::default(), "app".parse().unwrap());
        let [one, other] = NODES;
        for (node, serial, reason, is_news) in [
            (one, 1, Code::DiskFull, true),
            (one, 1, Code::DiskFull, false),
            (other, 1, Code::DiskFull, true),
            (one, 1, Code::DataUnusable, true),
            (one, 1, Code::NodeFull, true),
            (one, 1, Code::Internal, false),
            (one, 2, Code::DiskFull, true),
            (one, 2, Code::DiskFull, false),
        ] {
            assert_eq!(refusals.is_news(node, &app, serial, reason), is_news, "{node} {serial} {reason}");
        }
        refusals.forget_others(|node| *node == other);
        assert!(refusals.is_news(one, &app, 2, Code::DiskFull) && !refusals.is_news(other, &app, 1, Code::DiskFull));
    }
}
