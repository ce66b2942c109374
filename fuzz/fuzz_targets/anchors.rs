//! Any bytes are what anchors ask each other, what they answer, or the head of what they agree on; what is read is
//! written as it was, and a ledger can be changed by it without breaking.
#![no_main]

use fleet_trust::changes::{Change, HEAD_BYTES_MAX, LogHead};
use fleet_trust::ledger::Ledger;
use fleet_trust::office::{OFFICE_BYTES_MAX, OfficeAnswer, OfficeQuestion, receive, send};
use lighter_fuzz::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fuzz_target!(|data: &[u8]| {
    // As it comes from a connection, with a length that may say too much or too little, and with the one that it has.
    framed::<OfficeQuestion>(data);
    framed::<OfficeAnswer>(data);
    let whole = [&(data.len() as u32).to_le_bytes(), data].concat();
    match framed::<OfficeQuestion>(&whole) {
        Some(OfficeQuestion::Become { ledger, .. } | OfficeQuestion::Adopt { ledger }) => changed(&ledger, data),
        _ => {}
    }
    if let Some(OfficeAnswer::Ledger(ledger)) = framed::<OfficeAnswer>(&whole) {
        changed(&ledger, data);
    }
    changed(&Ledger::default(), data);
});

/// What one end of a connection reads of these bytes.
fn framed<T: DeserializeOwned + Serialize>(mut bytes: &[u8]) -> Option<T> {
    let length = bytes.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
    let message: T = at_once(receive(&mut bytes)).ok()?;
    assert!(length.is_some_and(|length| length <= OFFICE_BYTES_MAX));
    let mut written = Vec::new();
    at_once(send(&mut written, &message)).expect("memory takes everything");
    let again: T = at_once(receive(&mut &written[..])).expect("it was written here");
    let text = |message: &T| serde_json::to_string(message).expect("it was read from text");
    assert_eq!(text(&again), text(&message));
    Some(message)
}

/// Bytes in memory never make anyone wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits, and there is nothing to wait for"),
    }
}

/// The bytes are the head of the log that a ledger follows.
fn changed(ledger: &Ledger, bytes: &[u8]) {
    let Some(head) = LogHead::read(bytes) else { return };
    assert_eq!(LogHead::read(&head.write()).as_ref(), Some(&head));
    let mark = head.mark();
    assert!(head.after(&mark).is_some_and(<[Change]>::is_empty), "who has all of it lacks nothing");
    let mut after = ledger.clone();
    for change in head.after(&ledger.mark()).unwrap_or_default() {
        change.apply(&mut after);
    }
    // What differs makes one of the other.
    let difference = Change::between(ledger, &after);
    let mut made = ledger.clone();
    difference.apply(&mut made);
    assert_eq!(Change::between(&made, &after), Change::between(&after, &after));
    if let Some((longer, written)) = head.with(difference) {
        assert!(written.len() <= HEAD_BYTES_MAX);
        assert!(longer.after(&longer.mark()).is_some_and(<[Change]>::is_empty));
    }
}
