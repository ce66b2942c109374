//! Files that are no bases, and one that is, but for its Java.

use super::*;

fn listed(path: &str, content: &[u8]) -> Listed {
    Listed {
        path: path.to_owned(),
        bytes: content.len() as u64,
        sha256: hex(&Sha256::digest(content)),
        executable: path.starts_with("runtime/bin/"),
    }
}

fn files() -> Vec<(&'static str, &'static [u8])> {
    vec![("runtime/bin/java", b"a program"), ("runtime/release", b"JAVA_VERSION=\"17.0.1\"\n")]
}

fn contents(files: &[(&str, &[u8])]) -> Contents {
    let files = files.iter().map(|(path, content)| listed(path, content)).collect();
    Contents {
        format: FORMAT,
        kind: Kind::Java,
        java: "17.0.1".to_owned(),
        machine: std::env::consts::ARCH.to_owned(),
        files,
    }
}

fn written(contents: &Contents, files: &[(&str, &[u8])]) -> Vec<u8> {
    let text = serde_json::to_vec(contents).unwrap();
    let members = [(CONTENTS, text.as_slice())].into_iter().chain(files.iter().copied());
    let mut bytes = Vec::new();
    for (name, content) in members {
        // By hand, for `tar::header` refuses names that a stranger may write.
        bytes.extend_from_slice(&tar::header("x", content.len()).unwrap());
        let at = bytes.len() - tar::BLOCK;
        bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        bytes[at + 148..at + 156].copy_from_slice(b"        ");
        let sum: u64 = bytes[at..].iter().map(|byte| u64::from(*byte)).sum();
        bytes[at + 148..at + 155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(tar::BLOCK), 0);
    }
    bytes.resize(bytes.len() + 2 * tar::BLOCK, 0);
    bytes
}

fn refused(tar: &[u8], id: Option<&str>, word: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.base");
    fs::write(&file, tar).unwrap();
    let bases = folder.path().join("bases");
    let problem = import(&bases, &file, id).unwrap_err();
    assert_eq!(problem.code, Code::BaseInvalid, "{problem}");
    assert!(problem.detail.contains(word), "{word}: {problem}");
    assert_eq!(fs::read_dir(&bases).unwrap().count(), 0, "nothing is kept");
}

#[test]
fn what_is_listed_is_unpacked_with_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let (files, made) = (files(), contents(&files()));
    let tar = written(&made, &files);
    assert_eq!(unpack(&mut tar.as_slice(), folder.path(), None).unwrap(), made);
    let java = folder.path().join("runtime/bin/java");
    assert_eq!(
        (fs::read(&java).unwrap().as_slice(), fs::metadata(&java).unwrap().permissions().mode() & 0o777),
        (files[0].1, 0o755)
    );
}

#[test]
fn a_base_that_was_cut_or_changed_is_refused() {
    let (files, made) = (files(), contents(&files()));
    let tar = written(&made, &files);
    for cut in [0, 100, tar::BLOCK, tar.len() - 3 * tar::BLOCK] {
        refused(&tar[..cut], None, "cut off");
    }
    let mut changed = tar.clone();
    let at = changed.windows(9).position(|bytes| bytes == b"a program").unwrap();
    changed[at] = b'A';
    refused(&changed, None, "another hash");
    refused(&tar, Some("0123456789abcdef"), "and not 0123456789abcdef");
    refused(&written(&made, &files[..1]), None, "is not where its list says");
    let more = [files.clone(), vec![("more", &b"x"[..])]].concat();
    refused(&written(&made, &more), None, "more is not in its list");
}

#[test]
fn a_list_that_would_do_harm_is_refused() {
    for path in ["/etc/passwd", "../../x", "a/../b", "unit.jar", "unit.jsa", "base.json", "contents.json", ""] {
        let files = [files(), vec![(path, &b"x"[..])]].concat();
        refused(&written(&contents(&files), &files), None, "no name of a file in a base");
    }
    let twice = [files(), files()].concat();
    refused(&written(&contents(&twice), &twice), None, "twice");
    let change = |change: fn(&mut Contents), word: &str| {
        let mut made = contents(&files());
        change(&mut made);
        refused(&written(&made, &files()), None, word);
    };
    change(|made| made.format = 2, "format is 2");
    change(|made| made.machine = "pdp11".to_owned(), "for pdp11");
    change(|made| made.kind = Kind::Android, "no libdroid.jar");
    change(|made| made.files[0].bytes = BYTES_MAX, "the limit is");
    change(|made| made.files[0].bytes = u64::MAX, "the limit is");
    let many: Vec<Listed> = (0..=FILES_MAX).map(|number| listed(&number.to_string(), b"")).collect();
    let made = Contents { files: many, ..contents(&[]) };
    refused(&written(&made, &[]), None, "the limit is 4000");
    refused(&written(&contents(&files()[..1]), &files()[..1]), None, "no runtime/release");
}

/// A file in the place of a folder of another, which no tool but an attacker's writes.
#[test]
fn a_file_that_is_a_folder_too_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let files = [files(), vec![("a", &b"x"[..]), ("a/b", b"y")]].concat();
    let file = folder.path().join("x.base");
    fs::write(&file, written(&contents(&files), &files)).unwrap();
    let bases = folder.path().join("bases");
    import(&bases, &file, None).unwrap_err();
    assert_eq!(fs::read_dir(&bases).unwrap().count(), 0, "nothing is kept");
}

