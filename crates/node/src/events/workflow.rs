//! How many units a workflow has, over all its functions, and which permits are left.
//!
//! A shell holds the count while it asks its policy and starts what that decides: two steps never start the last unit
//! both. A step that found no room hears when there is some. One that has events and no worker at all starves: a worker
//! of another step gives way to it after its event, so that a step whose queue is never empty keeps none from going on.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
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
    /// The steps that starve, in the order in which they began to.
    starving: BTreeSet<u64>,
    next: u64,
}

/// A permit that a worker has; given back when it is dropped.
pub struct UnitPermit {
    permits: Arc<UnitPermits>,
    is_back: bool,
}

/// A step that has events and no worker, until it is dropped. Permits are for those that starve first.
pub struct Starving {
    permits: Arc<UnitPermits>,
    number: u64,
}

/// The permits while nobody else takes one.
pub struct Taking<'a> {
    permits: &'a Arc<UnitPermits>,
    count: MutexGuard<'a, Count>,
    /// Of the step that takes, while it starves.
    number: Option<u64>,
}

impl UnitPermits {
    pub fn new(maximum: u32) -> Arc<Self> {
        let count = Count { maximum, taken: 0, starving: BTreeSet::new(), next: 0 };
        Arc::new(Self { count: Mutex::new(count), freed: Notify::new() })
    }

    /// A lower maximum lets handlings end: before its next event, a worker that is one too many gives back its permit.
    pub fn set_maximum(&self, maximum: u32) {
        self.count.lock().maximum = maximum;
        self.freed.notify_waiters();
    }

    /// `starving`: what the step has of these permits, if it starves.
    pub fn hold<'a>(self: &'a Arc<Self>, starving: Option<&Starving>) -> Taking<'a> {
        Taking { permits: self, count: self.count.lock(), number: starving.map(|starving| starving.number) }
    }

    /// From now on a step starves.
    pub fn starve(self: &Arc<Self>) -> Starving {
        let mut count = self.count.lock();
        let number = count.next;
        count.next += 1;
        count.starving.insert(number);
        Starving { permits: self.clone(), number }
    }

    /// Waits until there is a permit left for the step, which somebody else may then take.
    pub async fn has_room(&self, starving: Option<&Starving>) {
        let number = starving.map(|starving| starving.number);
        loop {
            let mut freed = pin!(self.freed.notified());
            // Listen first, then look: who gives one back in between wakes us.
            freed.as_mut().enable();
            if self.count.lock().left(number) > 0 {
                return;
            }
            freed.await;
        }
    }
}

impl Count {
    fn free(&self) -> u32 {
        self.maximum.saturating_sub(self.taken)
    }

    fn starving(&self) -> u32 {
        self.starving.len() as u32
    }

    /// What is left for a step that starves by this number, or for one that does not.
    fn left(&self, number: Option<u64>) -> u32 {
        let beyond = self.free().saturating_sub(self.starving());
        match number.filter(|number| self.starving.contains(number)) {
            None => beyond,
            Some(number) if self.free() as usize > self.starving.range(..number).count() => beyond + 1,
            Some(_) => 0,
        }
    }
}

impl Taking<'_> {
    pub fn left(&self) -> u32 {
        self.count.left(self.number)
    }

    /// None if there is no permit left.
    pub fn take(&mut self) -> Option<UnitPermit> {
        (self.left() > 0).then(|| {
            self.count.taken += 1;
            // It starves no more.
            self.number.take().map(|number| self.count.starving.remove(&number));
            UnitPermit { permits: self.permits.clone(), is_back: false }
        })
    }
}

impl UnitPermit {
    pub fn is_of(&self, permits: &Arc<UnitPermits>) -> bool {
        Arc::ptr_eq(&self.permits, permits)
    }

    /// Whether a worker keeps it for its next event; else it is given back at once, so that not all go where one is
    /// enough. Only who `has_worked` gives way to steps that starve: each turn is an event at least.
    pub fn keeps(&mut self, has_worked: bool) -> bool {
        let mut count = self.permits.count.lock();
        let gives_way = has_worked && count.starving() > count.free();
        if count.taken <= count.maximum && !gives_way {
            return true;
        }
        count.taken -= 1;
        self.is_back = true;
        drop(count);
        self.permits.freed.notify_waiters();
        false
    }
}

impl Drop for UnitPermit {
    fn drop(&mut self) {
        if !self.is_back {
            self.permits.count.lock().taken -= 1;
            self.permits.freed.notify_waiters();
        }
    }
}

impl Starving {
    pub fn is_of(&self, permits: &Arc<UnitPermits>) -> bool {
        Arc::ptr_eq(&self.permits, permits)
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        if self.permits.count.lock().starving.remove(&self.number) {
            self.permits.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_permit_that_is_given_back_wakes_who_waits_for_one() {
        let permits = UnitPermits::new(2);
        let taken: Vec<UnitPermit> = (0..3).map_while(|_| permits.hold(None).take()).collect();
        assert_eq!((taken.len(), permits.hold(None).left()), (2, 0));
        let waiting = tokio::spawn({
            let permits = permits.clone();
            async move { permits.has_room(None).await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(taken);
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
        assert_eq!(permits.hold(None).left(), 2);
    }

    #[test]
    fn a_lower_maximum_takes_back_as_many_permits_as_are_too_many() {
        let permits = UnitPermits::new(3);
        let mut taken: Vec<UnitPermit> = (0..3).map_while(|_| permits.hold(None).take()).collect();
        permits.set_maximum(2);
        assert!(permits.hold(None).take().is_none());
        let kept: Vec<bool> = taken.iter_mut().map(|permit| permit.keeps(false)).collect();
        assert_eq!(kept, [false, true, true]);
        drop(taken);
        assert_eq!(permits.hold(None).left(), 2);
    }

    #[test]
    fn a_step_that_starves_gets_the_next_permit_and_the_first_to_starve_is_the_first() {
        let permits = UnitPermits::new(2);
        let mut taken: Vec<UnitPermit> = (0..2).map_while(|_| permits.hold(None).take()).collect();
        let [first, second] = [permits.starve(), permits.starve()];
        assert!(taken[0].keeps(false), "its turn has only begun");
        assert!(!taken[0].keeps(true));
        assert!(permits.hold(None).take().is_none(), "it is for who starves");
        assert!(permits.hold(Some(&second)).take().is_none(), "it is for who starves longer");
        let next = permits.hold(Some(&first)).take();
        assert!(next.is_some() && permits.hold(Some(&first)).take().is_none(), "one, for another starves");
        assert!(!taken[1].keeps(true) && permits.hold(None).left() == 0);
        // Its events went another way.
        drop(second);
        assert_eq!(permits.hold(None).left(), 1);
        drop((taken, next, first));
        assert_eq!(permits.hold(None).left(), 2);
    }
}
