//! What one call leaves in its scratch folder: nothing of it is there for the next one, and none of it ends another
//! call.

use crate::stage::{self, Stage};
use problem::Code;
use std::time::{Duration, Instant};

/// Ways to leave something, each of which a plain removal of a tree does not get rid of, or stumbles over.
const WAYS: [(&str, &str); 11] = [
    ("a folder that may not be entered", "os.mkdir('left'); open('left/secret', 'w').write('x'); os.chmod('left', 0)"),
    (
        "such a folder in such a folder",
        "os.makedirs('a/b/c'); open('a/b/c/d', 'w').close(); [os.chmod(p, 0) for p in ('a/b/c', 'a/b', 'a')]",
    ),
    (
        "folders deeper than a path can be",
        "[(os.mkdir('d'), os.chdir('d')) for _ in range(1500)]; open('secret', 'w').close()",
    ),
    ("such depths that may not be entered", "exec(DEEP)"),
    ("the folder itself closed", "open('secret', 'w').close(); os.chmod('.', 0)"),
    ("the folder itself without search", "open('secret', 'w').close(); os.chmod('.', 0o600)"),
    ("a mode that says something", "os.chmod('.', 0o1755)"),
    ("times that say something", "os.utime('.', (123456789, 987654321))"),
    ("as many files as there can be", "exec(MANY)"),
    (
        "names that are no text",
        "open(b'\\xff\\xfe', 'w').close(); os.mkdir(b'\\x80'); os.symlink('/', 'root'); os.mkfifo('pipe') if False else None",
    ),
    (
        "a file that a process holds open",
        "open('held', 'wb').write(bytes(1 << 20)); os.fork() or (os.setsid(), time.sleep(100))",
    ),
];

const SOURCE: &str = r#"
import os, threading, time
DEEP = """
names = []
for _ in range(1200):
    os.mkdir('d')
    names.append(os.open('d', os.O_RDONLY | os.O_DIRECTORY)) if len(names) < 100 else None
    os.chdir('d')
os.chmod('.', 0)
for name in reversed(names):
    os.chmod(name, 0)
"""
MANY = """
try:
    for number in range(20_000): os.close(os.open(f'n{number}', os.O_CREAT | os.O_WRONLY))
except OSError: pass
"""
def handle(event):
    words = event.data.decode()
    if words == "look":
        found = os.stat(".")
        return f"{os.listdir('.')} {oct(found.st_mode)} {found.st_mtime_ns} {os.statvfs('.').f_files - os.statvfs('.').f_ffree}"
    if words == "sleep":
        time.sleep(3)
        return b"slept"
    exec(words)
    return b"done"
"#;

/// Finding R8. One slot at a time is used, so that the next call has the folder of the one before.
pub async fn what_a_call_leaves_is_found_by_none(stage: &Stage) {
    let function = stage.function(SOURCE, |function| {
        function.limits.concurrency = 1;
        function.limits.time_ms = 60_000;
    });
    let new = function.call("look").await.expect("it looks");
    assert!(new.starts_with("[] 0o40700 "), "{new}");
    for (what, way) in WAYS {
        // As often as there are slots and more: each of them is used again.
        for _ in 0..3 {
            assert_eq!(function.call(way).await.as_deref(), Ok("done"), "{what}: {}", function.log());
        }
        for _ in 0..12 {
            let found = function.call("look").await.expect(what);
            assert!(found.starts_with("[] 0o40700 ") && found.ends_with(" 1"), "{what}: {found}");
            let time = found.split(' ').nth(2).expect("a time");
            assert!(!time.starts_with("987654321"), "{what}: {found}");
        }
    }
    assert!(!function.log().contains("L6011"), "all of it was emptied: {}", function.log());
}

