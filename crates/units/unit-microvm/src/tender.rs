//! A tender: the thread that hosts one microvm, and what the node holds of it.
//!
//! ```text
//!   node ── Ask: an event, an answer ──▶ thread ── enters ──▶ guest
//!        ◀── Told: lines, a question, the end ──┘ ◀── exits ───┘
//! ```
//! The thread makes the machine, goes behind its system-call filter, and from then on runs units one after the other:
//! between two the machine's memory is laid out anew, and nothing of the one before is left.

use crate::core_dump;
use crate::debugger::{Next, Session, Signal};
use crate::exits::{self, Asked, Bounds, Place};
use crate::snapshot::Snapshot;
use crate::vm::{Registers, Stop, Vm, interrupt_signal};
use crate::{seccomp, thread};
use kernel_abi::boot::Boot;
use kernel_abi::exits::{CallPage, DONE, REFUSED};
use kernel_abi::{Policy, Verb, layout, ring};
use kvm_ioctls::Kvm;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// What one exit's copy may have: a request, a reply.
const EXIT_BYTES: u64 = 16 << 20;
/// Messages on their way from a guest that talks faster than it is heard.
const TOLD_MAX: usize = 4;
/// Stack of the thread: it only ever copies and checks.
const STACK_BYTES: usize = 256 << 10;

/// What the node wants of the thread.
enum Ask {
    /// An event for the unit, a frame.
    Event(Vec<u8>),
    /// The answer to its question, a frame.
    Answer(Vec<u8>),
    /// A core file of the unit as it is now.
    Dump(oneshot::Sender<io::Result<Vec<u8>>>),
    /// A fresh unit in the same machine; then `done` is called.
    Renew(Box<dyn FnOnce(io::Result<()>) + Send>),
}

/// What the thread tells.
#[derive(Debug)]
pub struct Told {
    /// Log lines since the last time: level and text.
    pub lines: Vec<(u32, Vec<u8>)>,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// Only lines.
    Lines,
    /// It asks for something, in a frame, and waits.
    Asks { verb: Verb, request: Vec<u8> },
    /// It has handled the event: the reply, a frame.
    Replied { reply: Vec<u8>, memory_bytes: u64 },
    /// The kernel gave up, in these words.
    Panicked(String),
    /// It did what it may not; where it was then.
    Faulted(Box<Crash>),
    /// It told its tender what cannot be.
    Lied(String),
    /// It was stopped.
    Stopped,
    /// The system would not let it run.
    Failed(io::Error),
}

/// A guest at its end.
#[derive(Debug, Clone)]
pub struct Crash {
    pub registers: Registers,
    /// A core file, if the function asks for one.
    pub dump: Option<Vec<u8>>,
}

/// What thread and node share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// None once the thread has ended.
    thread: Mutex<Option<libc::pid_t>>,
    /// CPU time the thread had when its last event came.
    cpu_before_ns: AtomicU64,
}

impl Shared {
    fn cpu(&self) -> Option<Duration> {
        thread::cpu((*self.thread.lock())?)
    }
}

/// What units of one function are made of.
pub struct Recipe {
    pub kvm: Arc<Kvm>,
    pub snapshot: Arc<Snapshot>,
    pub policy: Policy,
    pub memory_bytes: u64,
    /// Of an event, or its reply.
    pub body_bytes: u64,
    /// Keeps a core file of a crash.
    pub dump: bool,
    /// Whoever looks into the first unit that is given an event.
    pub debugger: Mutex<Option<Session>>,
}

/// A unit that waits for an event, or works at one. Dropping it ends its machine.
pub struct Tender {
    ask: Sender<Ask>,
    told: mpsc::Receiver<Told>,
    shared: Arc<Shared>,
    pub number: u64,
    /// Events it was given since its memory was laid out.
    pub events: u32,
    pub since: Instant,
    is_behind: bool,
}

impl Tender {
    /// Makes a machine in a thread of its own, and calls `done` when it waits for its first event.
    pub fn start(recipe: Arc<Recipe>, number: u64, done: impl FnOnce(io::Result<Tender>) + Send + 'static) {
        let (ask, asked) = channel();
        let (tell, told) = mpsc::channel(TOLD_MAX);
        let shared = Arc::new(Shared::default());
        let tender =
            Self { ask, told, shared: shared.clone(), number, events: 0, since: Instant::now(), is_behind: false };
        // Whichever side fails calls it, and only one can.
        let done = Arc::new(Mutex::new(Some((done, tender))));
        let finish = done.clone();
        let run = move || {
            *shared.thread.lock() = Some(thread::this());
            let guest = Guest::start(recipe, shared.clone(), tell);
            let Some((done, tender)) = finish.lock().take() else { return };
            match guest {
                Ok(mut guest) => {
                    done(Ok(tender));
                    guest.serve(&asked);
                }
                Err(error) => done(Err(error)),
            }
            *shared.thread.lock() = None;
        };
        let started = std::thread::Builder::new().name(format!("tender-{number}")).stack_size(STACK_BYTES).spawn(run);
        if let Err(error) = started
            && let Some((failed, _)) = done.lock().take()
        {
            failed(Err(error));
        }
    }

