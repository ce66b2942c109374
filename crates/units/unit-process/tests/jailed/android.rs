//! Units on Android's base: every class that is said to work, apps that were converted, and apps that do not fit.
//!
//! `tools/libdroid` makes what these need in `build/`: Libdroid itself, and beside it what compiles for Android.

use crate::stage::{Running, Stage};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use unit::IsolationClass;
use unit_process::bundle::{About, Bundle, Runtime, of_app, of_jars};
use unit_process::ready::{self, Kind};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
const GUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/android/guests");
const CLASSES: &str = include_str!("../../../../../sdks/java/libdroid/classes.txt");

/// The guests as a jar, and as one dex file for each class of `App` and those in it.
struct Guests {
    jar: Vec<u8>,
    dex: Vec<u8>,
    more: Vec<u8>,
}

/// None where Libdroid or a JDK is missing, and a line says so.
fn guests(stage: &Stage) -> Option<&'static Guests> {
    static MADE: OnceLock<Option<Guests>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let libdroid = Path::new(ROOT).join("build/libdroid");
        if !libdroid.exists() {
            println!("skipped: libdroid: units on Android's base: there is no {}", libdroid.display());
            return None;
        }
        let bases = stage.bases();
        // Built for each run: Libdroid may have changed, and it takes ten seconds.
        if let Err(problem) = ready::build(bases, Kind::Android, None, Some(&libdroid)) {
            println!("skipped: java: units on Android's base: {problem}");
            return None;
        }
        Some(compiled(&stage.folder("android-guests")))
    });
    made.as_ref()
}

fn maven(name: &str) -> PathBuf {
    let folder = fs::read_dir(Path::new(ROOT).join("build/maven")).expect("tools/libdroid made it").flatten();
    let mut found = folder.map(|entry| entry.path()).filter(|path| path.display().to_string().contains(name));
    found.next().unwrap_or_else(|| panic!("tools/libdroid fetched {name}"))
}

