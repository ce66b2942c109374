//! One long call of a light function may stay on the threads everyone shares for a while.
//!
//! Light functions have a long call now and then: an engine collects its garbage, a cache is filled. On a node whose
//! cores are all taken, threads of the idle class get next to nothing, and such a call would wait there for a second.
//! So it stays, gives way after each slice, and moves when it has used [`STAYS_MAX`] all the same. There is one such
//! call at a time on the whole node: neighbours wait for one more slice, as for any call that is just short enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// CPU time after which it moves like any other.
pub const STAYS_MAX: Duration = Duration::from_millis(20);

/// Of the node: whether a call stays now.
#[derive(Default)]
pub struct Patience(AtomicBool);

/// What one call has of it.
#[derive(Default)]
pub enum Stay {
    /// It moves when its slice is used.
    #[default]
    None,
    /// It may ask.
    May(Arc<Patience>),
    Stays {
        _until_it_ends: Staying,
    },
}

/// Held by the call that stays.
pub struct Staying(Arc<Patience>);

impl Patience {
    fn take(self: &Arc<Self>) -> Option<Staying> {
        self.0.compare_exchange(false, true, SeqCst, SeqCst).ok().map(|_| Staying(self.clone()))
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        self.0.0.store(false, SeqCst);
    }
}

impl Stay {
    /// A slice is used, and `cpu` in all: whether the call goes on where it is. One that was told to move is told so
    /// again.
    pub fn goes_on(&mut self, cpu: Duration) -> bool {
        if cpu < STAYS_MAX {
            match self {
                Self::Stays { .. } => return true,
                Self::May(patience) => {
                    if let Some(staying) = patience.take() {
                        *self = Self::Stays { _until_it_ends: staying };
                        return true;
                    }
                }
                Self::None => {}
            }
        }
        *self = Self::None;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(1);

    #[test]
    fn one_call_stays_at_a_time_and_none_for_long() {
        let patience = Arc::new(Patience::default());
        let (mut one, mut other) = (Stay::May(patience.clone()), Stay::May(patience.clone()));
        assert!(one.goes_on(SLICE) && one.goes_on(SLICE * 19));
        assert!(!other.goes_on(SLICE), "there is one already");
        assert!(!one.goes_on(STAYS_MAX), "it has stayed long enough");
        assert!(!one.goes_on(SLICE) && !other.goes_on(SLICE), "who moves does not come back");
        let mut third = Stay::May(patience.clone());
        assert!(third.goes_on(SLICE));
        drop(third);
        assert!(Stay::May(patience).goes_on(SLICE), "what a call had is given back when it ends");
    }

    #[test]
    fn who_may_not_stay_moves() {
        assert!(!Stay::default().goes_on(SLICE));
    }
}
