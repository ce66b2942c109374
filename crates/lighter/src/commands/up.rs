//! `lighter up`: start a node here. The one command that does not go through the API.

use crate::run;
use clap::Args;
use cli::stop::Result;
use cli::{Run, Session};
use serde_json::Value;

#[derive(Debug, Args)]
pub struct Up {
    #[command(flatten)]
    args: node::config::UpArgs,
}

impl Run for Up {
    /// Returns when the node has been stopped.
    fn run(self, session: &Session) -> Result {
        let config = node::config::Config::new(self.args)?;
        let out = session.out;
        let ready = |place: &Value| {
            if out.json {
                // A node serves, even if nobody reads where.
                out.json(place).ok();
            }
        };
        Ok(run::run(config, ready)?)
    }
}
