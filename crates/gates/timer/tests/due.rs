//! Which ticks are due, told as scripts: a timer, then the times its node asks at and what it gets.

use gate_timer::{Due, MISSED_MAX, Progress, TICKS_MAX, Timer};
use jiff::Timestamp;
use problem::Code;
use serde_json::{Value, json};

fn ms(time: &str) -> u64 {
    let time: Timestamp = time.parse().unwrap_or_else(|error| panic!("{time}: {error}"));
    time.as_millisecond().try_into().unwrap()
}

fn function(trigger: Value) -> manifest::Function {
    let mut function = trigger;
    function["image"] = json!("x");
    serde_json::from_value(function).unwrap()
}

fn timer(trigger: Value) -> Timer {
    Timer::all(&function(trigger)).unwrap().remove(0)
}

fn cron(schedule: &str, zone: &str) -> Timer {
    timer(json!({ "cron": { "schedule": schedule, "zone": zone } }))
}

/// Lines of `NOW -> TIME… ; NEXT`, the first line `begin NOW`. A time may have `+MISSED` behind it; `kill` before a
/// line means that the node went down before it could keep what it did, so the same must come again.
#[track_caller]
fn check(timer: &Timer, script: &str) {
    let mut lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    let begin = lines.next().and_then(|line| line.strip_prefix("begin ")).expect("begins with begin");
    let mut progress = Progress::begun(ms(begin));
    for line in lines {
        let (now, expected) = line.split_once("->").unwrap();
        let (killed, now) = match now.trim().strip_prefix("kill ") {
            Some(now) => (true, now),
            None => (false, now.trim()),
        };
        let (ticks, next) = expected.split_once(';').unwrap();
        let due = timer.due(progress, ms(now));
        let said: Vec<String> = due
            .ticks
            .iter()
            .map(|tick| {
                let time = Timestamp::from_millisecond(tick.scheduled_ms as i64).unwrap();
                if tick.missed > 0 { format!("{time}+{}", tick.missed) } else { time.to_string() }
            })
            .collect();
        let expected: Vec<&str> = ticks.split_whitespace().collect();
        assert_eq!(said, expected, "at {now}");
        assert_eq!(due.next_ms, Some(ms(next.trim())), "at {now}: next");
        if !killed {
            progress = Progress::from_record(&due.progress.to_record()).expect("a record reads back");
        }
    }
}

#[test]
fn a_steady_pace_is_kept_whenever_it_is_asked() {
    check(
        &timer(json!({ "every": "10s" })),
        "begin 2026-01-01T00:00:03Z
         2026-01-01T00:00:05Z -> ; 2026-01-01T00:00:10Z
         2026-01-01T00:00:10Z -> 2026-01-01T00:00:10Z ; 2026-01-01T00:00:20Z
         2026-01-01T00:00:10Z -> ; 2026-01-01T00:00:20Z
         2026-01-01T00:00:20.004Z -> 2026-01-01T00:00:20Z ; 2026-01-01T00:00:30Z
         2026-01-01T00:00:31Z -> 2026-01-01T00:00:30Z ; 2026-01-01T00:00:40Z",
    );
}

#[test]
fn what_was_not_kept_is_fired_again_under_the_same_id() {
    let timer = timer(json!({ "every": "10s" }));
    check(
        &timer,
        "begin 2026-01-01T00:00:03Z
         kill 2026-01-01T00:00:10Z -> 2026-01-01T00:00:10Z ; 2026-01-01T00:00:20Z
         2026-01-01T00:00:11Z -> 2026-01-01T00:00:10Z ; 2026-01-01T00:00:20Z",
    );
    let event = |now: u64| timer.due(Progress::begun(9_000), now).ticks[0].event("f", &timer);
    assert_eq!(event(10_000), event(11_000));
}

#[test]
fn after_a_pause_one_tick_stands_for_all() {
    check(
        &timer(json!({ "every": "10s" })),
        "begin 2026-01-01T00:00:03Z
         2026-01-01T01:00:05Z -> 2026-01-01T01:00:00Z+359 ; 2026-01-01T01:00:10Z",
    );
}

