//! The thread's side of a tender: a machine, and one unit after the other in it.
//!
//! ```text
//!   machine, nobody's ── Become ──▶ guest: lay ─▶ Event ─▶ run ─▶ Renew ─▶ … ── Leave ──▶ nobody's
//! ```
//! Between two units memory, registers and floating point are those of the snapshot again, and nothing of the one
//! before is left. What the guest says without leaving, the node hears by itself: `hatch.rs`.

use crate::core_dump;
use crate::debugger::{DebugSession, Next, Signal};
use crate::exits::{self, Asked, Bounds, GuestRange};
use crate::hatch::{self, Hatch, Left};
use crate::memory::{Memory, Outside};
use crate::processor;
use crate::tender::{Ask, Crash, Recipe, TenderInner, Told, What};
use crate::vm::{Stop, Vm, interrupt_signal};
use crate::{seccomp, thread, written};
use kernel_abi::boot::Boot;
use kernel_abi::exits::{CallPage, DONE, Exit, READ_AHEAD, REFUSED};
use kernel_abi::layout;
use kvm_ioctls::Kvm;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// What one exit's copy may have: a request, a reply.
pub const EXIT_BYTES: u64 = 16 << 20;

/// A machine whose first event has not come for so long reads ahead, and so many bytes before it looks for one again:
/// a third of a millisecond where a guest that meets a missing page takes tens of microseconds.
const AHEAD_AFTER: Duration = Duration::from_millis(10);
const AHEAD_BYTES: u64 = 16 * layout::PAGE;
/// What is read ahead of larger snapshots.
const AHEAD_BYTES_MAX: u64 = 64 << 20;

/// A machine behind the filter of its thread.
pub struct Machine {
    vm: Vm,
    shared: Arc<TenderInner>,
    tell: mpsc::Sender<Told>,
    hatch: Arc<Hatch>,
}

/// Calls back once a machine is nobody's, or somebody's, or fresh again.
pub type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// The node has gone, or the unit is at its end: this machine has nothing more to do.
struct Over;

impl Machine {
    /// With so much memory, of which nothing is there yet.
    pub fn new(kvm: &Kvm, memory_bytes: u64, shared: Arc<TenderInner>, tell: mpsc::Sender<Told>) -> io::Result<Self> {
        thread::hear_only(interrupt_signal());
        written::open();
        let memory = Arc::new(Memory::reserve(memory_bytes)?);
        let mut vm = Vm::new(kvm, memory.clone())?;
        vm.can_be_interrupted();
        let hatch = Arc::new(Hatch::new(memory, vm.tsc_hz()));
        *shared.hatch.lock() = Some(hatch.clone());
        seccomp::enter()?;
        Ok(Self { vm, shared, tell, hatch })
    }

    /// Where its memory lies in this process.
    #[cfg(test)]
    pub fn place(&self) -> u64 {
        self.vm.memory().host_address()
    }

    /// Hosts units, of one function after the other, until nobody wants it any more.
    pub fn serve(&mut self, asked: &Receiver<Ask>) {
        while let Ok(ask) = asked.recv() {
            // Anything else was meant for a unit, and there is none.
            let Ask::Become(recipe, done) = ask else { continue };
            let mut guest = match Guest::start(self, recipe) {
                Ok(guest) => guest,
                Err(error) => return done(Err(error)),
            };
            done(Ok(()));
            let Ok(left) = guest.serve(asked) else { return };
            self.hatch.ends();
            let emptied = self.vm.rest().and_then(|_| self.vm.memory().clear());
            let is_over = emptied.is_err();
            left(emptied);
            if is_over {
                return;
            }
        }
    }
}

/// A machine with a unit in it.
struct Guest<'m> {
    vm: &'m mut Vm,
    shared: &'m TenderInner,
    tell: &'m mpsc::Sender<Told>,
    hatch: &'m Hatch,
    recipe: Arc<Recipe>,
    boot: Boot,
    bounds: Bounds,
    began: Instant,
    /// An answer that did not fit into the room the guest had for it.
    pending: Option<Vec<u8>>,
    /// What it can still read before its first event, the last first.
    ahead: Vec<Range<u64>>,
    debugger: Option<DebugSession>,
}

impl<'m> Guest<'m> {
    fn start(machine: &'m mut Machine, recipe: Arc<Recipe>) -> io::Result<Self> {
        let Machine { vm, shared, tell, hatch } = machine;
        let Recipe { snapshot, policy, memory_bytes, body_bytes, .. } = &*recipe;
        let boot = Boot { memory_bytes: *memory_bytes, policy: policy.0, tsc_hz: vm.tsc_hz(), ..Boot::new() };
        let bytes_max = body_bytes.saturating_add(EXIT_BYTES);
        let bounds = Bounds { heap: snapshot.heap(), code: 0..0, policy: *policy, bytes_max };
        snapshot.lay(vm.memory(), &boot)?;
        vm.set_registers(&snapshot.about.registers)?;
        let began = Instant::now();
        hatch.starts(bounds.clone(), began);
        let ahead = if recipe.reads_ahead { snapshot.contents() } else { Vec::new() };
        let (pending, debugger) = (None, None);
        Ok(Self { vm, shared, tell, hatch, boot, bounds, began, pending, ahead, debugger, recipe })
    }

    /// A fresh unit in place of the one before.
    fn renew(&mut self) -> io::Result<()> {
        (self.pending, self.began) = (None, Instant::now());
        self.vm.rest()?;
        self.recipe.snapshot.renew(self.vm.memory(), &self.boot)?;
        self.hatch.starts(self.bounds.clone(), self.began);
        self.vm.set_registers(&self.recipe.snapshot.about.registers)
    }

