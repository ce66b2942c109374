//! What goes when there is too much, and what never does.

use problem::{Code, Problem};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use warehouse::{Config, ImageHash, RealDisk, Shelf, Warehouse};

/// Room for three things of 100 bytes.
const CONFIG: Config = Config { image_bytes_max: 300, images_bytes_max: 300, artefacts_bytes_max: 300 };

#[test]
fn the_least_recently_used_image_goes_first() {
    let node = Node::start();
    let [a, b, c] = [b'a', b'b', b'c'].map(|name| node.put_image(name).unwrap());
    node.warehouse.read_image(&a).unwrap();
    let d = node.put_image(b'd').unwrap();
    assert_eq!(node.stored(), set([a, c, d]));
    assert_eq!(node.warehouse.read_image(&b).unwrap_err().code, Code::ImageUnknown);
    assert_eq!(node.warehouse.usage().images_bytes, 300);
}

#[test]
fn the_order_of_use_survives_a_restart() {
    let node = Node::start();
    let [a, _b, c] = [b'a', b'b', b'c'].map(|name| node.put_image(name).unwrap());
    node.warehouse.read_image(&a).unwrap();
    let node = node.restart(CONFIG);
    let d = node.put_image(b'd').unwrap();
    assert_eq!(node.stored(), set([a, c, d]));
}

#[test]
fn an_image_in_use_stays_and_when_all_are_a_new_one_is_refused() {
    let node = Node::start();
    let [a, b, c] = [b'a', b'b', b'c'].map(|name| node.put_image(name).unwrap());
    node.warehouse.set_in_use(set([a, b])).unwrap();
    let d = node.put_image(b'd').unwrap();
    assert_eq!(node.stored(), set([a, b, d]), "{c} was the only one free to go");
    node.warehouse.set_in_use(set([a, b, d])).unwrap();
    let problem = node.put_image(b'e').unwrap_err();
    assert_eq!(problem.code, Code::DiskFull);
    assert!(problem.detail.contains("300 bytes"), "{problem}");
    assert_eq!(node.stored(), set([a, b, d]));
    node.warehouse.set_in_use(set([])).unwrap();
    node.put_image(b'e').unwrap();
}

#[test]
fn two_uploads_at_once_cannot_go_over_the_bound() {
    let node = Node::start();
    let mut first = node.warehouse.receive_image(None, None).unwrap();
    let mut second = node.warehouse.receive_image(None, None).unwrap();
    first.write(&[1; 200]).unwrap();
    assert_eq!(second.write(&[2; 101]).unwrap_err().code, Code::DiskFull);
    drop(first);
    second.write(&[2; 101]).unwrap();
    second.finish().unwrap();
    assert_eq!(node.warehouse.usage().images_bytes, 101);
}

#[test]
fn artefacts_of_other_fingerprints_go_before_any_of_the_current_one() {
    let node = Node::start();
    let old = node.shelf("f1");
    let [a, b] = [b'a', b'b'].map(|name| node.put_artefact(&old, name).unwrap());
    let node = node.restart(CONFIG);
    let current = node.shelf("f2");
    node.put_artefact(&current, b'a').unwrap();
    // Used last, and its image is in use: but no engine can load it any more.
    node.warehouse.set_in_use(set([a, b])).unwrap();
    node.put_artefact(&current, b'b').unwrap();
    node.put_artefact(&current, b'c').unwrap();
    assert_eq!(node.warehouse.usage().artefacts, 3);
    assert!(current.has(&a) && current.has(&b));
    let old = node.shelf("f1");
    assert!(!old.has(&a) && !old.has(&b));
}

