//! The records of mail among those of the node.

use ::mail::{Household, Write};
use problem::Problem;
use state::{LIMIT_MAX, Records, State, StoreError, Transaction};

const TABLE: &str = "mail";

/// The records of one household.
pub struct Kept {
    records: Records,
    /// What their keys begin with.
    lead: String,
}

impl Kept {
    pub fn new(state: &State, own: &Household) -> Self {
        Self { records: state.records(TABLE), lead: format!("{own}/") }
    }

    /// Has them written by a transaction.
    pub fn write(&self, transaction: &mut Transaction, writes: &[Write]) -> Result<(), StoreError> {
        writes.iter().try_for_each(|Write { key, value }| transaction.record(TABLE, &self.key(key), value.clone()))
    }

    /// All whose keys begin so, with their keys as mail knows them.
    ///
    /// # Errors
    /// Those of reading.
    pub fn all(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Problem> {
        let prefix = self.key(prefix);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.records.list(&prefix, after.as_deref(), LIMIT_MAX)?;
            found.extend(page.entries.into_iter().map(|entry| (self.bytes(&entry.key), entry.value)));
            match page.next {
                None => return Ok(found),
                next => after = next,
            }
        }
    }

    /// Keys of records are text. Each byte becomes the character of its number, so their order stays.
    fn key(&self, key: &[u8]) -> String {
        let mut text = String::with_capacity(self.lead.len() + key.len() * 2);
        text.push_str(&self.lead);
        text.extend(key.iter().map(|byte| char::from(*byte)));
        text
    }

    fn bytes(&self, key: &str) -> Vec<u8> {
        key[self.lead.len()..].chars().map(|character| character as u8).collect()
    }
}

impl ::mail::Records for Kept {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.records.get(&self.key(key)).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::mail::Records as _;

    #[test]
    fn records_are_found_by_their_bytes_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path(), state::Options::default()).unwrap();
        let kept = Kept::new(&state, &Household::new("node-7").unwrap());
        let other = Kept::new(&state, &Household::new("node-77").unwrap());
        let keys: Vec<Vec<u8>> = [[1, 0, 0], [1, 0, 255], [1, 7, 0], [1, 128, 0], [2, 0, 0]].map(Vec::from).into();
        let write = |kept: &Kept, value: u8| {
            let mut transaction = state.begin();
            let writes: Vec<Write> =
                keys.iter().map(|key| Write { key: key.clone(), value: Some(vec![value]) }).collect();
            kept.write(&mut transaction, &writes).unwrap();
            let _ = transaction.commit().unwrap();
        };
        write(&kept, 1);
        write(&other, 2);
        let found: Vec<Vec<u8>> = kept.all(&[1]).unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(found, keys[..4]);
        assert_eq!(kept.get(&keys[3]), Some(vec![1]));
        assert_eq!(kept.get(&[1]), None);
    }
}
