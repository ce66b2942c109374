//! What is stored comes back as it was, or not at all.

use problem::{Code, Problem};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use warehouse::{Artefact, Config, ImageHash, Warehouse};

#[test]
fn an_image_sent_in_chunks_reads_back() {
    let (_folder, warehouse) = new();
    let mut writer = warehouse.receive_image(Some(ImageHash::of(b"one two three")), Some(13)).unwrap();
    for chunk in ["one ", "", "two ", "three"] {
        writer.write(chunk.as_bytes()).unwrap();
    }
    assert_eq!(writer.bytes(), 13);
    let hash = writer.finish().unwrap();
    assert_eq!(warehouse.read_image(&hash).unwrap(), b"one two three");
    assert!(warehouse.has_image(&hash));
    assert_eq!(warehouse.images()[0].bytes, 13);
}

#[test]
fn an_image_that_is_not_what_was_announced_leaves_nothing() {
    let (folder, warehouse) = new();
    let mut writer = warehouse.receive_image(Some(ImageHash::of(b"good")), None).unwrap();
    writer.write(b"evil").unwrap();
    assert_eq!(code(writer.finish()), Code::ImageHash);
    assert_eq!(files(&folder), Vec::<PathBuf>::new());
    assert_eq!(warehouse.usage().images_bytes, 0);
}

#[test]
fn an_image_over_the_limit_is_refused_when_announced_and_when_it_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { image_bytes_max: 10, ..Config::default() };
    let warehouse = Warehouse::open(&root(&folder), config).unwrap();
    assert_eq!(code(warehouse.receive_image(None, Some(11)).map(drop)), Code::ImageTooLarge);
    let mut writer = warehouse.receive_image(None, None).unwrap();
    writer.write(&[0; 10]).unwrap();
    assert_eq!(code(writer.write(&[0])), Code::ImageTooLarge);
    drop(writer);
    assert_eq!(files(&folder), Vec::<PathBuf>::new());
}

/// Once only its beginning was read, which has another hash, and the image was removed as corrupt.
#[test]
fn an_image_that_was_taken_under_a_larger_limit_is_refused_and_stays() {
    let (folder, warehouse) = new();
    let hash = put_image(&warehouse, b"an image");
    drop(warehouse);
    let config = Config { image_bytes_max: 7, ..Config::default() };
    let lowered = Warehouse::open(&root(&folder), config).unwrap();
    assert_eq!(code(lowered.read_image(&hash)), Code::ImageTooLarge);
    assert_eq!(reopen(&folder, lowered).read_image(&hash).unwrap(), b"an image");
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let (folder, warehouse) = new();
    let mut writer = warehouse.receive_image(None, None).unwrap();
    writer.write(b"half").unwrap();
    assert_eq!(files(&folder).len(), 1);
    drop(writer);
    assert_eq!(files(&folder), Vec::<PathBuf>::new());
}

#[test]
fn a_corrupt_image_is_named_and_never_served_and_a_new_upload_heals_it() {
    for damage in [flip, truncate, extend] {
        let (folder, warehouse) = new();
        let hash = put_image(&warehouse, b"an image");
        damage(&files(&folder)[0]);
        let problem = warehouse.read_image(&hash).unwrap_err();
        assert_eq!(problem.code, Code::ArtefactCorrupt);
        assert!(problem.detail.contains(&hash.to_string()), "{problem}");
        assert_eq!(code(warehouse.read_image(&hash)), Code::ImageUnknown);
        put_image(&warehouse, b"an image");
        assert_eq!(warehouse.read_image(&hash).unwrap(), b"an image");
    }
}

#[test]
fn an_upload_heals_a_corrupt_image_that_nobody_noticed() {
    let (folder, warehouse) = new();
    let hash = put_image(&warehouse, b"an image");
    flip(&files(&folder)[0]);
    put_image(&warehouse, b"an image");
    assert_eq!(warehouse.read_image(&hash).unwrap(), b"an image");
}

#[test]
fn an_artefact_is_hashed_once_a_process_and_again_when_its_file_changed() {
    let (folder, warehouse) = new();
    let image = ImageHash::of(b"image");
    let shelf = warehouse.shelf("wasm", "f1").unwrap();
    assert!(shelf.open(&image).unwrap().is_none());
    shelf.put(&image, b"compiled").unwrap();
    assert!(!shelf.open(&image).unwrap().unwrap().hashed_now, "we have just written it");

    let warehouse = reopen(&folder, warehouse);
    let shelf = warehouse.shelf("wasm", "f1").unwrap();
    let (first, second) = (shelf.open(&image).unwrap().unwrap(), shelf.open(&image).unwrap().unwrap());
    assert_eq!((first.hashed_now, second.hashed_now), (true, false));
    assert_eq!((content(first), content(second)), (b"compiled".to_vec(), b"compiled".to_vec()));

    // Touched, but the same: hashed again and served.
    overwrite(&files(&folder)[0], b"compiled");
    assert!(shelf.open(&image).unwrap().unwrap().hashed_now);
}

