//! `lighter dump`: the core dump of the last unit of a function that trapped.

use super::nearest::{explain, function_path};
use super::saved::{STDOUT, save};
use super::stop::Result;
use super::{Session, words};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Dump {
    /// Function with units.dump = true in its manifest
    name: String,
    /// File to write; - is standard output [default: NAME.coredump]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Dump {
    pub fn run(&self, session: &Session) -> Result {
        let client = session.client()?;
        let path = function_path(&client, &self.name)?;
        let response =
            client.ask("GET", &format!("{path}/dump"), ()).map_err(|stop| explain(&client, &self.name, stop))?;
        let file = self.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.coredump", self.name)));
        let progress = session.out.progress();
        progress.step(format!("fetching the core dump of {}", self.name));
        let bytes = save(&client, response.into_body().into_reader(), &file)?;
        drop(progress);
        match (file.as_os_str() == STDOUT, session.out.json) {
            (true, _) => Ok(()),
            (false, true) => session.out.json(&serde_json::json!({ "file": file, "bytes": bytes })),
            (false, false) => {
                session.out.line(file.display())?;
                session.out.advise(format!("wrote {}; `wasm-tools print` and `wasmgdb` read it", words::bytes(bytes)));
                Ok(())
            }
        }
    }
}
