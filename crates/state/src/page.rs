//! One page of a listing: where it ends, and which keys it has seen.

use crate::error::StoreError;
use crate::keys;
use crate::transaction::Write;
use fjall::Iter;
use problem::{Code, Problem};
use std::collections::btree_map;
use std::iter::Peekable;

/// Most entries of one page.
pub const LIMIT_MAX: u32 = 1_000;
/// Most bytes of keys and values in one page. One entry is given even if it alone is larger.
pub const PAGE_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Pass it as `after` to read on; none when this was the last page. A page with nothing else in it can have one,
    /// when very many keys have just expired.
    pub next: Option<String>,
}

/// Most entries that have expired one page passes over; the sweep has not come by yet. Beyond, the page ends.
const EXPIRED_MAX: usize = 10_000;

/// An encoded key and what is stored under it.
pub type Stored = (Vec<u8>, Vec<u8>);

/// Fills a page from `entries`, whose keys begin with `lead` and of which `open` makes the values; none: it is not
/// there any more. Also says up to which key (inclusive) it looked; none when it looked to the end.
pub fn fill(
    lead: &[u8],
    limit: u32,
    entries: impl Iterator<Item = fjall::Result<Stored>>,
    mut open: impl FnMut(Vec<u8>) -> Result<Option<Vec<u8>>, StoreError>,
) -> Result<(Page, Option<Vec<u8>>), StoreError> {
    check_limit(limit)?;
    let mut page = Page::default();
    let (mut bytes, mut expired) = (0, 0);
    for entry in entries {
        let (encoded, stored) = entry.map_err(|error| read_failed(&error))?;
        let key = keys::decode(lead, &encoded)
            .ok_or_else(|| StoreError::Unavailable(Problem::new(Code::StateCorrupt, "a stored key is not text")))?;
        let Some(value) = open(stored)? else {
            expired += 1;
            if expired == EXPIRED_MAX {
                page.next = Some(key.to_owned());
                return Ok((page, Some(encoded)));
            }
            continue;
        };
        bytes += key.len() + value.len();
        if page.entries.len() == limit as usize || (bytes > PAGE_BYTES_MAX && !page.entries.is_empty()) {
            page.next = page.entries.last().map(|entry| entry.key.clone());
            return Ok((page, Some(encoded)));
        }
        page.entries.push(Entry { key: key.to_owned(), value });
    }
    Ok((page, None))
}

pub fn check_limit(limit: u32) -> Result<(), StoreError> {
    if (1..=LIMIT_MAX).contains(&limit) { Ok(()) } else { Err(StoreError::ListLimit { limit }) }
}

pub fn read_failed(error: &fjall::Error) -> StoreError {
    StoreError::Unavailable(crate::error::from_database("read the state", error))
}

/// What is stored, in order.
pub fn stored(iter: Iter) -> impl Iterator<Item = fjall::Result<Stored>> {
    iter.map(|guard| guard.into_inner().map(|(key, value)| (key.to_vec(), value.to_vec())))
}

/// What is stored, seen through writes that are not: a written key hides the stored one, a deleted key hides both.
pub struct Overlay<'a, Below: Iterator<Item = fjall::Result<Stored>>> {
    below: Peekable<Below>,
    above: Peekable<btree_map::Range<'a, Vec<u8>, Write>>,
}

impl<'a, Below: Iterator<Item = fjall::Result<Stored>>> Overlay<'a, Below> {
    pub fn new(below: Below, above: btree_map::Range<'a, Vec<u8>, Write>) -> Self {
        Self { below: below.peekable(), above: above.peekable() }
    }
}

impl<Below: Iterator<Item = fjall::Result<Stored>>> Iterator for Overlay<'_, Below> {
    type Item = fjall::Result<Stored>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let own_is_next = match (self.above.peek(), self.below.peek()) {
                (None, _) | (_, Some(Err(_))) => return self.below.next(),
                (Some(_), None) => true,
                (Some((own, _)), Some(Ok((stored, _)))) => *own <= stored,
            };
            if !own_is_next {
                return self.below.next();
            }
            let (key, write) = self.above.next()?;
            if matches!(self.below.peek(), Some(Ok((stored, _))) if stored == key) {
                self.below.next();
            }
            if let Some(value) = &write.value {
                return Some(Ok((key.clone(), value.clone())));
            }
        }
    }
}
