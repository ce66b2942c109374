//! From a value to pieces: measured first, then the front is written once and the buffers are pointed to.

use crate::header::{ALIGNMENT, TABLE_ENTRY_BYTES, aligned};
use crate::value::tag;
use crate::{Array, Checksum, EncodeError, Frame, HEADER_BYTES, Header, Limits, Value, crc32, crc32_continued};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

static ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];

/// A frame ready to be sent.
#[derive(Debug, Clone)]
pub struct Encoded<'a> {
    /// Header, buffer table and meta.
    front: Vec<u8>,
    buffers: Vec<&'a [u8]>,
    total_bytes: u64,
}

impl<'a> Encoded<'a> {
    /// Bytes of the whole frame.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The frame as slices to be sent one after another, none of them empty: for `writev`.
    pub fn pieces(&self) -> Pieces<'_, 'a> {
        Pieces { encoded: self, next: 0, position: 0 }
    }

    /// The frame in one piece. Copies the buffers.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.total_bytes as usize);
        for piece in self.pieces() {
            bytes.extend_from_slice(piece);
        }
        assert_eq!(bytes.len() as u64, self.total_bytes, "a frame is as long as it was measured");
        bytes
    }
}

/// The slices of a frame. See [`Encoded::pieces`].
#[derive(Debug, Clone)]
pub struct Pieces<'e, 'a> {
    encoded: &'e Encoded<'a>,
    /// 0 is the front, n the buffer n-1.
    next: usize,
    position: usize,
}

impl<'e> Iterator for Pieces<'e, '_> {
    type Item = &'e [u8];

    fn next(&mut self) -> Option<&'e [u8]> {
        loop {
            let piece = match self.next.checked_sub(1) {
                None => self.encoded.front.as_slice(),
                Some(index) => {
                    let buffer = *self.encoded.buffers.get(index)?;
                    let gap = self.position.next_multiple_of(ALIGNMENT) - self.position;
                    if gap > 0 {
                        self.position += gap;
                        return Some(&ZEROS[..gap]);
                    }
                    buffer
                }
            };
            self.next += 1;
            self.position += piece.len();
            if !piece.is_empty() {
                return Some(piece);
            }
        }
    }
}

pub(crate) fn encode<'a>(frame: &Frame<'a>, checksum: Checksum, limits: &Limits) -> Result<Encoded<'a>, EncodeError> {
    let mut measure = Measure { limits, meta_bytes: 0, values_left: limits.values_max, buffers: Vec::new() };
    measure.announce(1)?;
    measure.value(&frame.body, 1)?;
    let Measure { meta_bytes, buffers, .. } = measure;
    let mut header = Header {
        kind: frame.kind,
        id: frame.id,
        total_bytes: 0,
        // Measured: within limits that are a u32.
        meta_bytes: meta_bytes as u32,
        buffers: buffers.len() as u32,
        front_checksum: 0,
        bulk_checksum: match checksum {
            Checksum::Front => None,
            Checksum::All => Some(buffers.iter().fold(0, |state, buffer| crc32_continued(state, buffer))),
        },
    };
    let too_large = |found| EncodeError::TotalTooLarge { found, max: limits.total_bytes_max };
    header.total_bytes = total_bytes(header.front_bytes(), &buffers).ok_or(too_large(u64::MAX))?;
    if header.total_bytes > limits.total_bytes_max {
        return Err(too_large(header.total_bytes));
    }

    let front_bytes = header.front_bytes() as usize;
    let mut front = Vec::with_capacity(front_bytes);
    front.resize(HEADER_BYTES, 0);
    for buffer in &buffers {
        front.extend_from_slice(&(buffer.len() as u64).to_le_bytes());
        front.extend_from_slice(&[0; TABLE_ENTRY_BYTES - 8]);
    }
    Writer { out: &mut front, buffer: 0 }.value(&frame.body);
    assert_eq!(front.len(), front_bytes, "a front is as long as it was measured");
    header.front_checksum = crc32(&front[HEADER_BYTES..]);
    front[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Ok(Encoded { front, buffers, total_bytes: header.total_bytes })
}

fn total_bytes(front_bytes: u64, buffers: &[&[u8]]) -> Option<u64> {
    buffers.iter().try_fold(front_bytes, |position, buffer| aligned(position)?.checked_add(buffer.len() as u64))
}

/// Walks a value before anything is written: is it within the limits, how long is its meta, which are its buffers.
struct Measure<'a, 'b> {
    limits: &'b Limits,
    meta_bytes: u64,
    values_left: u32,
    buffers: Vec<&'a [u8]>,
}

