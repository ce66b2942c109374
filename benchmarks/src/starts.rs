//! `bench starts`: starts a program again and again and prints, as JSON, the milliseconds to its first output.

use anyhow::{Context as _, ensure};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Debug, clap::Args)]
pub struct StartsOptions {
    #[arg(long, default_value_t = 100)]
    times: u32,
    /// The program and its arguments; `{}` in an argument becomes the number of the start.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// Starts the program, each time after the last one has ended, and prints the times.
///
/// # Errors
/// It could not be started, printed nothing, or failed.
pub fn run(options: &StartsOptions) -> anyhow::Result<()> {
    let times = (0..options.times).map(|number| milliseconds_to_output(&options.command, number));
    println!("{}", serde_json::to_string(&times.collect::<anyhow::Result<Vec<_>>>()?)?);
    Ok(())
}

fn milliseconds_to_output(command: &[String], number: u32) -> anyhow::Result<f64> {
    let mut words = command.iter().map(|word| word.replace("{}", &number.to_string()));
    let mut command = Command::new(words.next().context("there is a program")?);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("could not start {command:?}"))?;
    let mut first = [0];
    let read = child.stdout.as_mut().context("stdout is a pipe")?.read(&mut first)?;
    let took = begin.elapsed();
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(read == 1 && output.status.success(), "{command:?} failed with {}: {}", output.status, complaint.trim());
    Ok(took.as_secs_f64() * 1e3)
}
