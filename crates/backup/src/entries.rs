//! Keys and values one after the other: length of the key 4, length of the value 4, low bytes first, key, value.

use problem::Problem;

/// The entries of one piece. Ends after the first that is not whole, with a problem.
#[derive(Debug, Clone)]
pub struct Entries<'a> {
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn take(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let (lengths, rest) = self.bytes.split_first_chunk::<8>()?;
        let [a, b, c, d, e, f, g, h] = *lengths;
        let length = |bytes| usize::try_from(u32::from_le_bytes(bytes)).ok();
        let (key, rest) = rest.split_at_checked(length([a, b, c, d])?)?;
        let (value, rest) = rest.split_at_checked(length([e, f, g, h])?)?;
        self.bytes = rest;
        Some((key, value))
    }
}

impl<'a> Iterator for Entries<'a> {
    /// Key and value.
    type Item = Result<(&'a [u8], &'a [u8]), Problem>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let entry = self.take();
        if entry.is_none() {
            self.bytes = &[];
        }
        Some(entry.ok_or_else(|| super::read::broken("an entry in it is not whole")))
    }
}

/// Adds an entry to what [`Entries`] reads.
pub fn put(into: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("bounded long before").to_le_bytes();
    into.extend(length(key));
    into.extend(length(value));
    into.extend(key);
    into.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_comes_out_and_half_an_entry_is_a_problem() {
        let mut bytes = Vec::new();
        put(&mut bytes, b"door", b"open");
        put(&mut bytes, b"", b"");
        let read: Vec<_> = Entries::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(read, [(&b"door"[..], &b"open"[..]), (b"", b"")]);
        for length in 1..16 {
            let cut: Vec<_> = Entries::new(&bytes[..length]).collect();
            assert!(cut.len() == 1 && cut[0].is_err(), "{length}: {cut:?}");
        }
    }
}
