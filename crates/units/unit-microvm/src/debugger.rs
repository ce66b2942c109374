//! A debugger at the other end of a line, and the guest that stands still for it.
//!
//! ```text
//!   gdb ──▶ stdin ──▶ reader's thread ──▶ DebugSession ◀── the tender's thread, whenever its guest stops
//!       ◀── stdout ◀──────────────────────┘
//! ```

use crate::gdb::{self, Command, Packet, Reader};
use crate::memory::Memory;
use crate::thread;
use crate::vm::{Vm, interrupt_signal};
use kernel_abi::layout::PAGE_TABLES_END;
use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};

/// Why a guest stands still, as gdb numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt = 2,
    Trap = 5,
    Fault = 11,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Run,
    Step,
    /// On its own from now on.
    Detached,
    /// Without it.
    End,
}

/// The line to the debugger, which both threads use.
struct Line {
    out: Mutex<Box<dyn Write + Send>>,
    is_quiet: AtomicBool,
    is_interrupted: AtomicBool,
    /// The thread that runs the guest.
    thread: Mutex<Option<libc::pid_t>>,
}

/// The words that end a session are said by whoever called the function.
#[derive(Clone)]
pub struct DebuggerLine(Arc<Line>);

/// The tender's end of the line.
pub struct DebugSession {
    line: Arc<Line>,
    commands: Receiver<Command>,
    has_begun: bool,
    /// Where a step began.
    steps_from: Option<u64>,
}

/// Listens to a debugger.
pub fn listen(
    input: impl Read + Send + 'static,
    out: impl Write + Send + 'static,
) -> io::Result<(DebuggerLine, DebugSession)> {
    let line = Arc::new(Line {
        out: Mutex::new(Box::new(out)),
        is_quiet: AtomicBool::new(false),
        is_interrupted: AtomicBool::new(false),
        thread: Mutex::new(None),
    });
    let (sender, commands) = channel();
    let reading = line.clone();
    std::thread::Builder::new().name("debugger".into()).spawn(move || {
        let mut reader = Reader::default();
        for byte in io::BufReader::new(input).bytes().map_while(Result::ok) {
            match reader.take(byte) {
                None => {}
                Some(Packet::Interrupt) => reading.interrupt(),
                Some(Packet::Command(command)) => {
                    reading.acknowledge();
                    if sender.send(command).is_err() {
                        return;
                    }
                }
            }
        }
        // gdb has gone: the guest must not go on without it.
        drop(sender);
        reading.interrupt();
    })?;
    Ok((DebuggerLine(line.clone()), DebugSession { line, commands, has_begun: false, steps_from: None }))
}

impl Line {
    fn acknowledge(&self) {
        if !self.is_quiet.load(SeqCst) {
            // If it does not arrive, neither does the answer.
            let _ = self.write(b"+");
        }
    }

    fn interrupt(&self) {
        self.is_interrupted.store(true, SeqCst);
        if let Some(thread) = *self.thread.lock() {
            thread::signal(thread, interrupt_signal());
        }
    }

    fn say(&self, text: &str) -> io::Result<()> {
        self.write(gdb::packet(text).as_bytes())
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = self.out.lock();
        out.write_all(bytes).and_then(|()| out.flush())
    }
}

impl DebuggerLine {
    /// Text for the user, by packets that fit.
    pub fn print(&self, text: &[u8]) -> io::Result<()> {
        text.chunks(gdb::PACKET_BYTES_MAX / 4).try_for_each(|part| self.0.say(&gdb::words(part)))
    }

    /// The call is over.
    pub fn ended(&self, status: u8) -> io::Result<()> {
        self.0.say(&format!("W{status:02x}"))
    }
}

impl DebugSession {
    /// Whether gdb wants the guest to stand still.
    pub fn is_interrupted(&self) -> bool {
        self.line.is_interrupted.load(SeqCst)
    }

    /// Whether a step has come to its end: an instruction that faults stays where it is.
    #[cfg_attr(target_arch = "aarch64", expect(dead_code, reason = "KVM sees steps there for what they are"))]
    pub fn has_stepped(&self, to: u64) -> bool {
        self.steps_from.is_some_and(|from| from != to)
    }

    /// Says why the guest stands still, and does as it is told until it is to go on. `vm` is at rest.
    pub fn stopped(&mut self, vm: &Vm, signal: Signal) -> io::Result<Next> {
        *self.line.thread.lock() = Some(thread::this());
        self.line.is_interrupted.store(false, SeqCst);
        let why = format!("T{:02x}{}", signal as u8, if signal == Signal::Trap { "swbreak:;" } else { "" });
        // The first time gdb asks by itself.
        if self.has_begun {
            self.line.say(&why)?;
        }
        (self.has_begun, self.steps_from) = (true, None);
        while let Ok(command) = self.commands.recv() {
            let answer = match command {
                Command::Why => why.clone(),
                Command::Registers => gdb::hex(&vm.registers()?.of_gdb()),
                Command::SetRegisters(bytes) => match vm.registers()?.set_by_gdb(&bytes) {
                    Some(registers) => vm.set_registers(&registers).map(|()| "OK".to_owned())?,
                    None => "E01".to_owned(),
                },
                Command::Read { at, bytes } => {
                    let read = own(vm.memory(), at, bytes).then(|| vm.memory().copy(at, bytes));
                    read.and_then(Result::ok).map_or_else(|| "E01".to_owned(), |bytes| gdb::hex(&bytes))
                }
                Command::Write { at, bytes } => {
                    let written = own(vm.memory(), at, bytes.len()).then(|| vm.memory().write(at, &bytes));
                    match written {
                        Some(Ok(())) => vm.code_was_written().map(|()| "OK".to_owned())?,
                        _ => "E01".to_owned(),
                    }
                }
                Command::Step => {
                    self.steps_from = Some(vm.registers()?.pc());
                    return Ok(Next::Step);
                }
                Command::Continue => return Ok(Next::Run),
                Command::Kill => return Ok(Next::End),
                Command::Detach => {
                    self.line.say("OK")?;
                    return Ok(Next::Detached);
                }
                Command::Fixed(answer) => answer.to_owned(),
                Command::Features { offset, bytes } => gdb::features(offset, bytes),
                Command::Quiet => {
                    self.line.say("OK")?;
                    self.line.is_quiet.store(true, SeqCst);
                    continue;
                }
                Command::Unknown => String::new(),
            };
            self.line.say(&answer)?;
        }
        Ok(Next::End)
    }
}

/// Whether a place is in the memory the guest knows of. Its page tables are nobody's to change.
fn own(memory: &Memory, at: u64, bytes: usize) -> bool {
    at >= PAGE_TABLES_END && at.checked_add(bytes as u64).is_some_and(|end| end <= memory.bytes())
}
