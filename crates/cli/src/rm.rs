//! `lighter rm`: remove functions from the node.

use super::Session;
use super::client::encoded;
use super::nearest::{self, explain, function_path};
use super::stop::Result;
use clap::Args;
use manifest::Manifest;
use problem::Code;

#[derive(Debug, Args)]
pub struct Rm {
    /// Functions to remove, with all their versions; their queues stay, with the events in them
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Remove the sinks of these names instead
    #[arg(long)]
    sink: bool,
}

impl Rm {
    pub fn run(&self, session: &Session) -> Result {
        let client = session.client()?;
        match self.sink {
            true => {
                let deployed: Manifest = client.get("/v1/deployments")?;
                let sinks: Vec<String> = deployed.sink.keys().map(ToString::to_string).collect();
                if !sinks.is_empty() {
                    nearest::known(&self.names, &sinks, Code::FunctionUnknown, "sink")?;
                }
            }
            false => nearest::check_all(&client, Code::FunctionUnknown, &self.names, "function")?,
        }
        for name in &self.names {
            let path = match self.sink {
                true => format!("/v1/sinks/{}", encoded(name)),
                false => function_path(&client, name)?,
            };
            client.send("DELETE", &path, ()).map_err(|stop| match self.sink {
                true => stop,
                false => explain(&client, name, stop),
            })?;
            session.out.advise(format!("removed {name}"));
        }
        match session.out.json {
            true => session.out.json(&serde_json::json!({ "removed": self.names })),
            false => Ok(()),
        }
    }
}
