//! `lighter dump`: the core dump of the last unit of a function that trapped.

use super::nearest::{explain, function_path};
use super::stop::{Result, Stop};
use super::{Session, words};
use clap::Args;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Bytes of a dump: the memory of the largest unit, and some more.
const DUMP_BYTES_MAX: u64 = 5 << 30;

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
        let mut reader = response.into_body().into_reader().take(DUMP_BYTES_MAX);
        let file = self.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.coredump", self.name)));
        let to_stdout = file.as_os_str() == "-";
        // A dump holds the unit's memory, and with it perhaps somebody's data.
        let mut writer: Box<dyn Write> = match to_stdout {
            true => Box::new(io::stdout().lock()),
            false => Box::new(
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(&file)
                    .map_err(|error| Stop::file(&file, &error))?,
            ),
        };
        let progress = session.out.progress();
        progress.step(format!("fetching the core dump of {}", self.name));
        let mut buffer = vec![0; 256 << 10];
        let mut bytes = 0;
        loop {
            let count = reader.read(&mut buffer).map_err(|error| client.broken(&error))?;
            if count == 0 {
                break;
            }
            writer.write_all(&buffer[..count]).map_err(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => Stop::PipeClosed,
                _ => Stop::file(&file, &error),
            })?;
            bytes += count as u64;
        }
        drop(progress);
        match (to_stdout, session.out.json) {
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
