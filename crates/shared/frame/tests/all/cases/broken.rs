//! Frames that must be refused, each for one reason.

use super::{Case, Meaning};
use crate::raw::Raw;

const NULL: &[u8] = &[0x00];
/// A buffer of index 0.
const BUFFER: &[u8] = &[0x0A, 0, 0, 0, 0];

pub fn all() -> Vec<Case> {
    [header(), limits(), layout(), meta(), arrays(), records()].into_iter().flatten().collect()
}

fn header() -> Vec<Case> {
    let null = Raw::meta(NULL);
    let whole = null.bytes();
    vec![
        broken("truncated-empty", "nothing at all", "truncated", vec![]),
        broken("truncated-header", "63 bytes of the header", "truncated", whole[..63].to_vec()),
        broken("truncated-meta", "the last byte is missing", "truncated", whole[..whole.len() - 1].to_vec()),
        broken("magic", "another file type", "magic", Raw { magic: *b"\x89PNG", ..null.clone() }.bytes()),
        broken("version", "version 2", "version", Raw { version: 2, ..null.clone() }.bytes()),
        broken(
            "version-before-checksum",
            "version 2 may lay the header out in another way: its checksum is not looked at",
            "version",
            Raw { version: 2, header_checksum_error: 1, ..null.clone() }.bytes(),
        ),
        broken(
            "header-checksum",
            "one bit of the header checksum differs",
            "header-checksum",
            Raw { header_checksum_error: 1, ..null.clone() }.bytes(),
        ),
        broken("kind-zero", "kind 0", "kind", Raw { kind: 0, ..null.clone() }.bytes()),
        broken("kind-five", "kind 5", "kind", Raw { kind: 5, ..null.clone() }.bytes()),
        broken("flags", "flag 1 is not known", "flags", Raw { flags: 2, ..null.clone() }.bytes()),
        broken("reserved", "reserved bytes are 1", "reserved", Raw { reserved: 1, ..null.clone() }.bytes()),
        broken(
            "reserved-bulk-checksum",
            "a bulk checksum without its flag",
            "reserved",
            Raw { bulk_checksum: 1, ..null.clone() }.bytes(),
        ),
        broken(
            "trailing",
            "one byte follows after the frame",
            "trailing",
            Raw { tail: vec![0], total_bytes: Some(65), ..null }.bytes(),
        ),
    ]
}

fn limits() -> Vec<Case> {
    let null = Raw::meta(NULL);
    let deep: Vec<u8> = [0x07, 1, 0, 0, 0].into_iter().cycle().take(5 * 32).chain([0]).collect();
    let tagged: Vec<u8> = [0x09, 1, 0, 0, 0, b't'].into_iter().cycle().take(6 * 200).chain([0]).collect();
    vec![
        broken(
            "total-too-large",
            "2^63 bytes are announced; nothing may be allocated for them",
            "total-too-large",
            Raw { total_bytes: Some(1 << 63), ..null.clone() }.bytes(),
        ),
        limited(
            "total-over-limit",
            "65 bytes where 64 are allowed",
            ("total-bytes", 64),
            "total-too-large",
            null.bytes(),
        ),
        broken(
            "meta-too-large",
            "a meta of 4 GiB is announced",
            "meta-too-large",
            Raw { meta_bytes: Some(u32::MAX), ..null.clone() }.bytes(),
        ),
        broken(
            "too-many-buffers",
            "four billion buffers are announced",
            "too-many-buffers",
            Raw { buffers: Some(u32::MAX), ..null.clone() }.bytes(),
        ),
        limited(
            "buffers-over-limit",
            "a buffer where none is allowed",
            ("buffers", 0),
            "too-many-buffers",
            with_buffer(BUFFER, b"x").bytes(),
        ),
        broken("too-deep", "33 values deep", "too-deep", Raw::meta(&deep).bytes()),
        broken("too-deep-tagged", "200 tagged values around each other", "too-deep", Raw::meta(&tagged).bytes()),
        broken(
            "too-many-values",
            "a list announces more items than values may be",
            "too-many-values",
            Raw::meta(&[0x07, 0xFF, 0xFF, 0xFF, 0xFF]).bytes(),
        ),
        limited(
            "values-over-limit",
            "the list itself and two items where two values are allowed",
            ("values", 2),
            "too-many-values",
            Raw::meta(&[0x07, 2, 0, 0, 0, 0, 0]).bytes(),
        ),
    ]
}

