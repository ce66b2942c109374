//! `lighter restore`: puts a backup into a data folder that no node uses. It is read to its end before anything is
//! changed, unless it is a pipe. A restore that ends in the middle leaves nothing that a node would start with.
//!
//! ```text
//!   entries ─▶ DATA/restoring        images ─▶ DATA/warehouse, by their hashes        secrets ─▶ kept back
//!   the end, and the hash is right ─▶ DATA/fleet, DATA/boards ─▶ DATA/restoring/state becomes DATA/state
//! ```

use crate::run::make_folder;
use backup::{Head, KEY_BYTES_MAX, Passphrase, Piece, Reader, Secret};
use clap::Args;
use cli::locate::data_folder;
use cli::stop::{Result, Stop};
use cli::{Run, Session, passphrase, words};
use problem::{Code, Problem};
use serde_json::json;
use state::{Restoring, STATE_FORMATS_READ, Space};
use std::fs::{DirBuilder, File};
use std::io::{BufReader, Read, Seek};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use warehouse::{Config, ImageHash, ImageWriter, Warehouse};

#[derive(Debug, Args)]
pub struct Restore {
    /// Backup that `lighter backup` made
    file: PathBuf,
    /// File whose first line is the passphrase the backup was made with
    #[arg(long, value_name = "FILE", conflicts_with = "without_secrets")]
    passphrase_file: Option<PathBuf>,
    /// Leave out what is sealed: secrets, and the keys of the fleet and of boards
    #[arg(long)]
    without_secrets: bool,
}

impl Run for Restore {
    fn run(self, session: &Session) -> Result {
        let (out, data) = (session.out, data_folder(session.global.data_folder.as_deref())?);
        let file = File::open(&self.file).map_err(|error| Stop::file(&self.file, &error))?;
        let is_read_twice = file.metadata().is_ok_and(|found| found.is_file());
        let mut reader = Reader::new(BufReader::new(file))?;
        let opens = self.opens(reader.head())?;
        let progress = out.progress();
        if is_read_twice {
            progress.step(format!("checking {}", self.file.display()));
            check(&mut reader, opens.clone(), |bytes| {
                progress.update(format!("checking {}, {} so far", self.file.display(), words::bytes(bytes)));
            })?;
            let mut file = reader.into_inner();
            file.rewind().map_err(|error| Stop::file(&self.file, &error))?;
            reader = Reader::new(file)?;
        }
        progress.step(format!("restoring into {}", data.display()));
        let entries = restore(&mut reader, opens, &data, |bytes| {
            progress.update(format!("restoring into {}, {} so far", data.display(), words::bytes(bytes)));
        })?;
        drop(progress);
        let head = reader.head();
        let mut left_out = head.left_out.clone();
        if head.seal.is_some() && self.without_secrets {
            left_out.push("secrets and keys, which are sealed".to_owned());
        }
        if out.json {
            return out.json(&json!({ "data": data, "time_ms": head.time_ms, "version": head.version,
                "entries": entries, "images": head.images, "left_out": left_out }));
        }
        out.line(data.display())?;
        let time = words::time(head.time_ms);
        out.say(format!("restored the node of {time}: {entries} entries, {} images", head.images));
        if !left_out.is_empty() {
            out.say(format!("not in it: {}", left_out.join(", ")));
        }
        if !left_out.is_empty() && (head.seal.is_none() || self.without_secrets) {
            out.advise("  `lighter secret set NAME` sets a secret anew, on the running node");
        }
        Ok(())
    }
}

impl Restore {
    /// The key to what is sealed, if it is to be opened.
    fn opens(&self, head: &Head) -> Result<Option<Passphrase>> {
        if !STATE_FORMATS_READ.contains(&head.state_format.as_str()) {
            let detail = format!(
                "lighter {} made the backup with a state of format {:?}, this version reads {}",
                head.version,
                head.state_format,
                STATE_FORMATS_READ.join(" and ")
            );
            return Err(Stop::new(Code::BackupNewer, detail));
        }
        match (&head.seal, &self.passphrase_file) {
            (Some(seal), Some(file)) => Ok(Some(Passphrase::new(passphrase::read(file)?.as_bytes(), seal)?)),
            (Some(_), None) if !self.without_secrets => {
                Err(Stop::new(Code::BackupSealed, "the backup holds secrets and keys, sealed with a passphrase"))
            }
            (None, Some(_)) => Err(Stop::new(Code::Usage, "the backup was made without a passphrase")),
            _ => Ok(None),
        }
    }
}

