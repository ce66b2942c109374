//! Boards in QEMU, from their first beacon to a result; in a hostile network; and when they hang.
//!
//! A board is one QEMU. If a program is not installed, its tests are skipped, and a line says so.

mod packets;
mod world;

use board_link::{Goal, Hash, Keys, Settings, hash, seal_payload};
use kernel_code::Target;
use problem::Code;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use unit_metal::qemu::Machine;
use unit_metal::session::Session;
use world::{ATTACK, Board, HELLO, data_of, event, failure_of, run, signer};

const BOTH: [Machine; 2] = [Machine::QemuArm, Machine::QemuX86];
/// With 93 it computes for longer than anybody waits.
const SPIN: &str = "fibonacci";
const LONG: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_beacon_to_result() {
    for machine in BOTH {
        let began = Instant::now();
        let Some(board) = Board::start(machine, Settings::default()).await else { continue };
        let seen = board.heard().await;
        let heard = began.elapsed();
        assert_eq!((seen.beacon.machine.board.as_str(), seen.beacon.kernel), (machine.as_str(), board.kernel));
        let payload = world::payload(machine, HELLO);
        let (code, asked) = (hash(&payload), Instant::now());
        let mut session = board.session().await.unwrap();
        let attested = asked.elapsed();
        session.bring(code, &payload).await.unwrap();
        let brought = asked.elapsed() - attested;
        println!("{}: heard after {heard:?}, attested in {attested:?}, code in {brought:?}", machine.as_str());
        for name in ["first", "second", "third"] {
            let asked = Instant::now();
            let reply = run(&mut session, code, event(name.as_bytes()), LONG).await.unwrap();
            assert_eq!(data_of(&reply.frame), format!("hello, {name}\n").as_bytes());
            println!("{}: {name} result in {:?}, of which {:?}", machine.as_str(), asked.elapsed(), reply.stages);
        }
        session.end().await;
        // The same as bytecode, for the interpreter.
        let mut session = board.session().await.unwrap();
        let portable = bytecode(&mut session, HELLO).await;
        let reply = run(&mut session, portable, event(b"third"), LONG).await.unwrap();
        assert_eq!(data_of(&reply.frame), b"hello, third\n");
        drop(session);
        // It is still there for the next session, and does not have to be told the code again.
        let mut session = board.session().await.unwrap();
        session.bring(code, b"never sent").await.unwrap();
        run(&mut session, code, event(b""), LONG).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_function_does_wrong_ends_the_function_alone() {
    for machine in BOTH {
        let Some(board) = Board::start(machine, Settings::default()).await else { continue };
        let boot = board.heard().await.beacon.boot;
        let mut session = board.session().await.unwrap();
        let code = board.bring(&mut session, ATTACK).await.unwrap();
        for (attack, kind) in [
            ("unreachable", "trapped"),
            ("out-of-bounds", "trapped"),
            ("recurse", "stack"),
            ("memory", "memory"),
            ("panic", "trapped"),
            ("random-huge", "trapped"),
            ("fatal", "fatal"),
        ] {
            let reply = run(&mut session, code, event(attack.as_bytes()), LONG).await.unwrap();
            assert_eq!(failure_of(&reply.frame), kind, "{attack} on {}", machine.as_str());
        }
        // Each had a fresh unit.
        for _ in 0..2 {
            let reply = run(&mut session, code, event(b"remember"), LONG).await.unwrap();
            assert_eq!(data_of(&reply.frame), b"1");
        }
        // No session carries as much, which nobody was told.
        let asked = Instant::now();
        let problem = run(&mut session, code, event(b"big-reply 10000000"), LONG).await.err().unwrap();
        assert_eq!(problem.code, Code::ReplyTooLarge, "{problem}");
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?} on {}", asked.elapsed(), machine.as_str());
        // Nor such a question, of which only the function hears.
        let reply = run(&mut session, code, event(b"push-big 10000000"), LONG).await.unwrap();
        assert_eq!(failure_of(&reply.frame), "fatal", "as it says of an invalid event");
        let reply = run(&mut session, code, event(b"remember"), LONG).await.unwrap();
        assert_eq!(data_of(&reply.frame), b"1");
        let reply = run(&mut session, code, event(b"log-flood 2000"), LONG).await.unwrap();
        assert!(reply.lines.len() >= 2_000, "{} lines", reply.lines.len());
        drop(session);
        board.session().await.unwrap().end().await;
        assert_eq!(board.heard().await.beacon.boot, boot, "{}", board.console());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_hangs_is_ended_by_the_watchdog_and_the_board_comes_back() {
    for machine in BOTH {
        let Some(board) = Board::start(machine, Settings::default()).await else { continue };
        let boot = board.heard().await.beacon.boot;
        let mut session = board.session().await.unwrap();
        let code = board.bring(&mut session, ATTACK).await.unwrap();
        let began = Instant::now();
        let hung = tokio::time::timeout(LONG, run(&mut session, code, event(b"loop"), Duration::from_millis(500)));
        let problem = hung.await.unwrap().err().unwrap();
        assert_eq!(problem.code, Code::BoardLost, "{problem}");
        board.heard_after(boot).await;
        println!("{}: back after {:?}", machine.as_str(), began.elapsed());
        let console = board.console();
        assert!(console.contains("watchdog: no sign of life") && console.contains("  from 0x"), "{console}");
        let mut session = board.session().await.unwrap();
        let code = board.bring(&mut session, HELLO).await.unwrap();
        run(&mut session, code, event(b""), LONG).await.unwrap();
    }
}

/// QEMU's mini-UART takes some 8 kB a second, so everything is bytecode here, which is smaller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pi_does_the_same_over_its_serial_line() {
    let Some(board) = Board::start(Machine::Raspi3b, Settings::default()).await else { return };
    let boot = board.heard().await.beacon.boot;
    let mut session = board.session().await.unwrap();
    let code = bytecode(&mut session, HELLO).await;
    let reply = run(&mut session, code, event(b"pi"), LONG).await.unwrap();
    assert_eq!(data_of(&reply.frame), b"hello, pi\n");
    println!("raspi3b: {:?}", reply.stages);
    let code = bytecode(&mut session, SPIN).await;
    let hung = run(&mut session, code, event(b"93"), Duration::from_millis(500));
    let hung = tokio::time::timeout(LONG, hung).await;
    let hung = hung.unwrap_or_else(|_| panic!("the session does not end with the board: {}", board.console()));
    assert_eq!(hung.err().unwrap().code, Code::BoardLost);
    board.heard_after(boot).await;
    board.session().await.unwrap().end().await;
    assert!(board.console().contains("watchdog: no sign of life"), "{}", board.console());
}

/// Brings a guest as bytecode for the interpreter.
async fn bytecode(session: &mut Session, guest: &str) -> Hash {
    let bytecode = world::compiled(Target::Pulley64, guest);
    let payload = seal_payload(&bytecode, &board_link::format_of("pulley64"), &signer());
    session.bring(hash(&payload), &payload).await.unwrap();
    hash(&payload)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_that_are_not_right_are_never_run() {
    let Some(board) = Board::start(Machine::QemuArm, Settings::default()).await else { return };
    let boot = board.heard().await.beacon.boot;
    let mut session = board.session().await.unwrap();
    let format = board_link::format_of("aarch64-unknown-none");
    let code = world::compiled(Target::Aarch64, HELLO);
    let good = seal_payload(&code, &format, &signer());
    let mut torn = good.clone();
    torn[200] ^= 1;
    let stranger = Keys::from_seed(&[66; 32]);
    let refused = [
        torn,
        good[..good.len() / 2].to_vec(),
        b"nothing of the kind".to_vec(),
        seal_payload(&code, &format, &stranger),
        world::payload(Machine::QemuX86, HELLO),
    ];
    for payload in refused {
        let problem = session.bring(hash(&payload), &payload).await.err().unwrap();
        assert_eq!(problem.code, Code::BoardRefused, "{problem}");
    }
    // Another hash than was announced.
    let problem = session.bring(hash(b"something else"), &good).await.err().unwrap();
    assert_eq!(problem.code, Code::BoardRefused, "{problem}");
    // Signed, and no code, or code of another compiler: it does not link.
    let mut other = code.clone();
    let at = other.windows(8).position(|bytes| bytes == b"aarch64-").unwrap_or(64);
    other[at] ^= 1;
    for code in [b"no code at all".to_vec(), other] {
        let payload = seal_payload(&code, &format, &signer());
        session.bring(hash(&payload), &payload).await.unwrap();
        let problem = run(&mut session, hash(&payload), event(b""), LONG).await.err().unwrap();
        assert_eq!(problem.code, Code::BoardRefused, "{problem}");
    }
    let problem = run(&mut session, hash(b"never brought"), event(b""), LONG).await.err().unwrap();
    assert_eq!(problem.code, Code::BoardRefused, "{problem}");
    session.bring(hash(&good), &good).await.unwrap();
    run(&mut session, hash(&good), event(b""), LONG).await.unwrap();
    assert_eq!(board.heard().await.beacon.boot, boot);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_network_does_not_bring_a_board_down() {
    for machine in BOTH {
        let Some(board) = Board::start(machine, Settings::default()).await else { continue };
        let seen = board.heard().await;
        let mut session = board.session().await.unwrap();
        let code = board.bring(&mut session, HELLO).await.unwrap();
        // Strangers, and nodes that take the board for another.
        for (keys, goal) in [
            (Keys::from_seed(&[66; 32]), board.goal(&seen)),
            (world::node(), Goal { boot: [0; 16], ..board.goal(&seen) }),
            (world::node(), Goal { channel_key: [9; 32], ..board.goal(&seen) }),
        ] {
            assert!(Session::open("it", board.address(), &keys, goal).await.is_err());
        }
        // Half-open sessions take every place there is, for a while.
        let half_open: Vec<TcpStream> = (0..12)
            .filter_map(|number| {
                let mut stream = TcpStream::connect(board.address()).ok()?;
                let _ = stream.write_all(&[[0x10, 0].as_slice(), &vec![7; number]].concat());
                Some(stream)
            })
            .collect();
        // Meanwhile everything else that a network can say.
        let flood = packets::flood(&board.wire, Duration::from_secs(3));
        println!("{}: {flood} packets", machine.as_str());
        let reply = run(&mut session, code, event(b"still"), LONG).await.unwrap();
        assert_eq!(data_of(&reply.frame), b"hello, still\n");
        drop(half_open);
        let began = Instant::now();
        let mut next = loop {
            match board.session().await {
                Ok(session) => break session,
                Err(problem) => assert!(began.elapsed() < LONG, "{problem}\n{}", board.console()),
            }
        };
        run(&mut next, code, event(b""), LONG).await.unwrap();
        assert_eq!(board.heard().await.beacon.boot, seen.beacon.boot, "{}", board.console());
    }
}