#[test]
fn a_base_that_does_not_start_leaves_the_one_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let libdroid = ["libdroid.jar", "libdroid.so", "classes.txt", CONVERTER].map(|path| (path, &b"nothing"[..]));
    let files = [files(), libdroid.to_vec()].concat();
    let contents = Contents { kind: Kind::Android, ..contents(&files) };
    let file = folder.path().join("x.base");
    fs::write(&file, written(&contents, &files)).unwrap();
    let bases = folder.path().join("bases");
    let there = place(&bases, Kind::Android, &id_of(&serde_json::to_vec(&contents).unwrap()));
    fs::create_dir_all(&there).unwrap();
    fs::write(there.join("mine"), b"as it was").unwrap();
    let problem = import(&bases, &file, None).unwrap_err();
    assert!(problem.detail.contains("does not start"), "{problem}");
    assert_eq!(fs::read(there.join("mine")).unwrap(), b"as it was");
    assert_eq!(fs::read_dir(&bases).unwrap().count(), 1, "nothing else is kept");
}

/// The second base took the first one's place, and what a node had loaded on that started no more.
#[test]
fn an_earlier_base_stays_until_the_node_starts_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let bases = folder.path().join("bases");
    let packed = ["first", "second"].map(|word| {
        let (file, files) = (folder.path().join(word), [files(), vec![("word", word.as_bytes())]].concat());
        fs::write(&file, written(&contents(&files), &files)).unwrap();
        file
    });
    let [first, second] = packed.each_ref().map(|file| import(&bases, file, None).unwrap().id);
    let there = || list(&bases).into_iter().map(|ready| ready.id).collect::<Vec<_>>();
    let of_first = place(&bases, Kind::Java, &first);
    assert_eq!(there(), [first.clone(), second.clone()]);
    // Imported once more it is the newest, and stays as it is.
    fs::write(of_first.join("mine"), "as it was").unwrap();
    assert_eq!(import(&bases, &packed[0], None).unwrap().id, first);
    assert_eq!(there(), [second, first.clone()]);
    assert!(of_first.join("mine").exists());
    assert_eq!(newest(&bases, Kind::Java).unwrap().map(|(_, place)| place), Some(of_first.clone()));
    // What was damaged is made whole by that.
    fs::write(of_first.join("word"), "other").unwrap();
    import(&bases, &packed[0], None).unwrap();
    assert_eq!(fs::read(of_first.join("word")).unwrap(), b"first");
    crate::base::Bases::open(&bases, None).unwrap();
    assert_eq!(there(), [first]);
}

/// The place of a base of Java that was imported.
fn imported(folder: &Path, bases: &Path) -> PathBuf {
    let file = folder.join("x.base");
    fs::write(&file, written(&contents(&files()), &files())).unwrap();
    let id = import(bases, &file, None).unwrap().id;
    place(bases, Kind::Java, &id)
}

/// What makes a base fit another program has some steps. The first of them was taken for all, if the power failed
/// after it.
#[test]
fn a_base_whose_finishing_was_cut_off_is_finished_again() {
    let folder = tempfile::tempdir().unwrap();
    let bases = folder.path().join("bases");
    let place = imported(folder.path(), &bases);
    let finished = describe(&place).unwrap();
    assert_eq!(finished.unit, unit_id());
    let found = || newest(&bases, Kind::Java).unwrap().unwrap().0;
    assert_eq!(found().made_ms, finished.made_ms, "it is finished");
    for unit in [None, Some("0123456789abcdef")] {
        let mut said = serde_json::to_value(&finished).unwrap();
        said.as_object_mut().unwrap().remove("unit");
        if let Some(unit) = unit {
            said["unit"] = unit.into();
        }
        fs::write(place.join(DESCRIPTION), said.to_string()).unwrap();
        let again = found();
        assert!(again.unit == unit_id() && again.made_ms > finished.made_ms, "{unit:?}: {again:?}");
        assert_eq!(describe(&place).unwrap().made_ms, again.made_ms);
    }
}

/// While a base is put where the same one stands, that has another name, and a link its own.
#[test]
fn a_base_that_was_being_replaced_when_the_power_failed_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let bases = folder.path().join("bases");
    let place = imported(folder.path(), &bases);
    let name = place.file_name().unwrap().to_str().unwrap().strip_prefix(PREFIX).unwrap();
    fs::rename(&place, bases.join(format!(".new-before-{name}"))).unwrap();
    std::os::unix::fs::symlink(bases.join(".new-ready-1"), &place).unwrap();
    std::os::unix::fs::symlink(bases.join(".new-ready-1"), bases.join("ready-java-0123456789abcdef")).unwrap();
    assert!(list(&bases).is_empty());
    crate::base::Bases::open(&bases, None).unwrap();
    assert!(!place.is_symlink() && list(&bases).len() == 1);
    assert!(!bases.join("ready-java-0123456789abcdef").is_symlink());
    // Where the new one has come to its place, the other goes.
    fs::create_dir(bases.join(format!(".new-before-{name}"))).unwrap();
    crate::base::Bases::open(&bases, None).unwrap();
    assert!(list(&bases).len() == 1 && !bases.join(format!(".new-before-{name}")).exists());
}
