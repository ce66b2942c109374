//! Notices that a step at its maximum still grows beyond what its queue holds: the end of a workflow, as in UniFaaS.

use crate::{Decision, Observation};

#[derive(Default)]
pub struct Overflow {
    /// Refusals when the maximum was first seen at work; none while there are fewer workers.
    refused_before: Option<u64>,
}

impl Overflow {
    /// Workers end once the shell has ended the workflow.
    pub const DECISION: Decision = Decision { start: 0, stop: 0, ends_workflow: true, look_after: None };

    /// Whether pushes were refused for want of room while `maximum` workers were at work. A paused queue only refuses.
    pub fn is_there(&mut self, seen: &Observation, maximum: u32) -> bool {
        if seen.workers < maximum || maximum == 0 {
            self.refused_before = None;
            return false;
        }
        seen.refused > *self.refused_before.get_or_insert(seen.refused)
    }
}
