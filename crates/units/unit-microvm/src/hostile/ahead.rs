//! Machines that read ahead: what a hostile one gains by that, and that a good one is as fresh as before.

use super::{Code, ends, hello, machine_of, recipe_of, runtime, told};
use crate::measure::{Bed, Source};
use crate::tender::What;
use kernel_abi::exits::Exit;
use std::time::{Duration, Instant};

/// A component whose start took the kernel would have it back when the machine is to read ahead, before any call.
#[test]
fn one_that_is_to_read_ahead_and_does_not_come_back_is_seen_and_ended() {
    let ahead = |code: &Code| recipe_of(code, true).and_then(machine_of);
    let Some(tender) = ahead(&Code::default().spin()) else { return };
    let began = Instant::now();
    while tender.obeys() {
        assert!(began.elapsed() < Duration::from_secs(60), "it takes more time than it may");
        std::thread::sleep(Duration::from_millis(5));
    }
    let clock = tender.clock();
    drop(tender);
    ends(&clock);
    // One that does anything else than wait again is ended by its thread.
    let mut tender = ahead(&Code::default().exit(Exit::Log).spin()).unwrap();
    assert!(matches!(runtime().block_on(told(&mut tender)), What::Failed(_)));
}

/// What is read ahead leaves nothing: the machine is as one that has just been laid out.
#[test]
fn a_machine_that_has_read_ahead_is_as_fresh_as_before() {
    let Some((class, artefact)) = hello() else { return };
    let bed = Bed::new(class, artefact, 16 << 20).unwrap();
    runtime().block_on(async {
        let mut rested = bed.start(Source::Nothing).await.unwrap();
        let mut fresh = bed.start(Source::Nothing).await.unwrap();
        let dump = fresh.dump().await.unwrap();
        let began = Instant::now();
        while rested.reads() || began.elapsed() < Duration::from_millis(200) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(began.elapsed() < Duration::from_secs(20), "reading ahead ends");
        }
        assert!(rested.dump().await.unwrap() == dump, "nothing of it is left");
        assert!(rested.call(b"world").await.unwrap().starts_with(b"hello"));
    });
}
