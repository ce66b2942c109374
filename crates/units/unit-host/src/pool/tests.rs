//! What is made, who gets it, and what goes, with units that are numbers.

use super::*;
use futures_util::FutureExt;

const SPARES: Spares = Spares::new(2, 8);

fn counts() -> Counts {
    Counts { are_fresh: true, ..Counts::default() }
}

#[test]
fn a_call_finds_a_spare_and_the_next_one_too() {
    assert_eq!(counts().to_make(false, &SPARES), 2);
    assert_eq!(Counts { spares: 2, ..counts() }.to_make(false, &SPARES), 0);
    assert_eq!(Counts { spares: 1, busy: 1, ..counts() }.to_make(true, &SPARES), 0, "not while the call runs");
    assert_eq!(Counts { spares: 0, busy: 2, ..counts() }.to_make(true, &SPARES), 2, "unless there is none left");
    assert_eq!(Counts { spares: 1, ..counts() }.to_make(false, &SPARES), 1);
}

#[test]
fn a_burst_makes_units_for_all_who_wait_and_keeps_as_many_spares_as_it_may() {
    assert_eq!(Counts { waiting: 10, ..counts() }.to_make(true, &SPARES), 12);
    assert_eq!(Counts { waiting: 10, coming: 10, peak: 20, ..counts() }.to_make(true, &SPARES), 0);
    assert_eq!(Counts { peak: 20, ..counts() }.to_make(false, &SPARES), 8);
}

/// 32 callers in turn: half of their calls had ended, and what was made anew for them was ended beyond the eighth,
/// to be made from nothing for the next calls a moment later.
#[test]
fn what_was_at_work_a_moment_ago_is_kept_for_the_calls_that_come_again() {
    let of_late = Counts { peak: 32, ..counts() };
    for (busy, places) in [(0, 40), (16, 24), (31, 9), (32, 8)] {
        assert!(Counts { busy, spares: places - 1, ..of_late }.has_room(&SPARES));
        assert!(!Counts { busy, spares: places, ..of_late }.has_room(&SPARES));
        assert!(Counts { busy, spares: places, waiting: 1, ..of_late }.has_room(&SPARES));
    }
    // One call after another: two wait, and the one that is made anew.
    assert!(!Counts { peak: 1, spares: 3, ..counts() }.has_room(&SPARES));
}

struct Unit {
    number: u64,
    is_there: bool,
}

impl Spare for Unit {
    fn number(&self) -> u64 {
        self.number
    }

    fn is_there(&mut self) -> bool {
        self.is_there
    }
}

fn unit(number: u64) -> Option<Result<Unit, Problem>> {
    Some(Ok(Unit { number, is_there: true }))
}

fn numbers(pool: &Pool<Unit>) -> Vec<u64> {
    pool.shelf.lock().spares.iter().map(|unit| unit.number).collect()
}

#[test]
fn a_unit_goes_to_the_call_that_waits_longest_and_still_waits() {
    let (pool, id) = (Pool::new(1, SPARES, 8), "r".into());
    let waits = |pool: &Pool<Unit>| match pool.take(&id) {
        Taken::Later(waits) => waits,
        Taken::Again(..) | Taken::Fresh(..) => panic!("there is none"),
    };
    drop(waits(&pool));
    let (mut first, mut second) = (waits(&pool), waits(&pool));
    assert_eq!((pool.missing_now(), pool.missing_now()), (2, 0), "for those who still wait");
    assert!(pool.is_missing(false));
    assert_eq!((pool.missing(false), pool.is_missing(false)), (2, false), "and spares");
    pool.came(unit(1));
    assert_eq!(first.try_recv().unwrap().unwrap().0.number, 1);
    pool.came(Some(Err(Problem::new(Code::NodeFull, "no room"))));
    assert_eq!(second.try_recv().unwrap().err().unwrap().code, Code::NodeFull);
    pool.came(unit(2));
    pool.came(None);
    assert_eq!((numbers(&pool), pool.missing(true)), (vec![2], 0));
}

/// Units that were kept went past the calls that waited: where a zygote had no more children than those, the calls
/// waited until their deadlines, while others that came later were served.
#[test]
fn a_unit_that_is_kept_goes_to_the_call_that_waits_longest() {
    let (pool, [first, second]) = (Pool::new(8, SPARES, 8), ["first", "second"].map(Arc::<str>::from));
    let handed = |taken: Taken<Unit>, id: &Arc<str>| pool.wait(taken, id).now_or_never().unwrap().unwrap();
    pool.came(unit(1));
    let Taken::Fresh(used, entry) = pool.take(&first) else { panic!("a spare waits") };
    drop(pool.take(&first));
    let waits = pool.take(&second);
    pool.keep(used, entry);
    let (mut used, entry) = handed(waits, &second);
    let units = pool.units();
    assert_eq!((used.number, units.len(), units[0].calls), (1, 1, 1));
    assert_eq!((units[0].request_id.as_deref(), pool.roster.busy()), (Some("second"), 1));
    // A unit that nobody has used is handed on too, and one that is gone is not.
    let waits = pool.take(&first);
    used.is_there = false;
    pool.keep(used, entry);
    assert_eq!((pool.units().len(), pool.shelf.lock().waiting.len()), (0, 1));
    pool.give_back(Unit { number: 2, is_there: true });
    let (used, entry) = handed(waits, &first);
    assert_eq!((used.number, pool.roster.busy()), (2, 1));
    // Nobody waits.
    pool.keep(used, entry);
    assert_eq!(pool.roster.busy(), 0);
    assert!(matches!(pool.take(&second), Taken::Again(Unit { number: 2, .. }, _)));
}

