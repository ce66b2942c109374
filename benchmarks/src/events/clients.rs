//! Runs the clients of `bench client` as processes and gives what they counted.

use crate::process::{self, Cores};
use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};

/// What every client is told.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    pub events: u64,
    pub window: u64,
    pub rate: Option<f64>,
}

/// A client that runs.
pub struct Client {
    child: Child,
    output: BufReader<ChildStdout>,
    name: String,
}

impl Client {
    /// Starts `bench client NAME` with `more` arguments.
    pub fn start(name: &str, to: SocketAddr, flow: Flow, more: &[String]) -> anyhow::Result<Self> {
        let mut command: Command = process::command(std::env::current_exe()?, Cores::All);
        command.args(["client", name, &to.to_string(), "--events", &flow.events.to_string()]);
        command.args(["--window", &flow.window.to_string()]).args(more);
        if let Some(rate) = flow.rate {
            command.args(["--rate", &rate.to_string()]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        Ok(Self { child, output, name: name.to_owned() })
    }

    /// Waits until it says that it is ready.
    pub fn ready(mut self) -> anyhow::Result<Self> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line != "ready\n" {
            bail!("the client {} did not begin: {line:?}", self.name);
        }
        Ok(self)
    }

    /// Waits until it ends.
    pub fn finish<Counted: DeserializeOwned>(mut self) -> anyhow::Result<Counted> {
        let mut output = String::new();
        self.output.read_to_string(&mut output)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the client {} failed with {status}", self.name);
        }
        serde_json::from_str(&output).with_context(|| format!("the client {} printed {output:?}", self.name))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
