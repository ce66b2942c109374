//! The class: code for every type of board, made at deployment and signed by the node.

use crate::enrolled::{Enrolled, EnrolledBoard};
use crate::finder::{Finder, SILENT_AFTER};
use crate::prepared::PreparedMetal;
use crate::session::Session;
use board_link::{Boot, Goal, Sighting, format_of, hash, seal_payload};
use kernel_code::{Features, Target};
use manifest::Isolation;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use unit::{Artefact, Deployed, IsolationClass, Prepared, Shape};

/// What code is made for. Boards say which of them they run.
pub const TARGETS: [Target; 2] = [Target::Aarch64, Target::X86_64(Features { bmi1: false, bmi2: false, lzcnt: false })];

/// Lives of a board in which it opened no session while a call ran there. One more takes the place of another, about
/// which the board may be asked again.
const REFUSED_MAX: usize = 64;

/// The class. One for the node; cheap to clone.
#[derive(Clone)]
pub struct MetalClass {
    pub(crate) shared: Arc<MetalInner>,
}

/// What all functions share.
pub struct MetalInner {
    enrolled: Enrolled,
    finder: OnceLock<Finder>,
    boards: Mutex<BTreeMap<String, Arc<Board>>>,
    /// A board has become free.
    pub freed: Notify,
    number: AtomicU64,
    fingerprint: String,
}

/// What is remembered of a board between calls.
#[derive(Default)]
pub struct Board {
    /// Held by the call that runs there; the session is kept for the next one.
    pub session: Arc<AsyncMutex<Option<(Boot, Session)>>>,
    /// Calls that run there.
    pub busy: AtomicU32,
    /// When it last said something in a call. It sends no beacons meanwhile.
    spoke: Mutex<Option<Instant>>,
    last: Mutex<Option<(Boot, Result<(), Problem>)>>,
}

impl Board {
    /// It said something in a call of this node's.
    pub fn spoke(&self) {
        *self.spoke.lock() = Some(Instant::now());
    }

    /// Whether a call of this node's explains why no beacon comes.
    fn is_at_work(&self) -> bool {
        self.busy.load(Relaxed) > 0 || self.spoke.lock().is_some_and(|spoke| spoke.elapsed() < SILENT_AFTER)
    }
}

/// A board that may take a call now.
#[derive(Clone)]
pub struct Candidate {
    pub entry: EnrolledBoard,
    pub seen: Sighting<SocketAddr>,
    pub board: Arc<Board>,
}

/// A board as `lighter boards` shows it.
pub struct Described {
    pub name: String,
    pub id: String,
    /// `attested`, `distrusted`, `heard`, `silent`; `unknown` for a board that was never enrolled.
    pub state: &'static str,
    /// Why it is distrusted.
    pub detail: Option<String>,
    pub machine: String,
    pub kernel: Option<String>,
    pub seen: Option<(Sighting<SocketAddr>, Duration)>,
}

/// Code for one kind of board.
#[derive(Clone)]
pub struct Payload {
    pub format: String,
    pub hash: board_link::Hash,
    pub bytes: Arc<[u8]>,
}