#[test]
fn after_a_pause_skip_makes_none_but_is_patient_with_a_slow_node() {
    check(
        &timer(json!({ "every": { "period": "1m", "catch_up": "skip" } })),
        "begin 2026-01-01T00:00:03Z
         2026-01-01T01:00:30Z -> ; 2026-01-01T01:01:00Z
         2026-01-01T01:01:05Z -> 2026-01-01T01:01:00Z ; 2026-01-01T01:02:00Z
         2026-01-01T01:04:05Z -> 2026-01-01T01:04:00Z+2 ; 2026-01-01T01:05:00Z",
    );
}

#[test]
fn after_a_pause_all_makes_one_for_each_the_oldest_first() {
    check(
        &timer(json!({ "cron": { "schedule": "0 */6 * * *", "catch_up": "all" } })),
        "begin 2026-01-01T00:00:00Z
         2026-01-02T00:30:00Z -> 2026-01-01T06:00:00Z 2026-01-01T12:00:00Z 2026-01-01T18:00:00Z 2026-01-02T00:00:00Z ; \
         2026-01-02T06:00:00Z",
    );
}

/// A queue may have room for fewer events than there are times to catch up on.
#[test]
fn where_only_some_ticks_fit_the_others_come_next() {
    let timer = timer(json!({ "every": { "period": "10s", "catch_up": "all" } }));
    let begun = Progress::begun(5_000);
    let due = timer.due(begun, 55_000);
    assert_eq!(due.ticks.len(), 5);
    assert_eq!((due.progress_after(0), due.progress_after(5)), (begun, due.progress));
    let rest = timer.due(due.progress_after(2), 55_000);
    assert_eq!((rest.ticks.as_slice(), rest.progress), (&due.ticks[2..], due.progress));
}

#[test]
fn a_pause_of_years_costs_no_more_than_a_thousand_ticks() {
    for trigger in [
        json!({ "every": { "period": "100ms", "catch_up": "all" } }),
        json!({ "cron": { "schedule": "* * * * * *", "catch_up": "all" } }),
    ] {
        let timer = timer(trigger);
        let Due { ticks, .. } = timer.due(Progress::begun(0), ms("2026-01-01T00:00:00Z"));
        assert_eq!((ticks.len(), ticks[0].missed), (TICKS_MAX, MISSED_MAX));
        assert!(ticks.windows(2).all(|pair| pair[0].scheduled_ms < pair[1].scheduled_ms && pair[1].missed == 0));
        assert_eq!(ticks[TICKS_MAX - 1].scheduled_ms, ms("2026-01-01T00:00:00Z"));
    }
    let one = timer(json!({ "every": "100ms" })).due(Progress::begun(0), ms("2026-01-01T00:00:00Z"));
    assert_eq!((one.ticks.len(), one.ticks[0].missed), (1, MISSED_MAX));
}

/// Berlin goes from 2 to 3 at 01:00 UTC on 2026-03-29, and from 3 back to 2 at 01:00 UTC on 2026-10-25.
#[test]
fn a_local_time_that_is_skipped_fires_once_at_the_jump() {
    check(
        &cron("30 2 * * *", "Europe/Berlin"),
        "begin 2026-03-28T00:00:00Z
         2026-03-28T02:00:00Z -> 2026-03-28T01:30:00Z ; 2026-03-29T01:00:00Z
         2026-03-29T01:00:00Z -> 2026-03-29T01:00:00Z ; 2026-03-30T00:30:00Z
         2026-03-29T23:00:00Z -> ; 2026-03-30T00:30:00Z",
    );
}

#[test]
fn a_local_time_that_is_doubled_fires_once() {
    check(
        &cron("30 2 * * *", "Europe/Berlin"),
        "begin 2026-10-24T22:00:00Z
         2026-10-25T00:30:00Z -> 2026-10-25T00:30:00Z ; 2026-10-26T01:30:00Z
         2026-10-25T01:30:00Z -> ; 2026-10-26T01:30:00Z
         2026-10-26T01:30:00Z -> 2026-10-26T01:30:00Z ; 2026-10-27T01:30:00Z",
    );
}

