//! Claims about logs.

use super::ring::LINES_A_SECOND_MAX;
use super::*;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn say(log: &Arc<FunctionLog>, message: &str) {
    log.node(Level::Info, 1, message);
}

fn messages(lines: &[LogLine]) -> Vec<&str> {
    lines.iter().map(|line| line.message.as_str()).collect()
}

#[test]
fn the_tail_has_the_last_lines_in_order() {
    let logs = Logs::new(1 << 20, false);
    let log = logs.function(&name("a"));
    for message in ["one", "two", "three"] {
        say(&log, message);
    }
    assert_eq!(messages(&logs.tail(Some(&name("a")), 2)), ["two", "three"]);
    assert_eq!(messages(&logs.tail(None, 10)), ["one", "two", "three"]);
    assert!(logs.tail(Some(&name("b")), 10).is_empty());
}

#[test]
fn a_ring_drops_its_oldest_lines_and_numbers_go_on() {
    let logs = Logs::new(1 << 20, false);
    let log = logs.function(&name("a"));
    for _ in 0..1_000 {
        say(&log, &"x".repeat(1_000));
    }
    let tail = logs.tail(Some(&name("a")), usize::MAX);
    let kept: usize = tail.iter().map(|line| line.message.len()).sum();
    assert!(kept <= RING_BYTES_MAX && kept > RING_BYTES_MAX / 2, "{kept} bytes kept");
    assert_eq!(tail.last().unwrap().sequence, 999);
}

#[test]
fn a_flood_is_cut_to_so_many_lines_a_second() {
    let logs = Logs::new(1 << 20, false);
    let log = logs.function(&name("a"));
    for _ in 0..3 * LINES_A_SECOND_MAX {
        say(&log, "x");
    }
    // The loop may cross into a second or third second.
    assert!(log.dropped() > 0);
    let last = logs.tail(Some(&name("a")), 1);
    assert!(last[0].sequence + log.dropped() >= u64::from(LINES_A_SECOND_MAX));
}

#[test]
fn functions_share_the_memory_of_all_logs() {
    let logs = Logs::new(64 << 10, false);
    for function in 0..8 {
        let log = logs.function(&name(&format!("f{function}")));
        for _ in 0..100 {
            say(&log, &"x".repeat(1_000));
        }
    }
    logs.sweep();
    let kept: usize = logs.tail(None, usize::MAX).iter().map(|line| line.message.len()).sum();
    assert!(kept <= 64 << 10, "{kept} bytes kept");
    assert!((0..8).all(|function| !logs.tail(Some(&name(&format!("f{function}"))), 1).is_empty()));
}

#[tokio::test]
async fn a_follower_hears_new_lines_of_its_function_only() {
    let logs = Logs::new(1 << 20, false);
    let (a, b) = (logs.function(&name("a")), logs.function(&name("b")));
    say(&a, "before");
    let mut follower = logs.follow(Some(name("a"))).unwrap();
    say(&b, "of another");
    say(&a, "after");
    assert_eq!(follower.next().await.unwrap().message, "after");
    logs.close();
    assert!(follower.next().await.is_none());
}

#[test]
fn followers_are_bounded_and_make_room_when_they_go() {
    let logs = Logs::new(1 << 20, false);
    let mut followers: Vec<Follower> = (0..FOLLOWERS_MAX).map(|_| logs.follow(None).unwrap()).collect();
    assert!(logs.follow(None).is_none());
    followers.pop();
    assert!(logs.follow(None).is_some());
}

#[test]
fn a_long_line_is_cut_at_a_character() {
    let logs = Logs::new(1 << 20, false);
    let log = logs.function(&name("a"));
    say(&log, &"é".repeat(unit::LogLine::BYTES_MAX));
    let tail = logs.tail(None, 1);
    assert_eq!(tail[0].message.len(), unit::LogLine::BYTES_MAX);
}