fn layout() -> Vec<Case> {
    let good = with_buffer(BUFFER, b"x");
    let entry = |at: usize, value: u8| {
        let mut raw = good.clone();
        raw.table[0][at] = value;
        raw.bytes()
    };
    let mut endless = good.clone();
    endless.table[0][..8].fill(0xFF);
    let mut padding = good.clone();
    padding.tail[0] = 1;
    vec![
        broken(
            "length-front",
            "the meta is longer than the frame",
            "length",
            Raw { meta_bytes: Some(2), ..Raw::meta(NULL) }.bytes(),
        ),
        broken(
            "front-checksum",
            "one bit of the front checksum differs",
            "front-checksum",
            Raw { front_checksum_error: 1 << 31, ..good.clone() }.bytes(),
        ),
        broken("codec", "codec 1 is not known", "codec", entry(8, 1)),
        broken("reserved-table", "a reserved byte of the buffer table is 1", "reserved", entry(15, 1)),
        broken("length-buffer", "the buffer is longer than the frame", "length", entry(0, 2)),
        broken("length-short", "the frame goes on after the last buffer", "length", entry(0, 0)),
        broken("length-overflow", "the end of the buffer does not fit 64 bits", "length", endless.bytes()),
        broken(
            "length-no-buffer",
            "bytes after the meta that belong to no buffer",
            "length",
            Raw { tail: vec![0; 3], ..Raw::meta(NULL) }.bytes(),
        ),
        broken("padding", "a byte before the buffer is 1", "padding", padding.bytes()),
        broken(
            "bulk-checksum",
            "the buffer differs from its checksum",
            "bulk-checksum",
            Raw { flags: 1, bulk_checksum: 1, ..good.clone() }.bytes(),
        ),
    ]
}

fn meta() -> Vec<Case> {
    let meta = |name, says, error, bytes: &[u8]| broken(name, says, error, Raw::meta(bytes).bytes());
    let mut duplicate_among_many = vec![0x08, 20, 0, 0, 0];
    for key in (0..19_u8).chain([7]) {
        duplicate_among_many.extend_from_slice(&[1, 0, 0, 0, b'a' + key, 0x00]);
    }
    vec![
        meta("meta-empty", "no value", "value-truncated", &[]),
        meta("tag", "tag 0C", "tag", &[0x0C]),
        meta("value-truncated-i64", "an i64 of 7 bytes", "value-truncated", &[0x03, 1, 2, 3, 4, 5, 6, 7]),
        meta("value-truncated-length", "a length of 3 bytes", "value-truncated", &[0x05, 1, 0, 0]),
        meta("value-truncated-str", "a string longer than what is left", "value-truncated", &[0x05, 2, 0, 0, 0, b'a']),
        meta("value-truncated-bytes", "bytes of 4 GiB", "value-truncated", &[0x06, 0xFF, 0xFF, 0xFF, 0xFF]),
        meta("value-truncated-list", "a list of two with one item", "value-truncated", &[0x07, 2, 0, 0, 0, 0]),
        meta(
            "value-truncated-map",
            "a map of two entries in nine bytes: an entry has at least five",
            "value-truncated",
            &[0x08, 2, 0, 0, 0, 1, 0, 0, 0, b'a', 0, 0, 0, 0, 0],
        ),
        meta("value-truncated-tagged", "a name without a value", "value-truncated", &[0x09, 1, 0, 0, 0, b't']),
        meta("utf8-str", "a surrogate in a string", "utf8", &[0x05, 3, 0, 0, 0, 0xED, 0xA0, 0x80]),
        meta("utf8-key", "an overlong slash in a key", "utf8", &[0x08, 1, 0, 0, 0, 2, 0, 0, 0, 0xC0, 0xAF, 0]),
        meta("utf8-tagged", "a name that is not UTF-8", "utf8", &[0x09, 1, 0, 0, 0, 0xFF, 0]),
        meta(
            "duplicate-key",
            "the key a twice",
            "duplicate-key",
            &[0x08, 2, 0, 0, 0, 1, 0, 0, 0, b'a', 0, 1, 0, 0, 0, b'a', 0],
        ),
        meta("duplicate-key-of-many", "the last of twenty keys is the eighth", "duplicate-key", &duplicate_among_many),
        meta("buffer-index", "buffer 0 of none", "buffer-index", BUFFER),
        meta("meta-trailing", "two values", "meta-trailing", &[0, 0]),
    ]
}