#[test]
fn a_corrupt_artefact_is_named_removed_and_can_be_made_again() {
    for damage in [flip, truncate, extend] {
        for restart in [false, true] {
            let (folder, mut warehouse) = new();
            let image = ImageHash::of(b"image");
            warehouse.shelf("wasm", "f1").unwrap().put(&image, b"compiled").unwrap();
            if restart {
                warehouse = reopen(&folder, warehouse);
            }
            let shelf = warehouse.shelf("wasm", "f1").unwrap();
            damage(&files(&folder)[0]);
            let problem = shelf.open(&image).unwrap_err();
            assert_eq!(problem.code, Code::ArtefactCorrupt);
            assert!(problem.detail.contains(&image.to_string()), "{problem}");
            assert!(shelf.open(&image).unwrap().is_none() && !shelf.has(&image));
            assert_eq!(files(&folder), Vec::<PathBuf>::new());
            assert_eq!(warehouse.usage().artefacts_bytes, 0);
            shelf.put(&image, b"compiled").unwrap();
            assert_eq!(content(shelf.open(&image).unwrap().unwrap()), b"compiled");
        }
    }
}

#[test]
fn another_fingerprint_is_another_shelf() {
    let (folder, warehouse) = new();
    let image = ImageHash::of(b"image");
    warehouse.shelf("wasm", "f1").unwrap().put(&image, b"for f1").unwrap();
    let warehouse = reopen(&folder, warehouse);
    let shelf = warehouse.shelf("wasm", "f2").unwrap();
    assert!(shelf.open(&image).unwrap().is_none());
    shelf.put(&image, b"for f2").unwrap();
    let old = warehouse.shelf("wasm", "f1").unwrap();
    assert_eq!(content(old.open(&image).unwrap().unwrap()), b"for f1");
}

#[test]
fn a_new_artefact_replaces_the_old_one_and_an_open_one_stays_good() {
    let (folder, warehouse) = new();
    let image = ImageHash::of(b"image");
    let shelf = warehouse.shelf("wasm", "f1").unwrap();
    shelf.put(&image, b"old").unwrap();
    let old = shelf.open(&image).unwrap().unwrap();
    shelf.put(&image, b"newer").unwrap();
    assert_eq!(files(&folder).len(), 1);
    assert_eq!(warehouse.usage().artefacts_bytes, 5);
    assert_eq!(content(shelf.open(&image).unwrap().unwrap()), b"newer");
    assert_eq!(content(old), b"old");
}

#[test]
fn many_may_put_the_same_image_and_artefact_at_once() {
    let (folder, warehouse) = new();
    let image = vec![7; 100_000];
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let hash = put_image(&warehouse, &image);
                assert_eq!(warehouse.read_image(&hash).unwrap(), image);
                let shelf = warehouse.shelf("wasm", "f1").unwrap();
                shelf.put(&hash, b"compiled").unwrap();
                assert_eq!(content(shelf.open(&hash).unwrap().unwrap()), b"compiled");
            });
        }
    });
    assert_eq!(files(&folder).len(), 2);
    let usage = warehouse.usage();
    assert_eq!((usage.images, usage.images_bytes), (1, 100_000));
    assert_eq!((usage.artefacts, usage.artefacts_bytes), (1, 8));
}

#[test]
fn what_is_not_ours_is_swept_out_at_open_but_links_are_not_followed() {
    let (folder, warehouse) = new();
    let image = put_image(&warehouse, b"image");
    let shelf = warehouse.shelf("wasm", "f1").unwrap();
    shelf.put(&image, b"compiled").unwrap();
    let kept = files(&folder);
    drop((warehouse, shelf));

    let root = root(&folder);
    let elsewhere = folder.path().join("precious");
    fs::write(&elsewhere, "precious").unwrap();
    fs::create_dir(root.join("artefacts/empty-f0")).unwrap();
    for leftover in
        ["incoming/123-4", "images/stray", "images/ab/short.wasm", "artefacts/stray", "artefacts/wasm-f1/x-y"]
    {
        let leftover = root.join(leftover);
        fs::create_dir_all(leftover.parent().unwrap()).unwrap();
        fs::write(leftover, "left over").unwrap();
    }
    // The right name in the wrong folder, and a link under a right name.
    let hash = ImageHash::of(b"linked");
    fs::create_dir_all(root.join("images/00")).unwrap();
    fs::copy(&kept[1], root.join(format!("images/00/{image}.wasm"))).unwrap();
    let prefix = root.join("images").join(&hash.to_string()[..2]);
    fs::create_dir_all(&prefix).unwrap();
    std::os::unix::fs::symlink(&elsewhere, prefix.join(format!("{hash}.wasm"))).unwrap();

    let warehouse = Warehouse::open(&root, Config::default()).unwrap();
    assert_eq!(files(&folder), kept);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
    assert!(!root.join("artefacts/empty-f0").exists());
    assert_eq!(warehouse.read_image(&image).unwrap(), b"image");
    assert!(!warehouse.has_image(&hash));
}

