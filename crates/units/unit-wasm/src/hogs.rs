//! Threads for units that run long, in the operating system's idle class, and their rescue.
//!
//! A thread of that class gets a core only when nothing else wants it. On a machine that is busy it may wait for
//! seconds, in the middle of a call. So a thread that gets nowhere is raised to normal priority until it has run one
//! unit for a slice: then that unit knows that it starves, and goes on elsewhere.
//!
//! ```text
//!   ticker ──looks──▶ units, and no slice for 20 ms? ──raises──▶ thread ──runs a slice──▶ steps back
//! ```
//! Not every system lets a process raise a thread again (`RLIMIT_NICE`). Where it does not, they wait.

use crate::stall::STALL_MIN;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::available_parallelism;
use std::time::Instant;
use tokio::runtime::{Builder, Handle, Runtime};

pub struct Hogs {
    /// Taken only when this is dropped.
    runtime: Option<Runtime>,
    pub threads: Arc<HogThreads>,
}

pub struct HogThreads {
    began: Instant,
    /// Microseconds from then to the end of the last slice.
    last_slice: AtomicU64,
    all: Mutex<Vec<Arc<Thread>>>,
}

struct Thread {
    number: libc::pid_t,
    is_raised: Mutex<bool>,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Thread>>> = const { RefCell::new(None) };
}

impl Hogs {
    /// As many as there are cores.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start() -> io::Result<Self> {
        let threads =
            Arc::new(HogThreads { began: Instant::now(), last_slice: AtomicU64::new(0), all: Mutex::default() });
        let enters = threads.clone();
        let runtime = Builder::new_multi_thread()
            .worker_threads(available_parallelism().map_or(1, usize::from))
            .thread_name("lighter-hog")
            .enable_all()
            .on_thread_start(move || enters.enter())
            .on_thread_stop(|| OWN.set(None))
            .build()?;
        Ok(Self { runtime: Some(runtime), threads })
    }

    pub fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("there while this is").handle()
    }

    /// Whether a unit that came now would have a thread for itself.
    pub fn have_room(&self) -> bool {
        let metrics = self.handle().metrics();
        metrics.num_alive_tasks() < metrics.num_workers()
    }

    /// Raises the threads if there are units and none of them has got anywhere. Called every slice.
    pub fn look(&self) {
        let now = self.threads.now_us();
        if self.handle().metrics().num_alive_tasks() == 0 {
            self.threads.last_slice.store(now, SeqCst);
        } else if now.saturating_sub(self.threads.last_slice.load(SeqCst)) > STALL_MIN.as_micros() as u64 {
            self.threads.last_slice.store(now, SeqCst);
            self.threads.all.lock().iter().for_each(|thread| thread.raise());
        }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.runtime.take().map(Runtime::shutdown_background);
    }
}

impl HogThreads {
    /// Whether this thread is one of them, and raised.
    pub fn is_raised() -> bool {
        OWN.with_borrow(|own| own.as_ref().is_some_and(|thread| *thread.is_raised.lock()))
    }

    /// Told by one of them when a unit has run on it.
    pub fn slice_ended(&self) {
        self.last_slice.store(self.now_us(), SeqCst);
        OWN.with_borrow(|own| own.iter().for_each(|thread| thread.step_back()));
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The class comes last: whoever looks after the threads must not wait for one that has lost its core.
    fn enter(&self) {
        let thread = Arc::new(Thread { number: own_number(), is_raised: Mutex::new(false) });
        OWN.set(Some(thread.clone()));
        {
            let mut all = self.all.lock();
            // Those that have ended are nobody's any more.
            all.retain(|thread| Arc::strong_count(thread) > 1);
            all.push(thread);
        }
        enter_idle_class();
    }
}

impl Thread {
    /// Whoever holds the lock may have lost its core, so nobody waits for it here.
    fn raise(self: &Arc<Self>) {
        let Some(mut is_raised) = self.is_raised.try_lock() else { return };
        // One that has ended may have left its number to another.
        if Arc::strong_count(self) > 1 && !*is_raised {
            *is_raised = set_policy(self.number, libc::SCHED_OTHER);
        }
    }

    fn step_back(&self) {
        if std::mem::take(&mut *self.is_raised.lock()) {
            set_policy(self.number, libc::SCHED_IDLE);
        }
    }
}

/// Puts this thread into the operating system's idle class.
pub fn enter_idle_class() {
    if !set_policy(own_number(), libc::SCHED_IDLE) {
        tracing::warn!("threads for long-running units keep their normal priority");
    }
}

/// False: the system does not allow it.
#[expect(unsafe_code, reason = "no library does this for a thread that is not its own")]
fn set_policy(thread: libc::pid_t, policy: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are valid for reads; the rest is plain numbers.
    unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) == 0 }
}

fn own_number() -> libc::pid_t {
    rustix::thread::gettid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    /// Of this thread: 0 is normal, 5 idle.
    fn policy() -> String {
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned()
    }

    /// A test has no machine that is busy enough: the threads are looked at when nothing has run for long.
    #[test]
    fn who_gets_nowhere_is_raised_and_steps_back_after_a_slice() {
        let hogs = Hogs::start().unwrap();
        let (told, tell) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let threads = hogs.threads.clone();
        hogs.handle().spawn(async move {
            for _ in 0..2 {
                told.send(policy()).unwrap();
                wait.recv().unwrap();
            }
            told.send(policy()).unwrap();
            threads.slice_ended();
            told.send(policy()).unwrap();
        });
        assert_eq!(tell.recv().unwrap(), "5");
        hogs.threads.last_slice.store(hogs.threads.now_us(), SeqCst);
        hogs.look();
        go.send(()).unwrap();
        assert_eq!(tell.recv().unwrap(), "5", "it has just got somewhere");
        std::thread::sleep(STALL_MIN + Duration::from_millis(1));
        hogs.look();
        go.send(()).unwrap();
        let raised = tell.recv().unwrap();
        if raised == "5" {
            println!("skipped: priority: raising a thread of the idle class: RLIMIT_NICE does not allow it");
        } else {
            assert_eq!(raised, "0");
        }
        assert_eq!(tell.recv().unwrap(), "5");
    }
}
