//! Prints what was measured: tables for people, and the promised figures as one line of JSON for machines.

use anyhow::Error;

/// A bound on a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bar {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bar) => value >= bar,
            Self::AtMost(bar) => value <= bar,
        }
    }
}

/// A number that `SPECIFICATION.md` promises.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    /// Its name in the last line of output.
    pub name: &'static str,
    pub bar: Bar,
    /// What it says, in a few words.
    pub says: &'static str,
}

/// The promised numbers of one benchmark, each measured, or missing with the reason.
pub struct Figures {
    promises: &'static [Promise],
    values: Vec<Result<f64, String>>,
    /// Names and why their values cannot be trusted.
    doubts: Vec<(String, String)>,
}

impl Figures {
    pub fn new(promises: &'static [Promise]) -> Self {
        let values = promises.iter().map(|_| Err("not measured".to_owned())).collect();
        Self { promises, values, doubts: Vec::new() }
    }

    /// Notes a measured value.
    ///
    /// # Panics
    /// If `name` is not promised.
    pub fn set(&mut self, name: &str, value: f64) {
        self.note(name, if value.is_finite() { Ok(value) } else { Err(format!("came out as {value}")) });
    }

    /// Notes why the value of `name` cannot be trusted.
    pub fn doubt(&mut self, name: &str, why: String) {
        self.doubts.push((name.to_owned(), why));
    }

    /// Notes why these have no value; a value noted before stays.
    ///
    /// # Panics
    /// If a name is not promised.
    pub fn miss(&mut self, names: &[&str], why: &Error) {
        for name in names {
            if self.values[self.place(name)].is_err() {
                self.note(name, Err(format!("{why:#}").trim_end().to_owned()));
            }
        }
    }

    fn note(&mut self, name: &str, value: Result<f64, String>) {
        let place = self.place(name);
        self.values[place] = value;
    }

    fn place(&self, name: &str) -> usize {
        self.promises.iter().position(|promise| promise.name == name).expect("every figure is promised first")
    }

    /// The figures beside their bars, what is missing or doubtful and why, then the line of JSON.
    pub fn print(&self) {
        let mut table = Table::new("Promised and measured", &["figure", "measured", "bar", "", "what it says"]);
        for (promise, value) in self.promises.iter().zip(&self.values) {
            let (measured, verdict) = match value {
                Ok(value) if self.is_doubtful(promise.name) => (number(*value), "DOUBTFUL"),
                Ok(value) => (number(*value), if promise.bar.is_met(*value) { "met" } else { "MISSED" }),
                Err(_) => ("none".to_owned(), "NOT MEASURED"),
            };
            let bar = match promise.bar {
                Bar::AtLeast(bar) => format!("at least {bar}"),
                Bar::AtMost(bar) => format!("at most {bar}"),
            };
            table.row([promise.name.to_owned(), measured, bar, verdict.to_owned(), promise.says.to_owned()]);
        }
        table.print();
        for (promise, value) in self.promises.iter().zip(&self.values) {
            if let Err(why) = value {
                println!("{} was not measured: {}", promise.name, why.lines().next().unwrap_or_default());
            }
        }
        for (name, why) in &self.doubts {
            println!("{name} is doubtful: {why}");
        }
        println!("{}", self.json());
    }

    fn is_doubtful(&self, name: &str) -> bool {
        self.doubts.iter().any(|(doubted, _)| doubted == name)
    }

    /// One JSON object with every promised name, in order; `null` where there is no value.
    fn json(&self) -> String {
        let fields = self.promises.iter().zip(&self.values).map(|(promise, value)| match value {
            Ok(value) => format!("\"{}\": {}", promise.name, rounded(*value)),
            Err(_) => format!("\"{}\": null", promise.name),
        });
        format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
    }
}

/// Four significant digits are more than any run can repeat.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// A number as people read it.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        a if a < 0.1 => format!("{value:.4}"),
        a if a < 10.0 => format!("{value:.2}"),
        a if a < 1_000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Columns under a title, as wide as they need to be: text to the left, numbers to the right.
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self { title: title.to_owned(), rows: vec![columns.iter().map(|&column| column.to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn print(&self) {
        println!("\n{self}");
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let widths: Vec<_> =
            (0..columns).map(|c| cells(c).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
        // A column is one of numbers if its first row of data is.
        let right: Vec<_> =
            (0..columns).map(|c| self.rows.get(1).and_then(|row| row.get(c)).is_some_and(is_number)).collect();
        writeln!(f, "{}", self.title)?;
        for row in &self.rows {
            let cells = row.iter().zip(widths.iter().zip(&right)).map(|(cell, (width, right))| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// The middle value; of an even number, the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The smallest value that at least the share `quantile` of all values do not exceed.
pub fn quantile(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISES: [Promise; 3] = [
        Promise { name: "a", bar: Bar::AtLeast(2.0), says: "" },
        Promise { name: "b", bar: Bar::AtMost(2.0), says: "" },
        Promise { name: "c", bar: Bar::AtMost(2.0), says: "" },
    ];

    #[test]
    fn every_promised_name_is_in_the_json_whatever_happened() {
        let mut figures = Figures::new(&PROMISES);
        assert_eq!(figures.json(), r#"{"a": null, "b": null, "c": null}"#);
        figures.set("a", 12.345_678);
        figures.set("b", f64::NAN);
        figures.miss(&["a", "c"], &anyhow::anyhow!("no peer"));
        assert_eq!(figures.json(), r#"{"a": 12.35, "b": null, "c": null}"#);
        assert_eq!(figures.values[2], Err("no peer".to_owned()));
        assert!(PROMISES[0].bar.is_met(2.0) && !PROMISES[0].bar.is_met(1.9) && !PROMISES[1].bar.is_met(2.1));
    }

    #[test]
    fn figures_keep_four_digits() {
        let cases = [
            (0.0, 0.0),
            (0.000_123_456, 0.000_123_5),
            (0.3, 0.3),
            (99.999, 100.0),
            (123_456.0, 123_500.0),
            (-1.5, -1.5),
        ];
        for (value, expected) in cases {
            assert!((rounded(value) - expected).abs() < 1e-9, "{value}: {}", rounded(value));
        }
    }

    #[test]
    fn medians_and_quantiles_are_ranks() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan() && quantile(&[], 0.5).is_nan());
        let hundred: Vec<_> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((quantile(&hundred, 0.5), quantile(&hundred, 0.99), quantile(&hundred, 1.0)), (50.0, 99.0, 100.0));
        assert_eq!(quantile(&[7.0], 0.0), 7.0);
    }

    #[test]
    fn a_table_lines_up() {
        let mut table = Table::new("title", &["what", "n"]);
        table.row(["long name".to_owned(), "7".to_owned()]);
        table.row(["x".to_owned(), "1000".to_owned()]);
        assert_eq!(table.to_string(), "title\n  what          n\n  long name     7\n  x          1000\n");
    }
}
