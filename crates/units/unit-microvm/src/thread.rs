//! What a tender's thread needs from the system besides KVM: signals, a clock and a low priority.
#![expect(unsafe_code, reason = "threads of this process, by their numbers")]

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

/// Lets others go first, or no longer. False: the system does not allow it.
pub fn set_nice(thread: libc::pid_t, nice: libc::c_int) -> bool {
    // SAFETY: plain numbers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread.cast_unsigned(), nice) == 0 }
}