/// Finding R11: what a call does to its own folder was an error where the zygote reaps, and the zygote ended with all
/// calls.
pub async fn one_call_cannot_end_the_others(stage: &Stage) {
    let function = stage.function(SOURCE, |_| {});
    assert_eq!(function.call("pass").await.as_deref(), Ok("done"));
    let before = stage::processes_below();
    let (slept, ()) = tokio::join!(function.call("sleep"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        for (what, way) in WAYS {
            assert_eq!(function.call(way).await.as_deref(), Ok("done"), "{what}");
        }
    });
    assert_eq!(slept.as_deref(), Ok("slept"), "{}", function.log());
    assert!(before > 0);
}

/// All calls of a function have one user: each can change the mode of another's folder. The next child could not begin
/// in one that was closed, and that ended its zygote with all calls.
pub async fn a_call_that_touches_folders_of_others_costs_no_zygote(stage: &Stage) {
    const TOUCH: &str = "\
for number in range(64):
    try:
        os.chmod(f'/scratch/{number}', 0)
        os.utime(f'/scratch/{number}', (1, 1))
    except OSError: pass
";
    let function = stage.function(SOURCE, |function| function.limits.concurrency = 2);
    for _ in 0..5 {
        assert_eq!(function.call(TOUCH).await.as_deref(), Ok("done"), "{}", function.log());
        // Those that waited have closed folders, and nobody opens these.
        for _ in 0..10 {
            function.call("look").await.ok();
        }
        let found = function.call("look").await.expect("it looks");
        assert!(found.starts_with("[] 0o40700 "), "{found}");
    }
    assert!(!function.log().contains("L6011"), "{}", function.log());
}

/// A module may take the place of what empties folders: the node looks for itself, and gives up what is not empty.
pub async fn a_zygote_that_empties_nothing_is_ended(stage: &Stage) {
    let source = format!("import lighterage.unit.zygote as zygote\nzygote.empty = lambda folder: None\n{SOURCE}");
    let function = stage.function(&source, |function| function.limits.concurrency = 2);
    for turn in 0..30 {
        // A call may come upon the end of the zygote it was to be forked from: folders are looked at beside the calls.
        match function.call("look").await {
            Ok(found) => assert!(found.starts_with("[] ") && found.ends_with(" 1"), "{turn}: {found}"),
            Err(problem) => assert_eq!(problem.code, Code::ZygoteEnded, "{turn}: {problem}"),
        }
        function.call("open('left', 'w').write('x' * 100_000)").await.ok();
    }
    stage::wait_until("it is ended", || function.log().contains("error[L6011]")).await;
}

/// A system that refused one fork ended the zygote with all calls of the function.
pub async fn a_refused_fork_ends_no_other_call(stage: &Stage) {
    const SOURCE: &str = "import mmap, os, time\n\
        name, refuses, fork = os.urandom(8).hex(), mmap.mmap(-1, 1), os.fork\n\
        def sometimes():\n  if refuses[0]: raise BlockingIOError(11, 'no process')\n  return fork()\n\
        os.fork = sometimes\ndef handle(event):\n\
        \x20 if event.data == b'refuse':\n    refuses[0] = 1\n    time.sleep(3)\n    refuses[0] = 0\n\
        \x20 return name";
    let function = stage.function(SOURCE, |_| {});
    let zygote = function.call("").await.expect("it forks");
    let (goes_on, refused) = tokio::join!(function.call("refuse"), async {
        let began = Instant::now();
        // Those that were forked ahead take some calls more.
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if let Err(problem) = function.call("").await {
                break problem;
            }
            assert!(began.elapsed() < Duration::from_secs(3), "no fork is refused");
        }
    });
    assert_eq!(refused.code, Code::NodeFull, "{refused}");
    assert_eq!(goes_on.as_deref(), Ok(zygote.as_str()), "{}", function.log());
    assert_eq!(function.call("").await.as_deref(), Ok(zygote.as_str()), "{}", function.log());
}

