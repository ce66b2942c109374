//! A backup of a running node: the state of one instant, the images its functions need, and, with a passphrase, secrets
//! and keys. `docs/operating.md` says what is in one; the crate `backup` writes its bytes.
//!
//! ```text
//!  no deployment commits ─┬─▶ snapshot of the state ─▶ entries, without secrets ─┐
//!                         └─▶ images of its versions ─▶ read and checked ────────┼─▶ pieces, as the caller takes them
//!          secrets, results' key, fleet/, boards/ ─▶ sealed, or left out by name ┘
//! ```

use crate::access::SECRETS_TABLE;
use crate::deployments::DEPLOYED;
use crate::functions::Functions;
use crate::{Node, blocking, clock, results};
use backup::{BackupWriter, Head, KEY_BYTES_MAX, KEY_FOLDERS, Passphrase, SEAL_ROUNDS, Seal, Secret, is_key_file};
use problem::{Code, Problem};
use state::{STATE_FORMAT, Space, StoredEntry};
use std::collections::{HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use warehouse::{ImageHash, Warehouse};

/// Tables of the node's records that are for its owner alone.
const SECRET_TABLES: [&str; 2] = [SECRETS_TABLE, results::SECRETS];
/// Files with keys that a backup has; with more it is refused.
const KEY_FILES_MAX: usize = 10_000;
/// Bytes of one of them; with a larger one the backup is refused.
const KEY_FILE_BYTES_MAX: u64 = 32 << 20;
/// How the table [`results::SECRETS`] is called where it is left out.
const RESULTS_KEY: &str = "the key that ids of results are made with";
/// Bytes of a piece of an image.
const PIECE_BYTES: usize = 256 << 10;

/// A backup on its way out.
pub struct BackupPieces {
    writer: Option<BackupWriter>,
    head: Option<Head>,
    state: Option<state::Backup>,
    images: VecDeque<ImageHash>,
    /// The image on its way, and how much of it has gone.
    image: Option<(Vec<u8>, usize)>,
    warehouse: Warehouse,
    passphrase: Option<Passphrase>,
    /// What is sealed next.
    secret: Option<Secret>,
    files: VecDeque<PathBuf>,
    /// Bytes of the files that have gone.
    key_bytes: u64,
    data: PathBuf,
}

/// What has to be of one instant.
struct Moment {
    state: state::Backup,
    images: Vec<ImageHash>,
    /// Images of versions that are not stored any more, in words a user knows.
    lost: Vec<String>,
    /// The file that says what each deployment of the fleet has here, if it was asked for and is there.
    deployed: Option<Vec<u8>>,
}

impl Node {
    /// Begins a backup of this instant. With a passphrase it holds secrets and keys too, sealed with it.
    ///
    /// # Errors
    /// Those of the disk. [`Code::ImageTooLarge`]: an image was taken under a larger limit than this node has now.
    /// [`Code::DataUnusable`]: there are more files with keys than anybody would restore.
    pub async fn backup(&self, passphrase: Option<String>) -> Result<BackupPieces, Problem> {
        let time_ms = clock::now_ms();
        let fleet_in = passphrase.as_ref().map(|_| self.config.data.clone());
        let Moment { state, images, lost, deployed } = self.functions.instant(fleet_in).await?;
        let (warehouse, secrets) = (self.functions.loader.warehouse.clone(), self.functions.loader.secrets.clone());
        let (data, statistics_of) = (self.config.data.clone(), self.functions.loader.state.clone());
        blocking(move || {
            let mut files = key_files(&data)?;
            let (mut left_out, mut seal, mut key) = (lost, None, None);
            match passphrase {
                Some(passphrase) => {
                    check_keys(&data, &files)?;
                    files.retain(|name| *name != deployed_name());
                    let made = Seal { salt: salt()?, rounds: SEAL_ROUNDS };
                    key = Some(Passphrase::new(passphrase.as_bytes(), &made)?);
                    seal = Some(made);
                }
                None => {
                    left_out.extend(secrets.names()?.into_iter().map(|name| format!("the secret {name}")));
                    left_out.push(RESULTS_KEY.to_owned());
                    let has = |folder: &str| files.iter().any(|file| file.starts_with(folder));
                    left_out
                        .extend(KEY_FOLDERS.iter().filter(|(folder, _)| has(folder)).map(|(_, word)| (*word).into()));
                }
            }
            let stored = warehouse.images();
            let stored = stored.iter().filter(|image| images.binary_search(&image.hash).is_ok());
            let images_bytes = stored.map(|image| warehouse.check_image_bytes(image.bytes).map(|()| image.bytes));
            let images_bytes = images_bytes.sum::<Result<u64, _>>()?;
            let head = Head {
                time_ms,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                state_format: STATE_FORMAT.to_owned(),
                state_bytes: statistics_of.statistics().disk_bytes,
                images: images.len() as u64,
                images_bytes,
                seal,
                left_out,
            };
            Ok(BackupPieces {
                writer: Some(BackupWriter::default()),
                head: Some(head),
                state: Some(state),
                images: images.into(),
                image: None,
                warehouse,
                passphrase: key,
                key_bytes: deployed.as_ref().map_or(0, |bytes| bytes.len() as u64),
                secret: deployed.map(|bytes| key_file(&deployed_name(), bytes)),
                files: files.into(),
                data,
            })
        })
        .await
    }
}

impl Functions {
    /// The state as it is now, and the images of all versions that are in it: no deployment commits in between.
    /// `fleet_in`, a data folder: and what it has of the fleet's deployments, with the images that an anchor keeps.
    async fn instant(&self, fleet_in: Option<PathBuf>) -> Result<Moment, Problem> {
        let _still = self.hold_still().await;
        let state = self.loader.state.backup().await?;
        let with_fleet = fleet_in.is_some();
        let deployed = match fleet_in {
            Some(data) => blocking(move || read_key(&data, &deployed_name())).await?,
            None => None,
        };
        let (table, warehouse) = (self.table(), &self.loader.warehouse);
        let (mut images, mut lost) = (HashSet::new(), Vec::new());
        for entry in table.entries() {
            for version in &entry.history.versions {
                let Ok(image) = version.function.image.parse::<ImageHash>() else { continue };
                match warehouse.has_image(&image) {
                    true => _ = images.insert(image),
                    false => lost.push(format!("the image of version {} of {}", version.version, entry.live.name())),
                }
            }
        }
        if with_fleet {
            images.extend(self.held.lock().iter().filter(|image| warehouse.has_image(image)));
        }
        let mut images: Vec<ImageHash> = images.into_iter().collect();
        images.sort_unstable();
        Ok(Moment { state, images, lost, deployed })
    }
}

impl BackupPieces {
    /// The next bytes; none after the last. Reads the disk.
    ///
    /// # Errors
    /// What is stored cannot be read, or an image of a version was removed meanwhile: what came is no backup.
    pub fn next(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        let Some(writer) = &mut self.writer else { return Ok(None) };
        if let Some(head) = self.head.take() {
            return Ok(Some(writer.begin(&head)));
        }
        while let (None, Some(state)) = (&self.secret, &mut self.state) {
            let Some((part, mut entries)) = state.next_entries()? else {
                self.state = None;
                break;
            };
            if part == Space::Node {
                let secrets: Vec<StoredEntry> = entries.extract_if(.., |(key, _)| is_secret(key)).collect();
                let is_wanted = self.passphrase.is_some() && !secrets.is_empty();
                self.secret = is_wanted.then_some(Secret::Records(secrets));
            }
            if !entries.is_empty() {
                return Ok(Some(writer.entries(part.number(), &entries)));
            }
        }
        if self.secret.is_none()
            && let Some(bytes) = self.next_of_image()?
        {
            return Ok(Some(bytes));
        }
        self.sealed_or_end()
    }

    fn next_of_image(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        let writer = self.writer.as_mut().expect("it has not ended");
        if let Some((image, gone)) = &mut self.image
            && *gone < image.len()
        {
            let end = image.len().min(*gone + PIECE_BYTES);
            let piece = writer.image_bytes(&image[*gone..end]);
            *gone = end;
            return Ok(Some(piece));
        }
        self.image = None;
        let Some(hash) = self.images.pop_front() else { return Ok(None) };
        let image = self.warehouse.read_image(&hash).map_err(|problem| match problem.code {
            Code::ImageUnknown => {
                let detail = format!("the image {hash} was removed while the backup was made");
                Problem::new(Code::Conflict, detail).with_hint("make the backup again")
            }
            // It was removed.
            Code::ArtefactCorrupt => problem.with_hint("make the backup again: it is left out then"),
            _ => problem,
        })?;
        let begin = writer.image(&hash.0, image.len() as u64);
        self.image = Some((image, 0));
        Ok(Some(begin))
    }

    fn sealed_or_end(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        let secret = match self.secret.take() {
            None if self.passphrase.is_some() => self.next_file()?,
            secret => secret,
        };
        let Some((secret, passphrase)) = secret.zip(self.passphrase.as_mut()) else {
            return Ok(self.writer.take().map(BackupWriter::end));
        };
        let sealed = passphrase.seal(&secret.to_bytes());
        Ok(self.writer.as_mut().map(|writer| writer.sealed(&sealed)))
    }

    fn next_file(&mut self) -> Result<Option<Secret>, Problem> {
        while let Some(name) = self.files.pop_front() {
            // Where there is none, the node has written another in its place, under another name.
            let Some(bytes) = read_key(&self.data, &name)? else { continue };
            self.key_bytes += bytes.len() as u64;
            check_key_bytes(self.key_bytes)?;
            return Ok(Some(key_file(&name, bytes)));
        }
        Ok(None)
    }
}

fn is_secret(key: &[u8]) -> bool {
    state::table_of(key).is_some_and(|table| SECRET_TABLES.contains(&table))
}

fn salt() -> Result<[u8; 16], Problem> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| Problem::new(Code::Internal, format!("no random numbers: {error}")))?;
    Ok(salt)
}

