//! An apk or a dex file becomes a jar, once for each deployment: by a function of the node itself, in a jail.
//!
//! ```text
//!   bundle with app.apk ──▶ converter.tar of the base, in its jail ──▶ 0 jar · 1 what is wrong · 2 what is missing
//! ```
//! What reads the bytes of strangers is Java in a jail with a limit on time, memory and what it replies. It stays for a
//! while, because the second conversion takes a tenth of the first. The code of what it converts is never run in it.

mod nobody;

use crate::ProcessInner;
use crate::base::ready::{CONVERTER, CONVERTER_ENTRY};
use crate::base::{Assignment, Base, Beside, JavaBase, Program};
use crate::bundle::{About, Bundle, Contract as Takes, Runtime};
use crate::jail::Bind;
use crate::prepared::PreparedProcess;
use crate::zygote::Recipe;
use crate::{android, jar};
use budget::Budget;
use bytes::Bytes;
use event::Event;
use manifest::{Function, Name};
use nobody::Nobody;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::fs::File;
use std::future::poll_fn;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use unit::{Attempt, Contract, Deployed, Given, LogLine, LogWriter, Prepared, Work};
use unit_host::pool::Spares;

/// What one conversion may take; beyond it the image is refused.
const TIME_MAX: Duration = Duration::from_secs(120);
const CPU_MAX: Duration = Duration::from_secs(100);
const MEMORY_BYTES: u64 = 384 << 20;
const REPLY_BYTES_MAX: u64 = 96 << 20;
/// Conversions of one virtual machine, and how long it waits for the next.
const CALLS_MAX: u32 = 100;
const IDLE: Duration = Duration::from_secs(20);

const CONVERTED: u8 = 0;
const UNFIT: u8 = 1;
const LACKING: u8 = 2;

/// The converter that stays for a while. Who has it converts; the next one waits.
#[derive(Default)]
pub struct Converter {
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    prepared: Arc<PreparedProcess>,
    base: Arc<JavaBase>,
    used: Instant,
}

/// The bundle that units run: with a jar in the place of an apk or a dex file, as it is if it has one already.
///
/// # Errors
/// - [`Code::BundleInvalid`]: it is damaged, or cannot be converted within the limits.
/// - [`Code::ApiMissing`] names what its entry reaches and the base does not have.
pub fn converted(shared: &Arc<ProcessInner>, bundle: &Bundle<'_>, image: &[u8]) -> Result<Vec<u8>, Problem> {
    let base = shared.java_bases.android()?;
    base.fits(&bundle.about)?;
    let runtime = Handle::try_current().map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let converted_by = base.id();
    let work = convert(shared, base, &bundle.about.entry, image);
    // A thread of its own may wait, wherever this is called.
    let reply = thread::scope(|scope| scope.spawn(|| runtime.block_on(work)).join());
    let reply = reply.unwrap_or_else(|_| Err(Problem::new(Code::Internal, "the converter's thread panicked")))?;
    let words = || String::from_utf8_lossy(&reply[1..]).into_owned();
    match reply.first() {
        Some(&CONVERTED) => {
            let kept = bundle.files.iter().filter(|(name, _)| !android::is_app(name));
            let mut files: BTreeMap<String, &[u8]> = kept.map(|(name, content)| (name.clone(), *content)).collect();
            if reply.len() > 1 {
                files.insert(jar::APP.to_owned(), &reply[1..]);
            }
            Bundle { about: About { converted_by, ..bundle.about.clone() }, files }.pack()
        }
        Some(&UNFIT) => Err(Problem::new(Code::BundleInvalid, words()).with_hint(UNFIT_HINT)),
        Some(&LACKING) => Err(Problem::new(Code::ApiMissing, words())),
        _ => Err(Problem::new(Code::Internal, "the converter said what makes no sense")),
    }
}

const UNFIT_HINT: &str = "an image for Android is an apk, a dex file or a jar, and `entry` names one of its methods: \
    package.Class::method";

/// Whether an artefact is what the converter of the base that is there now makes of its image: another base may have
/// other classes, and another converter.
///
/// # Errors
/// [`Code::ArtefactCorrupt`]: it is not, and is to be made again. [`Code::BaseUnavailable`]: there is no base.
pub fn check(shared: &ProcessInner, about: &About) -> Result<(), Problem> {
    let now = shared.java_bases.android()?.id();
    if about.converted_by == now {
        return Ok(());
    }
    let detail =
        format!("the artefact was converted by the base {:?}, and the base is {now:?} now", about.converted_by);
    Err(Problem::new(Code::ArtefactCorrupt, detail).with_hint("it is made again from the image"))
}