impl<'a> Measure<'a, '_> {
    fn value(&mut self, value: &Value<'a>, depth: u32) -> Result<(), EncodeError> {
        if let Some(max) = self.limits.exceeded_depth(depth) {
            return Err(EncodeError::TooDeep { max });
        }
        match value {
            Value::Null | Value::Bool(_) => self.meta(1),
            Value::I64(_) | Value::F64(_) => self.meta(9),
            Value::Str(text) => self.meta(5 + text.len()),
            Value::Bytes(bytes) => self.meta(5 + bytes.len()),
            Value::List(items) => {
                self.meta(5)?;
                self.announce(items.len())?;
                items.iter().try_for_each(|item| self.value(item, depth + 1))
            }
            Value::Map(entries) => {
                self.meta(5)?;
                self.announce(entries.len())?;
                check_keys(entries)?;
                entries.iter().try_for_each(|(key, item)| {
                    self.meta(4 + key.len())?;
                    self.value(item, depth + 1)
                })
            }
            Value::Tagged(name, item) => {
                self.meta(5 + name.len())?;
                self.announce(1)?;
                self.value(item, depth + 1)
            }
            Value::Buffer(bytes) => {
                self.meta(5)?;
                self.buffer(bytes)
            }
            Value::Array(array) => {
                array.check()?;
                self.meta(14 + 8 * array.shape.len() + array.unit.len())?;
                self.buffer(array.data)
            }
        }
    }

    fn meta(&mut self, bytes: usize) -> Result<(), EncodeError> {
        self.meta_bytes = self.meta_bytes.saturating_add(bytes as u64);
        if self.meta_bytes > u64::from(self.limits.meta_bytes_max) {
            return Err(EncodeError::MetaTooLarge { found: self.meta_bytes, max: self.limits.meta_bytes_max });
        }
        Ok(())
    }

    fn announce(&mut self, count: usize) -> Result<(), EncodeError> {
        let too_many = EncodeError::TooManyValues { max: self.limits.values_max };
        let left = u32::try_from(count).ok().and_then(|count| self.values_left.checked_sub(count));
        self.values_left = left.ok_or(too_many)?;
        Ok(())
    }

    fn buffer(&mut self, bytes: &'a [u8]) -> Result<(), EncodeError> {
        if self.buffers.len() as u64 >= u64::from(self.limits.buffers_max) {
            return Err(EncodeError::TooManyBuffers { max: self.limits.buffers_max });
        }
        self.buffers.push(bytes);
        Ok(())
    }
}

fn check_keys(entries: &[(&str, Value<'_>)]) -> Result<(), EncodeError> {
    let keys: BTreeSet<&str> = entries.iter().map(|(key, _)| *key).collect();
    if keys.len() == entries.len() { Ok(()) } else { Err(EncodeError::DuplicateKey) }
}

/// Writes what [`Measure`] found to be right; nothing can fail any more.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    buffer: u32,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Null => self.out.push(tag::NULL),
            Value::Bool(false) => self.out.push(tag::FALSE),
            Value::Bool(true) => self.out.push(tag::TRUE),
            Value::I64(number) => self.tagged(tag::I64, &number.to_le_bytes()),
            Value::F64(number) => self.tagged(tag::F64, &number.to_le_bytes()),
            Value::Str(text) => self.tagged_sized(tag::STR, text.as_bytes()),
            Value::Bytes(bytes) => self.tagged_sized(tag::BYTES, bytes),
            Value::List(items) => {
                self.tagged(tag::LIST, &(items.len() as u32).to_le_bytes());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Map(entries) => {
                self.tagged(tag::MAP, &(entries.len() as u32).to_le_bytes());
                for (key, item) in entries {
                    self.sized(key.as_bytes());
                    self.value(item);
                }
            }
            Value::Tagged(name, item) => {
                self.tagged_sized(tag::TAGGED, name.as_bytes());
                self.value(item);
            }
            Value::Buffer(_) => {
                self.out.push(tag::BUFFER);
                self.index();
            }
            Value::Array(array) => self.array(array),
        }
    }

    fn array(&mut self, array: &Array<'_>) {
        self.out.push(tag::ARRAY);
        self.index();
        // The rank and the unit were checked to be at most 64 axes and 16 bytes.
        self.out.extend_from_slice(&[
            array.class as u8,
            array.byte_order as u8,
            array.layout as u8,
            array.shape.len() as u8,
        ]);
        self.out.extend_from_slice(&array.item_bytes.to_le_bytes());
        for axis in &array.shape {
            self.out.extend_from_slice(&axis.to_le_bytes());
        }
        self.out.push(array.unit.len() as u8);
        self.out.extend_from_slice(array.unit.as_bytes());
    }

    fn index(&mut self) {
        self.out.extend_from_slice(&self.buffer.to_le_bytes());
        self.buffer += 1;
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        self.out.extend_from_slice(bytes);
    }

    fn tagged_sized(&mut self, tag: u8, bytes: &[u8]) {
        self.out.push(tag);
        self.sized(bytes);
    }

    fn sized(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.out.extend_from_slice(bytes);
    }
}
