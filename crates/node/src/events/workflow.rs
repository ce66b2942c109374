//! How many units a workflow has, over all its functions, and which permits are left.
//!
//! A shell holds the count while it asks its policy and starts what that decides: two steps never start the last unit
//! both. A step that found no room hears when there is some.

use parking_lot::{Mutex, MutexGuard};
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::Notify;

/// The permits of one workflow, shared by the shells of its steps.
pub struct UnitPermits {
    count: Mutex<Count>,
    freed: Notify,
}

struct Count {
    maximum: u32,
    taken: u32,
}

/// A permit that a worker has; given back when it is dropped.
pub struct UnitPermit(Arc<UnitPermits>);

/// The permits while nobody else takes one.
pub struct Taking<'a> {
    permits: &'a Arc<UnitPermits>,
    count: MutexGuard<'a, Count>,
}

impl UnitPermits {
    pub fn new(maximum: u32) -> Arc<Self> {
        Arc::new(Self { count: Mutex::new(Count { maximum, taken: 0 }), freed: Notify::new() })
    }

    /// A lower maximum ends nobody: workers that end are not replaced.
    pub fn set_maximum(&self, maximum: u32) {
        self.count.lock().maximum = maximum;
        self.freed.notify_waiters();
    }

    pub fn hold(self: &Arc<Self>) -> Taking<'_> {
        Taking { permits: self, count: self.count.lock() }
    }

    /// Waits until there is a permit left, which somebody else may then take.
    pub async fn has_room(&self) {
        loop {
            let mut freed = pin!(self.freed.notified());
            // Listen first, then look: who gives one back in between wakes us.
            freed.as_mut().enable();
            if self.count.lock().left() > 0 {
                return;
            }
            freed.await;
        }
    }
}

impl Count {
    fn left(&self) -> u32 {
        self.maximum.saturating_sub(self.taken)
    }
}

impl Taking<'_> {
    pub fn left(&self) -> u32 {
        self.count.left()
    }

    /// None if there is no permit left.
    pub fn take(&mut self) -> Option<UnitPermit> {
        (self.left() > 0).then(|| {
            self.count.taken += 1;
            UnitPermit(self.permits.clone())
        })
    }
}

impl Drop for UnitPermit {
    fn drop(&mut self) {
        self.0.count.lock().taken -= 1;
        self.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_permit_that_is_given_back_wakes_who_waits_for_one() {
        let permits = UnitPermits::new(2);
        let taken: Vec<UnitPermit> = (0..3).map_while(|_| permits.hold().take()).collect();
        assert_eq!((taken.len(), permits.hold().left()), (2, 0));
        let waiting = tokio::spawn({
            let permits = permits.clone();
            async move { permits.has_room().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(taken);
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
        assert_eq!(permits.hold().left(), 2);
    }

    #[test]
    fn a_lower_maximum_leaves_those_who_have_a_permit_in_peace() {
        let permits = UnitPermits::new(2);
        let taken: Vec<UnitPermit> = (0..2).map_while(|_| permits.hold().take()).collect();
        permits.set_maximum(1);
        assert!(permits.hold().take().is_none());
        drop(taken);
        assert_eq!(permits.hold().left(), 1);
    }
}
