//! Large calls are lent to their units, and no unit ever sees what an earlier or a later call was lent.

use crate::stage::{self, Stage};
use std::time::Instant;

/// Looks at every file in memory that it was given, and tries to change it.
const SOURCE: &str = r#"
import os

def given():
    for number in range(3, 64):
        try:
            if os.fstat(number).st_size >= 1 << 20:
                yield number
        except OSError:
            continue

def refused(do):
    try:
        do()
    except OSError:
        return True
    return False

def handle(event):
    data, words = event.data, []
    own = data[:1]
    files = list(given())
    for number in files:
        size = os.fstat(number).st_size
        seen = os.pread(number, size, 0)
        others = sum(seen.count(bytes([value])) for value in b"ABCD" if bytes([value]) != own)
        # Between the data are a head of some hundred bytes and zeros.
        words.append(f"{seen.count(own) >= len(data)} {others < 200}")
        words.append(str(refused(lambda: os.pwrite(number, b"x", 0)) and refused(lambda: os.ftruncate(number, 0))))
    words.append(f"{len(data)} {data.count(own) == len(data)} {len(files)}")
    return ", ".join(words)
"#;

/// As above. And it leaves what it was lent in a socket of its module, and looks at what an earlier call has left.
const STASHED: &str = r#"
import array, socket
near, far = socket.socketpair()
far.setblocking(False)

def left(own):
    try:
        word, beside, _, _ = far.recvmsg(1, 64)
    except OSError:
        return "nothing"
    number = array.array("i", beside[0][2])[0]
    seen = os.pread(number, os.fstat(number).st_size, 0)
    os.close(number)
    return f"{word.decode()} has {'none' if seen.count(own) < 200 else 'mine'}"

def handle(event, before=handle):
    own = event.data[:1]
    words = f"{left(own)}: {before(event)}"
    for number in given():
        near.sendmsg([own], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [number]))])
    return words
"#;

fn data(value: u8, bytes: usize) -> Vec<u8> {
    vec![value; bytes]
}

async fn said(function: &stage::Running, data: &[u8]) -> String {
    String::from_utf8(function.call_bytes(data).await.expect("it answers")).expect("text")
}

/// Calls of one function, each with bytes of its own, larger and smaller than the one before.
pub async fn a_unit_is_lent_its_own_call_and_no_other(stage: &Stage) {
    let function = stage.function(SOURCE, |function| {
        (function.limits.body_bytes, function.limits.memory_bytes) = (64 << 20, 512 << 20);
    });
    let bytes = [5 << 20, 2 << 20, 8 << 20, 1 << 20, 3 << 20, 34 << 20, 1 << 20, 8 << 20];
    for (turn, bytes) in bytes.into_iter().enumerate() {
        let data = data(b"ABCD"[turn % 4], bytes);
        assert_eq!(said(&function, &data).await, format!("True True, True, {bytes} True 1"), "call {turn}");
    }
    let small = data(b'A', 1_000);
    assert_eq!(said(&function, &small).await, "1000 True 0", "a small one is sent");
    function.prepared.sweep(Instant::now(), true);
    assert_eq!(said(&function, &data(b'B', 2 << 20)).await, "True True, True, 2097152 True 1");
}

/// What a unit was lent it may hand on to the next one, through a socket that its module has made. That one sees what
/// the earlier call was lent, and never what is lent later.
pub async fn what_is_handed_on_is_never_lent_again(stage: &Stage) {
    let function = stage.function(&format!("{SOURCE}{STASHED}"), |function| function.limits.body_bytes = 64 << 20);
    let mut before = "nothing".to_owned();
    for turn in 0..12 {
        let own = b"ABCD"[turn % 4];
        let found = said(&function, &data(own, 2 << 20)).await;
        let (handed, rest) = found.split_once(": ").expect("two parts");
        assert_eq!((handed, rest), (before.as_str(), "True True, True, 2097152 True 1"), "call {turn}");
        before = format!("{} has none", char::from(own));
    }
}

/// Units that serve several calls are sent them, for what they keep of one is their own.
pub async fn a_unit_that_is_used_again_keeps_what_it_got(stage: &Stage) {
    const KEEPS: &str =
        "kept = []\ndef handle(event):\n  kept.append(event.data)\n  return bytes(one[0] for one in kept)";
    let function = stage.function(KEEPS, |function| function.units.reuse_calls = 100);
    assert_eq!(said(&function, &data(b'A', 3 << 20)).await, "A");
    assert_eq!(said(&function, &data(b'B', 3 << 20)).await, "AB");
    assert_eq!(said(&function, &data(b'C', 1 << 20)).await, "ABC");
}

/// Many at once, of which some are given up in their middle.
pub async fn calls_at_once_and_calls_that_are_given_up_are_apart(stage: &Stage) {
    let function = stage.function(SOURCE, |function| {
        (function.limits.concurrency, function.limits.body_bytes) = (8, 64 << 20);
    });
    for turn in 0..6_usize {
        let all: Vec<_> = (0..6).map(|call| data(b"ABCD"[(turn + call) % 4], (1 + call) << 20)).collect();
        let calls = all.iter().enumerate().map(|(call, data)| {
            let function = &function;
            async move {
                let answer = said(function, data);
                if call % 3 == turn % 3 {
                    // Its caller goes away: somewhere between its beginning and its end.
                    tokio::select! {
                        biased;
                        answer = answer => drop(answer),
                        () = turns(turn * call) => {}
                    }
                } else {
                    assert_eq!(answer.await, format!("True True, True, {} True 1", data.len()), "{turn}/{call}");
                }
            }
        });
        futures_util::future::join_all(calls).await;
    }
}

async fn turns(count: usize) {
    for _ in 0..=count {
        tokio::task::yield_now().await;
    }
}
