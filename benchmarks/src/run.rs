//! What every benchmark shares: its options, what its parts are given, and running them one after the other.

use crate::lighter::Node;
use crate::machine::{self, ProcessorTime};
use crate::peers::Peers;
use crate::process::Cores;
use crate::report::{Figures, Promise};
use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::TempDir;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Under five minutes: fewer rounds, shorter and smaller ones.
    #[arg(long)]
    quick: bool,
    /// The node's program.
    #[arg(long, default_value = "build/dist/lighter")]
    lighter: PathBuf,
    /// Folder with the prebuilt guests.
    #[arg(long, default_value = "guests/prebuilt")]
    guests: PathBuf,
    /// What `benchmarks/peers` printed.
    #[arg(long)]
    peers: PathBuf,
    /// Folder for what is kept from one run to the next.
    #[arg(long)]
    cache: PathBuf,
    /// Only these parts; may be repeated. The figures of the others are null.
    #[arg(long)]
    part: Vec<String>,
}

/// What every part needs.
pub struct Bench {
    quick: bool,
    pub lighter: PathBuf,
    guests: PathBuf,
    pub peers: Peers,
    work: TempDir,
}

impl Bench {
    /// One value for `--quick`, another for the full run.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    pub fn guest(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let path = self.guest_path(name);
        fs::read(&path).with_context(|| format!("could not read the guest {}", path.display()))
    }

    pub fn guest_path(&self, name: &str) -> PathBuf {
        self.guests.join(format!("{name}.wasm"))
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// A node with a data folder of its own.
    pub fn node(&self, name: &str, cores: Cores) -> anyhow::Result<Node> {
        Node::start(&self.lighter, &self.folder(&format!("{name}-data")), cores)
    }

    pub fn work(&self) -> &Path {
        self.work.path()
    }
}

/// A name for progress and `--part`, what to run, and the figures that are lost if it fails.
pub type Part = (&'static str, Measure, &'static [&'static str]);
pub type Measure = fn(&Bench, &mut Figures) -> anyhow::Result<()>;

/// Measures everything and prints the report; its last line is one JSON object.
///
/// # Errors
/// A part is named that does not exist, or this is no machine to measure on. What fails later costs its own figures.
pub fn run(options: &Options, promises: &'static [Promise], parts: &[Part]) -> anyhow::Result<()> {
    let known = |part: &&String| parts.iter().all(|(name, ..)| name != part);
    let names: Vec<_> = parts.iter().map(|(name, ..)| *name).collect();
    if let Some(unknown) = options.part.iter().find(known) {
        anyhow::bail!("there is no part {unknown:?}; there are {}", names.join(", "));
    }
    let bench = Bench {
        quick: options.quick,
        lighter: options
            .lighter
            .canonicalize()
            .with_context(|| format!("there is no {}", options.lighter.display()))?,
        guests: options.guests.clone(),
        peers: Peers::read(&options.peers, &options.cache)?,
        // Not the system's folder for such: it may be in memory, where everything is durable at once.
        work: tempfile::Builder::new().prefix("work-").tempdir_in(&options.cache)?,
    };
    machine::print(&bench.peers)?;
    let mut figures = Figures::new(promises);
    let (begin, processors) = (Instant::now(), ProcessorTime::now());
    for &(name, measure, lost) in parts {
        if !options.part.is_empty() && !options.part.iter().any(|part| part == name) {
            continue;
        }
        eprintln!("bench: {name} ({:.0} s since the start)", begin.elapsed().as_secs_f64());
        if let Err(why) = measure(&bench, &mut figures) {
            println!("\n{name} could not be measured: {}", format!("{why:#}").trim_end());
            figures.miss(lost, &why);
        }
    }
    eprintln!("bench: done after {:.0} s", begin.elapsed().as_secs_f64());
    ProcessorTime::now().print_since(&processors);
    figures.print();
    Ok(())
}
