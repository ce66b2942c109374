//! The thread that reads debug information, and what is logged when it may not or cannot.

use crate::Share;
use crate::sources::text;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use unit::{Level, Output, StackFrame};

/// Traps that wait for the thread. One more is told without lines.
const WAITING_MAX: usize = 64;

/// How long a call that trapped holds its place until the log has the way there. What takes longer comes after it.
pub const WAIT_MAX: Duration = Duration::from_millis(250);

const NONE_KEPT: &str = "build with debug information for source lines";
const NOT_READ: &str = "its debug information was not read: too many traps at once";

/// Gets an image, or nothing if none was kept. Called on the teller's thread.
pub type Image = Box<dyn FnOnce() -> Vec<u8> + Send>;

/// Tells of traps with source lines. Dropping it ends its thread once what waits is told.
pub struct Teller(SyncSender<Trap>);

struct Trap {
    image: Image,
    frames: Vec<StackFrame>,
    share: Arc<Share>,
    output: Arc<Output>,
    told: oneshot::Sender<()>,
}

/// The trap is in the log when this is.
pub struct Told(Option<oneshot::Receiver<()>>);

impl Told {
    /// Waits until the log has it, or [`WAIT_MAX`]. Dropped, it loses nothing.
    pub async fn wait(self) {
        if let Some(told) = self.0 {
            // Gone without a word, or late: there is nothing more to wait for.
            let _told_or_not = tokio::time::timeout(WAIT_MAX, told).await;
        }
    }
}

impl Teller {
    /// # Errors
    /// The system starts no thread.
    pub fn start() -> io::Result<Self> {
        let (sender, traps) = sync_channel(WAITING_MAX);
        thread::Builder::new().name("lighter-lines".into()).spawn(move || tell_all(&traps))?;
        Ok(Self(sender))
    }

    /// Writes the frames to the log, innermost first. The way of the function's last trap it writes at once; so it
    /// does, but without lines, where there is no image, over the function's share and when too many wait.
    pub fn tell(
        &self,
        image: Option<Image>,
        frames: Vec<StackFrame>,
        share: &Arc<Share>,
        output: &Arc<Output>,
    ) -> Told {
        let Some(image) = image else {
            output.note(Level::Error, &text(&[], &frames, NONE_KEPT));
            return Told(None);
        };
        if let Some(text) = share.told_before(&frames) {
            output.note(Level::Error, &text);
            return Told(None);
        }
        let (told, receiver) = oneshot::channel();
        let trap = Trap { image, frames, share: share.clone(), output: output.clone(), told };
        if !share.may_begin(Instant::now()) {
            trap.output.note(Level::Error, &text(&[], &trap.frames, NOT_READ));
            return Told(None);
        }
        match self.0.try_send(trap) {
            Ok(()) => Told(Some(receiver)),
            Err(TrySendError::Full(trap) | TrySendError::Disconnected(trap)) => {
                trap.share.ends(Duration::ZERO);
                trap.output.note(Level::Error, &text(&[], &trap.frames, NOT_READ));
                Told(None)
            }
        }
    }
}

fn tell_all(traps: &Receiver<Trap>) {
    for Trap { image, frames, share, output, told } in traps {
        let before = cpu();
        // Whatever stands in the image: what goes wrong in reading it is the end of this trap's lines alone.
        let lines = catch_unwind(AssertUnwindSafe(|| text(&image(), &frames, NONE_KEPT)));
        share.ends(cpu().saturating_sub(before));
        let lines = lines.unwrap_or_else(|_| text(&[], &frames, "its debug information cannot be read"));
        output.note(Level::Error, &lines);
        share.told(frames, &lines);
        let _nobody_waits = told.send(());
    }
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
