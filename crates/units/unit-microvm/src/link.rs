//! From compiled code to a snapshot: boots the kernel, gives it the code, and waits until it is linked.
//!
//! ```text
//!   kernel + tables ─▶ boot ─▶ Ready ─▶ code laid in ─▶ Publish: its text turns RW → RX ─▶ Receive ═ snapshot
//! ```

use crate::elf::Kernel;
use crate::exits::{self, Asked, Bounds};
use crate::memory::{Memory, Outside};
use crate::processor::{self, Registers};
use crate::snapshot::{self, About};
use crate::tables::{Access, Tables};
use crate::vm::{Stop, Vm};
use kernel_abi::Policy;
use kernel_abi::boot::Boot;
use kernel_abi::exits::{CallPage, DONE};
use kernel_abi::layout::{self, LARGE_PAGE, PAGE};
use kvm_ioctls::Kvm;
use problem::{Code, Problem};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a component may take to be linked; start functions run meanwhile.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Memory that a component may begin with, all that its start functions fill included. What a function is allowed of it
/// is asked when it is loaded.
const BEGUN_BYTES_MAX: u64 = 512 << 20;
/// The kernel's last words.
const WORDS_BYTES_MAX: u64 = 64 << 10;

/// How long the steps took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// From nothing to a kernel that waits for code.
    pub boot: Duration,
    pub link: Duration,
}

/// Links compiled code; `image` goes into the artefact as it is.
///
/// # Errors
/// [`Code::StartFailed`]: it traps when it is started, or is not linked in time. [`Code::KvmUnavailable`].
pub fn link(kvm: &Kvm, kernel: &[u8], code: &[u8], image: &[u8]) -> Result<(Vec<u8>, Times), Problem> {
    thread::scope(|scope| {
        let (sender, ended) = channel();
        let (stop, stopping) = channel::<libc::pid_t>();
        let linking = scope.spawn(move || {
            // SAFETY: no arguments.
            #[expect(unsafe_code, reason = "the number of this thread, for the one that watches it")]
            let thread = unsafe { libc::gettid() };
            stop.send(thread).ok();
            let linked = Linking::begin(kvm, kernel, code).and_then(|linking| linking.run(code, image));
            sender.send(()).ok();
            linked
        });
        let signal = crate::vm::interrupt_signal();
        let thread = stopping.recv().unwrap_or(0);
        let mut wait = TIME_MAX;
        while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            crate::thread::signal(thread, signal);
            wait = Duration::from_millis(20);
        }
        linking.join().unwrap_or_else(|_| Err(Problem::new(Code::Internal, "linking a component failed")))
    })
}

struct Linking {
    vm: Vm,
    boot: Boot,
    tables_end: u64,
    code: Range<u64>,
    began: Instant,
}

impl Linking {
    fn begin(kvm: &Kvm, kernel: &[u8], code: &[u8]) -> Result<Self, Problem> {
        let began = Instant::now();
        let code_bytes = (code.len() as u64).next_multiple_of(PAGE);
        if code_bytes > layout::CODE_BYTES_MAX {
            let detail = format!("{code_bytes} bytes of compiled code, the limit is {}", layout::CODE_BYTES_MAX);
            return Err(Problem::new(Code::ImageTooLarge, detail)
                .with_hint("leave out code and data that it does not need, or choose isolation = \"wasm\""));
        }
        let kernel = Kernel::read(kernel)
            .map_err(|error| Problem::new(Code::Internal, format!("the kernel's image: {}", error.0)))?;
        let heap = layout::heap(code_bytes);
        let boot = Boot { heap, heap_end: (heap + BEGUN_BYTES_MAX).next_multiple_of(LARGE_PAGE), ..Boot::new() };
        let memory = Memory::reserve(boot.heap_end).map_err(|error| no_room(&error))?;
        let code = layout::CODE..layout::CODE + code_bytes;
        let tables_end = prepare(&memory, &kernel, &boot, &code)
            .map_err(|Outside| Problem::new(Code::Internal, "the kernel does not fit into its machine"))?;
        let mut vm = Vm::new(kvm, Arc::new(memory)).map_err(|error| crate::kvm_failed(&error))?;
        vm.can_be_interrupted();
        vm.set_registers(&Registers::at(kernel.entry, layout::STACK + layout::STACK_BYTES))
            .map_err(|error| crate::kvm_failed(&error))?;
        Ok(Self { vm, boot, tables_end, code, began })
    }

