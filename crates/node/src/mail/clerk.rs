//! A thread of its own for work at the desk. It waits for locks and files, with hundreds of records at a time, while
//! the threads of the node go on serving calls; and where processors are short, they go first.

use problem::{Code, Problem};
use rustix::process::nice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// Priority of the thread, as `nice` has it: a third of what the others weigh. Locks that others want are held there,
/// so it is not less.
const NICE: i32 = 5;
/// Pieces of work that wait. Beyond it their callers wait too.
const WAITING_MAX: usize = 64;

type Job = Box<dyn FnOnce() + Send>;

/// The thread ends when this is dropped, and nothing waits any more.
pub struct Clerk(mpsc::Sender<Job>);

impl Clerk {
    /// Needs a tokio runtime, which the work then has too.
    ///
    /// # Errors
    /// [`Code::Internal`]: the system gives no thread.
    pub fn start() -> Result<Self, Problem> {
        let (sender, mut waiting) = mpsc::channel::<Job>(WAITING_MAX);
        let runtime = Handle::current();
        let run = move || {
            let _runtime = runtime.enter();
            // With the usual priority it does the same work.
            let _ = nice(NICE);
            while let Some(work) = waiting.blocking_recv() {
                // Whoever waits for it hears that it has no end; the next piece is none the worse.
                if catch_unwind(AssertUnwindSafe(work)).is_err() {
                    tracing::error!("a step of mail gave up");
                }
            }
        };
        let started = thread::Builder::new().name("mail".to_owned()).spawn(run);
        started.map_err(|error| Problem::new(Code::Internal, format!("no thread for mail: {error}")))?;
        Ok(Self(sender))
    }

    /// Works there, after all that was brought before, and to the end, whoever waits for it. None: it gave up.
    pub async fn does<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (tell, done) = oneshot::channel();
        let work = move || {
            // Nobody may wait for it any more.
            let _ = tell.send(work());
        };
        self.0.send(Box::new(work)).await.ok()?;
        done.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_in_its_order_and_after_a_piece_that_gives_up() {
        let clerk = Clerk::start().unwrap();
        let own = clerk.does(|| thread::current().id()).await.unwrap();
        assert_ne!(own, thread::current().id());
        let (first, failed, last) = tokio::join!(
            clerk.does(|| (1, thread::current().id())),
            clerk.does(|| -> u8 { panic!("as told") }),
            clerk.does(|| (3, thread::current().id())),
        );
        assert_eq!((first, failed, last), (Some((1, own)), None, Some((3, own))));
    }
}