impl MetalClass {
    /// `folder` is that of the enrolled boards. Nothing is listened to before [`MetalClass::listen`].
    ///
    /// # Errors
    /// [`Code::DataUnusable`].
    pub fn new(folder: &Path) -> Result<Self, Problem> {
        let enrolled = Enrolled::open(folder)?;
        let codes: Vec<String> = TARGETS.into_iter().map(kernel_code::fingerprint).collect::<Result<_, _>>()?;
        let fingerprint = format!("{}-{}", codes.join("-"), enrolled.keys().id());
        let shared = MetalInner {
            enrolled,
            finder: OnceLock::new(),
            boards: Mutex::default(),
            freed: Notify::new(),
            number: AtomicU64::new(0),
            fingerprint,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Listens for beacons on this UDP port.
    ///
    /// # Errors
    /// The port is taken, or may not be used.
    pub async fn listen(&self, port: u16) -> std::io::Result<()> {
        let finder = Finder::listen(port).await?;
        let _ = self.shared.finder.set(finder);
        // What of them cannot be read, the next call says.
        let _ = self.shared.entries();
        Ok(())
    }

    /// All boards that are enrolled or heard. Those that were not asked in this life of theirs are attested now.
    ///
    /// # Errors
    /// [`Code::DataUnusable`].
    pub async fn describe(&self) -> Result<Vec<Described>, Problem> {
        let shared = &self.shared;
        let entries = shared.entries()?;
        let mut described = Vec::new();
        for entry in &entries {
            let seen = shared.seen(entry);
            let (mut state, mut detail) = ("silent", None);
            if let Some(candidate) = shared.candidate(entry) {
                (state, detail) = match shared.attested(&candidate).await {
                    Some(Ok(())) => ("attested", None),
                    Some(Err(problem)) if problem.code == Code::BoardDistrusted => {
                        ("distrusted", Some(problem.detail.into_owned()))
                    }
                    Some(Err(problem)) => ("heard", Some(problem.detail.into_owned())),
                    None => ("heard", None),
                };
            }
            let kernel = seen.as_ref().map(|(seen, _)| board_link::fingerprint(&seen.beacon.kernel));
            let (name, id) = (entry.name.clone(), entry.id.to_string());
            described.push(Described { name, id, state, detail, machine: entry.machine.clone(), kernel, seen });
        }
        let strangers = shared.finder.get().map(Finder::all).unwrap_or_default();
        let strangers = strangers
            .into_iter()
            .filter(|(seen, ago)| *ago < SILENT_AFTER && entries.iter().all(|entry| entry.id != seen.beacon.board));
        described.extend(strangers.map(|(seen, ago)| Described {
            name: seen.beacon.name.clone(),
            id: seen.beacon.board.to_string(),
            state: "unknown",
            detail: None,
            machine: seen.beacon.machine.board.clone(),
            kernel: Some(board_link::fingerprint(&seen.beacon.kernel)),
            seen: Some((seen, ago)),
        }));
        Ok(described)
    }
}

impl MetalInner {
    pub fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// The boards that can run one of these payloads now, the least busy first; `wanted` names the only one that will
    /// do.
    ///
    /// # Errors
    /// [`Code::BoardUnknown`], [`Code::BoardMissing`]: with what is known of those there are.
    pub fn candidates(&self, payloads: &[Payload], wanted: Option<&str>) -> Result<Vec<Candidate>, Problem> {
        let entries = self.entries()?;
        if let Some(wanted) = wanted.filter(|wanted| entries.iter().all(|entry| entry.name != *wanted)) {
            return Err(self.not_enrolled(wanted));
        }
        let count = entries.len();
        let mut is_silent = true;
        let mut candidates: Vec<Candidate> = Vec::new();
        for entry in entries.into_iter().filter(|entry| wanted.is_none_or(|wanted| entry.name == wanted)) {
            let Some(candidate) = self.candidate(&entry) else { continue };
            is_silent = false;
            if payload_for(payloads, &candidate.seen.beacon.formats).is_some() {
                candidates.push(candidate);
            }
        }
        // What the node itself has given them counts more than what they say of others.
        candidates.sort_by_key(|one| (one.board.busy.load(Relaxed), one.seen.beacon.load.sessions));
        if candidates.is_empty() {
            return Err(match (self.finder.get(), wanted) {
                (None, _) => deaf(),
                (_, Some(wanted)) if is_silent => {
                    missing(format!("the board {wanted:?} is silent: not heard for {} s", SILENT_AFTER.as_secs()))
                }
                (_, Some(wanted)) => missing(format!("the board {wanted:?} does not run this code")),
                (_, None) => missing(format!("of {count} enrolled boards none was heard that runs this code")),
            });
        }
        Ok(candidates)
    }

    /// The boards that are enrolled, of which the finder hears here: others enrol them while the node runs.
    fn entries(&self) -> Result<Vec<EnrolledBoard>, Problem> {
        let entries = self.enrolled.all()?;
        if let Some(finder) = self.finder.get() {
            finder.enroll(entries.iter().map(|entry| entry.id));
        }
        Ok(entries)
    }

    fn not_enrolled(&self, name: &str) -> Problem {
        let heard = self.finder.get().map(Finder::all).unwrap_or_default();
        match heard.iter().any(|(seen, ago)| *ago < SILENT_AFTER && seen.beacon.name == name) {
            false => Problem::new(Code::BoardUnknown, format!("there is no board {name:?}")),
            true => Problem::new(Code::BoardUnknown, format!("the board {name:?} was heard, but is not enrolled here"))
                .with_hint("`lighter boot` and `lighter flash` enrol a board with the node of the data folder"),
        }
    }

    /// A session with the board, the one that was kept if it is still good.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn session(&self, candidate: &Candidate) -> Result<Session, Problem> {
        let Candidate { entry, seen, board } = candidate;
        let opened = self.open(entry, seen).await;
        let outcome = opened.as_ref().map(|_| ()).map_err(Clone::clone);
        // That it did not answer says nothing of what it is.
        if !matches!(&outcome, Err(problem) if problem.code == Code::BoardLost) {
            *board.last.lock() = Some((seen.beacon.boot, outcome));
        }
        opened
    }

    async fn attested(&self, candidate: &Candidate) -> Option<Result<(), Problem>> {
        let boot = candidate.seen.beacon.boot;
        let known = || candidate.board.last.lock().clone().filter(|(of, _)| *of == boot).map(|(_, outcome)| outcome);
        if let Some(known) = known() {
            return Some(known);
        }
        // A call that runs there attests it as well.
        let mut place = candidate.board.session.try_lock().ok()?;
        match self.session(candidate).await {
            Ok(session) => {
                *place = Some((boot, session));
                Some(Ok(()))
            }
            Err(problem) => Some(Err(problem)),
        }
    }

    /// A session with the board in the life that it was seen in, and in no other.
    async fn open(&self, entry: &EnrolledBoard, seen: &Sighting<SocketAddr>) -> Result<Session, Problem> {
        let goal =
            Goal { board: entry.id, channel_key: entry.channel_key, boot: seen.beacon.boot, policy: entry.policy() };
        let mut address = seen.address;
        address.set_port(seen.beacon.link_port);
        Session::open(&entry.name, address, self.enrolled.keys(), goal).await
    }

    /// Returns when the board is in another life than the candidate's. It has to open a session in that one: whoever
    /// kept a beacon of an earlier life can send it again at any time.
    pub async fn restarted(&self, candidate: &Candidate) {
        let Some(finder) = self.finder.get() else { return std::future::pending().await };
        let (entry, boot) = (&candidate.entry, candidate.seen.beacon.boot);
        // Lives in which it opened none, and at which beacon: a later one may be of a board that is there by now.
        let mut refused: BTreeMap<Boot, u32> = BTreeMap::new();
        loop {
            let is_another = |seen: &Sighting<SocketAddr>| {
                let is_later = |sequence: &u32| seen.beacon.sequence > *sequence;
                seen.beacon.boot != boot && refused.get(&seen.beacon.boot).is_none_or(is_later)
            };
            let seen = finder.wait(&entry.id, is_another).await;
            if self.open(entry, &seen).await.is_ok() {
                return;
            }
            if refused.len() == REFUSED_MAX {
                refused.pop_first();
            }
            refused.insert(seen.beacon.boot, seen.beacon.sequence);
        }
    }

    fn seen(&self, entry: &EnrolledBoard) -> Option<(Sighting<SocketAddr>, Duration)> {
        self.finder.get()?.seen(&entry.id)
    }

    /// A board that is there: its beacon was heard lately, or it works for this node.
    fn candidate(&self, entry: &EnrolledBoard) -> Option<Candidate> {
        let (seen, ago) = self.seen(entry)?;
        let board = self.boards.lock().entry(entry.name.clone()).or_default().clone();
        (ago < SILENT_AFTER || board.is_at_work()).then(|| Candidate { entry: entry.clone(), seen, board })
    }
}

/// The payload for a board with these formats, which it likes best first.
pub fn payload_for<'a>(payloads: &'a [Payload], formats: &[String]) -> Option<&'a Payload> {
    formats.iter().find_map(|format| payloads.iter().find(|payload| payload.format == *format))
}

