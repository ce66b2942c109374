//! The name of a household.

use std::fmt;
use std::sync::Arc;

/// Bytes of a household's name; a longer one is no name.
pub const NAME_BYTES_MAX: usize = 63;

/// What lives and moves together: functions with the buckets and queues they share. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Household(Arc<str>);

impl Household {
    /// Like the name of a function: 1 to 63 bytes of `a-z`, `0-9` and `-`, beginning with a letter and not ending with
    /// `-`. None for anything else.
    pub fn new(name: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = name.len() <= NAME_BYTES_MAX
            && name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(is_plain)
            && !name.ends_with('-');
        fits.then(|| Self(name.into()))
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().and_then(Self::new)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Household {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Household {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain() {
        let long = "a".repeat(NAME_BYTES_MAX);
        for name in ["a", "orders-v2", &long] {
            assert_eq!(Household::new(name).expect("it is a name").as_str(), name);
        }
        for name in ["", "A", "7a", "a b", "a/b", "é", "a\0", "a-", &format!("{long}a")] {
            assert!(Household::new(name).is_none(), "{name:?}");
        }
    }
}
