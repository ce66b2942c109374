//! A tender: the thread that hosts one microvm, and what the node holds of it.
//!
//! ```text
//!   node ── Ask: an event, an answer ──▶ thread ── enters ──▶ guest
//!        ◀── Told: lines, a question, the end ──┘ ◀── exits ───┘
//!   node ◀── hatch: the same, while the node listens and the guest runs on ──▶ guest
//! ```
//! The thread makes the machine, goes behind its system-call filter, and from then on runs units one after the other;
//! its side is `guest.rs`.

use crate::attach::Look;
use crate::debugger::DebugSession;
use crate::ear::Ear;
use crate::guest::{Done, Machine};
use crate::hatch::{Handed, Hatch};
use crate::processor::Registers;
use crate::snapshot::Snapshot;
use crate::thread;
use crate::vm::interrupt_signal;
use kernel_abi::{Policy, Verb};
use kvm_ioctls::Kvm;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Messages on their way from a guest that talks faster than it is heard.
pub const TOLD_MAX: usize = 4;
/// How long the node listens for what a guest says before it sleeps: a thread is woken, its guest entered, and does
/// something short.
const LISTEN_MAX: Duration = Duration::from_micros(150);
/// Processor time that a guest may take to read ahead: some hundred times what it needs for a kernel and a component.
const AHEAD_CPU_MAX: Duration = Duration::from_secs(2);
/// How long a unit that is kept may rest where it replied, instead of leaving. It leaves after a tenth of a
/// millisecond, if the machine is not too busy for that.
const REST_MAX: Duration = Duration::from_secs(2);
/// Stack of the thread: it only ever copies and checks.
const STACK_BYTES: usize = 256 << 10;

/// What the node wants of the thread.
pub enum Ask {
    /// A unit of this function in a machine that is nobody's.
    Become(Arc<Recipe>, Done),
    /// An event for the unit, a frame.
    Event(Vec<u8>),
    /// The answer to its question, a frame.
    Answer(Vec<u8>),
    /// Its question is answered already: it goes on.
    Go,
    /// A core file of the unit as it is now.
    Dump(oneshot::Sender<io::Result<Vec<u8>>>),
    /// A fresh unit in the same machine.
    Renew(Done),
    /// Nobody's machine again, with nothing in it.
    Leave(Done),
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
pub struct TenderInner {
    /// It is to end.
    pub stop: AtomicBool,
    /// Its guest rests where it replied, and is to leave for something else.
    pub is_called_out: AtomicBool,
    /// None once the thread has ended.
    thread: Mutex<Option<libc::pid_t>>,
    /// Somebody wants to see the guest, when it has left its processor.
    pub look: Mutex<Option<Look>>,
    /// None before there is a machine, and after the end of the thread.
    pub hatch: Mutex<Option<Arc<Hatch>>>,
    /// CPU time the thread had when its last event came.
    cpu_before_ns: AtomicU64,
    /// Its guest reads ahead, and has had no event yet.
    reads_ahead: AtomicBool,
    /// The processor its thread is kept off.
    off: Mutex<Option<usize>>,
}

impl TenderInner {
    /// Has the thread run elsewhere than whoever listens to it, which would be in each other's way: a thread that wakes
    /// another one often has it on its own processor, since virtual ones that sleep count as taken. Or anywhere again.
    fn runs_apart_from(&self, processor: Option<usize>) -> bool {
        let mut off = self.off.lock();
        if *off != processor {
            let thread = *self.thread.lock();
            if !thread.is_some_and(|thread| thread::keep_off(thread, processor)) {
                return false;
            }
            *off = processor;
        }
        true
    }

    /// Has the guest leave its processor.
    fn interrupt(&self) {
        let thread = self.thread.lock();
        if let Some(thread) = *thread {
            thread::signal(thread, interrupt_signal());
        }
    }

    /// From the thread.
    pub fn reads_ahead(&self, does: bool) {
        self.counts_cpu();
        self.reads_ahead.store(does, SeqCst);
    }