/// A payload for one target, signed by the node.
///
/// # Errors
/// The code does not compile.
pub fn payload(enrolled: &Enrolled, image: &[u8], target: Target) -> Result<Vec<u8>, Problem> {
    let code = kernel_code::compile(image, target)?;
    Ok(seal_payload(&code, &format_of(target.as_str()), enrolled.keys()))
}

impl IsolationClass for MetalClass {
    fn isolation(&self) -> Isolation {
        Isolation::Metal
    }

    fn fingerprint(&self) -> &str {
        &self.shared.fingerprint
    }

    fn check(&self, image: &[u8]) -> Result<Shape, Problem> {
        let shape = kernel_code::shape(image)?;
        if self.shared.finder.get().is_none() {
            return Err(deaf());
        }
        Ok(shape)
    }

    /// One payload after the other, each behind its length.
    fn compile(&self, image: &[u8]) -> Result<Vec<u8>, Problem> {
        self.compile_by(image, &mut kernel_code::compile_here)
    }

    fn has_compiler(&self) -> bool {
        true
    }

    fn compile_by(&self, image: &[u8], compiler: &mut unit::Compiler<'_>) -> Result<Vec<u8>, Problem> {
        let mut artefact = Vec::new();
        for target in TARGETS {
            let code = compiler(&target.word(), image)?;
            let payload = seal_payload(&code, &format_of(target.as_str()), self.shared.enrolled.keys());
            let bytes = u32::try_from(payload.len()).ok().filter(|bytes| *bytes <= board_link::CODE_BYTES_MAX);
            let bytes = bytes.ok_or_else(|| {
                Problem::new(
                    Code::ImageTooLarge,
                    format!("compiled, it has {} bytes: too many for a board", payload.len()),
                )
                .with_hint("leave out code and data that it does not need, or choose isolation = \"wasm\"")
            })?;
            artefact.extend_from_slice(&bytes.to_le_bytes());
            artefact.extend_from_slice(&payload);
        }
        Ok(artefact)
    }

