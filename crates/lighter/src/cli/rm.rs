//! `lighter rm`: remove functions from the node.

use super::Session;
use super::nearest::{explain, function_path};
use super::stop::Result;
use clap::Args;

#[derive(Debug, Args)]
pub struct Rm {
    /// Functions to remove, with all their versions
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

impl Rm {
    pub fn run(&self, session: &Session) -> Result {
        let client = session.client()?;
        for name in &self.names {
            let path = function_path(&client, name)?;
            client.send("DELETE", &path, ()).map_err(|stop| explain(&client, name, stop))?;
            session.out.advise(format!("removed {name}"));
        }
        match session.out.json {
            true => session.out.json(&serde_json::json!({ "removed": self.names })),
            false => Ok(()),
        }
    }
}