#[test]
fn what_waits_is_used_in_its_order_and_what_is_gone_is_not() {
    let (pool, id) = (Pool::new(2, SPARES, 1), Arc::<str>::from("r"));
    (1..=3).for_each(|number| pool.came(unit(number)));
    pool.shelf.lock().spares[0].is_there = false;
    let Taken::Fresh(used, entry) = pool.take(&id) else { panic!("a spare waits") };
    assert_eq!((used.number, pool.units().len()), (2, 1));
    pool.keep(used, entry);
    assert!(matches!(pool.take(&id), Taken::Again(Unit { number: 2, .. }, _)));
    // Kept for a while, spares as long as calls come.
    let Taken::Fresh(used, entry) = pool.take(&id) else { panic!("a spare waits") };
    pool.keep(used, entry);
    let (now, minute) = (Instant::now(), Duration::from_secs(60));
    assert!(!pool.sweep(now, false, minute, minute) && pool.units().len() == 1);
    assert!(!pool.sweep(now + minute, false, minute / 2, minute * 2) && pool.units().is_empty());
    pool.came(unit(4));
    assert!(pool.sweep(now + minute * 3, false, minute, minute) && numbers(&pool).is_empty());
}

/// A function whose callers had gone away was never idle again, and had as many spares as there may be.
#[test]
fn a_call_that_is_given_up_in_its_middle_is_at_work_no_more() {
    let (pool, id) = (Pool::new(1, SPARES, 8), Arc::<str>::from("r"));
    let minute = Duration::from_secs(60);
    for number in 1..=3 {
        pool.came(unit(number));
        let Taken::Fresh(used, entry) = pool.take(&id) else { panic!("a spare waits") };
        assert!(!pool.sweep(Instant::now() + minute * 2, false, minute, minute), "it is at work");
        drop((used, entry));
    }
    assert_eq!((pool.roster.busy(), pool.missing(false)), (0, SPARES.min));
    assert!(pool.sweep(Instant::now() + minute * 2, false, minute, minute));
}

/// 200 calls at once, then one after the other: the units of the spike go, and so does the second spare of a class
/// that wants one.
#[test]
fn what_a_spike_has_made_goes_after_it() {
    let spares = Spares::new(1, 6);
    let (pool, id) = (Pool::new(1, spares, 8), Arc::<str>::from("r"));
    let minute = Duration::from_secs(60);
    let waits: Vec<_> = (0..200).map(|_| pool.take(&id)).collect();
    assert_eq!(pool.missing(true), 201, "for each that waits, and one more");
    let mut at_work = Vec::new();
    for (number, taken) in waits.into_iter().enumerate() {
        pool.came(unit(number as u64));
        let Taken::Later(mut waits) = taken else { panic!("there was none") };
        let (unit, _) = waits.try_recv().unwrap().unwrap();
        at_work.push((pool.enter(unit.number, &id), unit));
        pool.begins();
    }
    at_work.clear();
    pool.came(unit(200));
    assert_eq!(pool.missing(false), 5, "the next spike finds some");
    (201..206).for_each(|number| pool.came(unit(number)));
    assert!(!pool.sweep(Instant::now(), false, minute, minute) && numbers(&pool).len() == 6);
    assert!(!pool.sweep(Instant::now(), false, minute, minute));
    assert_eq!((numbers(&pool), pool.missing(false)), (vec![205], 0));
}

#[test]
fn warm_units_are_there_before_the_first_call_and_long_after_the_last() {
    let minute = Duration::from_secs(60);
    for reuse_calls in [1, 50] {
        let (pool, id) = (Pool::new(reuse_calls, SPARES.with_warm(3), 8), Arc::<str>::from("r"));
        assert_eq!(pool.missing(false), 3, "no call has come yet");
        (1..=3).for_each(|number| pool.came(unit(number)));
        assert!(!pool.sweep(Instant::now() + minute * 9, false, minute, minute), "some are to stay");
        assert_eq!((numbers(&pool), pool.missing(false)), (vec![1, 2, 3], 0));
        let Taken::Fresh(used, entry) = pool.take(&id) else { panic!("a spare waits") };
        drop((used, entry));
        assert_eq!(pool.missing(false), 1, "the one that was used is made again");
        pool.came(unit(4));
        // One of them has died.
        pool.shelf.lock().spares[1].is_there = false;
        pool.forget_gone();
        assert_eq!((numbers(&pool), pool.missing(false)), (vec![2, 4], 1));
        assert!(pool.sweep(Instant::now(), true, minute, minute) && numbers(&pool).is_empty(), "it was replaced");
    }
}

#[test]
fn units_that_are_used_again_need_few_spares() {
    assert_eq!(Counts { peak: 5, are_fresh: false, ..counts() }.to_make(false, &SPARES), 1);
}