    /// CPU time counts from now on.
    fn counts_cpu(&self) {
        let before = self.cpu().unwrap_or_default();
        self.cpu_before_ns.store(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX), SeqCst);
    }

    fn cpu(&self) -> Option<Duration> {
        thread::cpu((*self.thread.lock())?)
    }
}

/// What units of one function are made of.
pub struct Recipe {
    pub snapshot: Arc<Snapshot>,
    pub policy: Policy,
    pub memory_bytes: u64,
    /// Of an event, or its reply.
    pub body_bytes: u64,
    /// Keeps a core file of a crash.
    pub dump: bool,
    /// Whoever looks into the first unit that is given an event.
    pub debugger: Mutex<Option<DebugSession>>,
    /// Whether its machines read ahead while they wait for their first event.
    pub reads_ahead: bool,
    /// Whether it pays to listen for what its units say first, and whether their next events come soon.
    pub ear: Ear,
    pub rest: Ear,
}

/// A machine: nobody's, or with a unit in it that waits for an event or works at one. Dropping it ends it.
pub struct Tender {
    ask: Sender<Ask>,
    told: mpsc::Receiver<Told>,
    shared: Arc<TenderInner>,
    pub number: u64,
    /// Of the machine.
    pub memory_bytes: u64,
    /// Events it was given since its memory was laid out.
    pub events: u32,
    /// The memory its unit may come to, in the node's budget.
    pub room: Option<budget::Share>,
    is_behind: bool,
    /// Its memory was laid out for this unit: most pages it will need are not there yet.
    is_new: bool,
    /// None where it is heard by exits alone.
    hearing: Option<Hearing>,
    /// Since when its unit waits for its next event.
    kept: Option<Instant>,
}

/// How a machine is heard without exits, while it works at one event.
struct Hearing {
    hatch: Arc<Hatch>,
    recipe: Arc<Recipe>,
    /// It has said nothing yet.
    is_first: bool,
    rests: bool,
}

impl Tender {
    /// Makes a machine in a thread of its own that is nobody's, and calls `done` there when there is one.
    pub fn start(kvm: Arc<Kvm>, memory_bytes: u64, done: impl FnOnce(io::Result<Tender>) + Send + 'static) {
        let (ask, asked) = channel();
        let (tell, told) = mpsc::channel(TOLD_MAX);
        let shared = Arc::new(TenderInner::default());
        let tender = Self {
            ask,
            told,
            shared: shared.clone(),
            number: 0,
            memory_bytes,
            events: 0,
            room: None,
            is_behind: false,
            is_new: true,
            hearing: None,
            kept: None,
        };
        // Whichever side fails calls it, and only one can.
        let done = Arc::new(Mutex::new(Some((done, tender))));
        let finish = done.clone();
        let run = move || {
            *shared.thread.lock() = Some(thread::this());
            let _ends = Ends(&shared);
            let machine = Machine::new(&kvm, memory_bytes, shared.clone(), tell);
            let Some((done, tender)) = finish.lock().take() else { return };
            match machine {
                Ok(mut machine) => {
                    done(Ok(tender));
                    machine.serve(&asked);
                }
                Err(error) => done(Err(error)),
            }
        };
        let started = std::thread::Builder::new().name("tender".into()).stack_size(STACK_BYTES).spawn(run);
        if let Err(error) = started
            && let Some((failed, _)) = done.lock().take()
        {
            failed(Err(error));
        }
    }

    /// Makes a unit of this function in it, which is nobody's; `done` has it when it waits for its first event.
    pub fn become_unit(
        mut self,
        recipe: Arc<Recipe>,
        number: u64,
        done: impl FnOnce(io::Result<Tender>) + Send + 'static,
    ) {
        (self.events, self.number, self.hearing, self.is_new) = (0, number, None, true);
        self.then(|done| Ask::Become(recipe, done), done);
    }

