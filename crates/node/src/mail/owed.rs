//! What receipts have changed and the disk has not taken yet: letters to delete, records of streams.

use ::mail::{Commit, Write};
use std::collections::BTreeMap;

/// In one transaction.
const TOGETHER: usize = 1_000;

/// By key, the newest word on each. A stream's record comes before the letters that it no longer needs: where the power
/// goes in between, some letters stay that nobody sends, and none is missed.
#[derive(Default)]
pub struct Owed {
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The last commit that waits for these.
    commit: Option<Commit>,
}

impl Owed {
    pub fn add(&mut self, writes: Vec<Write>, commit: Option<Commit>) {
        self.writes.extend(writes.into_iter().map(|Write { key, value }| (key, value)));
        self.commit = commit.or(self.commit);
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// What the next transaction writes.
    pub fn next(&self) -> Vec<Write> {
        let some = self.writes.iter().take(TOGETHER);
        some.map(|(key, value)| Write { key: key.clone(), value: value.clone() }).collect()
    }

    /// They are written. If they were the last: the commit that has waited for them.
    pub fn written(&mut self, writes: &[Write]) -> Option<Commit> {
        for Write { key, .. } in writes {
            self.writes.remove(key);
        }
        if self.writes.is_empty() { self.commit.take() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &[u8], value: u8) -> Write {
        Write { key: key.to_owned(), value: Some(vec![value]) }
    }

    #[test]
    fn the_newest_word_counts_and_records_go_before_letters() {
        let mut owed = Owed::default();
        let letters =
            (0..2_500_u32).map(|number| Write { key: [&[2], &number.to_be_bytes()[..]].concat(), value: None });
        owed.add(letters.chain([record(&[1, 7], 10)]).collect(), None);
        owed.add(vec![record(&[1, 7], 11)], None);
        let (mut transactions, mut all) = (0, Vec::new());
        while !owed.is_empty() {
            let some = owed.next();
            assert!(some.len() <= TOGETHER);
            assert!(owed.written(&some).is_none());
            transactions += 1;
            all.extend(some);
        }
        assert_eq!((transactions, all.len()), (3, 2_501));
        assert_eq!(all[0], record(&[1, 7], 11));
        assert_eq!(all.iter().filter(|write| write.key[0] == 1).count(), 1);
    }
}
