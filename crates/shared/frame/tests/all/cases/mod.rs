//! The conformance cases: frames as the crate writes them, and frames broken on purpose by `Raw`.

mod broken;

use frame::{
    Array, ByteOrder, Checksum, Class, Frame, Kind, Layout, Limits, Value, encode_event, event_body, failure_body,
};

pub struct Case {
    pub name: &'static str,
    pub says: &'static str,
    /// The record that is expected in it.
    pub record: Option<&'static str>,
    /// A limit that differs from the default.
    pub limit: Option<(&'static str, u32)>,
    pub bytes: Vec<u8>,
    pub meaning: Meaning,
}

pub enum Meaning {
    Error(&'static str),
    Frame {
        kind: Kind,
        id: u64,
        checksum: Checksum,
        body: Value<'static>,
        /// Writing the meaning gives these bytes.
        written: bool,
    },
}

pub fn all() -> Vec<Case> {
    let mut cases = values();
    cases.extend(arrays());
    cases.extend(records());
    cases.extend(broken::all());
    cases
}

fn values() -> Vec<Case> {
    let list = Value::List;
    vec![
        good("null", "the smallest frame", Kind::Reply, 0, Checksum::Front, Value::Null),
        good(
            "scalars",
            "truth values, integers, floats (negative zero, infinity, a NaN with bits of its own), strings and bytes",
            Kind::Call,
            u64::MAX,
            Checksum::Front,
            list(vec![
                Value::Null,
                Value::Bool(false),
                Value::Bool(true),
                Value::I64(0),
                Value::I64(i64::MIN),
                Value::I64(i64::MAX),
                Value::F64(1.5),
                Value::F64(-0.0),
                Value::F64(f64::INFINITY),
                Value::F64(f64::from_bits(0x7FF8_0000_DEAD_BEEF)),
                Value::Str(""),
                Value::Str("Grüße, 世界, 🚲"),
                Value::Bytes(b""),
                Value::Bytes(&[0, 255, 10, 13]),
            ]),
        ),
        good(
            "nested",
            "lists and maps in each other; keys keep their order; a key may be empty",
            Kind::Reply,
            3,
            Checksum::Front,
            Value::Map(vec![
                ("zulu", list(vec![list(vec![]), Value::Map(vec![]), list(vec![Value::I64(-1)])])),
                ("alpha", Value::Map(vec![("", Value::Bool(true)), ("ä", Value::Null)])),
            ]),
        ),
        good(
            "tagged",
            "a tuple and a time: names for what a value stands for",
            Kind::Call,
            4,
            Checksum::Front,
            list(vec![
                Value::Tagged("tuple", Box::new(list(vec![Value::I64(1), Value::Str("b")]))),
                Value::Tagged("datetime", Box::new(Value::Str("2026-11-21T03:46:35+00:00"))),
            ]),
        ),
        good("buffer", "one byte in a buffer", Kind::Reply, 5, Checksum::Front, Value::Buffer(&[42])),
        good(
            "buffers",
            "buffers of 64, 0, 65 and 1 bytes: each starts at a multiple of 64, the frame ends with the last byte",
            Kind::Reply,
            6,
            Checksum::All,
            list(vec![
                Value::Buffer(&[1; 64]),
                Value::Buffer(&[]),
                Value::Map(vec![("b", Value::Buffer(&[2; 65]))]),
                Value::Buffer(&[3]),
            ]),
        ),
        good(
            "empty-last-buffer",
            "an empty buffer at the end still moves the end to a multiple of 64",
            Kind::Reply,
            7,
            Checksum::Front,
            list(vec![Value::Buffer(&[9; 3]), Value::Buffer(&[])]),
        ),
    ]
}

fn arrays() -> Vec<Case> {
    let array = |class, byte_order, layout, item_bytes, shape: &[u64], unit, data| -> Value<'static> {
        Array { class, byte_order, layout, item_bytes, shape: shape.to_vec(), unit, data }.into()
    };
    use ByteOrder::{Big, Little, None};
    use Layout::{C, F};
    static BYTES: [u8; 256] = {
        let mut bytes = [0; 256];
        let mut i = 0;
        while i < 256 {
            bytes[i] = i as u8;
            i += 1;
        }
        bytes
    };
    vec![
        good(
            "array-float64",
            "a 2 × 3 array of float64, 0.0 to 5.0, last axis fastest",
            Kind::Call,
            8,
            Checksum::All,
            array(Class::Float, Little, C, 8, &[2, 3], "", &FLOATS),
        ),
        good(
            "array-classes",
            "every class: each array with the smallest and, where there is one, a larger element, both byte orders",
            Kind::Call,
            9,
            Checksum::Front,
            Value::List(vec![
                array(Class::Bool, None, C, 1, &[3], "", &BYTES[..3]),
                array(Class::Signed, None, C, 1, &[3], "", &BYTES[..3]),
                array(Class::Signed, Big, C, 8, &[2], "", &BYTES[..16]),
                array(Class::Unsigned, Little, F, 2, &[2, 2], "", &BYTES[..8]),
                array(Class::Float, Little, C, 2, &[1], "", &BYTES[..2]),
                array(Class::Float, Big, C, 4, &[2], "", &BYTES[..8]),
                array(Class::Complex, Little, C, 8, &[1], "", &BYTES[..8]),
                array(Class::Complex, Big, C, 16, &[1], "", &BYTES[..16]),
                array(Class::TimeSpan, Little, C, 8, &[1], "ns", &BYTES[..8]),
                array(Class::TimePoint, Big, C, 8, &[2], "25s", &BYTES[..16]),
                array(Class::Bytes, None, C, 5, &[2], "", &BYTES[..10]),
                array(Class::Text, Little, C, 8, &[1], "", b"h\0\0\0i\0\0\0"),
                array(Class::Raw, None, C, 7, &[1], "", &BYTES[..7]),
            ]),
        ),
        good(
            "array-shapes",
            "a scalar, empty axes, and three axes with the first one fastest",
            Kind::Reply,
            10,
            Checksum::Front,
            Value::List(vec![
                array(Class::Unsigned, Little, C, 4, &[], "", &BYTES[..4]),
                array(Class::Unsigned, Little, C, 4, &[0], "", &[]),
                array(Class::Unsigned, Little, C, 4, &[1_000_000, 0, 3], "", &[]),
                array(Class::Unsigned, Big, F, 4, &[2, 3, 4], "", &BYTES[..96]),
            ]),
        ),
        good(
            "array-rank-64",
            "as many axes as there may be",
            Kind::Reply,
            11,
            Checksum::Front,
            array(Class::Unsigned, None, C, 1, &[1; 64], "", &BYTES[..1]),
        ),
    ]
}

const FLOATS: [u8; 48] = {
    let mut bytes = [0; 48];
    let mut i = 0;
    while i < 6 {
        let float = (i as f64).to_le_bytes();
        let mut byte = 0;
        while byte < 8 {
            bytes[i * 8 + byte] = float[byte];
            byte += 1;
        }
        i += 1;
    }
    bytes
};

fn records() -> Vec<Case> {
    let full: &'static event::Event = Box::leak(Box::new(event::Event {
        id: "01JD6X".into(),
        source: "mqtt://meter/7".into(),
        kind: "sensor.reading".into(),
        subject: Some("co2".into()),
        time_ms: 1_795_232_795_123,
        content_type: Some("application/json".into()),
        attributes: vec![
            ("http-accept".into(), "text/html".into()),
            ("http-accept".into(), "application/json".into()),
            ("traceparent".into(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ],
        attempt: 2,
        data: br#"{"ppm":812}"#.to_vec(),
        ..event::Event::default()
    }));
    let bare: &'static event::Event =
        Box::leak(Box::new(event::Event { kind: "tick".into(), attempt: 1, ..event::Event::default() }));
    let call = Frame { kind: Kind::Call, id: 99, body: event_body(full).unwrap() };
    let retry: &'static event::Failure = Box::leak(Box::new(event::Failure::Retry("the store is busy".into())));
    vec![
        record("event-full", "an event with every field", "event", event_frame(full), true),
        record(
            "event-bare",
            "an event without subject, content type, attributes and data",
            "event",
            event_frame(bare),
            true,
        ),
        record(
            "event-least",
            "the least a sender may give; a reader takes data as bytes too, in any order of keys",
            "event",
            Frame {
                kind: Kind::Event,
                id: 0,
                body: Value::Map(vec![("data", Value::Bytes(b"x")), ("type", Value::Str("tick"))]),
            },
            false,
        ),
        Case {
            record: None,
            ..record("call-event", "a call to a lighter:unit handler carries an event", "", call, true)
        },
        record(
            "failure-retry",
            "why a call failed, with the id of the call",
            "failure",
            Frame { kind: Kind::Failure, id: 99, body: failure_body(retry) },
            true,
        ),
    ]
}

fn event_frame(event: &'static event::Event) -> Frame<'static> {
    let frame = Frame { kind: Kind::Event, id: 0, body: event_body(event).unwrap() };
    let bytes = encode_event(event, Checksum::Front, &Limits::default()).unwrap().to_vec();
    assert_eq!(frame.encode(Checksum::Front, &Limits::default()).unwrap().to_vec(), bytes);
    frame
}

fn good(name: &'static str, says: &'static str, kind: Kind, id: u64, checksum: Checksum, body: Value<'static>) -> Case {
    let frame = Frame { kind, id, body };
    let bytes = frame.encode(checksum, &Limits::default()).unwrap().to_vec();
    let meaning = Meaning::Frame { kind, id, checksum, body: frame.body, written: true };
    Case { name, says, record: None, limit: None, bytes, meaning }
}

fn record(
    name: &'static str,
    says: &'static str,
    record: &'static str,
    frame: Frame<'static>,
    canonical: bool,
) -> Case {
    let mut case = good(name, says, frame.kind, frame.id, Checksum::Front, frame.body);
    case.record = Some(record);
    if let Meaning::Frame { written, .. } = &mut case.meaning {
        *written = canonical;
    }
    case
}