#[test]
fn of_two_artefacts_of_one_image_the_newer_survives_a_restart() {
    let (folder, warehouse) = new();
    let image = ImageHash::of(b"image");
    let shelf = warehouse.shelf("wasm", "f1").unwrap();
    let (mut old, mut new) = (PathBuf::new(), PathBuf::new());
    for (content, path) in [("old", &mut old), ("newer", &mut new)] {
        shelf.put(&image, content.as_bytes()).unwrap();
        *path = files(&folder)[0].clone();
    }
    // The crash came before the old one was removed.
    fs::write(&old, "old").unwrap();
    fs::File::open(&old).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let warehouse = reopen(&folder, warehouse);
    assert_eq!(files(&folder), [new]);
    assert_eq!(warehouse.usage().artefacts_bytes, 5);
    assert_eq!(content(warehouse.shelf("wasm", "f1").unwrap().open(&image).unwrap().unwrap()), b"newer");
}

#[test]
fn a_folder_of_someone_elses_images_is_not_swept() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(root(&folder).join("images")).unwrap();
    let holiday = root(&folder).join("images/holiday.jpeg");
    fs::write(&holiday, "sunset").unwrap();
    assert_eq!(code(Warehouse::open(&root(&folder), Config::default()).map(drop)), Code::DataUnusable);
    assert_eq!(fs::read_to_string(holiday).unwrap(), "sunset");
}

#[test]
fn a_warehouse_of_a_later_format_is_left_alone() {
    let (folder, warehouse) = new();
    drop(warehouse);
    for (marker, expected) in [("lighter warehouse 2\n", Code::DataNewer), ("somebody's\n", Code::DataUnusable)] {
        fs::write(root(&folder).join("warehouse"), marker).unwrap();
        assert_eq!(code(Warehouse::open(&root(&folder), Config::default()).map(drop)), expected, "{marker}");
        assert_eq!(fs::read_to_string(root(&folder).join("warehouse")).unwrap(), marker);
    }
}

#[test]
fn a_crash_while_the_first_start_marks_the_folder_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(root(&folder)).unwrap();
    fs::write(root(&folder).join("warehouse"), "lighter ware").unwrap();
    Warehouse::open(&root(&folder), Config::default()).unwrap();
    assert_eq!(fs::read_to_string(root(&folder).join("warehouse")).unwrap(), "lighter warehouse 1\n");
}

#[test]
fn only_the_nodes_user_can_read_or_write_what_is_stored() {
    let (folder, warehouse) = new();
    let image = put_image(&warehouse, b"image");
    warehouse.shelf("wasm", "f1").unwrap().put(&image, b"compiled").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["images", "artefacts", "incoming", "artefacts/wasm-f1"] {
        assert_eq!(mode(&root(&folder).join(name)), 0o700, "{name}");
    }
    for file in files(&folder) {
        assert_eq!(mode(&file), 0o400, "{}", file.display());
    }
}

fn new() -> (TempDir, Warehouse) {
    let folder = tempfile::tempdir().unwrap();
    let warehouse = Warehouse::open(&root(&folder), Config::default()).unwrap();
    (folder, warehouse)
}

fn reopen(folder: &TempDir, warehouse: Warehouse) -> Warehouse {
    drop(warehouse);
    Warehouse::open(&root(folder), Config::default()).unwrap()
}

fn root(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

fn put_image(warehouse: &Warehouse, image: &[u8]) -> ImageHash {
    let mut writer = warehouse.receive_image(Some(ImageHash::of(image)), None).unwrap();
    writer.write(image).unwrap();
    writer.finish().unwrap()
}

fn content(mut artefact: Artefact) -> Vec<u8> {
    let mut content = Vec::new();
    artefact.file.read_to_end(&mut content).unwrap();
    assert_eq!(content.len() as u64, artefact.bytes);
    content
}

fn code<T: std::fmt::Debug>(result: Result<T, Problem>) -> Code {
    result.unwrap_err().code
}

/// Every file in the three folders, sorted.
fn files(folder: &TempDir) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["incoming", "images", "artefacts"].map(|name| root(folder).join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let list = if entry.file_type().unwrap().is_dir() { &mut folders } else { &mut found };
            list.push(entry.path());
        }
    }
    found.sort();
    found
}

fn writable(path: &Path) -> fs::File {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn overwrite(path: &Path, content: &[u8]) {
    let mut file = writable(path);
    file.write_all(content).unwrap();
    // The clock of a file system is coarse: two writes in one tick look like one.
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(1)).unwrap();
}

fn flip(path: &Path) {
    let mut file = writable(path);
    let mut byte = [0];
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    drop(file);
    overwrite(path, &[byte[0] ^ 1]);
}

fn truncate(path: &Path) {
    writable(path).set_len(3).unwrap();
}

fn extend(path: &Path) {
    let mut file = writable(path);
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"!").unwrap();
}
