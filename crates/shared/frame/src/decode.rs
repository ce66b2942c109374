//! From bytes to a value, in the steps of `contracts/frame.md`.
//!
//! Nothing here trusts a length: each is compared with a limit and with what is there before it is used, and a
//! list pays for its items out of the budget of values before room for them is made.

use crate::header::{ALIGNMENT, TABLE_ENTRY_BYTES, aligned};
use crate::value::tag;
use crate::{
    Array, ArrayError, ByteOrder, Class, DecodeError, Frame, HEADER_BYTES, Header, Layout, Limits, RANK_MAX,
    UNIT_BYTES_MAX, Value, crc32, crc32_continued,
};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Up to this many keys, comparing each with each is faster than a set.
const KEYS_COMPARED_MAX: usize = 16;

pub(crate) fn decode<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Frame<'a>, DecodeError> {
    let header = Header::read(bytes, limits)?;
    let found = bytes.len() as u64;
    if found < header.total_bytes {
        return Err(DecodeError::Truncated { needed: header.total_bytes, found });
    }
    if found > header.total_bytes {
        return Err(DecodeError::Trailing { total: header.total_bytes, found });
    }
    // From here on all lengths are those of a slice in memory and fit a usize.
    let (front, _) = bytes.split_at(header.front_bytes() as usize);
    let front = &front[HEADER_BYTES..];
    if crc32(front) != header.front_checksum {
        return Err(DecodeError::FrontChecksum);
    }
    let (table, meta) = front.split_at(header.buffers as usize * TABLE_ENTRY_BYTES);
    let buffers = buffers(bytes, header.front_bytes(), table)?;
    if let Some(checksum) = header.bulk_checksum
        && buffers.iter().fold(0, |state, buffer| crc32_continued(state, buffer)) != checksum
    {
        return Err(DecodeError::BulkChecksum);
    }
    let mut reader = Reader { rest: meta, buffers: &buffers, limits, values_left: limits.values_max };
    reader.announce(1, 1)?;
    let body = reader.value(1)?;
    if !reader.rest.is_empty() {
        return Err(DecodeError::MetaTrailing);
    }
    Ok(Frame { kind: header.kind, id: header.id, body })
}

/// The buffers that lie behind the front of `bytes`.
fn buffers<'a>(bytes: &'a [u8], front_bytes: u64, table: &[u8]) -> Result<Vec<&'a [u8]>, DecodeError> {
    let (entries, _) = table.as_chunks::<TABLE_ENTRY_BYTES>();
    let mut buffers = Vec::with_capacity(entries.len());
    let mut gaps = Vec::with_capacity(entries.len());
    let mut position = front_bytes;
    for entry in entries {
        let (length, rest) = entry.split_at(8);
        if rest[0] != 0 {
            return Err(DecodeError::Codec(rest[0]));
        }
        if rest.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::Reserved);
        }
        let length = u64::from_le_bytes(core::array::from_fn(|i| length[i]));
        let start = aligned(position).ok_or(DecodeError::Length)?;
        let end = start.checked_add(length).filter(|end| *end <= bytes.len() as u64).ok_or(DecodeError::Length)?;
        gaps.push(&bytes[position as usize..start as usize]);
        buffers.push(&bytes[start as usize..end as usize]);
        position = end;
    }
    if position != bytes.len() as u64 {
        return Err(DecodeError::Length);
    }
    debug_assert!(gaps.iter().all(|gap| gap.len() < ALIGNMENT));
    if gaps.into_iter().flatten().any(|byte| *byte != 0) {
        return Err(DecodeError::Padding);
    }
    Ok(buffers)
}

/// Reads the meta from front to back.
struct Reader<'a, 'b> {
    rest: &'a [u8],
    buffers: &'b [&'a [u8]],
    limits: &'b Limits,
    values_left: u32,
}