    fn load(&self, artefact: Artefact, function: Deployed) -> Result<Arc<dyn Prepared>, Problem> {
        let corrupt = |why: String| Problem::new(Code::ArtefactCorrupt, format!("the artefact cannot be read: {why}"));
        let (mut file, mut bytes) = (artefact.file, Vec::new());
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(|error| corrupt(error.to_string()))?;
        let mut rest = &bytes[..];
        let mut payloads = Vec::new();
        for target in TARGETS {
            let payload = rest.split_first_chunk().and_then(|(count, after)| {
                let (payload, after) = after.split_at_checked(u32::from_le_bytes(*count) as usize)?;
                rest = after;
                Some(payload)
            });
            let payload = payload.ok_or_else(|| corrupt("it ends too early".into()))?;
            let format = format_of(target.as_str());
            payloads.push(Payload { format, hash: hash(payload), bytes: payload.into() });
        }
        Ok(Arc::new(PreparedMetal::new(self.shared.clone(), Arc::new(function), payloads)))
    }
}

fn missing(detail: String) -> Problem {
    Problem::new(Code::BoardMissing, detail)
}

/// What a node is that was not started with `--boards`.
fn deaf() -> Problem {
    missing("this node does not listen for beacons".into()).with_hint("start it with `lighter up --boards`")
}

#[cfg(test)]
mod tests;
