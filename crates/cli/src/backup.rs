//! `lighter backup`: all that a running node keeps at one instant, in one file. `lighter restore` is its other half.

use super::client::json;
use super::stop::{Result, Stop};
use super::{Client, Session, passphrase, words};
use api_types::BackupRequest;
use backup::{Head, Reader};
use clap::Args;
use problem::{Code, Problem};
use serde_json::json as document;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct Backup {
    /// File to write. It appears when the backup is complete; until then an older one of this name stays
    file: PathBuf,
    /// File whose first line is the passphrase that secrets and keys are sealed with [default: they are left out]
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl Backup {
    /// One without secrets.
    pub fn into_file(file: PathBuf) -> Self {
        Self { file, passphrase_file: None }
    }

    pub fn run(&self, session: &Session) -> Result {
        let out = session.out;
        let (head, bytes) = self.make(session)?;
        if out.json {
            let (images, left_out) = (head.images, &head.left_out);
            let (file, is_sealed) = (&self.file, head.seal.is_some());
            return out.json(&document!({ "file": file, "bytes": bytes, "time_ms": head.time_ms, "images": images,
                "is_sealed": is_sealed, "left_out": left_out }));
        }
        out.line(self.file.display())?;
        out.say(format!("backed up {} with {} image{}", words::bytes(bytes), head.images, plural(head.images)));
        if !head.left_out.is_empty() {
            out.say(format!("left out: {}", head.left_out.join(", ")));
        }
        if !head.left_out.is_empty() && head.seal.is_none() {
            out.advise("  --passphrase-file FILE puts secrets and keys in, sealed");
        }
        Ok(())
    }

    /// Makes it, and says what is in it and how large it is.
    pub fn make(&self, session: &Session) -> Result<(Head, u64)> {
        let (out, client) = (session.out, session.client()?);
        let passphrase = self.passphrase_file.as_deref().map(passphrase::read).transpose()?;
        let partial = beside(&self.file);
        let failed = |error: io::Error| Stop::file(&partial, &error);
        // It holds everybody's data.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial);
        let file = file.map_err(failed)?;
        let progress = out.progress();
        progress.step("asking the node for a backup");
        let response = client.ask("POST", "/v1/backup", json(&BackupRequest { passphrase }));
        let response = response.inspect_err(|_| drop(fs::remove_file(&partial)))?;
        let copy = Copy { from: response.into_body().into_reader(), to: BufWriter::new(file), trouble: None };
        let (head, bytes, copy) = fetch(copy, &client, &partial, |done, about| {
            progress.update(format!("backing up, {} of about {}", words::bytes(done), words::bytes(about)));
        })?;
        let file = copy.to.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().and_then(|()| fs::rename(&partial, &self.file)).map_err(failed)?;
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| Stop::file(folder, &error))?;
        Ok((head, bytes))
    }
}

fn plural(count: u64) -> &'static str {
    words::plural(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Takes all of it, and checks on the way that it is whole.
fn fetch<R: Read, W: Write>(
    copy: Copy<R, W>,
    client: &Client,
    file: &Path,
    mut say: impl FnMut(u64, u64),
) -> Result<(Head, u64, Copy<R, W>)> {
    let mut reader = Reader::new(copy).map_err(|problem| no_backup(client, problem))?;
    let about = reader.head().state_bytes.saturating_add(reader.head().images_bytes);
    loop {
        match reader.next() {
            Ok(Some(_)) => say(reader.bytes(), about.max(reader.bytes())),
            Ok(None) => break,
            Err(problem) => {
                return Err(match reader.get_mut().trouble.take() {
                    Some(Trouble::Writing(error)) => Stop::file(file, &error),
                    Some(Trouble::Reading(error)) => client.broken(&error),
                    None => no_backup(client, problem),
                });
            }
        }
    }
    Ok((reader.head().clone(), reader.bytes(), reader.into_inner()))
}

fn no_backup(client: &Client, problem: Problem) -> Stop {
    match problem.code {
        Code::BackupBroken => {
            let detail = format!("{} stopped in the middle of the backup", client.url());
            Stop::Problem(Problem::new(Code::BackupBroken, detail).with_hint("see the node's log, and make it again"))
        }
        _ => Stop::Problem(problem),
    }
}

/// The name of the file while it is not whole.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".partial");
    file.with_file_name(name)
}

/// What is read is written at once.
struct Copy<R, W> {
    from: R,
    to: W,
    trouble: Option<Trouble>,
}

enum Trouble {
    Reading(io::Error),
    Writing(io::Error),
}

impl<R: Read, W: Write> Read for Copy<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let again = |error: &io::Error| io::Error::from(error.kind());
        let count = self.from.read(buffer).map_err(|error| {
            let said = again(&error);
            self.trouble = Some(Trouble::Reading(error));
            said
        })?;
        self.to.write_all(&buffer[..count]).map_err(|error| {
            let said = again(&error);
            self.trouble = Some(Trouble::Writing(error));
            said
        })?;
        Ok(count)
    }
}
