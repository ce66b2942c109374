//! microvm units: a component in a small kernel of its own, in KVM; a copy of a snapshot for each call.
//!
//! ```text
//!   image ──check──▶ does the kernel offer what it imports? (kernel-code)
//!         ──compile─▶ machine code, linked into the kernel ─▶ a snapshot        (link.rs, snapshot.rs)
//!         ──load────▶ the snapshot in a file without a name                     (prepared.rs)
//!   call  ──▶ tender: a thread with one machine, its memory a copy-on-write map (tender.rs, vm.rs, memory.rs)
//!         ──▶ exits, each a question that is checked before it is answered      (exits.rs, attempt.rs)
//! ```
//! The guest runs unprivileged from its first instruction, in ring 3 or at EL0, on page tables it cannot reach: code is
//! never writable, data never executable. Between guest and node stand the processor, KVM's smallest surface (port
//! writes, or stores where no memory is), and a thread that may ask the system for next to nothing. What of this is one
//! processor's alone is in `x86_64` and `aarch64`, of which one is built, as `processor`.

// Elsewhere there is no such class yet, and this crate is empty.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

mod attach;
mod attempt;
mod core_dump;
pub mod debug;
mod debugger;
mod ear;
mod elf;
mod exchange;
mod exits;
mod fetch;
mod gdb;
mod guest;
mod hatch;
#[cfg(test)]
mod hostile;
mod link;
pub mod measure;
mod memory;
mod outlet;
mod prepared;
#[cfg_attr(target_arch = "x86_64", path = "x86_64/mod.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64/mod.rs")]
mod processor;
mod question;
mod seccomp;
mod sections;
mod serving;
mod snapshot;
mod source;
mod stock;
mod tables;
mod tender;
mod thread;
mod vm;
mod words;
mod written;

pub use link::Times;
pub use processor::KERNEL;

use futures_util::future::BoxFuture;
use kernel_code::Target;
use kvm_ioctls::Kvm;
use manifest::Isolation;
use parking_lot::Mutex;
use problem::{Code, Problem};
use sha2::{Digest, Sha256};
use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use stock::Stock;
use unit::{Artefact, Compiler, Deployed, IsolationClass, Prepared, Shape};
use unit_lines::Teller;

/// The class. One for the node; cheap to clone.
#[derive(Clone)]
pub struct MicrovmClass {
    shared: Arc<MicrovmInner>,
}

/// What all functions share.
pub struct MicrovmInner {
    /// A node without KVM starts all the same.
    kvm: Result<Arc<Kvm>, Problem>,
    /// What components are compiled for: this machine, as KVM shows it to a guest.
    target: Target,
    /// Machines that are nobody's, as long as some function is loaded.
    stock: Mutex<Weak<Stock>>,
    fingerprint: String,
    teller: Teller,
    /// Of units' own requests: made when the first unit works, on the runtime that it works on.
    client: OnceLock<fetch::Client>,
    number: AtomicU64,
    /// Machines at work, of all functions.
    busy: AtomicUsize,
    processors: usize,
}

impl MicrovmClass {
    /// # Errors
    /// The compiler cannot be started.
    pub fn new() -> Result<Self, Problem> {
        Self::with_device(c"/dev/kvm")
    }

    fn with_device(device: &'static CStr) -> Result<Self, Problem> {
        let kernel: String = Sha256::digest(KERNEL).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let offered =
            open(device).and_then(|kvm| Ok((processor::target(&kvm).map_err(|error| kvm_failed(&error))?, kvm)));
        let (target, kvm) = match offered {
            Ok((target, kvm)) => (target, Ok(Arc::new(kvm))),
            Err(problem) => (processor::LEAST, Err(problem)),
        };
        let code = kernel_code::fingerprint(target)?;
        let fingerprint = format!("{code}-{kernel}-{}", kernel_abi::VERSION);
        let teller = Teller::start()
            .map_err(|error| Problem::new(Code::Internal, format!("starting the thread for source lines: {error}")))?;
        let (stock, number) = (Mutex::default(), AtomicU64::new(0));
        let client = OnceLock::new();
        let (busy, processors) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(1, usize::from));
        let inner = MicrovmInner { kvm, target, stock, fingerprint, teller, client, number, busy, processors };
        Ok(Self { shared: Arc::new(inner) })
    }

    /// Whether microvms can run here.
    ///
    /// # Errors
    /// [`Code::KvmUnavailable`], with the reason.
    pub fn available(&self) -> Result<(), Problem> {
        self.shared.kvm().map(drop)
    }

    /// Links an image, and says how long that took.
    ///
    /// # Errors
    /// As [`IsolationClass::compile`].
    pub fn link(&self, image: &[u8]) -> Result<(Vec<u8>, Times), Problem> {
        self.link_by(image, &mut kernel_code::compile_here)
    }

    fn link_by(&self, image: &[u8], compiler: &mut Compiler<'_>) -> Result<(Vec<u8>, Times), Problem> {
        let kvm = self.shared.kvm()?;
        let code = compiler(&self.shared.target.word(), image)?;
        link::link(&kvm, KERNEL, &code, unit_lines::worth_keeping(image))
    }
}