    fn run(mut self, code: &[u8], image: &[u8]) -> Result<(Vec<u8>, Times), Problem> {
        let mut times = Times::default();
        loop {
            let stop = self.vm.run().map_err(|error| crate::kvm_failed(&error))?;
            let port = match stop {
                Stop::Port(port) => port,
                Stop::Interrupted if self.began.elapsed() >= TIME_MAX => {
                    let detail = format!("the component was not linked within {} s", TIME_MAX.as_secs());
                    return Err(Problem::new(Code::StartFailed, detail));
                }
                Stop::Interrupted | Stop::Debug => {
                    self.vm.clear_interrupt();
                    continue;
                }
                Stop::Fault => {
                    let registers = self.vm.registers().unwrap_or_default();
                    let detail = format!("the kernel faulted at {:#x} while it was linked", registers.pc());
                    return Err(Problem::new(Code::StartFailed, detail));
                }
            };
            match self.asked(port)? {
                Asked::Ready => {
                    times.boot = self.began.elapsed();
                    self.boot.code_bytes = code.len() as u64;
                    self.write(layout::CODE, code)?;
                    let boot = self.boot.words();
                    self.write_words(layout::BOOT, &boot)?;
                }
                Asked::Publish(place) => self.publish(place.at..place.at + place.bytes as u64)?,
                Asked::Receive { .. } => {
                    times.link = self.began.elapsed().saturating_sub(times.boot);
                    return Ok((self.snapshot(image)?, times));
                }
                Asked::Log => {}
                Asked::Panic(place) => {
                    let words = self.vm.memory().copy(place.at, place.bytes).unwrap_or_default();
                    let why = String::from_utf8_lossy(&words).into_owned();
                    let problem = Problem::new(Code::StartFailed, format!("the component cannot be started: {why}"));
                    return Err(match why.contains("memory") {
                        true => problem
                            .with_hint(format!("it may begin with {} MiB of memory at most", BEGUN_BYTES_MAX >> 20)),
                        false => problem,
                    });
                }
                Asked::Call { .. } | Asked::Fetch { .. } => {
                    return Err(Problem::new(Code::Internal, "the kernel asked for something while it was linked"));
                }
            }
        }
    }

    fn asked(&self, port: u16) -> Result<Asked, Problem> {
        let words = self.vm.memory().read_words(layout::CALL).map_err(inside)?;
        let bounds = Bounds {
            heap: self.boot.heap..self.boot.heap_end,
            code: self.code.clone(),
            policy: Policy(0),
            bytes_max: WORDS_BYTES_MAX,
        };
        exits::check(port, &CallPage::from_words(words), &bounds)
            .map_err(|lie| Problem::new(Code::Internal, format!("the kernel makes no sense: {}", lie.0)))
    }

    /// Makes pages executable, for good: no table ever says again that they can be written.
    fn publish(&mut self, pages: Range<u64>) -> Result<(), Problem> {
        let mut tables = Tables::at(self.vm.memory(), self.tables_end);
        tables.map(pages, Access::Execute).map_err(inside)?;
        self.tables_end = tables.end;
        self.vm.forget_tables().map_err(|error| crate::kvm_failed(&error))?;
        let answer = CallPage { status: DONE, ..CallPage::default() };
        self.write_words(layout::CALL, &answer.words())
    }

    fn snapshot(mut self, image: &[u8]) -> Result<Vec<u8>, Problem> {
        let registers = self.vm.registers_after_exit().map_err(|error| crate::kvm_failed(&error))?;
        let about = About {
            code_bytes: self.boot.code_bytes.next_multiple_of(PAGE),
            heap: self.boot.heap,
            tables_end: self.tables_end,
            registers,
        };
        snapshot::write(self.vm.memory(), &about, image).map_err(|error| no_room(&error))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Problem> {
        self.vm.memory().write(at, bytes).map_err(inside)
    }

    fn write_words(&self, at: u64, words: &[u64]) -> Result<(), Problem> {
        self.vm.memory().write_words(at, words).map_err(inside)
    }
}

/// Lays the kernel and its tables into an empty memory; says where the tables end.
fn prepare(memory: &Memory, kernel: &Kernel<'_>, boot: &Boot, code: &Range<u64>) -> Result<u64, Outside> {
    kernel.place(memory)?;
    memory.write_words(layout::BOOT, &boot.words())?;
    let mut tables = Tables::new(memory);
    for (page, entry, contents) in processor::OWN_PAGES {
        if !contents.is_empty() {
            memory.write(*page, contents)?;
        }
        tables.map_own(*page, *entry)?;
    }
    tables.map(layout::BOOT..layout::BOOT + PAGE, Access::Read)?;
    tables.map(layout::CALL..layout::LOG + layout::LOG_BYTES, Access::Write)?;
    tables.map(layout::INBOX..layout::INBOX + layout::INBOX_BYTES, Access::Write)?;
    tables.map(layout::STACK..layout::STACK + layout::STACK_BYTES, Access::Write)?;
    for segment in &kernel.segments {
        tables.map(segment.pages.clone(), segment.access)?;
    }
    tables.map(code.clone(), Access::Write)?;
    // Only the first gigabyte of tables belongs to every unit; a snapshot is laid out with as much as its units may
    // have.
    tables.map_large(boot.heap..boot.heap_end, Access::Write)?;
    Ok(tables.end)
}

fn no_room(error: &io::Error) -> Problem {
    Problem::new(Code::NodeFull, format!("no room for a microvm: {error}"))
}

fn inside(_: Outside) -> Problem {
    Problem::new(Code::Internal, "the kernel's own pages are not in its memory")
}
