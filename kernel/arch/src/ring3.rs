//! The guest of a tender, in ring 3 of x86-64 or at EL0 of aarch64: no privileged instruction, no interrupt, page tables
//! out of reach.
//!
//! The tender enters at the board's `_start` with a stack. From then on the kernel only ever leaves by [`exit`]; whatever
//! faults ends the machine, and the tender names the unit that did it.

#[cfg_attr(target_arch = "aarch64", path = "ring3/aarch64.rs")]
#[cfg_attr(target_arch = "x86_64", path = "ring3/x86_64.rs")]
mod machine;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
use kernel_abi::boot::Boot;
use kernel_abi::exits::{CallPage, Exit, hatch};
use kernel_abi::layout;
pub use machine::{halt, has_feature, tsc};

/// The boot page as it is now.
pub fn boot() -> Boot {
    // SAFETY: the tender maps the boot page at this address before it enters the kernel, and writes it only while the
    // kernel stands still. Every bit pattern is a `Boot`.
    unsafe { core::ptr::with_exposed_provenance::<Boot>(layout::BOOT as usize).read_volatile() }
}

/// Asks the tender, and comes back with its answer: by leaving to it, or through the hatch if somebody listens.
pub fn exit(exit: Exit, page: CallPage) -> CallPage {
    let words = core::ptr::with_exposed_provenance_mut::<u64>(layout::CALL as usize);
    // SAFETY: the call page is mapped for reading and writing and used here only; nobody answers what was not asked yet.
    unsafe {
        for (index, word) in page.words().into_iter().enumerate() {
            words.add(index).write_volatile(word);
        }
    }
    if !by_hatch(exit) {
        machine::leave(exit.port());
    }
    ENTERED.store(tsc(), Relaxed);
    page_now()
}

/// Says what is asked, and looks for the answer for as long as somebody listens and patience lasts. False: it is to be
/// left; the tender then knows whether somebody has heard it meanwhile.
fn by_hatch(exit: Exit) -> bool {
    let patience = match exit {
        Exit::Call => hatch::CALL_TURNS,
        Exit::Receive => hatch::REST_TURNS,
        _ => return false,
    };
    let asked = word(hatch::ASKED).load(Relaxed).wrapping_add(1);
    word(hatch::PORT).store(exit.port().into(), Relaxed);
    // What is asked is in memory before it is counted, and it is counted before it is looked whether somebody listens.
    word(hatch::ASKED).swap(asked, SeqCst);
    let (began, patience) = (tsc(), word(patience).load(Relaxed));
    while word(hatch::ANSWERED).load(SeqCst) != asked {
        if word(hatch::LISTENS).load(SeqCst) == 0 || tsc().wrapping_sub(began) >= patience {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

/// A word behind the call page's own.
fn word(at: u64) -> &'static AtomicU64 {
    // SAFETY: the page is mapped for reading and writing, and the words of the hatch in it are used as atomics only.
    unsafe { &*core::ptr::with_exposed_provenance::<AtomicU64>(at as usize) }
}

/// The call page as the tender left it.
fn page_now() -> CallPage {
    let words = core::ptr::with_exposed_provenance::<u64>(layout::CALL as usize);
    // SAFETY: as in `exit`.
    CallPage::from_words(core::array::from_fn(|index| unsafe { words.add(index).read_volatile() }))
}

/// The counter when the tender was last come back from; its stamps are of just before.
static ENTERED: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds since 1970-01-01 UTC, and those of a clock that never goes back: the tender's stamps, and what the counter
/// has turned since.
pub fn now() -> (u64, u64) {
    let hz = u128::from(boot().tsc_hz.max(1));
    let since = u128::from(tsc().saturating_sub(ENTERED.load(Relaxed))) * 1_000_000_000 / hz;
    let since = u64::try_from(since).unwrap_or(u64::MAX / 4);
    let CallPage { unix_ns, monotonic_ns, .. } = page_now();
    (unix_ns.saturating_add(since), monotonic_ns.saturating_add(since))
}

/// Does something with the log ring.
pub fn with_log<R>(act: impl FnOnce(&mut [u8]) -> R) -> R {
    let ring = core::ptr::with_exposed_provenance_mut::<u8>(layout::LOG as usize);
    // SAFETY: the ring is mapped for reading and writing and used here only; `act` cannot keep it, nor come back here with
    // it, since this module hands it out nowhere else.
    let ring = unsafe { core::slice::from_raw_parts_mut(ring, layout::LOG_BYTES as usize) };
    let result = act(ring);
    compiler_fence(Ordering::SeqCst);
    result
}

/// Does something with the first bytes of the inbox, as the tender filled it last.
pub fn with_inbox<R>(bytes: usize, act: impl FnOnce(&[u8]) -> R) -> R {
    compiler_fence(Ordering::SeqCst);
    let inbox = core::ptr::with_exposed_provenance::<u8>(layout::INBOX as usize);
    // SAFETY: the inbox is mapped, and the tender writes it only while the kernel stands still.
    act(unsafe { core::slice::from_raw_parts(inbox, bytes.min(layout::INBOX_BYTES as usize)) })
}

/// Reads a byte of each page, whatever is there.
pub fn read_ahead(start: u64, bytes: u64) {
    for at in (start..start.saturating_add(bytes)).step_by(layout::PAGE as usize) {
        // SAFETY: the tender names pages that it has mapped; where it has not, the machine ends.
        unsafe { core::ptr::with_exposed_provenance::<u8>(at as usize).read_volatile() };
    }
}

/// The region of compiled code; writable until its text is published.
pub fn code(bytes: usize) -> NonNull<[u8]> {
    let start = core::ptr::with_exposed_provenance_mut::<u8>(layout::CODE as usize);
    NonNull::slice_from_raw_parts(NonNull::new(start).expect("not null"), bytes)
}
