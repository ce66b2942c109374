//! What the receiver of a forwarded call says before it reads the body.

/// How often a call is refused at the most. Whoever gets it then runs it.
pub const REFUSALS_MAX: u32 = 2;
/// A node where a call would wait for longer than its gate puts up with, and by more than this, refuses: less is not
/// worth the work of refusing.
const SURPRISE: f64 = 0.001;

/// How busy a node is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Truth {
    /// Seconds until a call that comes now begins to run; below zero, how many seconds of work (over all of its places)
    /// find a free place.
    pub backlog: f64,
}

impl Truth {
    /// Seconds that a call waits.
    pub fn wait(&self) -> f64 {
        self.backlog.max(0.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Judgement {
    Runs,
    /// The gate may choose again, by what it knows now.
    Refuses(Truth),
}

/// What a node does with a call whose gate puts up with `bears` seconds of waiting ([`crate::Pick::There`]), and that
/// was refused `refusals` times before.
pub fn judge(truth: Truth, bears: f64, refusals: u32) -> Judgement {
    if refusals < REFUSALS_MAX && truth.wait() > bears + SURPRISE { Judgement::Refuses(truth) } else { Judgement::Runs }
}
