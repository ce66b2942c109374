//! `bench load`: sends HTTP requests, checks every reply, and says how many came back and how late.
//!
//! ```text
//! closed loop   connection ─ send ─ wait for the reply ─ send ─ …        as fast as the server answers
//! open loop     a request every 1/rate seconds, whether or not the last one was answered in time
//! ```
//!
//! It runs in a process of its own, on one thread, so that it can be given a core of its own; the open loop uses a
//! thread per connection, because an asynchronous timer is a millisecond coarse. The result is one line of JSON.

mod closed;
mod open;
mod tally;

use crate::http1;
use anyhow::{Context as _, bail};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tally::Tally;
pub use tally::{Latency, Outcome, histogram};

/// What to send where, for how long.
#[derive(Debug, Clone, clap::Args)]
pub struct LoadOptions {
    /// Where to: http://ADDRESS:PORT/PATH. Every `{}` in the path is replaced by the number of a function.
    pub url: String,
    /// Connections open at once, each with one request in flight.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub connections: u32,
    /// How long to measure.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// How long to send before measuring begins.
    #[arg(long, default_value_t = 1.0)]
    pub warmup_seconds: f64,
    /// Requests a second, all connections together: an open loop. Without it, as fast as replies come back.
    #[arg(long)]
    pub rate: Option<f64>,
    #[arg(long, default_value = "GET")]
    pub method: String,
    #[arg(long, default_value = "")]
    pub body: String,
    /// The status every reply must have; 0 accepts any.
    #[arg(long, default_value_t = 200)]
    pub status: u16,
    /// The body every reply must have. Without it, any.
    #[arg(long)]
    pub expect: Option<String>,
    /// Numbers to put in place of `{}`: requests go to 0, 1, … in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub functions: u32,
    /// Also report this stage of the replies' Server-Timing; may be repeated.
    #[arg(long)]
    pub stage: Vec<String>,
    /// Do not sleep while no reply is there (closed loop): a server then pays for its replies, not for waking us up.
    /// Only on a core of its own.
    #[arg(long)]
    pub awake: bool,
}

/// Runs the load and prints the outcome as one line of JSON.
pub fn run(options: &LoadOptions) -> anyhow::Result<()> {
    crate::process::raise_open_files_limit();
    let plan = Rc::new(Plan::new(options)?);
    let tally = match options.rate {
        None => closed::run(&plan)?,
        Some(rate) if rate > 0.0 && rate <= 1e6 => open::run(&plan, rate)?,
        Some(rate) => bail!("--rate {rate} is not between 0 and 1000000 requests a second"),
    };
    println!("{}", serde_json::to_string(&tally.outcome(plan.measured))?);
    Ok(())
}

/// The options, checked, with every request's bytes made beforehand.
struct Plan {
    to: SocketAddr,
    requests: Vec<Vec<u8>>,
    connections: u32,
    warmup: Duration,
    measured: Duration,
    status: u16,
    expected: Option<Vec<u8>>,
    stages: Vec<String>,
    awake: bool,
}

impl Plan {
    fn new(options: &LoadOptions) -> anyhow::Result<Self> {
        let rest =
            options.url.strip_prefix("http://").with_context(|| format!("{:?} is not an http:// URL", options.url))?;
        let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let to = host.parse().with_context(|| format!("{host:?} is not ADDRESS:PORT"))?;
        let request = |number: u32| {
            let path = path.replace("{}", &number.to_string());
            http1::request(&options.method, host, &path, options.body.as_bytes())
        };
        let seconds = |name: &str, value: f64| {
            if (0.0..=3_600.0).contains(&value) {
                Ok(Duration::from_secs_f64(value))
            } else {
                bail!("{name} {value} is not between 0 and 3600")
            }
        };
        Ok(Self {
            to,
            requests: (0..options.functions).map(request).collect(),
            connections: options.connections,
            warmup: seconds("--warmup-seconds", options.warmup_seconds)?,
            measured: seconds("--seconds", options.seconds)?,
            status: options.status,
            expected: options.expect.as_ref().map(|body| body.clone().into_bytes()),
            stages: options.stage.clone(),
            awake: options.awake,
        })
    }

    fn tally(&self) -> Tally {
        Tally::new(&self.stages)
    }

    /// What is wrong with a reply, if anything.
    fn check(&self, reply: &http1::Reply<'_>) -> Option<&'static str> {
        if self.status != 0 && reply.status != self.status {
            return Some(match reply.status {
                429 => "status 429",
                500 => "status 500",
                502 => "status 502",
                503 => "status 503",
                504 => "status 504",
                _ => "status",
            });
        }
        let body_differs = self.expected.as_ref().is_some_and(|expected| **expected != *reply.body);
        body_differs.then_some("body")
    }
}
