//! What a tender's thread needs from the system besides KVM: signals, a clock and a low priority.
#![expect(unsafe_code, reason = "threads of this process, by their numbers")]

use std::sync::OnceLock;
use std::time::Duration;

/// The thread that asks.
pub fn this() -> libc::pid_t {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Sends a signal to a thread of this process; one that is gone hears nothing.
pub fn signal(thread: libc::pid_t, signal: libc::c_int) {
    // SAFETY: plain numbers; the signal has a handler that harms nobody, whichever thread of ours has the number by
    // now.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}

/// Has this thread hear one signal alone, beside those of its own faults. One for the whole process comes to any thread
/// that hears it, and what a handler does may be more than this one is allowed to.
pub fn hear_only(signal: libc::c_int) {
    let heard = [signal, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];
    // SAFETY: a set on the stack, written before it is read, and plain numbers.
    unsafe {
        let mut others: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut others);
        for signal in heard {
            libc::sigdelset(&raw mut others, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const others, std::ptr::null_mut());
    }
}

/// CPU time of a thread, its guest's included.
pub fn cpu(thread: libc::pid_t) -> Option<Duration> {
    // As the C library makes the clock of a thread from its number.
    const PER_THREAD: libc::clockid_t = 4 | 2;
    let clock = (!thread << 3) | PER_THREAD;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is valid for writes.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    let duration = || Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?));
    if failed { None } else { duration() }
}

/// The processor that this thread runs on now, if there are others that it may run on.
pub fn processor() -> Option<usize> {
    // SAFETY: no arguments.
    let here = usize::try_from(unsafe { libc::sched_getcpu() }).ok()?;
    // SAFETY: a set of processors, which is plain numbers.
    (here < PROCESSORS_MAX && unsafe { libc::CPU_COUNT(allowed()?) } > 1).then_some(here)
}

/// Keeps a thread off a processor; none: off none any more. False: the system does not allow it.
pub fn keep_off(thread: libc::pid_t, processor: Option<usize>) -> bool {
    let Some(mut set) = allowed().copied() else { return false };
    if let Some(processor) = processor {
        // SAFETY: within the set, as `processor` above has checked.
        unsafe { libc::CPU_CLR(processor.min(PROCESSORS_MAX - 1), &mut set) };
    }
    // SAFETY: the set is as large as is said.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &raw const set) == 0 }
}

/// Processors a set has room for.
const PROCESSORS_MAX: usize = libc::CPU_SETSIZE as usize;

/// The processors that this process may run on.
fn allowed() -> Option<&'static libc::cpu_set_t> {
    static ALLOWED: OnceLock<Option<libc::cpu_set_t>> = OnceLock::new();
    let asked = || {
        // SAFETY: plain numbers, of which zeros are a set without a processor.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is valid for writes and as large as is said.
        let answered = unsafe { libc::sched_getaffinity(libc::getpid(), size_of_val(&set), &raw mut set) == 0 };
        answered.then_some(set)
    };
    ALLOWED.get_or_init(asked).as_ref()
}

/// Lets others go first, or no longer. False: the system does not allow it.
pub fn set_nice(thread: libc::pid_t, nice: libc::c_int) -> bool {
    // SAFETY: plain numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.cast_unsigned(), nice) == 0 }
}
