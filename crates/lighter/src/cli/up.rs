//! `lighter up`: start a node here. The one command that does not go through the API.

use super::stop::Result;
use crate::node;
use clap::Args;

#[derive(Debug, Args)]
pub struct Up {
    #[command(flatten)]
    args: node::config::UpArgs,
}

impl Up {
    /// Returns when the node has been stopped.
    pub fn run(self) -> Result {
        let config = node::config::Config::new(self.args)?;
        Ok(node::run(config)?)
    }
}