    /// Until the machine is to be nobody's: who wants to hear of that.
    fn serve(&mut self, asked: &Receiver<Ask>) -> Result<Done, Over> {
        loop {
            let ask = self.next(asked)?;
            // It has left.
            self.shared.is_called_out.store(false, SeqCst);
            match ask {
                Ask::Event(event) => {
                    self.deliver(event, layout::INBOX_BYTES)?;
                    self.run(asked)?;
                }
                Ask::Dump(to) => {
                    to.send(self.dump()).ok();
                }
                Ask::Renew(done) => {
                    let renewed = self.renew();
                    let is_over = renewed.is_err();
                    done(renewed);
                    if is_over {
                        return Err(Over);
                    }
                }
                Ask::Leave(done) => return Ok(done),
                // Nothing was asked, and it is somebody's already.
                Ask::Answer(_) | Ask::Go | Ask::Become(..) => {}
            }
        }
    }

    /// What is asked next. A machine that waits for its first event meanwhile reads what its unit may read, so that the
    /// unit need not leave for each page of it; no code of the component runs, and nothing of that is left.
    fn next(&mut self, asked: &Receiver<Ask>) -> Result<Ask, Over> {
        if self.ahead.is_empty() {
            return asked.recv().map_err(|_| Over);
        }
        let mut ask = asked.recv_timeout(AHEAD_AFTER);
        if let Err(RecvTimeoutError::Timeout) = ask {
            self.shared.reads_ahead(true);
            let mut bytes = 0;
            while let Err(RecvTimeoutError::Timeout) = ask
                && !self.ahead.is_empty()
                && bytes < AHEAD_BYTES_MAX
            {
                bytes += self.read_ahead()?;
                ask = asked.recv_timeout(Duration::ZERO);
            }
            self.renew().map_err(|_| Over)?;
            self.shared.reads_ahead(false);
        }
        self.ahead = Vec::new();
        match ask {
            Err(RecvTimeoutError::Timeout) => asked.recv().map_err(|_| Over),
            ask => ask.map_err(|_| Over),
        }
    }

    /// Has the guest read the next pages; how many bytes of them. One that does not come back is ended by whoever sees
    /// that its machine is no longer [there](unit_host::pool::Spare::is_there).
    fn read_ahead(&mut self) -> Result<u64, Over> {
        let Some(mut run) = self.ahead.pop() else { return Ok(0) };
        let (request, request_bytes) = (run.start, AHEAD_BYTES.min(run.end - run.start));
        run.start += request_bytes;
        if run.start < run.end {
            self.ahead.push(run);
        }
        let page = CallPage { status: READ_AHEAD, request, request_bytes, ..CallPage::default() };
        self.vm.memory().write_words(layout::CALL, &page.words()).map_err(|Outside| Over)?;
        loop {
            match self.vm.run() {
                Ok(Stop::Port(port)) if port == Exit::Receive.port() => return Ok(request_bytes),
                Ok(Stop::Interrupted) if !self.shared.stop.load(SeqCst) => self.vm.clear_interrupt(),
                _ => return Err(Over),
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
            if let Some(look) = self.shared.look.lock().take() {
                look.show(self.vm);
            }
            self.hatch.enters();
            match self.vm.run() {
                Ok(Stop::Port(port)) => {
                    if self.exited(port, asked)? {
                        return Ok(());
                    }
                }
                Ok(Stop::Debug) => self.look(Signal::Trap)?,
                Ok(Stop::Interrupted) => {
                    self.vm.clear_interrupt();
                    if self.shared.is_called_out.swap(false, SeqCst) && self.hatch.rests() {
                        return Ok(());
                    }
                    if self.debugger.as_ref().is_some_and(DebugSession::is_interrupted) {
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

    /// Whether a fault is its debugger's.
    fn is_debuggers(&self) -> bool {
        self.debugger.as_ref().is_some_and(|debugger| processor::is_debuggers(debugger, self.vm))
    }

    /// Hands the guest, which stands still, to its debugger, if there is one, until it is to go on.
    fn look(&mut self, signal: Signal) -> Result<(), Over> {
        let Some(debugger) = &mut self.debugger else { return Ok(()) };
        let next = debugger.stopped(self.vm, signal).and_then(|next| {
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
        if let Some(Exit::Call | Exit::Receive) = Exit::of(port) {
            match self.hatch.left() {
                Left::Asks => {}
                Left::Answered => return Ok(false),
                Left::Replied => return Ok(true),
                Left::Called(room) => {
                    match asked.recv() {
                        Ok(Ask::Go) => {}
                        Ok(Ask::Answer(bytes)) => self.answer(bytes, room)?,
                        _ => return self.end(What::Stopped),
                    }
                    return Ok(false);
                }
            }
        } else if self.hatch.rests() {
            return self.end(What::Lied("it went on after its reply".into()));
        }
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
            Asked::Panic(range) => {
                let words = String::from_utf8_lossy(&self.copy(range)?).into_owned();
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
        self.answer(event, GuestRange { at: layout::INBOX, bytes })
    }

    fn answer(&mut self, bytes: Vec<u8>, room: GuestRange) -> Result<(), Over> {
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
        hatch::settle(self.vm.memory(), self.began, status, answer_bytes).map_err(|Outside| Over)
    }

    fn dump(&self) -> io::Result<Vec<u8>> {
        core_dump::write(self.vm.memory(), &self.vm.registers()?)
    }

    fn copy(&mut self, range: GuestRange) -> Result<Vec<u8>, Over> {
        match self.vm.memory().copy(range.at, range.bytes) {
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
        let lines = hatch::lines(self.vm.memory());
        self.tell.blocking_send(Told { lines, what }).map_err(|_| Over)
    }

    fn end<T>(&mut self, what: What) -> Result<T, Over> {
        let _nobody_may_listen = self.tell(what);
        Err(Over)
    }
}
