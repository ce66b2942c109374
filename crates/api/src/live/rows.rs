//! Rows of one list as they travel, and when each changed last: so each viewer gets what is new to them, and a row is
//! written as JSON once for all of them. Pure.

use serde::Serialize;
use std::collections::BTreeMap;

/// Rows by name.
#[derive(Debug)]
pub struct Rows<T>(BTreeMap<String, Row<T>>);

#[derive(Debug)]
struct Row<T> {
    value: T,
    json: Vec<u8>,
    /// The look in which it became so.
    changed: u64,
    /// The last look in which it was there.
    seen: u64,
}

impl<T> Default for Rows<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: PartialEq + Serialize> Rows<T> {
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name).map(|row| &row.value)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes all rows there are in a look, which counts up. Says whether one of before is gone.
    pub fn take(&mut self, look: u64, rows: Vec<T>, name: impl Fn(&T) -> &str) -> bool {
        let count = rows.len();
        for value in rows {
            let json = |value| serde_json::to_vec(value).expect("what the API sends can be JSON");
            match self.0.get_mut(name(&value)) {
                Some(row) if row.value == value => row.seen = look,
                Some(row) => *row = Row { json: json(&value), value, changed: look, seen: look },
                None => {
                    let row = Row { json: json(&value), value, changed: look, seen: look };
                    self.0.insert(name(&row.value).to_owned(), row);
                }
            }
        }
        let is_gone = self.0.len() > count;
        if is_gone {
            self.0.retain(|_, row| row.seen == look);
        }
        is_gone
    }

    /// Writes a JSON list of the rows that changed after the look `since` and that `covers`; all of them after 0.
    pub fn write(&self, since: u64, covers: impl Fn(&str) -> bool, line: &mut Vec<u8>) {
        line.push(b'[');
        let mut is_first = true;
        for (_, row) in self.0.iter().filter(|(name, row)| row.changed > since && covers(name)) {
            if !std::mem::take(&mut is_first) {
                line.push(b',');
            }
            line.extend_from_slice(&row.json);
        }
        line.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(rows: &mut Rows<String>, look: u64, texts: &[&str]) -> bool {
        rows.take(look, texts.iter().map(|text| (*text).to_owned()).collect(), |text| &text[..1])
    }

    fn written(rows: &Rows<String>, since: u64) -> String {
        let mut line = Vec::new();
        rows.write(since, |name| name != "z", &mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_viewer_gets_what_changed_since_their_last_tick() {
        let mut rows = Rows::default();
        assert!(!take(&mut rows, 1, &["a1", "b1", "z1"]));
        assert!(!take(&mut rows, 2, &["a1", "b2", "z1"]));
        assert!(!take(&mut rows, 3, &["a1", "b2", "c3", "z1"]));
        assert_eq!(written(&rows, 0), r#"["a1","b2","c3"]"#);
        assert_eq!(written(&rows, 1), r#"["b2","c3"]"#);
        assert_eq!(written(&rows, 2), r#"["c3"]"#);
        assert_eq!(written(&rows, 3), "[]");
    }

    #[test]
    fn what_is_gone_is_noticed_even_where_something_else_came() {
        let mut rows = Rows::default();
        take(&mut rows, 1, &["a1", "b1"]);
        assert!(take(&mut rows, 2, &["b1", "c2"]), "as many as before, and others");
        assert_eq!((written(&rows, 0), rows.len()), (r#"["b1","c2"]"#.to_owned(), 2));
        assert!(!take(&mut rows, 3, &["b1", "c2"]));
    }
}
