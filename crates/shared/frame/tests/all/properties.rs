//! Claims about every frame, tried on generated ones: round trip, truncation, bit flips, hostile metas.

use crate::generate::{bytes, random_event, random_frame};
use crate::raw::Raw;
use frame::{Checksum, DecodeError, Frame, Limits, decode_event, encode_event, failure_body, read_failure};
use random::Random;

const SEEDS: u64 = 300;

#[test]
fn what_was_written_reads_back_and_writes_the_same_bytes_again() {
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let bytes_pool = bytes(&mut random, 512);
        let frame = random_frame(&mut random, &bytes_pool);
        for checksum in [Checksum::Front, Checksum::All] {
            let encoded = frame.encode(checksum, &Limits::default()).unwrap();
            let bytes = encoded.to_vec();
            let read = Frame::decode(&bytes, &Limits::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            // Compared as bytes: a NaN does not equal itself.
            assert_eq!(read.encode(checksum, &Limits::default()).unwrap().to_vec(), bytes, "seed {seed}");
            assert_eq!((read.kind, read.id), (frame.kind, frame.id));
            assert!(encoded.pieces().all(|piece| !piece.is_empty()), "seed {seed}");
        }
    }
}

#[test]
fn buffers_are_sent_from_where_they_are_and_land_aligned() {
    let data = [7_u8; 1000];
    let frame = Frame { kind: frame::Kind::Reply, id: 0, body: frame::Value::Buffer(&data) };
    let encoded = frame.encode(Checksum::Front, &Limits::default()).unwrap();
    let mut position = 0;
    let mut found = false;
    for piece in encoded.pieces() {
        if piece.as_ptr() == data.as_ptr() {
            assert_eq!(position % frame::ALIGNMENT, 0);
            found = true;
        }
        position += piece.len();
    }
    assert!(found, "the buffer was copied");
    assert_eq!(position as u64, encoded.total_bytes());
}

#[test]
fn a_frame_cut_anywhere_is_truncated() {
    for seed in 0..40 {
        let bytes = one(seed, Checksum::Front);
        for cut in 0..bytes.len() {
            let error = Frame::decode(&bytes[..cut], &Limits::default()).unwrap_err();
            assert!(matches!(error, DecodeError::Truncated { .. }), "seed {seed} cut {cut}: {error}");
        }
    }
}

#[test]
fn one_wrong_bit_is_always_found_with_all_checksums_and_never_panics_without() {
    for seed in 0..20 {
        for checksum in [Checksum::Front, Checksum::All] {
            let mut bytes = one(seed, checksum);
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let read = Frame::decode(&bytes, &Limits::default());
                assert!(read.is_err() || checksum == Checksum::Front, "seed {seed} bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

#[test]
fn a_meta_with_wrong_bytes_and_right_checksums_never_panics() {
    let (mut read, mut refused) = (0, 0);
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let bytes_pool = bytes(&mut random, 512);
        let bytes =
            random_frame(&mut random, &bytes_pool).encode(Checksum::Front, &Limits::default()).unwrap().to_vec();
        let buffers = u32::from_le_bytes(bytes[28..32].try_into().unwrap()) as usize;
        let meta_bytes = u32::from_le_bytes(bytes[24..28].try_into().unwrap()) as usize;
        let (table, rest) = bytes[64..].split_at(16 * buffers);
        let (meta, tail) = rest.split_at(meta_bytes);
        let mut raw = Raw { tail: tail.to_vec(), table: table.as_chunks().0.to_vec(), ..Raw::meta(meta) };
        for _ in 0..=random.below(3) {
            let at = random.below(raw.meta.len() as u64) as usize;
            raw.meta[at] = random.next() as u8;
        }
        match Frame::decode(&raw.bytes(), &Limits::default()) {
            Ok(frame) => {
                read += 1;
                // What a reader accepts can be written.
                frame.encode(Checksum::Front, &Limits::default()).unwrap();
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 100 && refused > 100, "the test is blind: {read} read, {refused} refused");
}

#[test]
fn events_and_failures_come_back_as_they_were() {
    for seed in 0..SEEDS {
        let event = random_event(&mut Random(seed));
        let bytes = encode_event(&event, Checksum::All, &Limits::default()).unwrap().to_vec();
        assert_eq!(decode_event(&bytes, &Limits::default()), Ok(event), "seed {seed}");
    }
    for failure in
        [event::Failure::Invalid("a".into()), event::Failure::Retry("b".into()), event::Failure::Fatal("".into())]
    {
        assert_eq!(read_failure(&failure_body(&failure)), Ok(failure.clone()));
    }
}

#[test]
fn a_writer_refuses_what_a_reader_would() {
    use frame::{EncodeError, Value};
    let write = |body, limits: Limits| {
        Frame { kind: frame::Kind::Call, id: 0, body }.encode(Checksum::Front, &limits).map(|encoded| encoded.to_vec())
    };
    let limits = Limits::default();
    let mut deep = Value::Null;
    for _ in 0..200 {
        deep = Value::List(vec![deep]);
    }
    assert_eq!(write(deep.clone(), limits), Err(EncodeError::TooDeep { max: 32 }));
    let unlimited = Limits { depth_max: u32::MAX, ..limits };
    assert_eq!(write(deep, unlimited), Err(EncodeError::TooDeep { max: frame::DEPTH_CEILING }));
    let twice = Value::Map(vec![("a", Value::Null), ("a", Value::Null)]);
    assert_eq!(write(twice, limits), Err(EncodeError::DuplicateKey));
    let long = Value::Str("0123456789");
    assert_eq!(
        write(long, Limits { meta_bytes_max: 14, ..limits }),
        Err(EncodeError::MetaTooLarge { found: 15, max: 14 })
    );
    let buffers = Value::List(vec![Value::Buffer(b""), Value::Buffer(b"")]);
    assert_eq!(
        write(buffers.clone(), Limits { buffers_max: 1, ..limits }),
        Err(EncodeError::TooManyBuffers { max: 1 })
    );
    assert_eq!(write(buffers, Limits { values_max: 2, ..limits }), Err(EncodeError::TooManyValues { max: 2 }));
    let buffer = Value::Buffer(b"x");
    assert_eq!(
        write(buffer, Limits { total_bytes_max: 128, ..limits }),
        Err(EncodeError::TotalTooLarge { found: 129, max: 128 })
    );
    let event = event::Event { time_ms: u64::MAX, ..event::Event::default() };
    assert_eq!(encode_event(&event, Checksum::Front, &limits).unwrap_err(), EncodeError::Time(u64::MAX));
}

fn one(seed: u64, checksum: Checksum) -> Vec<u8> {
    let mut random = Random(seed);
    let bytes_pool = bytes(&mut random, 512);
    random_frame(&mut random, &bytes_pool).encode(checksum, &Limits::default()).unwrap().to_vec()
}