/// Finding R9, by a way that no file system shows: memory that the module shares with its children is charged to the
/// call that touches it first, and stays when the call is gone.
pub async fn memory_of_ended_calls_is_bounded(stage: &Stage) {
    const SOURCE: &str = "import mmap\nshared = [mmap.mmap(-1, 40 << 20) for _ in range(40)]\n\
        def handle(event):\n  part = shared[int(event.data)]\n  for at in range(0, len(part), 4096): part[at] = 1\n  return b'here'";
    let function = stage.function(SOURCE, |function| function.limits.concurrency = 1);
    let most = 192 + 64 + 8 * 64;
    for call in 0..40 {
        // Its zygote may be ended, with the call or before it.
        function.call(&call.to_string()).await.ok();
        let held = stage.memory_bytes().map(|bytes| bytes >> 20);
        assert!(held.is_none_or(|held| held <= most + 64), "after {call} calls {held:?} MiB");
    }
}

/// Finding R12: importing a module was free, and so was importing it again.
pub async fn loading_is_bounded_and_not_repeated_at_once(stage: &Stage) {
    const SOURCE: &str = "import os, time\nfor _ in range(60):\n  if os.fork() == 0:\n    while True: pass\n\
        def handle(event): return b'here'";
    let before = stage::processes_below();
    let function = stage.function(SOURCE, |function| function.limits.processes = 1);
    let problem = function.call("").await.unwrap_err();
    assert!(matches!(problem.code, Code::StartFailed | Code::CpuExceeded), "{problem}");
    stage::wait_until("its processes end", || stage::processes_below() <= before).await;
    let began = Instant::now();
    assert_eq!(function.call("").await.unwrap_err().code, problem.code, "it is not tried again at once");
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    // Threads and processes that spin and never come to an end are ended for the time of processors they take.
    let spins = stage.function("import threading\ndef spin():\n  while True: pass\nspin()", |_| {});
    let problem = spins.call("").await.unwrap_err();
    assert!(matches!(problem.code, Code::CpuExceeded | Code::TimeExceeded), "{problem}");
}

/// A unit that closed its socket went on for five seconds without a limit, and that time was nobody's.
pub async fn what_closes_its_socket_and_goes_on_is_ended(stage: &Stage) {
    const SOURCE: &str = "import os, threading, time\ndef spin():\n  while True: pass\ndef handle(event):\n\
        \x20 os.close(0)\n  if event.data == b'ends': os._exit(7)\n  spin()";
    let function = stage.function(SOURCE, |function| function.limits.time_ms = 2_000);
    let ends = function.call("ends").await.unwrap_err();
    assert_eq!(ends.code, Code::UnitExited, "{ends}");
    let began = Instant::now();
    let goes_on = function.call("goes on").await.unwrap_err();
    let took = began.elapsed();
    assert_eq!(goes_on.code, Code::UnitNoReply, "{goes_on}");
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    // So little that it has used it before it is made to give way to others.
    let limited = stage.function(SOURCE, |function| function.limits.cpu_ms = 5);
    let problem = limited.call("goes on").await.unwrap_err();
    assert_eq!(problem.code, Code::CpuExceeded, "its limits go on: {problem}");
    stage::wait_until_idle().await;
}

/// A module had each of its units work as soon as it was forked: units that wait were watched by nobody.
pub async fn what_works_before_its_first_call_is_ended(stage: &Stage) {
    const SOURCE: &str = "import os, threading\ndef spin():\n  while True: pass\n\
        os.register_at_fork(after_in_child=lambda: threading.Thread(target=spin, daemon=True).start())\n\
        def handle(event): return b'here'";
    let (before, function) = (stage::processes_below(), stage.function(SOURCE, |_| {}));
    let began = Instant::now();
    // Each call has more of them made, and so a zygote makes no end of them. A call may come upon that end.
    while !function.log().contains("before they have a call") {
        assert!(began.elapsed() < Duration::from_secs(120), "{}", function.log());
        function.call("").await.ok();
        let ended = || function.log().matches("used CPU time while it waited").count();
        let (known, waits) = (ended(), Instant::now());
        // On a busy machine they take their time to have used too much.
        while ended() < known + 2 && waits.elapsed() < Duration::from_secs(10) {
            function.prepared.sweep(Instant::now(), false);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    function.prepared.sweep(Instant::now(), false);
    stage::wait_until("all of them are ended", || stage::processes_below() <= before).await;
}