    /// Gives it an event.
    pub fn begin(&mut self, event: Vec<u8>) {
        self.events += 1;
        let before = self.shared.cpu().unwrap_or_default();
        self.shared.cpu_before_ns.store(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX), SeqCst);
        self.ask.send(Ask::Event(event)).ok();
    }

    pub fn answer(&mut self, answer: Vec<u8>) {
        self.ask.send(Ask::Answer(answer)).ok();
    }

    /// Waits for what it tells next. Loses nothing when it is dropped.
    pub async fn told(&mut self) -> Told {
        let gone = || Told { lines: Vec::new(), what: What::Failed(io::Error::other("the tender has ended")) };
        self.told.recv().await.unwrap_or_else(gone)
    }

    /// A core file of a unit that has replied.
    pub async fn dump(&mut self) -> io::Result<Vec<u8>> {
        let (sender, receiver) = oneshot::channel();
        self.ask.send(Ask::Dump(sender)).ok();
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("the tender has ended")))
    }

    /// CPU time since the event was given.
    pub fn cpu(&self) -> Duration {
        let before = Duration::from_nanos(self.shared.cpu_before_ns.load(SeqCst));
        self.shared.cpu().unwrap_or_default().saturating_sub(before)
    }

    /// A clock that can be asked while the tender is waited for.
    pub fn clock(&self) -> Clock {
        Clock(self.shared.clone())
    }

    /// Lets others go first from now on.
    pub fn is_behind(&mut self) {
        self.is_behind = true;
    }

    /// Makes a fresh unit of it, in the background; `done` has it when it is ready. One that cannot be is ended.
    pub fn renew(mut self, number: u64, done: impl FnOnce(Tender) + Send + 'static) {
        if self.is_behind {
            let Some(thread) = *self.shared.thread.lock() else { return };
            if !thread::set_nice(thread, 0) {
                return;
            }
            self.is_behind = false;
        }
        (self.events, self.number) = (0, number);
        let ask = self.ask.clone();
        let renewed = move |result: io::Result<()>| {
            if result.is_ok() {
                self.since = Instant::now();
                done(self);
            }
        };
        ask.send(Ask::Renew(Box::new(renewed))).ok();
    }
}

impl Drop for Tender {
    fn drop(&mut self) {
        stop(&self.shared);
    }
}

fn stop(shared: &Shared) {
    shared.stop.store(true, SeqCst);
    let thread = shared.thread.lock();
    if let Some(thread) = *thread {
        thread::signal(thread, interrupt_signal());
    }
}

/// How much a unit that is at work has used.
#[derive(Clone)]
pub struct Clock(Arc<Shared>);

impl Clock {
    pub fn cpu(&self) -> Duration {
        let before = Duration::from_nanos(self.0.cpu_before_ns.load(SeqCst));
        self.0.cpu().unwrap_or_default().saturating_sub(before)
    }

    /// Whether the thread has not ended yet.
    #[cfg(test)]
    pub fn is_there(&self) -> bool {
        self.0.thread.lock().is_some()
    }

    /// Lets others go first: a unit that works for long must not hold up those that are soon done.
    pub fn step_back(&self, nice: libc::c_int) {
        if let Some(thread) = *self.0.thread.lock() {
            thread::set_nice(thread, nice);
        }
    }
}

/// The thread's side.
struct Guest {
    vm: Vm,
    recipe: Arc<Recipe>,
    boot: Boot,
    bounds: Bounds,
    shared: Arc<Shared>,
    tell: mpsc::Sender<Told>,
    began: Instant,
    /// An answer that did not fit into the room the guest had for it.
    pending: Option<Vec<u8>>,
    debugger: Option<Session>,
}

/// The node has gone, or the unit is at its end: this machine has nothing more to do.
struct Over;

