//! Passwords that are wrong, many at a time: who has the right one comes in, and what is hashed is bounded.

use super::support::*;
use gate_mqtt::codec::{Connect, Packet, Reason, Version, encode};
use gate_mqtt::{Limits, User, Users, hash_password};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a right password may wait while wrong ones flood in.
const PATIENCE: Duration = Duration::from_secs(2);

fn users() -> Users {
    let user = |password: &[u8]| User { password: hash_password(password).unwrap(), ..User::default() };
    Users::new([("meter".to_owned(), user(b"secret")), ("lamp".to_owned(), user(b"other"))].into(), None).unwrap()
}

fn named<'a>(user: &'a str, password: Option<&'a [u8]>) -> Connect<'a> {
    Connect { client_id: "", user: Some(user), password, ..plain(Version::V5) }
}

/// Says a password from an address of this machine, and no more.
fn say(server: &Server, from: [u8; 4], user: &str, password: &[u8]) -> Raw {
    let mut raw = server.raw_from(from, Version::V5);
    raw.write(|out| encode::connect(out, &named(user, Some(password))));
    raw
}

fn code(raw: &mut Raw) -> u8 {
    raw.take(|packet| match packet {
        Packet::Connack(connack) => connack.code,
        other => panic!("{other:?} instead of CONNACK"),
    })
}

#[test]
fn the_right_password_comes_in_while_wrong_ones_flood() {
    let server = Server::with_users(Limits::default(), users(), None);
    let (stop, next) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut waits = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let wrong = || next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
                    let mut said: Vec<_> = (0..50).map(|_| say(&server, [127, 0, 0, 1], "meter", &wrong())).collect();
                    for raw in &mut said {
                        let code = code(raw);
                        assert!([Reason::BAD_USER.0, Reason::UNAVAILABLE.0].contains(&code), "{code:x}");
                    }
                }
            });
        }
        while next.load(Ordering::Relaxed) < 200 {
            std::thread::yield_now();
        }
        // The first time of each is hashed, in the turn of its own address.
        for (user, password) in [("meter", &b"secret"[..]), ("lamp", b"other")].repeat(30) {
            let began = Instant::now();
            let code = code(&mut say(&server, [127, 0, 0, 2], user, password));
            waits.push((code, began.elapsed()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(waits.iter().all(|(code, wait)| *code == 0 && *wait <= PATIENCE), "{waits:?}");
}

#[test]
fn who_waits_in_vain_hears_so_at_once_and_who_waits_is_not_cut_by_the_connect_timeout() {
    let limits = Limits { connect_timeout: Duration::from_millis(200), ..Limits::default() };
    let server = Server::with_users(limits, users(), None);
    let began = Instant::now();
    let mut said: Vec<_> =
        (0..300_u32).map(|number| say(&server, [127, 0, 0, 1], "meter", &number.to_be_bytes())).collect();
    let codes: Vec<u8> = said.iter_mut().map(code).collect();
    let count = |reason: Reason| codes.iter().filter(|code| **code == reason.0).count();
    let (wrong, busy) = (count(Reason::BAD_USER), count(Reason::UNAVAILABLE));
    assert_eq!(wrong + busy, 300, "{codes:x?}");
    assert!(wrong >= 10 && busy > wrong, "{wrong} were wrong, {busy} were refused, in {:?}", began.elapsed());
}

#[test]
fn a_wrong_name_takes_as_long_as_a_wrong_password_and_no_password_is_a_wrong_one() {
    let server = Server::with_users(Limits::default(), users(), None);
    // The first time it is hashed, later not.
    for (user, password) in
        [("meter", Some(&b"wrong"[..])), ("meter", Some(b"wrong")), ("nobody", Some(b"wrong")), ("meter", None)]
    {
        let began = Instant::now();
        assert_eq!(server.try_connect(named(user, password)).1.code, Reason::BAD_USER.0);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(490), "{user} {password:?}: {took:?}");
    }
}

#[test]
fn where_no_hash_fits_into_memory_a_password_is_refused_for_now() {
    let server = Server::with_users(Limits::default(), users(), None);
    let all = server.budget.part_bytes(budget::Purpose::Mqtt);
    let held = server.budget.take(budget::Purpose::Mqtt, all - 1_000_000).unwrap();
    assert_eq!(server.try_connect(named("meter", Some(b"secret"))).1.code, Reason::UNAVAILABLE.0);
    drop(held);
    assert_eq!(server.try_connect(named("meter", Some(b"secret"))).1.code, 0);
}
