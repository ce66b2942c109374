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
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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
    /// One with secrets and keys, if there is a passphrase.
    pub fn into_file(file: PathBuf, passphrase_file: Option<PathBuf>) -> Self {
        Self { file, passphrase_file }
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
        let partial = Partial::begin(&self.file)?;
        let failed = |error: io::Error| Stop::file(&partial.path, &error);
        let progress = out.progress();
        progress.step("asking the node for a backup");
        let response = client.ask("POST", "/v1/backup", json(&BackupRequest { passphrase }));
        let response = response.inspect_err(|_| drop(fs::remove_file(&partial.path)))?;
        let to = BufWriter::new(&partial.file);
        let copy = Copy { from: response.into_body().into_reader(), to, trouble: None };
        let (head, bytes, copy) = fetch(copy, &client, &partial.path, |done, about| {
            progress.update(format!("backing up, {} of about {}", words::bytes(done), words::bytes(about)));
        })?;
        let file = copy.to.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().and_then(|()| fs::rename(&partial.path, &self.file)).map_err(failed)?;
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

/// The file while it is not whole. Whoever has its lock writes it, up to its last name.
#[derive(Debug)]
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    /// # Errors
    /// `FileUnusable`: another backup into the same file is under way, or the disk's.
    fn begin(backup: &Path) -> Result<Self> {
        let path = beside(backup);
        loop {
            match Self::new_file(&path) {
                Ok(Some(file)) => return Ok(Self { path, file }),
                Ok(None) => {}
                Err(TryLockError::WouldBlock) => {
                    let detail = format!("another backup into {} is under way", backup.display());
                    let problem = Problem::new(Code::FileUnusable, detail);
                    return Err(problem.with_hint("wait for it to end, or name another file").into());
                }
                Err(TryLockError::Error(error)) => return Err(Stop::file(&path, &error)),
            }
        }
    }

    /// A new file of this name, locked. None: what was in its place is gone by now.
    fn new_file(path: &Path) -> std::result::Result<Option<File>, TryLockError> {
        // It holds everybody's data.
        let open = |is_new| OpenOptions::new().write(true).create_new(is_new).mode(0o600).open(path);
        let (file, is_new) = match open(true) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (open(false), false),
            opened => (opened, true),
        };
        let file = match file {
            Err(error) if !is_new && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(TryLockError::Error)?,
        };
        file.try_lock()?;
        let own = file.metadata().map_err(TryLockError::Error)?;
        // Whoever had the lock before may have renamed or removed it.
        let is_in_place = fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()));
        if is_in_place && !is_new {
            // One that was killed has left it. Others may read it, so it is not written on.
            fs::remove_file(path).map_err(TryLockError::Error)?;
        }
        Ok((is_in_place && is_new).then_some(file))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_a_killed_backup_has_left_is_replaced_by_a_file_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.backup");
        fs::write(beside(&file), "half a backup").unwrap();
        fs::set_permissions(beside(&file), Permissions::from_mode(0o644)).unwrap();
        let partial = Partial::begin(&file).unwrap();
        let found = fs::metadata(&partial.path).unwrap();
        assert_eq!((found.len(), found.permissions().mode() & 0o777), (0, 0o600));
    }

    /// The second one cut what the first had written, and a broken file took the place of a good one.
    #[test]
    fn a_second_backup_into_the_same_file_is_refused_until_the_first_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.backup");
        let first = Partial::begin(&file).unwrap();
        (&first.file).write_all(b"first").unwrap();
        match Partial::begin(&file) {
            Err(Stop::Problem(problem)) => assert!(problem.detail.contains("another backup into"), "{problem}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(fs::read(&first.path).unwrap(), b"first");
        fs::rename(&first.path, &file).unwrap();
        drop(first);
        Partial::begin(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"first");
    }
}