    /// Gives it an event.
    pub fn begin(&mut self, event: Vec<u8>) {
        self.events += 1;
        self.kept = None;
        self.shared.counts_cpu();
        let hatch = self.shared.hatch.lock().clone();
        let way = match hatch {
            Some(hatch) => hatch.event(event),
            None => Handed::Thread(event),
        };
        self.send(way, Ask::Event);
    }

    /// The same on a machine that has no processor to spare.
    pub fn begin_unheard(&mut self, event: Vec<u8>) {
        self.is_new = false;
        self.is_not_heard();
        self.begin(event);
    }

    /// The same, and listens for what it says, where that pays: on a machine with a processor to spare. Not while pages
    /// come: for each that becomes a copy the system interrupts every thread of this process that runs.
    pub fn begin_heard(&mut self, event: Vec<u8>, recipe: &Arc<Recipe>, is_used_again: bool) {
        let hatch = self.shared.hatch.lock().clone();
        let is_new = std::mem::take(&mut self.is_new);
        let apart = || thread::processor().is_some_and(|here| self.shared.runs_apart_from(Some(here)));
        if let Some(hatch) = hatch.filter(|_| !is_new && recipe.ear.listens() && apart()) {
            if let Some(before) = self.hearing.take().filter(|before| before.rests) {
                recipe.rest.heard(before.hatch.rests());
            }
            let rests = is_used_again && recipe.rest.listens();
            hatch.listens(true, rests);
            self.hearing = Some(Hearing { hatch, recipe: recipe.clone(), is_first: true, rests });
        } else {
            self.is_not_heard();
        }
        self.begin(event);
    }

    /// From now on it is heard by exits alone, and runs anywhere.
    fn is_not_heard(&mut self) {
        if let Some(before) = self.hearing.take() {
            before.hatch.is_deaf();
        }
        self.shared.runs_apart_from(None);
    }

    pub fn answer(&mut self, answer: Vec<u8>) {
        let way = match &self.hearing {
            None => Handed::Thread(answer),
            Some(hearing) => {
                hearing.hatch.hears();
                hearing.hatch.answer(answer)
            }
        };
        self.send(way, Ask::Answer);
    }

    fn send(&self, way: Handed, ask: impl FnOnce(Vec<u8>) -> Ask) {
        match way {
            Handed::Done => {}
            Handed::Go => drop(self.ask.send(Ask::Go)),
            Handed::Thread(bytes) => drop(self.ask.send(ask(bytes))),
        }
    }

    /// Waits for what it tells next. Loses nothing when it is dropped.
    pub async fn told(&mut self) -> Told {
        if let Some(told) = self.listen() {
            return told;
        }
        let gone = || Told { lines: Vec::new(), what: What::Failed(io::Error::other("the tender has ended")) };
        self.told.recv().await.unwrap_or_else(gone)
    }

    /// Listens for a moment, and says that nobody does any more.
    fn listen(&mut self) -> Option<Told> {
        let hearing = self.hearing.as_mut()?;
        let until = Instant::now() + LISTEN_MAX;
        let told = loop {
            if let Some(told) = hearing.hatch.hear(&mut self.told) {
                break Some(told);
            }
            if Instant::now() >= until {
                hearing.hatch.is_deaf();
                break hearing.hatch.hear(&mut self.told);
            }
            std::hint::spin_loop();
        };
        if std::mem::take(&mut hearing.is_first) {
            hearing.recipe.ear.heard(told.is_some());
        }
        told
    }

    /// Its unit waits for another event.
    pub fn is_kept(&mut self) {
        self.kept = Some(Instant::now());
    }

    /// Whether its guest is there and still obeys: one that reads ahead is soon done with it, and one that rests soon
    /// leaves.
    pub fn obeys(&self) -> bool {
        if self.shared.thread.lock().is_none() {
            return false;
        }
        let rests_on = self.kept.is_some_and(|since| since.elapsed() > REST_MAX) && self.rests();
        !rests_on && (!self.shared.reads_ahead.load(SeqCst) || self.cpu() < AHEAD_CPU_MAX)
    }

