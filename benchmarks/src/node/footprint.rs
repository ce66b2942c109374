//! How much room the node takes: the program, an idle node, a thousand live units.

use crate::lighter::{Node, Project};
use crate::process::{Cores, command, run_to_end};
use crate::report::{Figures, number};
use crate::run::Bench;
use anyhow::{Context as _, bail};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const UNITS: u64 = 1_000;
/// How long the thousand units may take to be there.
const UNITS_TIMEOUT: Duration = Duration::from_secs(30);
/// What a process settles in after it started or was called.
const SETTLE: Duration = Duration::from_millis(500);
const MB: f64 = 1e6;

pub fn measure(bench: &Bench, figures: &mut Figures) -> anyhow::Result<()> {
    println!("\nFootprint");
    let stripped = bench.folder("lighter-stripped");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&stripped).arg(&bench.lighter);
    match run_to_end(strip) {
        Ok(_) => {
            let bytes = fs::metadata(&stripped)?.len() as f64;
            println!("  stripped program              {} MB", number(bytes / MB));
            figures.set("binary_mb", bytes / MB);
        }
        Err(why) => figures.miss(&["binary_mb"], &why),
    }

    let node = bench.node("footprint", Cores::All)?;
    thread::sleep(SETTLE);
    let idle = node.process.resident_bytes()? as f64;
    println!("  idle node, nothing deployed   {} MB resident", number(idle / MB));
    figures.set("idle_rss_mb", idle / MB);

    let mut project = Project::new(bench.folder("footprint"))?;
    project.add("echo", &bench.guest("echo-http")?, &format!("limits.concurrency = {UNITS}"))?;
    node.deploy(project.folder()?)?;
    node.request("POST", "/echo", b"once, so that what is loaded once does not count a thousand times")?;
    thread::sleep(SETTLE);
    let before = node.process.private_bytes()? as f64;
    let mut holder = Holder::connect(&node)?;
    thread::sleep(SETTLE);
    let connected = node.process.private_bytes()? as f64;
    holder.begin()?;
    let units = wait_for_units(&node)?;
    thread::sleep(SETTLE);
    let with_units = node.process.private_bytes()? as f64;
    holder.end()?;
    let more = (with_units - connected) / MB;
    println!("  {UNITS} idle connections        {} MB more private memory", number((connected - before) / MB));
    println!("  {units} live wasi:http units      {} MB more on top of that", number(more));
    figures.set("rss_1000_units_mb", more);
    Ok(())
}

/// Waits until the node says that all of them run.
fn wait_for_units(node: &Node) -> anyhow::Result<u64> {
    let begin = Instant::now();
    loop {
        let units = node.units_running()?;
        if units >= UNITS {
            return Ok(units);
        }
        if begin.elapsed() > UNITS_TIMEOUT {
            bail!("{UNITS} requests wait for the rest of their bodies, but only {units} units run");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The process that keeps the requests open.
struct Holder {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn connect(node: &Node) -> anyhow::Result<Self> {
        let mut hold = command(std::env::current_exe()?, Cores::All);
        hold.args(["hold", &node.gate.to_string(), "/echo", "--requests", &UNITS.to_string()]);
        let mut child = hold.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        let mut holder = Self { child, output };
        holder.says("connected")?;
        Ok(holder)
    }

    /// Begins the requests.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.child.stdin.as_mut().context("stdin is a pipe")?.write_all(b"begin\n")?;
        self.says("holding")
    }

    fn says(&mut self, what: &str) -> anyhow::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim() != format!("{what} {UNITS}") {
            bail!("the {UNITS} requests could not all be opened: {line:?}");
        }
        Ok(())
    }

    /// Lets go of the requests.
    fn end(&mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Both fail only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
