//! Files that are there whole or not at all, whenever the power fails: written beside their place, made durable,
//! renamed, and the name made durable.
//!
//! This holds where renaming a file over another is one step, as on the file systems of Linux. FAT, which cards for a
//! Pi have, keeps no journal: a cut in the middle of a rename may leave the file under both names or under neither, but
//! never half a file.
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Several may write into one folder at once: each has a file of its own beside the place.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Writes a file whole or not at all, for its owner alone.
///
/// # Errors
/// Those of the system. What was there before is there still.
pub fn write_new(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = format!(".new-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let put = put(&mut Folder(folder), &beside, name, bytes);
    if put.is_err() {
        // It may be gone already, or the disk may be: what counts is the error before.
        let _ = fs::remove_file(folder.join(beside));
    }
    put
}

/// What is done to a folder, one step after the other.
trait Steps {
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// What was written is durable.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// The names are.
    fn sync_names(&mut self) -> io::Result<()>;
}

fn put(steps: &mut impl Steps, beside: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    steps.write(beside, bytes)?;
    steps.sync(beside)?;
    steps.rename(beside, name)?;
    steps.sync_names()
}

struct Folder<'a>(&'a Path);

impl Steps for Folder<'_> {
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut open = OpenOptions::new();
        let mut file = open.write(true).create(true).truncate(true).mode(0o600).open(self.0.join(name))?;
        file.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        File::open(self.0.join(name))?.sync_all()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(self.0)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A card, and a power that goes before some step. What was not made durable by then may be there, in part, or not.
    #[derive(Default)]
    struct Card {
        /// By number: what a file has, and how much of that is durable.
        files: Vec<(Vec<u8>, bool)>,
        durable_names: BTreeMap<String, usize>,
        names: BTreeMap<String, usize>,
        steps_left: usize,
    }

    impl Card {
        fn step(&mut self) -> io::Result<()> {
            self.steps_left = self.steps_left.checked_sub(1).ok_or_else(|| io::Error::other("the power is gone"))?;
            Ok(())
        }

        /// All that may be found at a name when the power is back.
        fn found(&self, name: &str) -> Vec<Option<Vec<u8>>> {
            let mut all = Vec::new();
            for file in [self.durable_names.get(name), self.names.get(name)] {
                let Some((bytes, is_durable)) = file.map(|file| &self.files[*file]) else {
                    all.push(None);
                    continue;
                };
                all.push(Some(bytes.clone()));
                if !is_durable {
                    all.extend([0, bytes.len() / 2].map(|length| Some(bytes[..length].to_vec())));
                    all.push(Some(vec![0; bytes.len()]));
                }
            }
            all
        }
    }

    impl Steps for Card {
        fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
            // Cut off while it writes: a part is there.
            let is_cut = self.steps_left == 0;
            let written = if is_cut { &bytes[..bytes.len() / 3] } else { bytes };
            self.files.push((written.to_vec(), false));
            self.names.insert(name.to_owned(), self.files.len() - 1);
            self.step()
        }

        fn sync(&mut self, name: &str) -> io::Result<()> {
            self.step()?;
            self.files[self.names[name]].1 = true;
            Ok(())
        }

        fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
            self.step()?;
            let file = self.names.remove(from).expect("it was written");
            self.names.insert(to.to_owned(), file);
            Ok(())
        }

        fn sync_names(&mut self) -> io::Result<()> {
            self.step()?;
            self.durable_names.clone_from(&self.names);
            Ok(())
        }
    }

    #[test]
    fn whenever_the_power_goes_a_card_has_the_old_image_or_the_new_one() {
        let (old, new) = (vec![1; 9_000], vec![2; 12_000]);
        let mut ends = Vec::new();
        for steps in 0..=4 {
            let mut card = Card { steps_left: 4, ..Card::default() };
            put(&mut card, ".new", "kernel8.img", &old).unwrap();
            card.steps_left = steps;
            let written = put(&mut card, ".new", "kernel8.img", &new);
            assert_eq!(written.is_ok(), steps == 4);
            for found in card.found("kernel8.img") {
                let found = found.expect("there is always one");
                assert!(found == old || found == new, "after {steps} steps");
                ends.push(found == new);
                // Written again, whatever was left: the new one is there for good.
                assert!(written.is_err() || found == new);
            }
            card.steps_left = 4;
            put(&mut card, ".new", "kernel8.img", &new).unwrap();
            assert!(card.found("kernel8.img").into_iter().all(|found| found.as_deref() == Some(&new[..])));
        }
        assert!(ends.contains(&true) && ends.contains(&false));
    }

    #[test]
    fn those_who_write_into_one_folder_at_once_do_not_meet() {
        let folder = std::env::temp_dir().join(format!("whole-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        std::thread::scope(|scope| {
            for name in ["ledger", "deployed", "nodes"] {
                let folder = &folder;
                scope.spawn(move || {
                    for length in 1..200 {
                        let bytes = name.repeat(length * 20);
                        write_new(folder, name, bytes.as_bytes()).unwrap();
                        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), bytes);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_the_steps_between_it_would_not_be_so() {
        // The oracle of the test above: each step that is left out is missed.
        let (old, new) = (vec![1; 9_000], vec![2; 12_000]);
        let mut card = Card { steps_left: 100, ..Card::default() };
        put(&mut card, ".new", "image", &old).unwrap();
        card.write(".new", &new).unwrap();
        card.rename(".new", "image").unwrap();
        assert!(card.found("image").into_iter().flatten().any(|found| found != old && found != new));
    }
}