fn arrays() -> Vec<Case> {
    let case = |name, says, error, fields: &[u8], shape: &[u64], unit: &[u8]| {
        let mut meta = vec![0x0B, 0, 0, 0, 0];
        meta.extend_from_slice(fields);
        meta.extend(shape.iter().flat_map(|axis| axis.to_le_bytes()));
        meta.push(unit.len() as u8);
        meta.extend_from_slice(unit);
        broken(name, says, error, with_buffer(&meta, &[0; 8]).bytes())
    };
    let one = |name, says, error, fields: &[u8; 8]| case(name, says, error, fields, &[1], b"");
    let span = |name, says, unit| case(name, says, "array-unit", b"m<C\x01\x08\0\0\0", &[1], unit);
    let mut index = vec![0x0B, 1, 0, 0, 0];
    index.extend_from_slice(b"f<C\x00\x08\0\0\0\0");
    vec![
        one("array-class", "numpy's class O, Python objects", "array-class", b"O|C\x01\x08\0\0\0"),
        one("array-byte-order", "the byte order of the writer, `=`", "array-byte-order", b"f=C\x01\x08\0\0\0"),
        one("array-byte-order-missing", "a float without byte order", "array-byte-order", b"f|C\x01\x08\0\0\0"),
        one("array-byte-order-given", "bytes with byte order", "array-byte-order", b"S<C\x01\x08\0\0\0"),
        one(
            "array-byte-order-of-one",
            "an integer of one byte with byte order",
            "array-byte-order",
            b"u<C\x01\x01\0\0\0",
        ),
        one("array-layout", "layout A", "array-layout", b"f<A\x01\x08\0\0\0"),
        one("array-item-bytes", "a float of 3 bytes", "array-item-bytes", b"f<C\x01\x03\0\0\0"),
        one("array-item-bytes-zero", "bytes of 0 bytes", "array-item-bytes", b"S|C\x01\0\0\0\0"),
        one("array-item-bytes-text", "text of 6 bytes", "array-item-bytes", b"U<C\x01\x06\0\0\0"),
        case("array-rank", "65 axes", "array-rank", b"f<C\x41\x08\0\0\0", &[1; 65], b""),
        case("array-unit-given", "a float with a unit", "array-unit", b"f<C\x01\x08\0\0\0", &[1], b"ns"),
        span("array-unit-missing", "a time span without a unit", b""),
        span("array-unit-letters", "a unit with a space", b"n s"),
        span("array-unit-utf8", "a unit that is not ASCII", b"\xC2\xB5s"),
        span("array-unit-bytes", "a unit that is not UTF-8", b"\xFF"),
        span("array-unit-long", "a unit of 17 bytes", b"12345678901234567"),
        case("array-length-short", "two elements in a buffer of one", "array-length", b"f<C\x01\x08\0\0\0", &[2], b""),
        case("array-length-long", "no element in a buffer of one", "array-length", b"f<C\x01\x08\0\0\0", &[0], b""),
        case("array-shape", "2^64 bytes", "array-shape", b"f<C\x02\x08\0\0\0", &[1 << 31, 1 << 30], b""),
        case(
            "array-shape-behind-zero",
            "an axis of 0 does not hide that the others overflow",
            "array-shape",
            b"f<C\x03\x08\0\0\0",
            &[1 << 31, 0, 1 << 30],
            b"",
        ),
        case("array-truncated", "five axes announced, one there", "value-truncated", b"f<C\x05\x08\0\0\0", &[1], b""),
        broken("array-buffer-index", "buffer 1 of one", "buffer-index", with_buffer(&index, &[0; 8]).bytes()),
    ]
}