/// Whether the backup is whole, and the passphrase opens what is sealed in it.
fn check<R: Read>(reader: &mut Reader<R>, mut opens: Option<Passphrase>, mut say: impl FnMut(u64)) -> Result {
    while let Some(piece) = reader.next()? {
        if let (Piece::Sealed(sealed), Some(opens)) = (piece, &mut opens) {
            Secret::from_bytes(&opens.open(sealed)?)?;
        }
        say(reader.bytes());
    }
    Ok(())
}

/// Reads all of the backup into the folder, and puts it in its place once it is known to be whole. Says how many
/// entries it had.
fn restore<R: Read>(
    reader: &mut Reader<R>,
    mut opens: Option<Passphrase>,
    data: &Path,
    mut say: impl FnMut(u64),
) -> Result<u64> {
    make_folder(data)?;
    let mut state = Restoring::begin(data)?;
    let warehouse = Warehouse::open(&data.join("warehouse"), unbounded())?;
    let (mut image, mut files, mut file_bytes) = (None::<ImageWriter>, Vec::new(), 0);
    while let Some(piece) = reader.next()? {
        if !matches!(piece, Piece::ImageBytes(_))
            && let Some(image) = image.take()
        {
            image.finish()?;
        }
        match &piece {
            Piece::Entries { part, .. } => {
                let unknown = || broken(format!("entries of part {part}, which is not known"));
                let part = Space::of_number(*part).ok_or_else(unknown)?;
                for entry in piece.entries() {
                    let (key, value) = entry?;
                    state.put(part, key, value)?;
                }
            }
            Piece::Image { hash, bytes } => {
                image = Some(warehouse.receive_image(Some(ImageHash(*hash)), Some(*bytes))?);
            }
            Piece::ImageBytes(bytes) => {
                image.as_mut().ok_or_else(|| broken("bytes of no image".to_owned()))?.write(bytes)?;
            }
            Piece::Sealed(sealed) => match opens.as_mut().map(|opens| opens.open(sealed.clone())).transpose()? {
                None => {}
                Some(plain) => match Secret::from_bytes(&plain)? {
                    Secret::Records(all) => {
                        all.iter().try_for_each(|(key, value)| state.put(Space::Node, key, value))?;
                    }
                    Secret::File { name, bytes } => {
                        file_bytes += bytes.len() as u64;
                        files.push((name, bytes));
                    }
                },
            },
        }
        if file_bytes > KEY_BYTES_MAX {
            return Err(broken(format!("its keys have more than {KEY_BYTES_MAX} bytes")).into());
        }
        say(reader.bytes());
    }
    if let Some(image) = image.take() {
        image.finish()?;
    }
    for (name, bytes) in files {
        write_key(data, &name, &bytes)?;
    }
    let entries = state.entries();
    state.finish()?;
    Ok(entries)
}

/// What was on a node is taken whatever its size; the node that starts with it keeps its own bounds.
fn unbounded() -> Config {
    Config { image_bytes_max: u64::MAX, images_bytes_max: u64::MAX, ..Config::default() }
}

fn write_key(data: &Path, name: &str, bytes: &[u8]) -> Result {
    let path = data.join(name);
    let (Some(folder), Some(file)) = (path.parent(), path.file_name().and_then(|file| file.to_str())) else {
        return Err(broken(format!("a file in it is called {name:?}")).into());
    };
    let written = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    written.and_then(|()| whole_file::write_new(folder, file, bytes)).map_err(|error| Stop::file(&path, &error))
}

fn broken(what: String) -> Problem {
    Problem::new(Code::BackupBroken, format!("the backup is cut short or damaged: {what}"))
}
