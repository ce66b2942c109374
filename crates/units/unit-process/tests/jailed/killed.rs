//! A node is killed, and with it ends all that runs in its jails, whatever that does about it: at once, and not when a
//! node starts the next time.

use crate::stage::{self, Stage};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long after its node a jail may be found.
const END_TIME_MAX: Duration = Duration::from_secs(1);

/// What code in a jail might do to stay. Each begins when the module is imported.
const WAYS_TO_STAY: [(&str, &str); 5] = [
    ("asks not to be told", "libc.prctl(1, 0, 0, 0, 0)"),
    ("asks by the number of the call", "libc.syscall(157 if os.uname().machine == 'x86_64' else 167, 1, 0, 0, 0, 0)"),
    // Another thread that becomes another program takes the place of the first one, for which the signal was meant.
    (
        "becomes another program from a thread",
        "threading.Thread(target=lambda: (time.sleep(0.5), os.execv(sys.executable, ['python3', '-c', STAY]))).start()",
    ),
    ("leaves children in sessions of their own", "[stay() for _ in range(8) if os.fork() == 0]"),
    (
        "ignores every signal, and its host",
        "[signal.signal(number, signal.SIG_IGN) for number in range(1, 65) if number not in (9, 17, 19, 32, 33)]; os.fork() or stay()",
    ),
];

const SOURCE: &str = "import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL(None)
STAY = 'import time\\nwhile True: time.sleep(1)'
def stay():
  os.setsid()
  while True:
    if os.fork() != 0: time.sleep(1000)
    time.sleep(0.2)
WAY
def handle(event): return b'here'
";

/// Serves one function until it is killed: `node BASES PYTHON WAY`.
pub fn be_a_node(words: &[String]) -> ExitCode {
    let [bases, python, way] = words else { return ExitCode::from(2) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(async {
        let stage = Stage::open_at(bases.into(), Some(python.into())).await.expect("it opened for the test as well");
        let function = stage.function(&SOURCE.replace("WAY", way), |_| {});
        // What becomes another program answers no more.
        let answer = tokio::time::timeout(Duration::from_secs(3), function.call("")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("ready {answer:?}");
        std::future::pending::<ExitCode>().await
    })
}

pub async fn no_jail_outlives_its_node(stage: &Stage) {
    let program = std::env::current_exe().expect("this program");
    for (number, (what, way)) in WAYS_TO_STAY.iter().enumerate() {
        let bases: PathBuf = stage.folder(&format!("killed-{number}"));
        let mut node = Command::new(&program)
            .args(["node".as_ref(), bases.as_os_str(), stage.python().as_os_str(), way.as_ref()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a node");
        let output = BufReader::new(node.stdout.take().expect("piped"));
        let ready = output.lines().map_while(Result::ok).find(|line| line.starts_with("ready"));
        let running = stage::processes_of(node.id());
        assert!(ready.is_some() && running.len() > 1, "{what}: {ready:?}, {running:?}");
        node.kill().expect("it runs");
        let killed = Instant::now();
        node.wait().expect("it was killed");
        let left = || running.iter().filter(|process| stage::runs(**process)).count();
        while left() > 0 && killed.elapsed() < END_TIME_MAX {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(left(), 0, "{what}: what ran is there after {:?}", killed.elapsed());
    }
}