fn records() -> Vec<Case> {
    let event = |name, says, body: &[u8]| record(name, says, "event", "record-field", 4, body);
    let mut attributes = b"\x08\x02\0\0\0\x04\0\0\0type\x05\0\0\0\0\x0a\0\0\0attributes\x07\x81\0\0\0".to_vec();
    for _ in 0..129 {
        attributes.extend_from_slice(b"\x07\x02\0\0\0\x05\0\0\0\0\x05\0\0\0\0");
    }
    vec![
        record("record-kind", "a reply where an event is expected", "event", "record-kind", 2, NULL),
        event("event-not-a-map", "null instead of a map", NULL),
        event("event-no-type", "an event without type", b"\x08\0\0\0\0"),
        event("event-unknown-field", "the field `extra`", b"\x08\x01\0\0\0\x05\0\0\0extra\0"),
        event(
            "event-time-negative",
            "a time before 1970",
            b"\x08\x01\0\0\0\x07\0\0\0time-ms\x03\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
        ),
        event(
            "event-attempt-large",
            "attempt 2^32",
            b"\x08\x02\0\0\0\x04\0\0\0type\x05\0\0\0\0\x07\0\0\0attempt\x03\0\0\0\0\x01\0\0\0",
        ),
        event("event-data-text", "data that is a string", b"\x08\x01\0\0\0\x04\0\0\0data\x05\0\0\0\0"),
        event("event-subject-null", "no subject is no field, not null", b"\x08\x01\0\0\0\x07\0\0\0subject\0"),
        event(
            "event-attribute-alone",
            "an attribute without value",
            b"\x08\x01\0\0\0\x0a\0\0\0attributes\x07\x01\0\0\0\x07\x01\0\0\0\x05\0\0\0\0",
        ),
        event("event-attributes-many", "129 attributes", &attributes),
        record("failure-kind", "a failure of kind `oops`", "failure", "record-field", 3, {
            b"\x08\x02\0\0\0\x04\0\0\0kind\x05\x04\0\0\0oops\x07\0\0\0message\x05\0\0\0\0"
        }),
        record("failure-no-message", "a failure without message", "failure", "record-field", 3, {
            b"\x08\x01\0\0\0\x04\0\0\0kind\x05\x05\0\0\0retry"
        }),
    ]
}

/// A call with this meta and one buffer.
fn with_buffer(meta: &[u8], buffer: &[u8]) -> Raw {
    let mut entry = [0; 16];
    entry[..8].copy_from_slice(&(buffer.len() as u64).to_le_bytes());
    let front = 64 + 16 + meta.len();
    let mut tail = vec![0; front.next_multiple_of(64) - front];
    tail.extend_from_slice(buffer);
    Raw { table: vec![entry], tail, ..Raw::meta(meta) }
}

fn record(
    name: &'static str,
    says: &'static str,
    record: &'static str,
    error: &'static str,
    kind: u8,
    body: &[u8],
) -> Case {
    Case { record: Some(record), ..broken(name, says, error, Raw { kind, ..Raw::meta(body) }.bytes()) }
}

fn limited(
    name: &'static str,
    says: &'static str,
    limit: (&'static str, u32),
    error: &'static str,
    bytes: Vec<u8>,
) -> Case {
    Case { limit: Some(limit), ..broken(name, says, error, bytes) }
}

fn broken(name: &'static str, says: &'static str, error: &'static str, bytes: Vec<u8>) -> Case {
    Case { name, says, record: None, limit: None, bytes, meaning: Meaning::Error(error) }
}