fn run(command: &mut Command) {
    let output = command.output().expect("a JDK");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn compiled(folder: &Path) -> Guests {
    let classes = folder.join("classes");
    let sources = fs::read_dir(GUESTS).expect("guests").flatten().map(|entry| entry.path());
    let android = maven("android-all");
    run(Command::new("javac")
        .args(["--release", "17", "-nowarn", "-XDstringConcat=inline", "-cp"])
        .arg(&android)
        .arg("-d")
        .arg(&classes)
        .args(sources));
    let jar = folder.join("guests.jar");
    run(Command::new("jar").args(["--create", "--no-manifest", "--file"]).arg(&jar).arg("-C").arg(&classes).arg("."));
    let names = fs::read_dir(classes.join("guests")).expect("classes").flatten().map(|entry| entry.path());
    let is_work = |path: &PathBuf| path.display().to_string().contains("App$Work");
    let (work, more): (Vec<_>, Vec<_>) =
        names.filter(|path| path.display().to_string().contains("/App")).partition(is_work);
    let dex = |name: &str, files: &[PathBuf]| {
        let out = folder.join(name);
        fs::create_dir_all(&out).expect("a folder");
        run(Command::new("java")
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"])
            .arg(maven("r8-"))
            .args(["com.android.tools.r8.D8", "--release", "--min-api", "26", "--lib"])
            .arg(&android)
            .arg("--classpath")
            .arg(&jar)
            .arg("--output")
            .arg(&out)
            .args(files));
        fs::read(out.join("classes.dex")).expect("D8 made it")
    };
    Guests { dex: dex("work", &work), more: dex("more", &more), jar: fs::read(&jar).expect("just made") }
}

/// A zip of these members, as they are.
fn apk(stage: &Stage, name: &str, members: &[(&str, &[u8])]) -> Vec<u8> {
    let folder = stage.folder(name);
    for (member, content) in members {
        let path = folder.join(member);
        fs::create_dir_all(path.parent().expect("in a folder")).expect("a folder");
        fs::write(path, content).expect("room");
    }
    let file = folder.with_extension("apk");
    run(Command::new("jar").args(["--create", "--no-manifest", "--file"]).arg(&file).arg("-C").arg(&folder).arg("."));
    fs::read(file).expect("just made")
}

fn jar(entry: &str, jar: &[u8]) -> Vec<u8> {
    of_jars(entry, Runtime::Android, &BTreeMap::from([("guests.jar".to_owned(), jar.to_vec())])).expect("a bundle")
}

fn refused(stage: &Stage, image: Result<Vec<u8>, Problem>) -> Problem {
    image.and_then(|image| stage.class.compile(&image)).expect_err("it does not fit")
}

pub async fn every_published_class_works_in_the_jail(stage: &Stage) {
    let Some(guests) = guests(stage) else { return };
    let names: Vec<&str> = CLASSES.lines().collect();
    let probes = |entry: &str| {
        stage.run(&jar(&format!("guests.Probes::{entry}"), &guests.jar), |function| {
            function.units.reuse_calls = 1_000;
            function.limits.memory_bytes = 64 << 20;
        })
    };
    assert_eq!(probes("count").call("").await.unwrap(), names.len().to_string(), "a probe for each class");
    let probe = probes("probe");
    for name in names {
        let said = probe.call(name).await.unwrap_or_else(|problem| panic!("{name}: {problem}\n{}", probe.log()));
        assert_eq!(said, "ok", "{name}");
    }
}

async fn calls_work(work: &dyn Fn(&str) -> Running) {
    for (method, arguments, reply) in [
        ("numbers", r#"[3, "up", "DOUBLE"]"#, "[2,4,6]"),
        ("numbers", r#"[3, "down", "NEGATE"]"#, "[-1,-2,-3]"),
        ("add", r#"{"this": {"base": 30, "counts": {"x": 11}}, "args": ["x", 1]}"#, "42"),
        ("brightness", "[16, 8, 200]", "200.0"),
    ] {
        let function = work(method);
        let said = function.call(arguments).await.unwrap_or_else(|problem| panic!("{problem}\n{}", function.log()));
        assert_eq!(said, reply, "{method}({arguments})");
    }
    let fails = work("numbers");
    let problem = fails.call(r#"[3, "sideways", "NEGATE"]"#).await.unwrap_err();
    assert_eq!(problem.code, Code::UnitTrapped);
    assert!(problem.detail.contains("java.lang.IllegalArgumentException: order sideways"), "{problem}");
    assert!(fails.log().contains("at guests.App$Work.numbers("), "{}", fails.log());
}

pub async fn methods_of_dex_files_and_apks_are_called(stage: &Stage) {
    let Some(guests) = guests(stage) else { return };
    let entry = |method: &str| format!("guests.App$Work::{method}");
    calls_work(&|method| stage.run(&of_app(&entry(method), false, &guests.dex).unwrap(), |_| {})).await;
    // Two dex files; the class that is called stands in the second.
    let members: [(&str, &[u8]); 4] = [
        ("AndroidManifest.xml", b"packed in a way of its own"),
        ("classes.dex", &guests.more),
        ("classes2.dex", &guests.dex),
        ("lib/arm64-v8a/libapp.so", b"native"),
    ];
    let multidex = apk(stage, "multidex", &members);
    calls_work(&|method| stage.run(&of_app(&entry(method), true, &multidex).unwrap(), |_| {})).await;
    calls_work(&|method| stage.run(&jar(&entry(method), &guests.jar), |_| {})).await;
}

/// Artefacts stayed as they were when a node got another base: they were named by their image alone.
pub async fn what_another_base_has_converted_is_converted_anew(stage: &Stage) {
    let Some(guests) = guests(stage) else { return };
    let entry = "guests.App$Work::numbers";
    for image in [of_app(entry, false, &guests.dex).unwrap(), jar(entry, &guests.jar)] {
        let artefact = stage.class.compile(&image).unwrap();
        let Bundle { about, files } = Bundle::read(&artefact).unwrap();
        let base =
            ready::list(stage.bases()).into_iter().rfind(|ready| ready.kind == Kind::Android).expect("just built");
        assert_eq!(about.converted_by, format!("ready-android-{}", base.id));
        let work = stage.load(&image, &artefact, |_| {}).expect("the base that is there has made it");
        assert_eq!(work.call(r#"[1, "up", "DOUBLE"]"#).await.unwrap(), "[2]");
        for other in ["", "ready-android-0123456789abcdef"] {
            let about = About { converted_by: other.to_owned(), ..about.clone() };
            let old = Bundle { about, files: files.clone() }.pack().unwrap();
            let problem = stage.load(&image, &old, |_| {}).err().expect("another base has made it");
            assert_eq!(problem.code, Code::ArtefactCorrupt, "{problem}");
            // What an image says of itself is not believed.
            let again = stage.class.compile(&old).unwrap();
            assert_eq!(Bundle::read(&again).unwrap().about.converted_by, format!("ready-android-{}", base.id));
        }
    }
}

pub async fn apps_that_do_not_fit_are_refused_by_name(stage: &Stage) {
    let Some(guests) = guests(stage) else { return };
    for (entry, word) in [
        ("name", "guests.App::name takes a android.content.Context"),
        ("title", "android.app.Activity (in guests.App"),
        ("decoded", "the native method guests.App$Native::decode"),
        ("loads", "a native library (java.lang.System.load)"),
        ("loader", "dalvik.system.DexClassLoader (in guests.App::loader)"),
    ] {
        let app = of_app(&format!("guests.App::{entry}"), false, &guests.more);
        let problem = refused(stage, app);
        assert_eq!(problem.code, Code::ApiMissing, "{entry}: {problem}");
        assert!(problem.detail.contains(word), "{entry}: {problem}");
    }
    let problem = refused(stage, of_app("guests.App::missing", false, &guests.more));
    assert!(problem.code == Code::BundleInvalid && problem.detail.contains("no method missing"), "{problem}");
    let problem = refused(stage, of_app("guests.Missing::x", false, &guests.more));
    assert!(problem.code == Code::BundleInvalid && problem.detail.contains("no class guests.Missing"), "{problem}");
}

pub async fn damaged_apps_are_refused(stage: &Stage) {
    let Some(guests) = guests(stage) else { return };
    let entry = "guests.App$Work::numbers";
    let is_refused = |image: Result<Vec<u8>, Problem>, word: &str| {
        let problem = refused(stage, image);
        assert_eq!(problem.code, Code::BundleInvalid, "{word}: {problem}");
        assert!(problem.detail.contains(word), "{word}: {problem}");
    };
    is_refused(of_app(entry, false, &guests.dex[..guests.dex.len() - 1]), "its header says");
    let mut newer = guests.dex.clone();
    newer[4..7].copy_from_slice(b"099");
    is_refused(of_app(entry, false, &newer), "of version 099");
    // Its header says that it is whole.
    let cut = guests.dex.len() / 2;
    let mut broken = guests.dex[..cut].to_vec();
    broken[0x20..0x24].copy_from_slice(&(cut as u32).to_le_bytes());
    is_refused(of_app(entry, false, &broken), "is damaged");
    let split = apk(stage, "split", &[("AndroidManifest.xml", b"x"), ("res/a.png", b"x")]);
    is_refused(of_app(entry, true, &split), "part of a split app");
    let gap = apk(stage, "gap", &[("classes.dex", &guests.dex), ("classes3.dex", &guests.more)]);
    is_refused(of_app(entry, true, &gap), "classes3.dex and none before it");
    let zeros = vec![0; 100 << 20];
    let bomb = apk(stage, "bomb", &[("classes.dex", &guests.dex), ("zeros", &zeros)]);
    is_refused(of_app(entry, true, &bomb), "once it is unpacked");
    // A class above itself took the converter's hundred seconds of a processor.
    let mut ring = b"\xCA\xFE\xBA\xBE\0\0\0\x3D\0\x03\x01\0\x0Bguests/Ring\x07\0\x01\0\x21\0\x02\0\x02".to_vec();
    ring.extend([0; 8]);
    let ring = apk(stage, "ring", &[("guests/Ring.class", &ring)]);
    is_refused(Ok(jar("guests.Ring::turn", &ring)), "guests.Ring has no method turn");
    // What was refused has harmed nobody.
    let work = stage.run(&of_app(entry, false, &guests.dex).unwrap(), |_| {});
    assert_eq!(work.call(r#"[1, "up", "DOUBLE"]"#).await.unwrap(), "[2]");
}

pub async fn no_attempt_to_escape_through_libdroid_succeeds(stage: &Stage) {
    let Some(guests) = guests(stage) else { return };
    // What it may not name, it looks up by reflection.
    let intruder = stage.run(&jar("guests.Intruder::attempt", &guests.jar), |function| {
        function.limits.memory_bytes = 64 << 20;
        function.limits.scratch_bytes = 32 << 20;
    });
    for name in ["files", "loaders", "signals"] {
        let said = intruder.call(name).await.unwrap_or_else(|problem| panic!("{name}: {problem}\n{}", intruder.log()));
        assert_eq!(said, "held", "{name}");
    }
    for name in ["picture", "pointer", "text"] {
        let problem = intruder.call(name).await.expect_err(name);
        let codes = [Code::MemoryExceeded, Code::UnitTrapped];
        assert!(codes.contains(&problem.code), "{name}: {problem}\n{}", intruder.log());
    }
    assert_eq!(intruder.call("signals").await.unwrap(), "held", "and the function goes on");
}

/// Many calls at once after one at a time, and one at a time again. The figures are of `./bench android`.
pub async fn a_spike_of_calls_is_answered_and_its_units_go(stage: &Stage) {
    let Some(guests) = guests(stage) else { return };
    let work = stage.run(&jar("guests.App$Work::numbers", &guests.jar), |function| {
        function.limits.memory_bytes = 16 << 20;
        function.limits.concurrency = 16;
        function.limits.time_ms = 120_000;
    });
    let arguments = r#"[2, "up", "DOUBLE"]"#;
    assert_eq!(work.call(arguments).await.unwrap(), "[2,4]");
    let before = crate::stage::processes_below();
    let calls = (0..SPIKE).map(|_| work.call(arguments));
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| answer.as_deref() == Ok("[2,4]")), "{answers:?}");
    // What the spike has made goes with two sweeps: one unit waits for the next call, as before.
    let sweep = || work.prepared.sweep(std::time::Instant::now(), false);
    crate::stage::wait_until("the units of the spike are gone", || {
        sweep();
        crate::stage::processes_below() <= before
    })
    .await;
    assert_eq!(work.call(arguments).await.unwrap(), "[2,4]");
}

const SPIKE: usize = 40;