/// The files with keys, from the data folder on.
fn key_files(data: &Path) -> Result<Vec<PathBuf>, Problem> {
    let mut files = Vec::new();
    for (folder, _) in KEY_FOLDERS {
        let entries = match fs::read_dir(data.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unreadable(Path::new(folder), &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(Path::new(folder), &error))?;
            let name = Path::new(folder).join(entry.file_name());
            // What begins with a dot is on its way to its name.
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && name.to_str().is_some_and(|name| is_key_file(name) && is_kept(name)) {
                files.push(name);
            }
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Whether a file is more than what a program that runs leaves there: the engine of a fleet, or a board in QEMU.
fn is_kept(name: &str) -> bool {
    match name.rsplit_once('/') {
        Some(("boards", file)) => file == "node.key" || file.ends_with(".toml"),
        Some(("fleet", file)) => !file.starts_with("nats.") && !file.ends_with(".ports"),
        _ => true,
    }
}

/// Refuses what nobody would restore, before anything is sent.
fn check_keys(data: &Path, files: &[PathBuf]) -> Result<(), Problem> {
    if files.len() > KEY_FILES_MAX {
        return Err(too_many(format!("{} files with keys, a backup has at most {KEY_FILES_MAX}", files.len())));
    }
    let found = files.iter().filter_map(|name| fs::metadata(data.join(name)).ok());
    check_key_bytes(found.map(|file| file.len()).sum())
}

fn check_key_bytes(bytes: u64) -> Result<(), Problem> {
    match bytes <= KEY_BYTES_MAX {
        true => Ok(()),
        false => Err(too_many(format!("{bytes} bytes of files with keys, a backup has at most {KEY_BYTES_MAX}"))),
    }
}

fn too_many(detail: String) -> Problem {
    let hint = "look for files in `fleet` and `boards` of the data folder that do not belong there";
    Problem::new(Code::DataUnusable, detail).with_hint(hint)
}

/// From the data folder on, as all names of files here.
fn deployed_name() -> PathBuf {
    Path::new("fleet").join(DEPLOYED)
}

fn key_file(name: &Path, bytes: Vec<u8>) -> Secret {
    Secret::File { name: name.to_string_lossy().into_owned(), bytes }
}

/// None where there is no such file.
fn read_key(data: &Path, name: &Path) -> Result<Option<Vec<u8>>, Problem> {
    match read_file(&data.join(name)) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(name, &error)),
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(KEY_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= KEY_FILE_BYTES_MAX {
        true => Ok(bytes),
        false => Err(io::Error::other(format!("more than {KEY_FILE_BYTES_MAX} bytes"))),
    }
}

fn unreadable(name: &Path, error: &io::Error) -> Problem {
    Problem::new(Code::DataUnusable, format!("{} in the data folder: {error}", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        for file in files {
            let path = data.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "a key").unwrap();
        }
        data
    }

    /// A console that had grown for months was sealed as a key, and no restore took the backup.
    #[test]
    fn keys_are_backed_up_and_not_what_programs_leave_beside_them() {
        let keys = [
            "boards/kitchen.toml",
            "boards/node.key",
            "fleet/deployments/door.7",
            "fleet/deployments/nats.3",
            "fleet/member.json",
            "fleet/node.key",
        ];
        let others = [
            "boards/kitchen.console",
            "boards/kitchen.image",
            "boards/kitchen.line",
            "fleet/.new-1-2",
            "fleet/js/meta",
            "fleet/nats-server_7.ports",
            "fleet/nats.conf",
            "fleet/nats.log",
            "fleet/nats.log.2026.01.31",
        ];
        let data = folder(&[&keys[..], &others].concat());
        assert_eq!(key_files(data.path()).unwrap(), keys.map(PathBuf::from));
    }

    #[test]
    fn keys_that_no_restore_takes_are_refused_before_anything_is_sent() {
        let data = folder(&["fleet/a", "fleet/b", "fleet/c"]);
        let files = key_files(data.path()).unwrap();
        let third = KEY_BYTES_MAX / 3;
        for (file, bytes) in files.iter().zip([third, third, KEY_BYTES_MAX - 2 * third]) {
            let open = File::options().write(true).open(data.path().join(file)).unwrap();
            open.set_len(bytes).unwrap();
        }
        check_keys(data.path(), &files).unwrap();
        fs::write(data.path().join("fleet/d"), "x").unwrap();
        let files = key_files(data.path()).unwrap();
        assert_eq!(check_keys(data.path(), &files).unwrap_err().code, Code::DataUnusable);
        assert!(check_keys(data.path(), &vec![PathBuf::from("fleet/a"); KEY_FILES_MAX + 1]).is_err());
    }
}
