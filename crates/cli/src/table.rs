//! Rows in columns: a heading, two spaces between columns, numbers to the right, nothing that needs colour.

/// Text laid out in columns.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

struct Column {
    heading: &'static str,
    right: bool,
}

impl Table {
    /// One word a column; a word that begins with `>` heads a column of numbers.
    pub fn new(headings: &[&'static str]) -> Self {
        let column = |heading: &&'static str| match heading.strip_prefix('>') {
            Some(heading) => Column { heading, right: true },
            None => Column { heading, right: false },
        };
        Self { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for every column");
        // A line in a cell would look like a row.
        self.rows.push(cells.map(|cell| cell.replace('\n', "\\n").replace('\t', "\\t")).into());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, the heading first.
    pub fn lines(&self) -> Vec<String> {
        let width = |index: usize, column: &Column| {
            let cells = self.rows.iter().map(|row| row[index].chars().count());
            cells.chain([column.heading.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(|(index, column)| width(index, column)).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for ((cell, column), width) in cells.zip(&self.columns).zip(&widths) {
                match column.right {
                    true => line += &format!("{cell:>width$}  "),
                    false => line += &format!("{cell:<width$}  "),
                }
            }
            line.trim_end().to_owned()
        };
        let heading = line(&mut self.columns.iter().map(|column| column.heading));
        let rows = self.rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
        [heading].into_iter().chain(rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() {
        let mut table = Table::new(&["FUNCTION", ">CALLS", "ROUTE"]);
        table.row(["a-long-function".into(), "7".into(), "/a".into()]);
        table.row(["b".into(), "1234567".into(), String::new()]);
        assert_eq!(
            table.lines(),
            ["FUNCTION           CALLS  ROUTE", "a-long-function        7  /a", "b                1234567"]
        );
    }

    #[test]
    fn width_is_counted_in_characters() {
        let mut table = Table::new(&["P50", "X"]);
        table.row(["12 µs".into(), "x".into()]);
        assert_eq!(table.lines(), ["P50    X", "12 µs  x"]);
    }
}
