//! What is seen of a unit by whoever attaches to it while it works.

use problem::{Code, Problem};

/// A unit as it was for a moment. Where it was is in its log.
#[derive(Debug, Default)]
pub struct Seen {
    /// More of it, for people: registers, the number of its process.
    pub lines: Vec<String>,
    /// A core file, if one was asked for.
    pub core: Option<Vec<u8>>,
}

pub fn refused(why: String) -> Problem {
    Problem::new(Code::AttachRefused, why)
}

/// Of a unit that was there, and has no word to say any more.
pub fn ended_meanwhile(unit: u64) -> Problem {
    Problem::new(Code::UnitGone, format!("unit {unit} ended before it was seen"))
}
