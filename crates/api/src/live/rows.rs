//! Rows of one list as they travel, and when each changed last: so each viewer gets what is new to them, and a row is
//! written as JSON when it has changed, once for all of them. Pure.

/// What is looked at, to become a row.
pub trait LiveSource {
    /// What is read of it in each look. While that is the same, the row is.
    type Numbers: PartialEq;

    fn name(&self) -> &str;
    fn numbers(&self) -> Self::Numbers;
    /// Appends the row as JSON.
    fn write(&self, numbers: &Self::Numbers, json: &mut Vec<u8>);
}

/// Rows in the order of their names.
#[derive(Debug)]
pub struct Rows<N> {
    rows: Vec<Row<N>>,
    /// Of the row that was written last: memory that is used again.
    written: Vec<u8>,
}

#[derive(Debug)]
struct Row<N> {
    name: String,
    numbers: N,
    json: Vec<u8>,
    /// The look in which it became so.
    changed: u64,
}

impl<N> Default for Rows<N> {
    fn default() -> Self {
        Self { rows: Vec::new(), written: Vec::new() }
    }
}

impl<N: PartialEq> Rows<N> {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Takes all there are in a look, which counts up, in the order of their names. With `anew` each is written, even
    /// where its numbers are the same. Says whether one of before is gone.
    pub fn take<S: LiveSource<Numbers = N>>(
        &mut self,
        look: u64,
        sources: impl Iterator<Item = S>,
        anew: bool,
    ) -> bool {
        let mut before = std::mem::take(&mut self.rows).into_iter().peekable();
        self.rows.reserve(before.len());
        let mut is_gone = false;
        for source in sources {
            while before.next_if(|row| *row.name < *source.name()).is_some() {
                is_gone = true;
            }
            let known = before.next_if(|row| row.name == source.name());
            let row = self.row(look, &source, known, anew);
            self.rows.push(row);
        }
        is_gone | before.next().is_some()
    }

    fn row<S: LiveSource<Numbers = N>>(&mut self, look: u64, source: &S, known: Option<Row<N>>, anew: bool) -> Row<N> {
        let numbers = source.numbers();
        let Some(mut row) = known else {
            let mut json = Vec::new();
            source.write(&numbers, &mut json);
            return Row { name: source.name().to_owned(), numbers, json, changed: look };
        };
        if anew || row.numbers != numbers {
            self.written.clear();
            source.write(&numbers, &mut self.written);
            row.numbers = numbers;
            if row.json != self.written {
                std::mem::swap(&mut row.json, &mut self.written);
                row.changed = look;
            }
        }
        row
    }

    /// Writes a JSON list of the rows that changed after the look `since` and that `covers`; all of them after 0.
    pub fn write(&self, since: u64, covers: impl Fn(&str) -> bool, line: &mut Vec<u8>) {
        line.push(b'[');
        let mut is_first = true;
        for row in self.rows.iter().filter(|row| row.changed > since && covers(&row.name)) {
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
    use std::cell::Cell;

    /// `a1`: the row `a`, with the number 1. It counts how often a row is written.
    struct Text<'a>(&'a str, &'a Cell<u32>);

    impl LiveSource for Text<'_> {
        type Numbers = String;

        fn name(&self) -> &str {
            &self.0[..1]
        }

        fn numbers(&self) -> String {
            self.0[1..].to_owned()
        }

        fn write(&self, numbers: &String, json: &mut Vec<u8>) {
            self.1.set(self.1.get() + 1);
            json.extend_from_slice(format!("\"{}{numbers}\"", self.name()).as_bytes());
        }
    }

    fn take(rows: &mut Rows<String>, look: u64, texts: &[&str]) -> bool {
        let writes = Cell::new(0);
        rows.take(look, texts.iter().map(|text| Text(text, &writes)), false)
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
        assert!(take(&mut rows, 4, &["b1"]), "the last one");
        assert!(!take(&mut rows, 5, &["a5", "b1", "d5"]), "some came, before and behind");
        assert_eq!(
            (written(&rows, 4), written(&rows, 0)),
            (r#"["a5","d5"]"#.to_owned(), r#"["a5","b1","d5"]"#.to_owned())
        );
    }

    #[test]
    fn only_rows_whose_numbers_are_others_are_written() {
        let (mut rows, writes) = (Rows::default(), Cell::new(0));
        let mut take = |look, texts: &[&'static str], anew| {
            let before = writes.get();
            rows.take(look, texts.iter().map(|text| Text(text, &writes)), anew);
            (writes.get() - before, written(&rows, look - 1))
        };
        assert_eq!(take(1, &["a1", "b1"], false), (2, r#"["a1","b1"]"#.to_owned()));
        assert_eq!(take(2, &["a1", "b2"], false), (1, r#"["b2"]"#.to_owned()));
        assert_eq!(take(3, &["a1", "b2"], false), (0, "[]".to_owned()));
        assert_eq!(take(4, &["a1", "b2"], true), (2, "[]".to_owned()), "written, and found the same");
    }
}
