//! Frames and events from a seed.

use event::Event;
use frame::{Array, ByteOrder, Class, Frame, Kind, Layout, Value};
use random::Random;

pub fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.next() as u8).collect()
}

fn text(random: &mut Random) -> &'static str {
    random.pick(&["", "a", "content-type", "Grüße", "世界", "🚲", "\0", "a much longer text that says nothing at all"])
}

fn slice<'a>(random: &mut Random, pool: &'a [u8]) -> &'a [u8] {
    let length = random.below(200) as usize;
    let start = random.below((pool.len() - length) as u64) as usize;
    &pool[start..start + length]
}

pub fn random_frame<'a>(random: &mut Random, pool: &'a [u8]) -> Frame<'a> {
    Frame { kind: random.pick(&Kind::ALL), id: random.next(), body: random_value(random, pool, 0) }
}

pub fn random_event(random: &mut Random) -> Event {
    let optional = |random: &mut Random| (random.below(2) == 0).then(|| text(random).to_owned());
    Event {
        id: random.next().to_string(),
        source: text(random).into(),
        kind: text(random).into(),
        subject: optional(random),
        time_ms: random.next() >> 1,
        content_type: optional(random),
        attributes: (0..random.below(130).min(128)).map(|_| (text(random).into(), text(random).into())).collect(),
        attempt: random.next() as u32,
        data: {
            let count = random.below(300) as usize;
            bytes(random, count)
        },
        // No frame carries it.
        origin: Default::default(),
    }
}

fn random_value<'a>(random: &mut Random, pool: &'a [u8], depth: u32) -> Value<'a> {
    let kinds = if depth < 4 { 12 } else { 8 };
    match random.below(kinds) {
        0 => Value::Null,
        1 => Value::Bool(random.below(2) == 0),
        2 => Value::I64(random.next() as i64),
        3 => Value::F64(f64::from_bits(random.next())),
        4 => Value::Str(text(random)),
        5 => Value::Bytes(slice(random, pool)),
        6 => Value::Buffer(slice(random, pool)),
        7 => random_array(random, pool).into(),
        8 => Value::Tagged(text(random), Box::new(random_value(random, pool, depth + 1))),
        9 => {
            let keys: Vec<&'static str> = (0..random.below(6)).map(|_| text(random)).collect();
            let mut entries: Vec<(&str, Value<'_>)> = Vec::new();
            for key in keys {
                if entries.iter().all(|(known, _)| *known != key) {
                    entries.push((key, random_value(random, pool, depth + 1)));
                }
            }
            Value::Map(entries)
        }
        _ => Value::List((0..random.below(6)).map(|_| random_value(random, pool, depth + 1)).collect()),
    }
}

fn random_array<'a>(random: &mut Random, pool: &'a [u8]) -> Array<'a> {
    let order = random.pick(&[ByteOrder::Little, ByteOrder::Big]);
    let (class, item_bytes, byte_order, unit) = random.pick(&[
        (Class::Bool, 1, ByteOrder::None, ""),
        (Class::Signed, 4, order, ""),
        (Class::Unsigned, 1, ByteOrder::None, ""),
        (Class::Float, 8, order, ""),
        (Class::Complex, 16, order, ""),
        (Class::TimeSpan, 8, order, "ms"),
        (Class::TimePoint, 8, order, "D"),
        (Class::Bytes, 3, ByteOrder::None, ""),
        (Class::Text, 4, order, ""),
        (Class::Raw, 5, ByteOrder::None, ""),
    ]);
    let shape: Vec<u64> = (0..random.below(4)).map(|_| random.below(4)).collect();
    let length = shape.iter().product::<u64>() as usize * item_bytes as usize;
    let start = random.below((pool.len() - length + 1) as u64) as usize;
    let data = &pool[start..start + length];
    Array { class, byte_order, layout: random.pick(&Layout::ALL), item_bytes, shape, unit, data }
}
