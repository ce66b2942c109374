//! What classes with WASI 0.2 must do, on `probe` and `start-random` of `guests/`.

use super::{LONG, Ready, Stage, Watcher, is, text};
use handling::Content;
use problem::Code;
use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

impl Stage<'_> {
    fn probe(&self, change: impl FnOnce(&mut manifest::Function)) -> Ready {
        self.prepare("probe", self.images.wasi.expect("a class with WASI has its images").probe, change)
    }
}

pub async fn a_unit_sees_what_its_manifest_says_and_no_more(stage: &Stage<'_>) {
    let probe = stage.probe(|function| {
        function.environment = [("COLOUR", "blue"), ("SIZE", "7")].map(|(name, of)| (name.into(), of.into())).into();
    });
    assert_eq!(probe.call("environment").await.unwrap(), "COLOUR=blue SIZE=7 0 arguments");
    assert_eq!(probe.call("empty").await.unwrap(), "true 0 folders 3 refused");
    assert_eq!(probe.call("print").await.unwrap(), "true");
    for line in ["to stdout", "to stderr", "not ended"] {
        assert!(stage.log().lines().any(|logged| logged == line), "{line:?} in {}", stage.log());
    }
}

pub async fn time_is_the_time_of_now_and_can_be_waited_for(stage: &Stage<'_>) {
    let probe = stage.probe(|_| {});
    for _ in 0..2 {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let said = probe.call("clocks").await.unwrap();
        let (seconds, does_go_on) = said.split_once(' ').expect("two words");
        let seconds: u64 = seconds.parse().expect("a number");
        assert!((before..=before + LONG.as_secs()).contains(&seconds) && does_go_on == "true", "{said}");
        // Beyond a second, so that a clock that stood still in a snapshot would be seen.
        std::thread::sleep(Duration::from_millis(1_100));
    }
    let began = Instant::now();
    let said = probe.call("sleep 50").await.unwrap();
    let (ms, ready) = said.split_once(' ').expect("words");
    assert!(ms.parse::<u64>().expect("a number") >= 50 && began.elapsed() >= Duration::from_millis(50), "{said}");
    assert_eq!(ready, "[1] false true", "the sooner one is ready, and the later one is not");
    let forever = probe.send("wait-none", Duration::from_millis(100), Watcher::default());
    is(forever.await.map(text), Code::TimeExceeded);
}

/// Units are copies of one snapshot in some classes. Neither what a start function took nor what a call takes may be
/// the same in two of them.
pub async fn no_two_units_share_a_seed(stage: &Stage<'_>) {
    const UNITS: usize = 40;
    let start = stage.images.wasi.expect("a class with WASI has its images").start_random;
    for (ready, data) in [(stage.prepare("start-random", start, |_| {}), ""), (stage.probe(|_| {}), "random")] {
        let (mut seen, mut count) = (HashSet::new(), 0);
        for _ in 0..UNITS {
            for word in ready.bytes(data).await.chunks(8) {
                seen.insert(word.to_vec());
                count += 1;
            }
        }
        assert!(count >= 2 * UNITS && seen.len() == count, "{} of {count} words differ", seen.len());
    }
}

pub async fn misuse_ends_the_unit_alone(stage: &Stage<'_>) {
    let probe = stage.probe(|function| {
        function.limits.cpu_ms = 5_000;
        function.limits.log_bytes = 1_000;
    });
    is(probe.call("exit 3").await, Code::UnitExited);
    for word in ["poll-none", "random-huge", "zeroes"] {
        is(probe.call(word).await, Code::UnitTrapped);
    }
    is(probe.call("handles").await, Code::UnitTrapped);
    let flood = probe.send("print-flood", Duration::from_millis(300), Watcher::default());
    is(flood.await.map(text), Code::TimeExceeded);
    let logged = stage.log().len();
    assert!(logged < 10_000, "a flood is cut: {logged} bytes are in the log");
    assert_eq!(probe.call("environment").await.unwrap(), "0 arguments");
}

impl Ready {
    async fn bytes(&self, data: &str) -> Vec<u8> {
        match self.send(data, LONG, Watcher::default()).await.expect("a reply").content {
            Content::Bytes(bytes) => bytes.to_vec(),
            Content::Http(_) => panic!("a lighter:unit function replies with bytes"),
        }
    }
}
