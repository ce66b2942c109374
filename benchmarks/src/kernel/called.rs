//! Functions of the classes `wasm` and `microvm` on a running node, called as a client calls them: over one connection
//! to the gate that is kept open.

use crate::http1::Connection;
use crate::lighter::{Node, Project};
use crate::process::Cores;
use crate::run::Bench;
use anyhow::{Context as _, ensure};
use std::time::{Duration, Instant};

/// The classes that run components on this machine.
pub const CLASSES: [&str; 2] = ["wasm", "microvm"];

pub struct Called {
    gate: Connection,
    _node: Node,
}

impl Called {
    /// A node with one guest, deployed by every name with the lines of the manifest that stand beside it.
    pub fn start(bench: &Bench, guest: &str, functions: &[(String, String)]) -> anyhow::Result<Self> {
        let mut project = Project::new(bench.folder(&format!("called-{guest}")))?;
        let image = bench.guest(guest)?;
        for (name, lines) in functions {
            project.add(name, &image, lines)?;
        }
        let node = bench.node(&format!("called-{guest}"), Cores::All)?;
        node.deploy(project.folder()?)?;
        Ok(Self { gate: Connection::open(node.gate)?, _node: node })
    }

    /// One call; how long it took, and the reply.
    pub fn call(&mut self, function: &str, data: &str) -> anyhow::Result<(Duration, String)> {
        let path = format!("/{function}");
        let began = Instant::now();
        let answer = self.gate.send("POST", &path, data.as_bytes()).with_context(|| path.clone())?;
        let took = began.elapsed();
        let text = String::from_utf8(answer.body).context("a reply that is no text")?;
        ensure!(answer.status == 200, "POST {path}: status {}, {text}", answer.status);
        Ok((took, text))
    }
}
