//! Units that work while they wait for a call: nothing watches them as a call's limits do, so they are ended.

use super::{Kept, Pool, Spare};
use std::time::Instant;

impl<T: Spare> Pool<T> {
    /// Ends units that work while they wait; says whether any unit still waits. One at a time is not on its shelf: a
    /// call that comes meanwhile finds the others.
    pub fn end_restless(&self, now: Instant) -> bool {
        let numbers: Vec<u64> = self.shelf.lock().spares.iter().map(Spare::number).collect();
        for mut spare in numbers.into_iter().filter_map(|number| self.spare(number)) {
            if spare.rests(now) {
                // A call may have come meanwhile, and found none.
                self.shelf.lock().give(spare);
            }
        }
        let numbers: Vec<u64> = self.shelf.lock().kept.iter().map(|kept| kept.unit.number()).collect();
        for (at, mut kept) in numbers.into_iter().filter_map(|number| self.kept(number)) {
            if kept.unit.rests(now) {
                let mut shelf = self.shelf.lock();
                if let Some(kept) = shelf.hand_again(kept) {
                    let at = at.min(shelf.kept.len());
                    shelf.kept.insert(at, kept);
                }
            }
        }
        let shelf = self.shelf.lock();
        !shelf.spares.is_empty() || !shelf.kept.is_empty()
    }

    /// Takes a spare off its shelf, if it is still there.
    fn spare(&self, number: u64) -> Option<T> {
        let mut shelf = self.shelf.lock();
        let at = shelf.spares.iter().position(|spare| spare.number() == number)?;
        shelf.spares.remove(at)
    }

    /// The same of one that is kept, with its place.
    fn kept(&self, number: u64) -> Option<(usize, Kept<T>)> {
        let mut shelf = self.shelf.lock();
        let at = shelf.kept.iter().position(|kept| kept.unit.number() == number)?;
        Some((at, shelf.kept.remove(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Spares, Taken};
    use super::*;
    use std::sync::Arc;

    struct Unit(u64);

    impl Spare for Unit {
        fn number(&self) -> u64 {
            self.0
        }

        fn rests(&mut self, _: Instant) -> bool {
            self.0 % 2 == 0
        }
    }

    #[test]
    fn what_works_while_it_waits_is_ended_and_the_others_stay_in_their_order() {
        let (pool, id, now) = (Pool::new(8, Spares::new(2, 8), 8), Arc::<str>::from("r"), Instant::now());
        (1..=9).for_each(|number| pool.came(Some(Ok(Unit(number)))));
        let taken: Vec<_> = (0..4).map(|_| pool.take(&id)).collect();
        for one in taken {
            let Taken::Fresh(unit, entry) = one else { panic!("a spare waits") };
            pool.keep(unit, entry);
        }
        assert!(pool.end_restless(now));
        let shelf = pool.shelf.lock();
        assert_eq!(shelf.spares.iter().map(|unit| unit.0).collect::<Vec<_>>(), [6, 8]);
        assert_eq!(shelf.kept.iter().map(|kept| kept.unit.0).collect::<Vec<_>>(), [2, 4]);
        drop(shelf);
        assert_eq!(pool.units().len(), 2);
        let none: Pool<Unit> = Pool::new(1, Spares::NONE, 0);
        assert!(!none.end_restless(now));
    }
}