#[test]
fn a_schedule_for_every_hour_keeps_its_pace_through_a_jump() {
    check(
        &cron("*/30 * * * *", "Europe/Berlin"),
        "begin 2026-03-29T00:59:00Z
         2026-03-29T01:00:00Z -> 2026-03-29T01:00:00Z ; 2026-03-29T01:30:00Z",
    );
    check(
        &timer(json!({ "cron": { "schedule": "*/30 * * * *", "zone": "Europe/Berlin", "catch_up": "all" } })),
        "begin 2026-10-25T00:29:00Z
         2026-10-25T02:00:00Z -> 2026-10-25T00:30:00Z 2026-10-25T01:00:00Z 2026-10-25T01:30:00Z 2026-10-25T02:00:00Z ; \
         2026-10-25T02:30:00Z",
    );
}

#[test]
fn names_ranges_steps_and_seconds_are_read() {
    for (schedule, after, next) in [
        ("0 7 * * mon-fri", "2026-11-20T07:00:00Z", "2026-11-23T07:00:00Z"),
        ("0 7 * * MON,wed", "2026-11-23T07:00:00Z", "2026-11-25T07:00:00Z"),
        ("0 0 1 jan *", "2026-11-21T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("0 0 29 2 *", "2026-11-21T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("5-20/5 * * * *", "2026-01-01T00:15:00Z", "2026-01-01T00:20:00Z"),
        ("*/15 * * * * *", "2026-01-01T00:00:31Z", "2026-01-01T00:00:45Z"),
        // Day of the month or day of the week, as cron has it where both are given.
        ("0 0 13 * fri", "2026-11-09T00:00:00Z", "2026-11-13T00:00:00Z"),
        ("0 0 13 * fri", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"),
        ("0 0 * * 7", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
        ("@daily", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
    ] {
        let after = ms(after);
        assert_eq!(cron(schedule, "UTC").due(Progress::begun(after), after).next_ms, Some(ms(next)), "{schedule}");
    }
}

#[test]
fn a_schedule_or_zone_that_cannot_be_read_is_refused_by_name() {
    for (schedule, zone, said) in [
        ("", "UTC", "schedule"),
        ("* * * *", "UTC", "* * * *"),
        ("60 * * * *", "UTC", "60"),
        ("0 0 30 2 *", "UTC", "no day ever"),
        ("0 7 * * moonday", "UTC", "moonday"),
        ("0 0 0 1 1 * 2030", "UTC", "2030"),
        (&"*".repeat(300), "UTC", "256"),
        ("0 7 * * *", "Europe/Atlantis", "Europe/Atlantis"),
        ("0 7 * * *", "", "zone"),
        ("0 7 * * *", "../../etc/passwd", "zone"),
    ] {
        let function = function(json!({ "cron": { "schedule": schedule, "zone": zone } }));
        let problem = Timer::all(&function).expect_err(schedule);
        assert_eq!(problem.code, Code::ManifestValue);
        assert!(problem.detail.contains(said), "{said} is not in {}", problem.detail);
    }
}

#[test]
fn a_clock_put_back_a_little_fires_nothing_twice() {
    check(
        &cron("0 7 * * *", "UTC"),
        "begin 2026-01-01T00:00:00Z
         2026-01-01T07:00:00Z -> 2026-01-01T07:00:00Z ; 2026-01-02T07:00:00Z
         2026-01-01T06:59:00Z -> ; 2026-01-02T07:00:00Z
         2026-01-01T07:00:00Z -> ; 2026-01-02T07:00:00Z",
    );
}

#[test]
fn a_clock_put_back_far_does_not_silence_a_timer() {
    check(
        &cron("0 * * * *", "UTC"),
        "begin 2099-01-01T00:00:00Z
         2099-01-01T01:00:00Z -> 2099-01-01T01:00:00Z ; 2099-01-01T02:00:00Z
         2026-01-01T00:30:00Z -> ; 2026-01-01T01:00:00Z
         2026-01-01T01:00:00Z -> 2026-01-01T01:00:00Z ; 2026-01-01T02:00:00Z",
    );
    check(
        &timer(json!({ "every": "1s" })),
        "begin 2026-01-01T01:00:00Z
         2026-01-01T00:58:00Z -> ; 2026-01-01T00:58:01Z
         2026-01-01T00:58:01Z -> 2026-01-01T00:58:01Z ; 2026-01-01T00:58:02Z",
    );
}

/// A machine without a battery for its clock begins in 1970 each time, until the network tells it the time.
#[test]
fn a_clock_that_begins_in_1970_catches_up_on_what_was_missed_and_no_more() {
    for (power_on, ticks, next) in [
        ("2026-01-02T07:30:00Z", "2026-01-02T07:00:00Z", "2026-01-03T07:00:00Z"),
        ("2026-01-01T08:00:00Z", "", "2026-01-02T07:00:00Z"),
    ] {
        check(
            &timer(json!({ "cron": { "schedule": "0 7 * * *", "catch_up": "all" } })),
            &format!(
                "begin 2026-01-01T00:00:00Z
                 2026-01-01T07:00:00Z -> 2026-01-01T07:00:00Z ; 2026-01-02T07:00:00Z
                 1970-01-01T00:00:05Z -> ; 1970-01-01T07:00:00Z
                 1970-01-01T07:00:00Z -> 1970-01-01T07:00:00Z ; 1970-01-02T07:00:00Z
                 {power_on} -> {ticks} ; {next}"
            ),
        );
    }
}

#[test]
fn a_tick_says_when_it_was_due_and_what_it_stands_for() {
    let timer = cron("0  7 * * mon-fri", "Europe/Berlin");
    let due = timer.due(Progress::begun(ms("2026-11-18T00:00:00Z")), ms("2026-11-20T06:00:01Z"));
    let event = due.ticks[0].event("report", &timer);
    assert_eq!(event.id, "cron 0 7 * * mon-fri Europe/Berlin 2026-11-20T06:00:00Z");
    assert_eq!((event.source.as_str(), event.kind.as_str()), ("/timer/report", "timer.tick"));
    assert_eq!(event.attribute("scheduledtime"), Some("2026-11-20T06:00:00Z"));
    assert_eq!(event.attribute("missed"), Some("2"));
    assert_eq!(event.time_ms, ms("2026-11-20T06:00:00Z"));
}

#[test]
fn the_same_trigger_written_twice_fires_once() {
    let function = function(json!({ "every": ["10s", "10s", "10000ms", "20s"], "cron": ["0 7 * * *", "0  7 * * *"] }));
    let names: Vec<String> = Timer::all(&function).unwrap().iter().map(|timer| timer.name().to_owned()).collect();
    assert_eq!(names, ["cron 0 7 * * * UTC", "every 10s", "every 20s"]);
}

/// Looking ahead and looking back must agree, above all where clocks change: else a tick is lost or doubled.
#[test]
fn the_time_before_and_the_time_after_are_the_same_times() {
    for zone in ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia"]
    {
        for schedule in
            ["30 2 * * *", "*/30 * * * *", "0 0 * * *", "15 1,2,3 * * sun", "0 */2 * * *", "59 23 * * *", "0 0,1 * * *"]
        {
            let timer = timer(json!({ "cron": { "schedule": schedule, "zone": zone, "catch_up": "all" } }));
            // Two years, in steps that a node that is up would take.
            let (mut now, end) = (ms("2010-12-30T12:34:56Z"), ms("2013-01-01T00:00:00Z"));
            let mut progress = Progress::begun(now);
            while now < end {
                let due = timer.due(progress, now);
                let next = due.next_ms.unwrap_or_else(|| {
                    panic!("{schedule} in {zone} after {}", Timestamp::from_millisecond(now as i64).unwrap())
                });
                assert!(next > now);
                let then = timer.due(due.progress, next);
                let times: Vec<u64> = then.ticks.iter().map(|tick| tick.scheduled_ms).collect();
                assert_eq!(
                    times,
                    [next],
                    "{schedule} in {zone} after {}",
                    Timestamp::from_millisecond(now as i64).unwrap()
                );
                (now, progress) = (next, then.progress);
            }
        }
    }
}