async fn convert(shared: &Arc<ProcessInner>, base: Arc<JavaBase>, entry: &str, image: &[u8]) -> Result<Bytes, Problem> {
    let prepared = shared.converter.get(shared, &base)?;
    let event = Event {
        id: "convert".to_owned(),
        source: "/convert".to_owned(),
        kind: "lighter.convert".to_owned(),
        subject: Some(entry.to_owned()),
        attempt: 1,
        data: image.to_vec(),
        ..Event::default()
    };
    let attempt = Attempt {
        request_id: "convert".into(),
        work: Work::Event(event),
        deadline: Instant::now() + TIME_MAX,
        host: Arc::new(Nobody),
    };
    let mut running = prepared.attempt(attempt);
    let given = poll_fn(|context| running.poll_given(context)).await;
    drop(running);
    shared.converter.used(shared);
    let why = match given {
        Ok(Given::Reply(bytes)) => return Ok(bytes),
        Ok(Given::Failure(problem)) => problem,
        Ok(Given::Head(_)) => return Err(Problem::new(Code::Internal, "the converter replied with a head")),
        Err(problem) if is_of_the_image(problem.code) => problem,
        Err(problem) => return Err(problem),
    };
    let detail = format!("the image cannot be converted: {} ({})", why.detail, why.code.title());
    Err(Problem::new(Code::BundleInvalid, detail).with_hint(UNFIT_HINT))
}

/// Whether a converter that ends so was given what it could not cope with.
fn is_of_the_image(code: Code) -> bool {
    [
        Code::TimeExceeded,
        Code::CpuExceeded,
        Code::MemoryExceeded,
        Code::StackExceeded,
        Code::ReplyTooLarge,
        Code::UnitTrapped,
        Code::UnitExited,
        Code::UnitGarbled,
    ]
    .contains(&code)
}

impl Converter {
    fn get(&self, shared: &Arc<ProcessInner>, base: &Arc<JavaBase>) -> Result<Arc<PreparedProcess>, Problem> {
        let mut kept = self.kept.lock();
        if let Some(kept) = kept.as_mut().filter(|kept| Arc::ptr_eq(&kept.base, base)) {
            kept.used = Instant::now();
            return Ok(kept.prepared.clone());
        }
        let path = base.folder().join(CONVERTER);
        let code = File::open(&path)
            .map_err(|error| Problem::new(Code::BaseUnavailable, format!("{}: {error}", path.display())))?;
        let recipe = Recipe {
            deployed: Arc::new(deployed()),
            about: About::new(Takes::Event, CONVERTER_ENTRY, Runtime::Java),
            base: Arc::new(OfConverter(base.clone())),
            code,
        };
        let prepared = PreparedProcess::new(shared.clone(), recipe);
        *kept = Some(Kept { prepared: prepared.clone(), base: base.clone(), used: Instant::now() });
        Ok(prepared)
    }

    /// Lets go of it once nobody has used it for a while.
    fn used(&self, shared: &Arc<ProcessInner>) {
        if let Some(kept) = self.kept.lock().as_mut() {
            kept.used = Instant::now();
        }
        let shared = Arc::downgrade(shared);
        tokio::spawn(async move {
            tokio::time::sleep(IDLE).await;
            let Some(shared) = shared.upgrade() else { return };
            let mut kept = shared.converter.kept.lock();
            let idle = kept.take_if(|kept| kept.used.elapsed() >= IDLE);
            drop(kept);
            if let Some(idle) = idle {
                idle.prepared.sweep(Instant::now(), true);
            }
        });
    }
}

fn deployed() -> Deployed {
    let mut function = Function::new("converter");
    function.limits.time_ms = TIME_MAX.as_millis() as u64;
    function.limits.cpu_ms = CPU_MAX.as_millis() as u64;
    function.limits.memory_bytes = MEMORY_BYTES;
    function.limits.body_bytes = REPLY_BYTES_MAX;
    function.limits.concurrency = 2;
    function.units.reuse_calls = CALLS_MAX;
    Deployed {
        name: Name::try_from("converter".to_owned()).expect("a plain word"),
        version: 1,
        function: Arc::new(function),
        contract: Contract::Unit,
        secrets: Arc::default(),
        log: Arc::new(ToNode),
        budget: Budget::unbounded(),
    }
}

/// What the converter prints is for the node's own log.
struct ToNode;

impl LogWriter for ToNode {
    fn write(&self, line: LogLine<'_>) {
        tracing::info!(target: "lighter::bases", "converter: {}", line.message);
    }
}

/// The base as the converter has it: none waits ahead of need.
struct OfConverter(Arc<JavaBase>);

impl Base for OfConverter {
    fn fits(&self, about: &About) -> Result<(), Problem> {
        self.0.fits(about)
    }

    fn binds(&self) -> &[Bind] {
        self.0.binds()
    }

    fn program(&self, assignment: &Assignment<'_>) -> Program {
        let mut program = self.0.program(assignment);
        // Between two conversions it is gone again before the better compiler has paid: with it, guava's 2 MB of dex
        // take three times as much of a processor.
        program.arguments.insert(0, "-XX:TieredStopAtLevel=1".to_owned());
        program
    }

    fn beside(&self) -> Beside {
        self.0.beside()
    }

    fn spares(&self) -> Spares {
        Spares::NONE
    }
}