impl Guest {
    fn start(recipe: Arc<Recipe>, shared: Arc<Shared>, tell: mpsc::Sender<Told>) -> io::Result<Self> {
        interrupt_signal();
        let Recipe { kvm, snapshot, policy, memory_bytes, body_bytes, .. } = &*recipe;
        let mut vm = Vm::new(kvm, snapshot.reserve()?)?;
        vm.can_be_interrupted();
        let boot = Boot { memory_bytes: *memory_bytes, policy: policy.0, tsc_hz: vm.tsc_hz(), ..Boot::new() };
        let bytes_max = body_bytes.saturating_add(EXIT_BYTES);
        let bounds = Bounds { heap: snapshot.heap(), code: 0..0, policy: *policy, bytes_max };
        let (began, recipe) = (Instant::now(), recipe.clone());
        let guest = Self { vm, boot, bounds, shared, tell, began, pending: None, debugger: None, recipe };
        guest.lay()?;
        seccomp::enter()?;
        Ok(guest)
    }

    /// A fresh unit.
    fn lay(&self) -> io::Result<()> {
        self.recipe.snapshot.lay(self.vm.memory(), &self.boot)?;
        self.vm.set_registers(&self.recipe.snapshot.about.registers)
    }

    fn serve(&mut self, asked: &Receiver<Ask>) {
        while let Ok(ask) = asked.recv() {
            match ask {
                Ask::Event(event) => {
                    if self.deliver(event, layout::INBOX_BYTES).and_then(|()| self.run(asked)).is_err() {
                        return;
                    }
                }
                Ask::Dump(to) => {
                    to.send(self.dump()).ok();
                }
                Ask::Renew(done) => {
                    self.pending = None;
                    let laid = self.lay();
                    let is_over = laid.is_err();
                    done(laid);
                    if is_over {
                        return;
                    }
                }
                // Nothing was asked.
                Ask::Answer(_) => {}
            }
        }
    }

    /// Runs until the event is handled.
    fn run(&mut self, asked: &Receiver<Ask>) -> Result<(), Over> {
        self.debugger = self.recipe.debugger.lock().take();
        self.look(Signal::Trap)?;
        loop {
            if self.shared.stop.load(SeqCst) {
                return self.end(What::Stopped);
            }
            match self.vm.run() {
                Ok(Stop::Port(port)) => {
                    if self.exited(port, asked)? {
                        return Ok(());
                    }
                }
                Ok(Stop::Debug) => self.look(Signal::Trap)?,
                Ok(Stop::Interrupted) => {
                    self.vm.clear_interrupt();
                    if self.debugger.as_ref().is_some_and(Session::is_interrupted) {
                        self.look(Signal::Interrupt)?;
                    }
                }
                Ok(Stop::Fault) if self.is_debuggers() => self.look(Signal::Trap)?,
                Ok(Stop::Fault) => {
                    self.look(Signal::Fault)?;
                    let registers = self.vm.registers().unwrap_or_default();
                    let dump = if self.recipe.dump { self.dump().ok() } else { None };
                    return self.end(What::Faulted(Box::new(Crash { registers, dump })));
                }
                Err(error) => return self.end(What::Failed(error)),
            }
        }
    }

    /// Whether a fault is a breakpoint or the end of a step: KVM inside of another hypervisor may not see them for what they
    /// are, and the guest has no table by which to take an exception. It goes on as if there had been none.
    fn is_debuggers(&mut self) -> bool {
        const BREAKPOINT: u8 = 0xcc;
        let (Some(debugger), Ok(mut registers)) = (&mut self.debugger, self.vm.registers()) else { return false };
        let before = registers.0.rip.wrapping_sub(1);
        let mut byte = [0];
        if self.vm.memory().read(before, &mut byte).is_ok() && byte[0] == BREAKPOINT {
            registers.0.rip = before;
            return self.vm.set_registers(&registers).is_ok();
        }
        debugger.has_stepped(registers.0.rip)
    }