fn open(device: &CStr) -> Result<Kvm, Problem> {
    match Kvm::new_with_path(device) {
        Ok(kvm) if kvm.get_api_version() == 12 => Ok(kvm),
        Ok(kvm) => Err(unavailable(&format!("KVM has the version {}, needed is 12", kvm.get_api_version()))),
        Err(error) => {
            let error = io::Error::from(error);
            Err(unavailable(&format!("{} cannot be opened: {error}", device.to_string_lossy())))
        }
    }
}

impl MicrovmInner {
    fn kvm(&self) -> Result<Arc<Kvm>, Problem> {
        self.kvm.clone()
    }

    fn stock(&self) -> Result<Arc<Stock>, Problem> {
        let kvm = self.kvm()?;
        let mut stock = self.stock.lock();
        let shared = stock.upgrade().unwrap_or_else(|| Stock::new(kvm));
        *stock = Arc::downgrade(&shared);
        Ok(shared)
    }

    fn client(&self) -> fetch::Client {
        self.client.get_or_init(egress::Clients::new).clone()
    }

    fn next_number(&self) -> u64 {
        self.number.fetch_add(1, Relaxed) + 1
    }

    /// A machine goes to work.
    fn begins_work(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Relaxed);
        Busy(self.clone())
    }
}

/// A machine at work.
struct Busy(Arc<MicrovmInner>);

impl Busy {
    /// Whether there is a processor beside those of the machines at work, for somebody who listens.
    fn leaves_one(&self) -> bool {
        self.0.busy.load(Relaxed) < self.0.processors
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Relaxed);
    }
}

fn unavailable(why: &str) -> Problem {
    Problem::new(Code::KvmUnavailable, why.to_owned())
}

fn kvm_failed(error: &io::Error) -> Problem {
    unavailable(&format!("KVM does not let a machine run: {error}"))
}

impl IsolationClass for MicrovmClass {
    fn isolation(&self) -> Isolation {
        Isolation::Microvm
    }

    fn fingerprint(&self) -> &str {
        &self.shared.fingerprint
    }

    fn usable(&self) -> BoxFuture<'_, Result<(), Problem>> {
        Box::pin(async { self.available() })
    }

    fn check(&self, image: &[u8]) -> Result<Shape, Problem> {
        kernel_code::shape_for_machines(image)
    }

    fn compile(&self, image: &[u8]) -> Result<Vec<u8>, Problem> {
        Ok(self.link(image)?.0)
    }

    fn has_compiler(&self) -> bool {
        true
    }

    fn compile_by(&self, image: &[u8], compiler: &mut Compiler<'_>) -> Result<Vec<u8>, Problem> {
        Ok(self.link_by(image, compiler)?.0)
    }

    fn load(&self, artefact: Artefact, function: Deployed) -> Result<Arc<dyn Prepared>, Problem> {
        Ok(prepared::PreparedMicrovm::load(&self.shared, artefact, function)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_kvm_a_deployment_is_refused_and_says_why() {
        for device in [c"/nowhere", c"/dev/null"] {
            let class = MicrovmClass::with_device(device).unwrap();
            let hello = include_bytes!("../../../../guests/prebuilt/hello.wasm");
            for problem in [class.usable().await.unwrap_err(), class.compile(hello).unwrap_err()] {
                assert_eq!(problem.code, Code::KvmUnavailable);
                assert!(!problem.detail.is_empty(), "{problem}");
            }
        }
    }
}