#[test]
fn the_least_recently_opened_artefact_goes_first_and_never_one_in_use() {
    let node = Node::start();
    let shelf = node.shelf("f1");
    let [a, b, c] = [b'a', b'b', b'c'].map(|name| node.put_artefact(&shelf, name).unwrap());
    node.open(&shelf, &a);
    node.warehouse.set_in_use(set([b])).unwrap();
    node.put_artefact(&shelf, b'd').unwrap();
    assert_eq!([a, b, c].map(|image| shelf.has(&image)), [true, true, false]);
    node.warehouse.set_in_use(set([a, b, ImageHash::of(&image(b'd'))])).unwrap();
    assert_eq!(node.put_artefact(&shelf, b'e').unwrap_err().code, Code::DiskFull);
}

#[test]
fn artefacts_opened_long_after_they_were_made_are_remembered_over_a_restart() {
    let node = Node::start();
    let shelf = node.shelf("f1");
    let [a, b, _] = [b'a', b'b', b'c'].map(|name| node.put_artefact(&shelf, name).unwrap());
    node.clock.fetch_add(7_200, Ordering::Relaxed);
    node.open(&shelf, &a);
    let node = node.restart(CONFIG);
    let shelf = node.shelf("f1");
    node.put_artefact(&shelf, b'd').unwrap();
    assert_eq!([a, b].map(|image| shelf.has(&image)), [true, false]);
}

#[test]
fn bounds_that_were_lowered_hold_once_it_is_known_what_is_in_use() {
    let node = Node::start();
    let shelf = node.shelf("f1");
    let [a, b, c] = [b'a', b'b', b'c'].map(|name| node.put_image(name).unwrap());
    for name in [b'a', b'b', b'c'] {
        node.put_artefact(&shelf, name).unwrap();
    }
    let node = node.restart(Config { images_bytes_max: 250, artefacts_bytes_max: 50, ..CONFIG });
    let shelf = node.shelf("f1");
    assert_eq!(node.stored(), set([a, b, c]));
    node.warehouse.set_in_use(set([a])).unwrap();
    assert_eq!(node.stored(), set([a, c]));
    // What is in use stays even over the bound; all else goes.
    assert_eq!([a, b, c].map(|image| shelf.has(&image)), [true, false, false]);
}

struct Node {
    folder: TempDir,
    warehouse: Warehouse,
    /// Seconds since 2040: after the times the real disk notes. Each reading is a second later.
    clock: Arc<AtomicU64>,
}

impl Node {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), CONFIG, Arc::new(AtomicU64::new(0)))
    }

    fn restart(self, config: Config) -> Self {
        let Self { folder, warehouse, clock } = self;
        drop(warehouse);
        Self::start_in(folder, config, clock)
    }

    fn start_in(folder: TempDir, config: Config, clock: Arc<AtomicU64>) -> Self {
        let ticking = clock.clone();
        let now = move || {
            let seconds = 2_208_988_800 + ticking.fetch_add(1, Ordering::Relaxed);
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
        };
        let root: &Path = &folder.path().join("data");
        let warehouse = Warehouse::open_with(root, config, RealDisk, now).unwrap();
        Self { folder, warehouse, clock }
    }

    fn put_image(&self, name: u8) -> Result<ImageHash, Problem> {
        let mut writer = self.warehouse.receive_image(None, None)?;
        writer.write(&image(name))?;
        writer.finish()
    }

    fn shelf(&self, fingerprint: &str) -> Shelf {
        self.warehouse.shelf("wasm", fingerprint).unwrap()
    }

    fn put_artefact(&self, shelf: &Shelf, name: u8) -> Result<ImageHash, Problem> {
        let hash = ImageHash::of(&image(name));
        shelf.put(&hash, &image(name)).map(|()| hash)
    }

    fn open(&self, shelf: &Shelf, image: &ImageHash) {
        assert!(shelf.open(image).unwrap().is_some());
    }

    fn stored(&self) -> HashSet<ImageHash> {
        self.warehouse.images().into_iter().map(|image| image.hash).collect()
    }
}

fn image(name: u8) -> [u8; 100] {
    [name; 100]
}

fn set<const N: usize>(hashes: [ImageHash; N]) -> HashSet<ImageHash> {
    hashes.into()
}
