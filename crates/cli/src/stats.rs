//! `lighter stats`: how often, how fast and how well functions ran since the node started.

use super::Session;
use super::nearest::{explain, function_path};
use super::stop::{Result, Stop};
use super::table::Table;
use super::words::microseconds;
use api_types::{FunctionStats, Quantiles, QueuedStats};
use clap::Args;
use problem::Code;

#[derive(Debug, Args)]
pub struct Stats {
    /// Function to show in detail [default: all, with one line each]
    name: Option<String>,
}

impl Stats {
    pub fn run(&self, session: &Session) -> Result {
        let client = session.client()?;
        let mut stats: Vec<FunctionStats> = client.get("/v1/stats")?;
        let Some(name) = &self.name else {
            return match session.out.json {
                true => session.out.json(&stats),
                false => session.out.table(&overview(&stats)),
            };
        };
        function_path(&client, name)?;
        stats.retain(|stats| stats.function == *name);
        let Some(stats) = stats.first() else {
            return Err(explain(
                &client,
                name,
                Stop::new(Code::FunctionUnknown, format!("there is no function {name:?}")),
            ));
        };
        if session.out.json {
            return session.out.json(stats);
        }
        session.out.line(summary(stats))?;
        session.out.table(&phases(stats))?;
        let errors = errors(stats);
        if errors.is_empty() {
            return Ok(());
        }
        session.out.line("")?;
        session.out.table(&errors)
    }
}

fn overview(stats: &[FunctionStats]) -> Table {
    let mut table = Table::new(&[
        "FUNCTION", ">CALLS", ">ERRORS", ">RUNNING", ">WAITING", ">QUEUED", ">DEAD", ">P50", ">P90", ">P99", ">MAX",
    ]);
    for stats in stats {
        let [p50, p90, p99, max] = cells(&stats.total_us);
        table.row([
            stats.function.clone(),
            stats.calls.to_string(),
            stats.errors.values().sum::<u64>().to_string(),
            stats.running.to_string(),
            stats.waiting.to_string(),
            queued(stats, |queue| queue.waiting),
            queued(stats, |queue| queue.dead),
            p50,
            p90,
            p99,
            max,
        ]);
    }
    table
}

/// `-` for a function that handles no queue.
fn queued(stats: &FunctionStats, read: impl Fn(&QueuedStats) -> u64) -> String {
    stats.queue.as_ref().map_or_else(|| "-".to_owned(), |queue| read(queue).to_string())
}

fn summary(stats: &FunctionStats) -> String {
    let queue = stats.queue.as_ref().map_or_else(String::new, |queue| {
        format!("; queue {}: {} waiting, {} dead, {} workers", queue.queue, queue.waiting, queue.dead, queue.workers)
    });
    format!(
        "{} version {}: {} calls, {} errors, {} running, {} waiting{queue}\n",
        stats.function,
        stats.version,
        stats.calls,
        stats.errors.values().sum::<u64>(),
        stats.running,
        stats.waiting
    )
}

fn phases(stats: &FunctionStats) -> Table {
    let mut table = Table::new(&["PHASE", ">P50", ">P90", ">P99", ">MAX"]);
    let phases =
        [("queue", stats.queue_us), ("start", stats.start_us), ("run", stats.run_us), ("total", stats.total_us)];
    for (name, quantiles) in phases {
        let [p50, p90, p99, max] = cells(&quantiles);
        table.row([name.to_owned(), p50, p90, p99, max]);
    }
    table
}

fn errors(stats: &FunctionStats) -> Table {
    let mut table = Table::new(&[">ERRORS", "CODE", "MEANING"]);
    for (code, count) in &stats.errors {
        let meaning = Code::from_name(code).map_or("", Code::title);
        table.row([count.to_string(), code.clone(), meaning.to_owned()]);
    }
    table
}

fn cells(quantiles: &Quantiles) -> [String; 4] {
    [quantiles.p50, quantiles.p90, quantiles.p99, quantiles.max].map(microseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_code_with_their_meaning() {
        let stats = FunctionStats {
            function: "hello".into(),
            version: 2,
            calls: 9,
            running: 1,
            waiting: 0,
            errors: [("L3001".to_owned(), 2), ("L6001".to_owned(), 1)].into(),
            queue: None,
            total_us: Quantiles { p50: 29.0, p90: 31.0, p99: 1_200.0, max: 2e6 },
            queue_us: Quantiles::default(),
            start_us: Quantiles::default(),
            run_us: Quantiles::default(),
        };
        assert_eq!(
            overview(std::slice::from_ref(&stats)).lines()[1],
            "hello         9       3        1        0       -     -  29 µs  31 µs  1.2 ms  2.0 s"
        );
        assert_eq!(errors(&stats).lines()[1], "     2  L3001  the call ran out of wall time");
        assert_eq!(phases(&stats).lines().len(), 5);
    }
}