    /// Whether its guest is where it replied, and has not left.
    fn rests(&self) -> bool {
        self.shared.hatch.lock().as_ref().is_some_and(|hatch| hatch.rests())
    }

    /// Has a guest leave that rests: by itself one may never.
    fn call_out(&self) {
        if self.rests() {
            self.shared.is_called_out.store(true, SeqCst);
            self.shared.interrupt();
        }
    }

    #[cfg(test)]
    pub fn reads(&self) -> bool {
        self.shared.reads_ahead.load(SeqCst)
    }

    /// A core file of a unit that has replied.
    pub async fn dump(&mut self) -> io::Result<Vec<u8>> {
        let (sender, receiver) = oneshot::channel();
        self.call_out();
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
        if self.comes_forward() {
            (self.events, self.number, self.hearing) = (0, number, None);
            self.then(Ask::Renew, |renewed| _ = renewed.map(done));
        }
    }

    /// Makes it nobody's, in the background; `done` has it when nothing of its unit is left. One that cannot be is
    /// ended.
    pub fn leave(mut self, done: impl FnOnce(Tender) + Send + 'static) {
        if self.comes_forward() {
            self.then(Ask::Leave, |left| _ = left.map(done));
        }
    }

    /// Takes its turn again as others do. False: the system does not allow it, and it is of no more use.
    fn comes_forward(&mut self) -> bool {
        if self.is_behind {
            self.is_behind = !(*self.shared.thread.lock()).is_some_and(|thread| thread::set_nice(thread, 0));
        }
        !self.is_behind
    }

    /// Asks, and hands itself to `done` when that has happened.
    fn then(mut self, ask: impl FnOnce(Done) -> Ask, done: impl FnOnce(io::Result<Tender>) + Send + 'static) {
        self.call_out();
        // Its thread, which waits while there is no room for more, is to get as far as what it is asked: from here on
        // nobody hears it, and who would have is in its hands.
        while self.told.try_recv().is_ok() {}
        let sender = self.ask.clone();
        let happened = move |result: io::Result<()>| {
            let mut tender = self;
            // What the unit before has said is not its next one's.
            while tender.told.try_recv().is_ok() {}
            done(result.map(|()| tender));
        };
        sender.send(ask(Box::new(happened))).ok();
    }
}

/// The end of a tender's thread, on whatever way. Whoever asks for the time it took may do so for long: nothing of
/// its machine is kept for them, whose memory is in nobody's budget by then.
struct Ends<'s>(&'s TenderInner);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // What this unmaps, it unmaps without the lock.
        let hatch = self.0.hatch.lock().take();
        drop(hatch);
        *self.0.thread.lock() = None;
    }
}

impl Drop for Tender {
    fn drop(&mut self) {
        stop(&self.shared);
    }
}

fn stop(shared: &TenderInner) {
    shared.stop.store(true, SeqCst);
    shared.interrupt();
}

/// How much a unit that is at work has used.
#[derive(Clone)]
pub struct Clock(Arc<TenderInner>);

impl Clock {
    pub fn cpu(&self) -> Duration {
        let before = Duration::from_nanos(self.0.cpu_before_ns.load(SeqCst));
        self.0.cpu().unwrap_or_default().saturating_sub(before)
    }

    #[cfg(test)]
    pub fn hatch(&self) -> Arc<Hatch> {
        self.0.hatch.lock().clone().expect("there is a machine")
    }

    /// Whether the thread has not ended yet.
    #[cfg(test)]
    pub fn is_there(&self) -> bool {
        self.0.thread.lock().is_some()
    }

    /// Has the guest seen, which leaves its processor for that, and goes on.
    pub fn look(&self, look: Look) {
        *self.0.look.lock() = Some(look);
        self.0.interrupt();
    }

    /// Lets others go first: a unit that works for long must not hold up those that are soon done.
    pub fn step_back(&self, nice: libc::c_int) {
        if let Some(thread) = *self.0.thread.lock() {
            thread::set_nice(thread, nice);
        }
    }
}
