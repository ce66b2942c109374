//! The units of one function: spares made ahead of need, those kept for reuse, and who waits for one.
//!
//! Pure decisions on plain numbers, apart from what they are made for: what is to be made now? (Forked, where units are processes.)

/// Spares that are always there while a function is in use.
const SPARES_MIN: u32 = 2;

/// How many units there are and are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready for work.
    pub spares: u32,
    /// Being made.
    pub coming: u32,
    /// At work.
    pub busy: u32,
    /// Calls without a unit.
    pub waiting: u32,
    /// The most at work at once of late.
    pub peak: u32,
    /// One is used for a single call: each call wants a fresh one after it.
    pub are_fresh: bool,
}

impl Counts {
    /// How many to begin making. `in_call`: a call has just begun, and making one beside it would take its core.
    pub fn to_make(&self, in_call: bool, spares_max: u32) -> u32 {
        let have = self.spares + self.coming;
        let needed = self.waiting.saturating_sub(have);
        let spares = if self.are_fresh { self.peak.clamp(SPARES_MIN, spares_max) } else { 1 };
        // With a spare left the next call has one, and this one need not share its core.
        if in_call && have > 0 {
            return needed;
        }
        needed.max((self.waiting + spares).saturating_sub(have))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> Counts {
        Counts { are_fresh: true, ..Counts::default() }
    }

    #[test]
    fn a_call_finds_a_spare_and_the_next_one_too() {
        assert_eq!(counts().to_make(false, 8), 2);
        assert_eq!(Counts { spares: 2, ..counts() }.to_make(false, 8), 0);
        assert_eq!(Counts { spares: 1, busy: 1, ..counts() }.to_make(true, 8), 0, "not while the call runs");
        assert_eq!(Counts { spares: 0, busy: 2, ..counts() }.to_make(true, 8), 2, "unless there is none left");
        assert_eq!(Counts { spares: 1, ..counts() }.to_make(false, 8), 1);
    }

    #[test]
    fn a_burst_makes_units_for_all_who_wait_and_keeps_as_many_spares_as_it_may() {
        assert_eq!(Counts { waiting: 10, ..counts() }.to_make(true, 8), 12);
        assert_eq!(Counts { waiting: 10, coming: 10, peak: 20, ..counts() }.to_make(true, 8), 0);
        assert_eq!(Counts { peak: 20, ..counts() }.to_make(false, 8), 8);
    }

    #[test]
    fn units_that_are_used_again_need_few_spares() {
        assert_eq!(Counts { peak: 5, are_fresh: false, ..counts() }.to_make(false, 8), 1);
    }
}