    /// Hands the guest, which stands still, to its debugger, if there is one, until it is to go on.
    fn look(&mut self, signal: Signal) -> Result<(), Over> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        let next = debugger.stopped(&self.vm, signal).and_then(|next| {
            self.vm.set_debugged(next != Next::Detached, next == Next::Step)?;
            Ok(next)
        });
        match next {
            Ok(Next::Run | Next::Step) => Ok(()),
            Ok(Next::Detached) => {
                self.debugger = None;
                Ok(())
            }
            Ok(Next::End) => self.end(What::Stopped),
            Err(error) => self.end(What::Failed(error)),
        }
    }

    /// Does what the guest asks for. True: its event is handled.
    fn exited(&mut self, port: u16, asked: &Receiver<Ask>) -> Result<bool, Over> {
        let Ok(words) = self.vm.memory().read_words(layout::CALL) else { return self.end(What::Stopped) };
        let page = CallPage::from_words(words);
        let wants = match exits::check(port, &page, &self.bounds) {
            Ok(wants) => wants,
            Err(lie) => return self.end(What::Lied(lie.0)),
        };
        match wants {
            Asked::Call { verb: None, .. } => self.settle(REFUSED, 0)?,
            Asked::Call { verb: Some(verb), request, answer } => {
                let request = self.copy(request)?;
                self.tell(What::Asks { verb, request })?;
                let Ok(Ask::Answer(bytes)) = asked.recv() else { return self.end(What::Stopped) };
                self.answer(bytes, answer)?;
            }
            Asked::Fetch { answer } => {
                let Some(bytes) = self.pending.take() else {
                    return self.end(What::Lied("it fetched what there is not".into()));
                };
                if bytes.len() > answer.bytes {
                    return self.end(What::Lied("it fetched with less room than it was told".into()));
                }
                self.write(answer.at, &bytes)?;
                self.settle(DONE, bytes.len() as u64)?;
            }
            Asked::Receive { reply, memory_bytes, .. } => {
                let reply = self.copy(reply)?;
                self.tell(What::Replied { reply, memory_bytes })?;
                return Ok(true);
            }
            Asked::Log => {
                self.tell(What::Lines)?;
                self.settle(DONE, 0)?;
            }
            Asked::Panic(place) => {
                let words = String::from_utf8_lossy(&self.copy(place)?).into_owned();
                return self.end(What::Panicked(words));
            }
            Asked::Ready | Asked::Publish(_) => {
                return self.end(What::Lied("it asked for what is asked only while linking".into()));
            }
        }
        Ok(false)
    }

    /// Puts an event into the inbox, or tells how large it is. The guest waits in `Receive`.
    fn deliver(&mut self, event: Vec<u8>, room: u64) -> Result<(), Over> {
        let bytes = usize::try_from(room).unwrap_or(0);
        self.answer(event, Place { at: layout::INBOX, bytes })
    }

    fn answer(&mut self, bytes: Vec<u8>, room: Place) -> Result<(), Over> {
        let length = bytes.len();
        if length <= room.bytes {
            self.write(room.at, &bytes)?;
        } else {
            self.pending = Some(bytes);
        }
        self.settle(DONE, length as u64)
    }

    /// Writes status, length and the time into the call page.
    fn settle(&mut self, status: u64, answer_bytes: u64) -> Result<(), Over> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let page = CallPage {
            status,
            answer_bytes,
            unix_ns: ns(unix),
            monotonic_ns: ns(self.began.elapsed()),
            ..CallPage::default()
        };
        match self.vm.memory().write_words(layout::CALL, &page.words()) {
            Ok(()) => Ok(()),
            Err(_) => Err(Over),
        }
    }

    fn dump(&self) -> io::Result<Vec<u8>> {
        core_dump::write(self.vm.memory(), &self.vm.registers()?)
    }

    fn copy(&mut self, place: Place) -> Result<Vec<u8>, Over> {
        match self.vm.memory().copy(place.at, place.bytes) {
            Ok(bytes) => Ok(bytes),
            Err(_) => self.end(What::Lied("it named what it has not".into())),
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Over> {
        match self.vm.memory().write(at, bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.end(What::Lied("it named what it has not".into())),
        }
    }

    /// Tells, with the lines that were gathered. Waits while the node has not heard what was told before.
    fn tell(&mut self, what: What) -> Result<(), Over> {
        let lines = self.lines();
        self.tell.blocking_send(Told { lines, what }).map_err(|_| Over)
    }

    fn end<T>(&mut self, what: What) -> Result<T, Over> {
        let _nobody_may_listen = self.tell(what);
        Err(Over)
    }

    /// Takes the lines out of the ring. It is copied before it is looked at, and only written to if there were any.
    fn lines(&self) -> Vec<(u32, Vec<u8>)> {
        let memory = self.vm.memory();
        let mut head = [0; ring::HEAD];
        if memory.read(layout::LOG, &mut head).is_err() || head == [0; ring::HEAD] {
            return Vec::new();
        }
        let used = u64::from(u32::from_le_bytes(head)).min(layout::LOG_BYTES);
        let ring = memory.copy(layout::LOG, usize::try_from(used).unwrap_or(0)).unwrap_or_default();
        // An error here would be one of the next write too.
        let _ = memory.write(layout::LOG, &[0; ring::HEAD]);
        exits::lines(&ring)
    }
}
