//! Units in Java: the checks of all kinds, attempts to escape, and what a virtual machine may do to itself.

use crate::stage::{self, Running, Stage};
use checks::Images;
use frame::{Checksum, Frame, Kind, Limits, Value};
use manifest::Function;
use problem::Code;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;
use unit_process::bundle::{About, Bundle, Contract, Runtime, of_jars};

const GUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests/java");
const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../sdks/java/unit/lighterage-unit.jar");
const HELLO: &str = "guests.Hello::handle";
const ATTACK: &str = "guests.Attack::handle";

/// The jar of all guests; none where there is no JDK, and a line says so.
fn guests(stage: &Stage) -> Option<&'static [u8]> {
    static JAR: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let made = JAR.get_or_init(|| {
        if let Err(problem) = stage.class.make_java_base() {
            println!("skipped: java: units in Java: {problem}");
            return None;
        }
        let folder = stage.folder("java-guests");
        let sources = fs::read_dir(Path::new(GUESTS).join("guests")).expect("guests").flatten();
        let sources: Vec<PathBuf> = sources.map(|entry| entry.path()).collect();
        let compiled =
            Command::new("javac").args(["--release", "17", "-cp", UNIT, "-d"]).arg(&folder).args(sources).output();
        match compiled {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                println!("skipped: java: units in Java: javac: {error}");
                return None;
            }
        }
        Some(jar(&folder))
    });
    made.as_deref()
}

/// A jar of a folder of classes.
fn jar(folder: &Path) -> Vec<u8> {
    let file = folder.with_extension("jar");
    let mut make = Command::new("jar");
    make.args(["--create", "--no-manifest", "--file"]).arg(&file).arg("-C").arg(folder).arg(".");
    assert!(make.status().expect("a JDK").success());
    fs::read(file).expect("just written")
}

fn bundle(entry: &str, jar: &[u8]) -> Vec<u8> {
    of_jars(entry, Runtime::Java, &BTreeMap::from([("guests.jar".to_owned(), jar.to_vec())])).expect("a bundle")
}

fn run(stage: &Stage, entry: &str, jar: &[u8], change: impl FnOnce(&mut Function)) -> Running {
    stage.run(&bundle(entry, jar), change)
}

pub async fn java_units_pass_every_check(stage: &Stage) {
    let Some(jar) = guests(stage) else { return };
    let [hello, counter, attack] = [HELLO, "guests.Counter::handle", ATTACK].map(|entry| bundle(entry, jar));
    let images = Images {
        hello: &hello,
        counter: &counter,
        attack: &attack,
        attack_source: "Attack.java:",
        dumps: false,
        lacks: &[checks::Trait::QuickStart, checks::Trait::Wasi],
        wasi: None,
        settles: &checks::settled,
    };
    checks::run(&stage.class, &images, &stage.folder("java-checks")).await;
}

pub async fn no_attempt_to_escape_from_java_succeeds(stage: &Stage) {
    let Some(jar) = guests(stage) else { return };
    let attack = run(stage, ATTACK, jar, |function| {
        function.limits.scratch_bytes = 4 << 20;
        function.limits.memory_bytes = 128 << 20;
    });
    for name in [
        "programs",
        "libraries",
        "files",
        "neighbours",
        "network",
        "processes",
        "scratch",
        "scratch",
        "reflection",
        "agents",
        "code",
    ] {
        let answer = attack.call(&format!("escape {name}")).await.unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert!(answer.starts_with("held"), "{name}: {answer}");
    }
    assert_eq!(attack.call("remember").await.unwrap(), "1", "and the function goes on");
}

pub async fn what_a_java_unit_does_to_itself_ends_with_it(stage: &Stage) {
    let Some(jar) = guests(stage) else { return };
    let attack = run(stage, ATTACK, jar, |function| function.limits.processes = 40);
    for (word, code) in [
        ("exit", Code::UnitExited),
        ("exit-hard", Code::UnitExited),
        ("direct-memory", Code::MemoryExceeded),
        ("threads", Code::ProcessesExceeded),
        ("garble", Code::UnitGarbled),
        ("announce", Code::ReplyTooLarge),
        ("panic", Code::UnitTrapped),
        ("classes", Code::MemoryExceeded),
        ("unsafe", Code::UnitTrapped),
    ] {
        let problem = attack.call(word).await.expect_err(word);
        assert_eq!(problem.code, code, "{word}: {problem}\n{}", attack.log());
    }
    let log = attack.log();
    assert!(log.contains("asked to panic") && log.contains("at guests.Attack.word(Attack.java:"), "{log}");
    let before = stage::processes_below();
    assert_eq!(attack.call("stays").await.unwrap(), "left");
    stage::wait_until("what stays is ended", || stage::processes_below() <= before + 1).await;
    let strange = run(stage, ATTACK, jar, |function| function.limits.cpu_ms = 200);
    let problem = strange.call("strange").await.unwrap_err();
    assert_eq!(problem.code, Code::CpuExceeded, "{problem}");
    let problem = strange.call("finalizers").await.unwrap_err();
    assert_eq!(problem.code, Code::CpuExceeded, "{problem}");
    let began = Instant::now();
    assert_eq!(attack.call("remember").await.unwrap(), "1");
    println!("a unit in Java has answered after {} ms", began.elapsed().as_millis());
}

