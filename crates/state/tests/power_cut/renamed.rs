//! Power cuts while a folder of format 1 is carried over, and while buckets get other names.

use crate::common;
use crate::disk::{Cut, Disk};
use crate::format_one::{self, Entry};
use crate::model::BUCKETS;
use crate::{Fault, Hands, Image, check_counts, look, options};
use state::{Clock, Options, RealDisk, State};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ENTRIES: u64 = 6_000;
/// The images that lose their power again while the rest is carried over: when little is done, and when most is.
const AGAIN: [usize; 2] = [4, 11];

/// A power cut at each sync of a first start on a folder of format 1, and before each of its batches; and in two
/// of the images again, at each sync and batch of the second start.
#[test]
fn nothing_is_lost_when_the_power_fails_while_a_folder_is_carried_over() {
    let home = common::folder();
    let folder = home.path().join("life");
    std::fs::create_dir(&folder).unwrap();
    let clock = Arc::new(Hands(AtomicU64::new(1_700_000_000_000)));
    let entry = |number: u64| {
        let (bucket, key) = (BUCKETS[number as usize % 3].to_owned(), format!("{number:05}"));
        let expires_ms = number.is_multiple_of(4).then(|| clock.wall_ms() + 10);
        Entry { bucket, key: key.clone(), value: key.repeat(10).into_bytes(), expires_ms }
    };
    let entries: Vec<Entry> = (0..ENTRIES).map(entry).collect();
    format_one::write(&folder, entries.iter().cloned(), clock.wall_ms());
    let images = carry_over(&folder, &clock);
    assert!(images.len() > 12, "{}", images.len());
    check(&folder, &entries, &clock);
    let mut images_again = 0;
    for (number, image) in images.iter().enumerate() {
        if AGAIN.contains(&number) {
            let again = carry_over(image, &clock);
            images_again += again.len();
            again.iter().for_each(|image| check(image, &entries, &clock));
        }
        check(image, &entries, &clock);
    }
    assert!(images_again > AGAIN.len(), "{images_again}");
}

/// Opens the folder, whose format is carried over; what power cuts leave of it meanwhile.
fn carry_over(folder: &Path, clock: &Arc<Hands>) -> Vec<PathBuf> {
    let images = Arc::new(Mutex::new(Vec::new()));
    let cut = {
        let (images, folder) = (images.clone(), folder.to_owned());
        move || {
            let mut images = images.lock().unwrap();
            let (image, seed) = (PathBuf::from(format!("{}.{}", folder.display(), images.len())), images.len() as u64);
            images.push(image.clone());
            Cut { image, seed }
        }
    };
    let on_sync = cut.clone();
    let watched = Disk::watch(folder, move |_| Some(on_sync()));
    let batches = CuttingDisk { watched: watched.clone(), cut: Box::new(cut) };
    drop(State::open(folder, Options { disk: Arc::new(batches), ..small(clock) }).unwrap());
    watched.forget();
    std::mem::take(&mut *images.lock().unwrap())
}

/// So little memory that tables are written meanwhile.
fn small(clock: &Arc<Hands>) -> Options {
    Options { memtable_bytes: 96 << 10, ..options(Fault::None, clock) }
}

/// All is there, and what expires does. Removes the folder.
fn check(folder: &Path, entries: &[Entry], clock: &Arc<Hands>) {
    let state = State::open(folder, small(clock)).unwrap_or_else(|problem| panic!("{problem}"));
    let seen = look(&state);
    let right = entries.iter().map(|entry| ((entry.bucket.clone(), entry.key.clone()), (entry.value.clone(), None)));
    assert!(seen.values == right.collect(), "{}: {} entries", folder.display(), seen.values.len());
    check_counts(&state, &seen);
    clock.0.fetch_add(10, Ordering::SeqCst);
    while state.sweep().unwrap().next == Some(Duration::ZERO) {}
    let left = BUCKETS.map(|bucket| state.bucket_counts(bucket).keys).iter().sum::<u64>();
    assert_eq!(left, ENTRIES - ENTRIES / 4, "{}", folder.display());
    clock.0.fetch_sub(10, Ordering::SeqCst);
    drop(state);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The power fails whenever it is asked for space.
struct CuttingDisk {
    watched: Arc<Disk>,
    cut: Box<dyn Fn() -> Cut + Send + Sync>,
}

impl state::Disk for CuttingDisk {
    fn sync(&self, journal: &File) -> io::Result<()> {
        state::Disk::sync(&RealDisk, journal)
    }

    fn bytes_free(&self, _: &Path) -> io::Result<u64> {
        self.watched.cut(&(self.cut)());
        Ok(u64::MAX)
    }
}

/// The bucket comes in under one name and gets another: after a power cut it has one of them, with all or nothing else.
#[test]
fn a_rename_is_there_or_not_after_a_power_cut() {
    let home = common::folder();
    let folder = home.path().join("life");
    std::fs::create_dir(&folder).unwrap();
    let clock = Arc::new(Hands(AtomicU64::new(1_700_000_000_000)));
    let images = Arc::new(Mutex::new(Vec::new()));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let on_sync = {
        let (images, folder, acknowledged) = (images.clone(), folder.clone(), acknowledged.clone());
        move |number: u64| {
            let mut images = images.lock().unwrap();
            let image = PathBuf::from(format!("{}.{}", folder.display(), images.len()));
            images.push(Image { folder: image.clone(), acknowledged: acknowledged.load(Ordering::SeqCst) });
            Some(Cut { image, seed: number })
        }
    };
    let disk = Disk::watch(&folder, on_sync);
    let state = State::open(&folder, options(Fault::None, &clock)).unwrap();
    // Round n leaves n entries in one of the names; what was done before is what is counted.
    let name = |round: u64| [".in", "a"][round as usize % 2];
    for round in 0..12 {
        let mut transaction = state.begin();
        transaction.set(name(round), &round.to_string(), vec![b'v'; 3_000]).unwrap();
        let _comes_with_the_rename = transaction.commit().unwrap();
        common::durable(&state, state.rename_bucket(name(round), name(round + 1)).unwrap()).unwrap();
        acknowledged.store(round + 1, Ordering::SeqCst);
    }
    drop(state);
    disk.forget();
    for image in images.lock().unwrap().iter() {
        let state = State::open(&image.folder, options(Fault::None, &clock)).unwrap();
        let listed = [".in", "a"].map(|name| state.begin().list(name, "", None, 100).unwrap().entries.len() as u64);
        let count = listed[0] + listed[1];
        assert!(listed.contains(&0) && count >= image.acknowledged, "{listed:?}, {}", image.acknowledged);
        assert_eq!([".in", "a"].map(|name| state.bucket_counts(name).keys), listed);
        if count == image.acknowledged && count > 0 {
            assert_eq!(state.bucket_counts(name(count)).keys, count, "it was acknowledged under this name");
        }
    }
}
