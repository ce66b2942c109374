//! What `lighter top` shows: rates from two looks at counters, in an order.

use api_types::{FunctionStats, NodeInfo};
use clap::ValueEnum;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Columns to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Function,
    Calls,
    Waiting,
    P99,
    Errors,
}

impl Sort {
    pub fn next(self) -> Self {
        match self {
            Self::Function => Self::Calls,
            Self::Calls => Self::Waiting,
            Self::Waiting => Self::P99,
            Self::P99 => Self::Errors,
            Self::Errors => Self::Function,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Calls => "calls/s",
            Self::Waiting => "waiting",
            Self::P99 => "p99",
            Self::Errors => "errors/s",
        }
    }
}

/// One function.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub function: String,
    pub version: u32,
    pub calls: u64,
    pub calls_per_second: f64,
    pub errors_per_second: f64,
    pub running: u64,
    pub waiting: u64,
    /// Events that wait in its queue; none if it handles none.
    pub queued: Option<u64>,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Everything on the screen.
pub struct Model {
    pub url: String,
    pub node: Option<NodeInfo>,
    pub rows: Vec<Row>,
    pub sort: Sort,
    /// Rows above the screen.
    pub scroll: usize,
    /// Why the last look found nothing.
    pub trouble: Option<String>,
    counters: BTreeMap<String, Counters>,
    looked_at: Duration,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    calls: u64,
    errors: u64,
}

impl Model {
    pub fn new(url: String, sort: Sort) -> Self {
        Self {
            url,
            node: None,
            rows: Vec::new(),
            sort,
            scroll: 0,
            trouble: None,
            counters: BTreeMap::new(),
            looked_at: Duration::ZERO,
        }
    }

    /// Takes what a look at the node found, `at` a time that counts from any start.
    pub fn take(&mut self, node: NodeInfo, stats: Vec<FunctionStats>, at: Duration) {
        let seconds = at.saturating_sub(self.looked_at).as_secs_f64().max(1e-3);
        let first = self.node.is_none();
        let mut counters = BTreeMap::new();
        self.rows = stats
            .into_iter()
            .map(|stats| {
                let now = Counters { calls: stats.calls, errors: stats.errors.values().sum() };
                // A function that was not there before has begun at zero; a counter that went back belongs to a new
                // node.
                let before = if first { now } else { self.counters.get(&stats.function).copied().unwrap_or_default() };
                let rate = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64 / seconds;
                counters.insert(stats.function.clone(), now);
                Row {
                    version: stats.version,
                    calls: stats.calls,
                    calls_per_second: rate(now.calls, before.calls),
                    errors_per_second: rate(now.errors, before.errors),
                    running: stats.running,
                    waiting: stats.waiting,
                    queued: stats.queue.map(|queue| queue.waiting),
                    p50_us: stats.total_us.p50,
                    p99_us: stats.total_us.p99,
                    function: stats.function,
                }
            })
            .collect();
        self.counters = counters;
        self.looked_at = at;
        self.node = Some(node);
        self.trouble = None;
        self.sort_by(self.sort);
        self.scroll_by(0);
    }

    pub fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        let key = |row: &Row| match sort {
            Sort::Function => 0.0,
            Sort::Calls => row.calls_per_second,
            Sort::Waiting => row.waiting as f64,
            Sort::P99 => row.p99_us,
            Sort::Errors => row.errors_per_second,
        };
        self.rows.sort_by(|a, b| key(b).total_cmp(&key(a)).then_with(|| a.function.cmp(&b.function)));
    }

    pub fn scroll_by(&mut self, rows: isize) {
        self.scroll = self.scroll.saturating_add_signed(rows).min(self.rows.len().saturating_sub(1));
    }

    pub fn calls_per_second(&self) -> f64 {
        self.rows.iter().map(|row| row.calls_per_second).sum()
    }

    pub fn errors_per_second(&self) -> f64 {
        self.rows.iter().map(|row| row.errors_per_second).sum()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use api_types::Quantiles;

    pub fn node() -> NodeInfo {
        NodeInfo {
            version: "0.1.0".into(),
            gate: "http://127.0.0.1:8700".into(),
            data_folder: "/data".into(),
            queues_paused: None,
            isolation: vec!["wasm".into()],
            functions: 2,
            units_running: 3,
            units_max: 1_000,
            uptime_seconds: 7_380,
            rss_bytes: 31_200_000,
            cores: 2,
            architecture: "x86_64".into(),
            engine: "wasmtime".into(),
            python: None,
            missing_protections: Vec::new(),
            token: None,
        }
    }

    pub fn stats(function: &str, calls: u64, errors: u64) -> FunctionStats {
        let quantiles = Quantiles { p50: 29.0, p90: 40.0, p99: 1_200.0, max: 2e6 };
        FunctionStats {
            function: function.into(),
            version: 1,
            calls,
            running: 1,
            waiting: 0,
            errors: [("L6001".to_owned(), errors)].into(),
            queue: None,
            total_us: quantiles,
            queue_us: quantiles,
            start_us: quantiles,
            run_us: quantiles,
        }
    }

    fn names(model: &Model) -> Vec<&str> {
        model.rows.iter().map(|row| row.function.as_str()).collect()
    }

    #[test]
    fn rates_are_differences_over_time() {
        let mut model = Model::new("url".into(), Sort::Calls);
        model.take(node(), vec![stats("a", 100, 5), stats("b", 0, 0)], Duration::from_secs(1));
        assert_eq!(model.calls_per_second(), 0.0, "one look has no rate");
        model.take(node(), vec![stats("a", 110, 5), stats("b", 40, 2), stats("new", 4, 0)], Duration::from_secs(3));
        let rates: Vec<_> = model.rows.iter().map(|row| (row.function.as_str(), row.calls_per_second)).collect();
        assert_eq!(rates, [("b", 20.0), ("a", 5.0), ("new", 2.0)]);
        assert_eq!(model.errors_per_second(), 1.0);
    }

    #[test]
    fn a_node_that_started_again_counts_from_zero() {
        let mut model = Model::new("url".into(), Sort::Calls);
        model.take(node(), vec![stats("a", 1_000, 0)], Duration::from_secs(1));
        model.take(node(), vec![stats("a", 8, 0)], Duration::from_secs(2));
        assert_eq!(model.calls_per_second(), 8.0);
    }

    #[test]
    fn rows_follow_the_column_and_then_their_names() {
        let mut model = Model::new("url".into(), Sort::Function);
        model.take(node(), vec![stats("b", 0, 0), stats("a", 0, 0)], Duration::ZERO);
        assert_eq!(names(&model), ["a", "b"]);
        model.take(node(), vec![stats("b", 9, 0), stats("a", 1, 1)], Duration::from_secs(1));
        model.sort_by(Sort::Calls);
        assert_eq!(names(&model), ["b", "a"]);
        model.sort_by(Sort::Errors);
        assert_eq!(names(&model), ["a", "b"]);
        model.scroll_by(100);
        assert_eq!(model.scroll, 1);
        model.scroll_by(-100);
        assert_eq!(model.scroll, 0);
    }
}
