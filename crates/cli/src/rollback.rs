//! `lighter rollback`: let an earlier version of a function take the calls again.

use super::nearest::{explain, function_path};
use super::stop::Result;
use super::{Session, ls};
use api_types::{FunctionInfo, RollbackRequest};
use clap::Args;

#[derive(Debug, Args)]
pub struct Rollback {
    /// Function to roll back
    name: String,
    /// Version to go back to [default: the one before the current one]
    #[arg(long, value_name = "VERSION")]
    to: Option<u32>,
}

impl Rollback {
    pub fn run(&self, session: &Session) -> Result {
        let client = session.client()?;
        let path = function_path(&client, &self.name)?;
        let request = RollbackRequest { version: self.to };
        let progress = session.out.progress();
        progress.step(format!("{}: going back", self.name));
        let function: FunctionInfo =
            client.post(&format!("{path}/rollback"), &request).map_err(|stop| explain(&client, &self.name, stop))?;
        progress.end();
        match session.out.json {
            true => session.out.json(&function),
            false => session.out.table(&ls::urls(&[function])),
        }
    }
}
