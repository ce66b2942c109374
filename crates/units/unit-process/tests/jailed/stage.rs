//! Where the tests play: a class with a base that is kept between runs, functions of Python source, and a look at what
//! is left of them.

use checks::Images;
use event::Event;
use handling::{Call, Content, Handler, Work};
use manifest::{Function, Name};
use problem::Problem;
use state::{Options, State};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use unit::{Artefact, Deployed, IsolationClass, LogLine, LogWriter, Prepared};
use unit_process::{Config, ProcessClass, bundle};

const GUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guests");
const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../sdks/python/src");

pub struct Stage {
    pub class: ProcessClass,
    folder: TempDir,
    bases: PathBuf,
    number: AtomicU32,
}

/// The images of the checks.
pub struct Guests([Vec<u8>; 3]);

impl Guests {
    pub fn borrowed(&self) -> Images<'_> {
        let [hello, counter, attack] = &self.0;
        Images {
            hello,
            counter,
            attack,
            attack_source: "attack.py\", line",
            dumps: false,
            lacks: &[checks::Trait::Wasi],
            wasi: None,
            settles: &checks::settled,
        }
    }
}

impl Stage {
    /// # Errors
    /// What this system lacks: the need, as `tools/skips` calls it, and more words.
    pub async fn open() -> Result<Self, String> {
        // Beside the build, and not below a temporary folder: installing numpy takes longer than all tests.
        Self::open_at(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bases"), None).await
    }

    /// # Errors
    /// What this system lacks: the need, as `tools/skips` calls it, and more words.
    pub async fn open_at(bases: PathBuf, python: Option<PathBuf>) -> Result<Self, String> {
        let config = Config {
            folder: bases.clone(),
            python,
            java: None,
            allow_weaker: true,
            units_bytes_max: 8 << 30,
            jail: vec!["jail".into()],
        };
        let class = ProcessClass::new(config).map_err(|problem| format!("jail: process units: {problem}"))?;
        let missing = class.missing().await.map_err(|problem| format!("jail: process units: {problem}"))?;
        for missing in &missing {
            println!("this system refuses {}: {}", missing.protection.as_str(), missing.why);
        }
        class.make_base().map_err(|problem| format!("python-packages: process units: {problem}"))?;
        let bases = bases.canonicalize().map_err(|error| error.to_string())?;
        Ok(Self { class, folder: tempfile::tempdir().expect("a folder"), bases, number: AtomicU32::new(0) })
    }

    /// Drops the class; says where its bases are.
    pub fn close(self) -> PathBuf {
        self.bases
    }

    /// Where the class keeps its bases.
    pub fn bases(&self) -> &Path {
        &self.bases
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn images(&self) -> Guests {
        Guests(["hello", "counter", "attack"].map(|name| bundle_of(name, &[name, "escapes"])))
    }

    pub fn attack(&self, change: impl FnOnce(&mut Function)) -> Running {
        self.run(&bundle_of("attack", &["attack", "escapes"]), change)
    }

    /// A function of one file.
    pub fn function(&self, source: &str, change: impl FnOnce(&mut Function)) -> Running {
        let files = BTreeMap::from([("app.py".to_owned(), source.as_bytes())]);
        self.run(&bundle::of_handler("app:handle", files).expect("a bundle"), change)
    }

    /// A function of a bundle.
    pub fn run(&self, image: &[u8], change: impl FnOnce(&mut Function)) -> Running {
        self.load(image, &self.class.compile(image).expect("it fits the base"), change).expect("it loads")
    }

    /// A function of a bundle, and of an artefact that may be another's.
    pub fn load(&self, image: &[u8], artefact: &[u8], change: impl FnOnce(&mut Function)) -> Result<Running, Problem> {
        let number = self.number.fetch_add(1, Relaxed);
        let folder = self.folder(&number.to_string());
        fs::create_dir_all(&folder).expect("a folder");
        let shape = self.class.check(image).expect("a bundle");
        let path = folder.join("artefact");
        fs::write(&path, artefact).expect("room");
        let mut function = Function::new("attack");
        change(&mut function);
        let log = Arc::<Lines>::default();
        let deployed = Deployed {
            name: Name::try_from("attack".to_owned()).expect("a name"),
            version: 1,
            function: Arc::new(function),
            contract: shape.contract,
            secrets: Arc::default(),
            log: log.clone(),
            budget: budget::Budget::unbounded(),
        };
        let file = File::open(&path).expect("just written");
        let prepared = self.class.load(Artefact { path, file }, deployed)?;
        let state = State::open(&folder.join("state"), Options::default()).expect("a store");
        Ok(Running { prepared, handler: Handler::new(state), log })
    }

    /// Memory of all units, where the kernel counts it.
    pub fn memory_bytes(&self) -> Option<u64> {
        let read = |folder: PathBuf| {
            let of = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
            of("memory.usage_in_bytes").or_else(|| of("memory.current"))
        };
        control_groups(&self.bases).into_iter().find_map(read)
    }

    /// The weights of all units on the processors, where a group has 100 that nobody weighed; none where the kernel has
    /// no groups for that.
    pub fn weights(&self) -> Option<Vec<u64>> {
        let weight = |folder: &Path| {
            let of = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
            of("cpu.weight").or_else(|| of("cpu.shares").map(|shares| shares * 100 / 1_024))
        };
        let groups = control_groups(&self.bases);
        groups.iter().find(|group| weight(group).is_some()).map(|group| {
            let below = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
            below(group)
                .flat_map(|family| below(&family).collect::<Vec<_>>())
                .filter_map(|unit| weight(&unit))
                .collect()
        })
    }

    /// An interpreter that has numpy.
    pub fn python(&self) -> PathBuf {
        let bases = fs::read_dir(&self.bases).expect("bases").flatten();
        bases.map(|entry| entry.path().join("venv/bin/python")).find(|python| python.exists()).expect("a base")
    }

    /// The bundle the Python SDK makes.
    pub fn pack_by_sdk(&self, files: &[(&str, &str)]) -> Vec<u8> {
        let script = format!(
            "import sys, json; sys.path.insert(0, {SDK:?}); from lighterage.bundle import pack; \
             files = {{name: text.encode() for name, text in json.loads(sys.argv[1])}}; \
             about = {{'format': 1, 'entry': 'app:handle', 'contract': 'call', 'python': '3.11', 'requires': ['numpy==2.1.0']}}; \
             sys.stdout.buffer.write(pack(about, files))"
        );
        let python = self.python();
        let files = files.iter().map(|(name, text)| format!("[{name:?}, {text:?}]")).collect::<Vec<_>>().join(", ");
        let output = Command::new(python).args(["-I", "-c", &script, &format!("[{files}]")]).output().expect("python");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }
}

fn bundle_of(name: &str, modules: &[&str]) -> Vec<u8> {
    let read = |module: &&str| {
        let path = Path::new(GUESTS).join(format!("{module}.py"));
        (format!("{module}.py"), fs::read(path).expect("a guest"))
    };
    let files: BTreeMap<String, Vec<u8>> = modules.iter().map(read).collect();
    let borrowed = files.iter().map(|(name, content)| (name.clone(), content.as_slice())).collect();
    bundle::of_handler(&format!("{name}:handle"), borrowed).expect("a bundle")
}

/// A function ready to run, and its log.
pub struct Running {
    pub prepared: Arc<dyn Prepared>,
    pub handler: Handler,
    log: Arc<Lines>,
}

impl Running {
    pub async fn call(&self, data: &str) -> Result<String, Problem> {
        self.call_bytes(data.as_bytes()).await.map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    pub async fn call_bytes(&self, data: &[u8]) -> Result<Vec<u8>, Problem> {
        let event = Event { data: data.into(), attempt: 1, ..Event::default() };
        // Its limits end a call that goes on; this is for a machine that is busy with other things.
        let deadline = Instant::now() + Duration::from_secs(300);
        let call = Call { request_id: "test".into(), work: Work::Event(event), deadline, lease: None };
        let reply = self.handler.handle(self.prepared.clone(), call, ()).await?;
        match reply.content {
            Content::Bytes(bytes) => Ok(bytes.into()),
            Content::Http(_) => panic!("a handler replies with bytes"),
        }
    }

    pub fn log(&self) -> String {
        self.log.0.lock().expect("not poisoned").join("\n")
    }
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl LogWriter for Lines {
    fn write(&self, line: LogLine<'_>) {
        self.0.lock().expect("not poisoned").push(line.message.to_owned());
    }
}

/// Waits for what must come; what does not come within a while never will.
pub async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// CPU time of this process, in ticks of the system: a hundredth of a second.
pub fn cpu_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("it is there");
    let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// Waits until the processes that this one has started do next to nothing for a while.
pub async fn wait_until_idle() {
    let began = Instant::now();
    loop {
        let before: BTreeMap<u32, u64> = ticks_below();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let more = |(process, ticks): (u32, u64)| ticks.saturating_sub(before.get(&process).copied().unwrap_or(0));
        let used: u64 = ticks_below().into_iter().map(more).sum();
        if used < 10 {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{used} ticks in a second");
    }
}

/// CPU time of each process that this one has started, in ticks.
pub fn ticks_below() -> BTreeMap<u32, u64> {
    let ticks = |process: u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        Some((process, rest.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()))
    };
    processes_of(std::process::id()).into_iter().filter_map(ticks).collect()
}

/// Whether this process may give a priority back that it has taken.
pub fn can_raise_priority() -> bool {
    let renice = |priority: &str| {
        let command = format!("renice -n {priority} -p $$ > /dev/null 2>&1");
        format!("{command} || exit 1; ")
    };
    let script = renice("1") + &renice("0") + "[ \"$(ps -o ni= -p $$ | tr -d ' ')\" = 0 ]";
    Command::new("sh").args(["-c", &script]).status().is_ok_and(|status| status.success())
}

/// Whether a process is there and has not ended.
pub fn runs(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// How many processes this one has started, directly or not, that have not ended.
pub fn processes_below() -> usize {
    processes_of(std::process::id()).len()
}

/// Those that a process has started, directly or not, that have not ended.
pub fn processes_of(above_all: u32) -> Vec<u32> {
    let parents: BTreeMap<u32, u32> = fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| {
            let process = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, rest) = stat.rsplit_once(") ")?;
            let mut words = rest.split(' ');
            // What has ended and only waits to be reaped holds nothing.
            words.next().filter(|state| *state != "Z")?;
            Some((process, words.next()?.parse().ok()?))
        })
        .collect();
    let is_below = |process: &u32| {
        let mut above = parents.get(process);
        while let Some(parent) = above {
            if *parent == above_all {
                return true;
            }
            above = parents.get(parent);
        }
        false
    };
    parents.keys().copied().filter(is_below).collect()
}

/// Folders of control groups below those of this data folder.
pub fn control_groups(bases: &Path) -> Vec<PathBuf> {
    let id = unit_process::group_name(bases);
    let mut open = vec![PathBuf::from("/sys/fs/cgroup")];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_str() == Some(&id) {
                    found.push(entry.path());
                }
                open.push(entry.path());
            }
        }
    }
    found
}