pub async fn arguments_come_to_java_as_json_or_in_a_frame(stage: &Stage) {
    let Some(jar) = guests(stage) else { return };
    for (method, arguments, reply) in [
        ("distance", r#"[{"x": 0, "y": 0}, {"x": 3, "y": 4}]"#, "5.0"),
        ("describe", r#"[[{"x": 1, "y": 0.5}], "first"]"#, r#"{"name":"first 1.0"}"#),
        ("sorted", "[[3, 1, 2]]", "[1,2,3]"),
        ("add", "7", "7"),
        ("add", r#"{"this": {"total": 30}, "args": [7]}"#, "37"),
    ] {
        let function = run(stage, &format!("guests.Numbers::{method}"), jar, |_| {});
        assert_eq!(function.call(arguments).await.unwrap(), reply, "{method}({arguments})");
    }
    let sorted = run(stage, "guests.Numbers::sorted", jar, |_| {});
    for (arguments, word) in [("[1, 2]", "takes 1"), ("[[1.5]]", "1.5 is no int"), ("[[1]", "no JSON"), ("", "takes 1")]
    {
        let problem = sorted.call(arguments).await.unwrap_err();
        assert_eq!(problem.code, Code::UnitInvalid, "{problem}");
        assert!(problem.detail.contains(word), "{arguments}: {problem}");
    }
    let fails = run(stage, "guests.Numbers::fails", jar, |_| {});
    let problem = fails.call("[1]").await.unwrap_err();
    assert_eq!(problem.code, Code::UnitTrapped);
    assert!(problem.detail.contains("java.lang.IllegalArgumentException: it says 1"), "{problem}");
    assert!(fails.log().contains("Caused by: java.lang.IllegalStateException: first"), "{}", fails.log());
    in_a_frame(stage, jar).await;
}

async fn in_a_frame(stage: &Stage, jar: &[u8]) {
    let call = |body: Value<'_>| {
        let frame = Frame { kind: Kind::Call, id: 1, body }.encode(Checksum::Front, &Limits::default());
        frame.expect("within every limit").to_vec()
    };
    let function = |entry: &str| {
        let files = BTreeMap::from([("app.jar".to_owned(), jar)]);
        let bundle = Bundle { about: About::new(Contract::Call, entry, Runtime::Java), files };
        stage.run(&bundle.pack().expect("a bundle"), |_| {})
    };
    let numbers = Value::List(vec![Value::I64(3), Value::I64(1)]);
    let sorted = call(Value::Map(vec![("args", Value::List(vec![numbers]))]));
    let reply = function("guests.Numbers::sorted").call_bytes(&sorted).await.unwrap();
    let Value::Array(array) = Frame::decode(&reply, &Limits::default()).unwrap().body else { panic!("no array") };
    assert_eq!(array.data, [1, 0, 0, 0, 3, 0, 0, 0]);
    let fails = function("guests.Numbers::fails");
    let reply = fails.call_bytes(&call(Value::Map(vec![("args", Value::List(vec![Value::I64(1)]))]))).await.unwrap();
    let Value::Tagged("thrown", thrown) = Frame::decode(&reply, &Limits::default()).unwrap().body else {
        panic!("a value")
    };
    assert_eq!(thrown.get("class"), Some(&Value::Str("java.lang.IllegalArgumentException")));
    assert_eq!(thrown.get("cause").and_then(|cause| cause.get("message")), Some(&Value::Str("first")));
    assert_eq!(fails.call_bytes(b"no frame").await.unwrap_err().code, Code::UnitInvalid);
}

pub async fn a_java_function_that_does_not_load_says_why(stage: &Stage) {
    let Some(jar) = guests(stage) else { return };
    let broken = run(stage, "guests.Broken::handle", jar, |_| {});
    let problem = broken.call("").await.unwrap_err();
    assert_eq!(problem.code, Code::StartFailed, "{problem}");
    assert!(problem.detail.contains("java.lang.IllegalStateException: no luck"), "{problem}");
    let log = broken.log();
    assert!(log.contains("printed while it was loaded") && log.contains("at guests.Broken.<clinit>"), "{log}");
    let missing = run(stage, "guests.Hello::missing", jar, |_| {}).call("").await.unwrap_err();
    assert_eq!(missing.code, Code::StartFailed, "{missing}");
    assert!(missing.detail.contains("guests.Hello has no method missing"), "{missing}");
    // The version of a class is its seventh and eighth byte.
    let folder = stage.folder("java-newer");
    fs::create_dir_all(folder.join("guests")).unwrap();
    let mut class = fs::read(stage.folder("java-guests/guests/Hello.class")).unwrap();
    class[7] = 99;
    fs::write(folder.join("guests/Hello.class"), class).unwrap();
    let newer = run(stage, HELLO, &self::jar(&folder), |_| {}).call("").await.unwrap_err();
    assert_eq!(newer.code, Code::BaseMismatch, "{newer}");
    assert!(newer.hint.contains("--java"), "{newer:?}");
}
