//! `lighter up`: start a node here. The one command that does not go through the API.

use super::Session;
use super::stop::Result;
use clap::Args;
use serde_json::Value;

#[derive(Debug, Args)]
pub struct Up {
    #[command(flatten)]
    args: node::config::UpArgs,
}

impl Up {
    /// Returns when the node has been stopped.
    pub fn run(self, session: &Session) -> Result {
        let config = node::config::Config::new(self.args)?;
        let out = session.out;
        let ready = move |place: &Value| {
            if out.json {
                // A node serves, even if nobody reads where.
                out.json(place).ok();
            }
        };
        Ok((session.start)(config, Box::new(ready))?)
    }
}
