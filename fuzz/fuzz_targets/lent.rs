//! Whatever a unit says of where its reply lies is refused, or pieces whose bytes add up.
#![no_main]

use frame::{Frame, Limits, Value};
use lighter_fuzz::fuzz_target;
use unit_process::Pieces;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::decode(bytes, &Limits::default()) {
        check(&frame.body);
    }
    // The same as pairs of numbers: few bytes are a frame.
    let number = |bytes: &[u8]| Value::I64(i64::from_le_bytes(bytes.try_into().expect("eight bytes")));
    let pairs = bytes.chunks_exact(16).map(|pair| Value::List(pair.chunks_exact(8).map(number).collect()));
    check(&Value::List(pairs.collect()));
});

fn check(said: &Value<'_>) {
    let Ok(pieces) = Pieces::read(said) else { return };
    let Value::List(pairs) = said else { panic!("pieces that are no list") };
    let bytes = pairs.iter().map(|pair| match pair {
        Value::List(pair) => match pair.as_slice() {
            [Value::I64(address), Value::I64(bytes)] if *address >= 0 => {
                u128::try_from(*bytes).expect("not below zero")
            }
            _ => panic!("a piece that is none"),
        },
        _ => panic!("a piece that is none"),
    });
    assert_eq!(bytes.sum::<u128>(), u128::from(pieces.bytes()));
}
