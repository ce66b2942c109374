//! Runs the load generator as a process of its own, and loads several servers side by side.

use crate::load::{LoadOptions, Outcome};
use crate::process::{self, Cores, Process};
use crate::report::median;
use anyhow::{Context as _, bail};
use std::process::{Child, Command, Stdio};

/// A share of failed requests above this makes a measurement worthless.
const ERROR_SHARE_MAX: f64 = 0.001;

impl LoadOptions {
    /// A closed loop of GET requests, each of which must be answered 200.
    pub fn get(url: impl Into<String>, connections: u32, seconds: f64) -> Self {
        Self {
            url: url.into(),
            connections,
            seconds,
            warmup_seconds: (seconds / 4.0).min(1.0),
            rate: None,
            method: "GET".to_owned(),
            body: String::new(),
            status: 200,
            expect: None,
            functions: 1,
            stage: Vec::new(),
            awake: false,
        }
    }

    /// The command that runs this load on `cores`.
    fn command(&self, cores: Cores) -> anyhow::Result<Command> {
        let mut command = process::command(std::env::current_exe()?, cores);
        command.args(["load", &self.url, "--method", &self.method, "--body", &self.body]);
        command.args(["--connections", &self.connections.to_string(), "--seconds", &self.seconds.to_string()]);
        command.args(["--warmup-seconds", &self.warmup_seconds.to_string(), "--status", &self.status.to_string()]);
        command.args(["--functions", &self.functions.to_string()]);
        if let Some(rate) = self.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        if let Some(expect) = &self.expect {
            command.args(["--expect", expect]);
        }
        for stage in &self.stage {
            command.args(["--stage", stage]);
        }
        if self.awake || matches!(cores, Cores::Only(_)) {
            command.arg("--awake");
        }
        Ok(command)
    }

    /// Starts the load and leaves it running.
    pub fn start(&self, cores: Cores) -> anyhow::Result<RunningLoad> {
        let mut command = self.command(cores)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(RunningLoad { child: command.spawn().context("could not start the load generator")?, url: self.url.clone() })
    }

    /// Runs the load to its end; failed requests are in the outcome.
    pub fn run(&self, cores: Cores) -> anyhow::Result<Outcome> {
        self.start(cores)?.finish()
    }

    /// Runs the load to its end.
    ///
    /// # Errors
    /// More than one request in a thousand failed, or there was no reply at all.
    pub fn run_well(&self, cores: Cores) -> anyhow::Result<Outcome> {
        let outcome = self.run(cores)?;
        let errors = outcome.errors_total();
        if outcome.replies == 0 || errors as f64 > ERROR_SHARE_MAX * (errors + outcome.replies) as f64 {
            bail!("{}: {} good replies and these errors: {:?}", self.url, outcome.replies, outcome.errors);
        }
        Ok(outcome)
    }
}

/// A load that goes on beside something else.
pub struct RunningLoad {
    child: Child,
    url: String,
}

impl RunningLoad {
    pub fn finish(mut self) -> anyhow::Result<Outcome> {
        let mut output = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            std::io::Read::read_to_string(&mut stdout, &mut output)?;
        }
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the load generator failed with {status} on {}", self.url);
        }
        serde_json::from_str(&output).with_context(|| format!("the load generator printed {output:?}"))
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        // Both fail only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One server among those that are measured side by side.
pub struct Contestant<'a> {
    pub name: &'static str,
    pub process: &'a Process,
    pub load: LoadOptions,
}

/// What the rounds came to for one contestant.
pub struct Standing {
    pub name: &'static str,
    pub rounds: Vec<Outcome>,
    /// CPU time of the server for one reply, in microseconds, one value a round.
    cpu_us: Vec<f64>,
    /// Share of one core that the server used, one value a round.
    busy: Vec<f64>,
    /// Why it was given up, if it was.
    failure: Option<anyhow::Error>,
}

/// A server that used less of its core than this was held back by something else: the load, or the machine's other
/// work.
const BUSY_MIN: f64 = 0.9;

impl Standing {
    /// The median over the rounds.
    pub fn median(&self, of: impl Fn(&Outcome) -> f64) -> f64 {
        median(&self.rounds.iter().map(of).collect::<Vec<_>>())
    }

    pub fn cpu_us(&self) -> f64 {
        median(&self.cpu_us)
    }

    pub fn busy(&self) -> f64 {
        median(&self.busy)
    }

    /// Why it was given up, if it was.
    pub fn failure(&self) -> Option<&anyhow::Error> {
        self.failure.as_ref()
    }

    /// Why a ratio to the replies a second of this server cannot be trusted, if it cannot: the server could do more.
    pub fn doubt(&self) -> Option<String> {
        let percent = self.busy() * 100.0;
        (self.busy() < BUSY_MIN)
            .then(|| format!("{} used {percent:.0} % of its core only, so it could do more", self.name))
    }

    /// The median over the rounds of this one's replies a second divided by the other's in the same round.
    pub fn ratio_to(&self, other: &Self) -> f64 {
        let pairs = self.rounds.iter().zip(&other.rounds);
        median(&pairs.map(|(mine, theirs)| mine.replies_per_s / theirs.replies_per_s).collect::<Vec<_>>())
    }
}

/// Loads each contestant in turn, A B C C B A A B C …, so that whatever else happens on the machine hits all alike.
/// One that fails is given up and costs the others nothing.
pub fn side_by_side(contestants: &[Contestant<'_>], rounds: usize, cores: Cores) -> Vec<Standing> {
    let standing = |contestant: &Contestant<'_>| Standing {
        name: contestant.name,
        rounds: Vec::new(),
        cpu_us: Vec::new(),
        busy: Vec::new(),
        failure: None,
    };
    let mut standings: Vec<_> = contestants.iter().map(standing).collect();
    for round in 0..rounds {
        let turn: Vec<_> = match round % 2 {
            0 => (0..contestants.len()).collect(),
            _ => (0..contestants.len()).rev().collect(),
        };
        for place in turn {
            let standing = &mut standings[place];
            if standing.failure.is_none() {
                standing.failure = standing.round(&contestants[place], cores).err();
            }
        }
    }
    standings
}

impl Standing {
    fn round(&mut self, contestant: &Contestant<'_>, cores: Cores) -> anyhow::Result<()> {
        let load = &contestant.load;
        let before = contestant.process.cpu_time()?;
        let outcome = load.run_well(cores).with_context(|| format!("under load: {}", contestant.name))?;
        let used = contestant.process.cpu_time()?.saturating_sub(before).as_secs_f64();
        self.cpu_us.push(used * 1e6 / outcome.replies_with_warmup as f64);
        self.busy.push(used / (load.warmup_seconds + load.seconds));
        self.rounds.push(outcome);
        Ok(())
    }
}