impl<'a> Reader<'a, '_> {
    fn value(&mut self, depth: u32) -> Result<Value<'a>, DecodeError> {
        if let Some(max) = self.limits.exceeded_depth(depth) {
            return Err(DecodeError::TooDeep { max });
        }
        Ok(match self.u8()? {
            tag::NULL => Value::Null,
            tag::FALSE => Value::Bool(false),
            tag::TRUE => Value::Bool(true),
            tag::I64 => Value::I64(i64::from_le_bytes(self.fixed()?)),
            tag::F64 => Value::F64(f64::from_le_bytes(self.fixed()?)),
            tag::STR => Value::Str(self.text()?),
            tag::BYTES => Value::Bytes(self.bytes()?),
            tag::LIST => self.list(depth)?,
            tag::MAP => self.map(depth)?,
            tag::TAGGED => {
                let name = self.text()?;
                self.announce(1, 1)?;
                Value::Tagged(name, Box::new(self.value(depth + 1)?))
            }
            tag::BUFFER => {
                let index = self.u32()?;
                Value::Buffer(self.buffer(index)?)
            }
            tag::ARRAY => self.array()?,
            unknown => return Err(DecodeError::Tag(unknown)),
        })
    }

    fn list(&mut self, depth: u32) -> Result<Value<'a>, DecodeError> {
        let count = self.u32()?;
        let mut items = Vec::with_capacity(self.announce(count, 1)?);
        for _ in 0..count {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, depth: u32) -> Result<Value<'a>, DecodeError> {
        let count = self.u32()?;
        let mut entries: Vec<(&'a str, Value<'a>)> = Vec::with_capacity(self.announce(count, 5)?);
        let mut keys = BTreeSet::new();
        let many = entries.capacity() > KEYS_COMPARED_MAX;
        for _ in 0..count {
            let key = self.text()?;
            let new = if many { keys.insert(key) } else { entries.iter().all(|(known, _)| *known != key) };
            if !new {
                return Err(DecodeError::DuplicateKey);
            }
            entries.push((key, self.value(depth + 1)?));
        }
        Ok(Value::Map(entries))
    }

    fn array(&mut self) -> Result<Value<'a>, DecodeError> {
        let index = self.u32()?;
        let [class, byte_order, layout, rank] = self.fixed()?;
        if usize::from(rank) > RANK_MAX {
            return Err(ArrayError::Rank(rank.into()).into());
        }
        let item_bytes = self.u32()?;
        let mut shape = Vec::with_capacity(rank.into());
        for _ in 0..rank {
            shape.push(u64::from_le_bytes(self.fixed()?));
        }
        let unit_bytes = usize::from(self.u8()?);
        if unit_bytes > UNIT_BYTES_MAX {
            return Err(ArrayError::Unit.into());
        }
        let unit = self.take(unit_bytes)?;
        let find_class = Class::ALL.into_iter().find(|known| *known as u8 == class);
        let find_order = ByteOrder::ALL.into_iter().find(|known| *known as u8 == byte_order);
        let find_layout = Layout::ALL.into_iter().find(|known| *known as u8 == layout);
        let mut array = Array {
            class: find_class.ok_or(ArrayError::Class(class))?,
            byte_order: find_order.ok_or(ArrayError::ByteOrder)?,
            layout: find_layout.ok_or(ArrayError::Layout(layout))?,
            item_bytes,
            shape,
            // What is not UTF-8 is no unit either, but the item bytes are judged first.
            unit: core::str::from_utf8(unit).unwrap_or("?"),
            data: &[],
        };
        array.check_type()?;
        array.data = self.buffer(index)?;
        array.check()?;
        Ok(array.into())
    }

    /// Pays for `count` values of at least `bytes_min` each. Returns the count for making room.
    fn announce(&mut self, count: u32, bytes_min: usize) -> Result<usize, DecodeError> {
        let too_many = DecodeError::TooManyValues { max: self.limits.values_max };
        self.values_left = self.values_left.checked_sub(count).ok_or(too_many)?;
        let count = count as usize;
        if count > self.rest.len() / bytes_min {
            return Err(DecodeError::ValueTruncated);
        }
        Ok(count)
    }

    fn buffer(&self, index: u32) -> Result<&'a [u8], DecodeError> {
        self.buffers.get(index as usize).copied().ok_or(DecodeError::BufferIndex(index))
    }

    fn text(&mut self) -> Result<&'a str, DecodeError> {
        core::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Utf8)
    }

    fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.fixed().map(u32::from_le_bytes)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.fixed().map(|[byte]| byte)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::ValueTruncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::ValueTruncated)?;
        self.rest = rest;
        Ok(taken)
    }
}
