//! How a board ends: what happened goes to the console, then the machine starts again.

use crate::machine::Registers as Seen;
use crate::{Exclusive, code, image, machine};
use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

const FRAMES_MAX: usize = 32;

/// What a board gives for its last words.
#[derive(Clone, Copy)]
pub struct Ways {
    /// Sends one byte to the console; waits until it can.
    pub put: fn(u8),
    /// Starts the machine again.
    pub reset: fn() -> !,
}

static WAYS: Exclusive<Option<Ways>> = Exclusive::new(None);
static DEPTH: AtomicU32 = AtomicU32::new(0);

pub fn set_ways(ways: Ways) {
    WAYS.with(|place| *place = Some(ways));
}

/// The console, for a line now and then.
pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(Some(ways)) = WAYS.try_with(|ways| *ways) {
            text.bytes().for_each(ways.put);
        }
        Ok(())
    }
}

/// A panic: where, why, and the way there.
pub fn panic(info: &PanicInfo<'_>) -> ! {
    end(|console| {
        let _ = writeln!(console, "\nkernel: {info}");
        backtrace(console, machine::frame_pointer());
    })
}

/// An exception, or the watchdog's interrupt.
pub(crate) fn exception(name: &str, seen: &Seen) -> ! {
    end(|console| {
        let _ = writeln!(console, "\nkernel: {name}\n{seen}");
        backtrace(console, seen.frame_pointer());
    })
}

fn backtrace(console: &mut Console, mut frame: usize) {
    let layout = image::layout();
    let stack = [layout.guard + crate::tables::PAGE, layout.end];
    for _ in 0..FRAMES_MAX {
        let word = size_of::<usize>();
        let (next, from) = (code::stack_word(frame, stack), code::stack_word(frame.saturating_add(word), stack));
        let (Some(next), Some(from)) = (next, from) else { break };
        let _ = writeln!(console, "  from {from:#x}");
        if next <= frame {
            break;
        }
        frame = next;
    }
}

fn end(say: impl FnOnce(&mut Console)) -> ! {
    // What fails while it reports does not report that.
    if DEPTH.fetch_add(1, SeqCst) == 0 {
        say(&mut Console);
        let _ = Console.write_str("kernel: starting again\n");
    }
    if let Some(Some(ways)) = WAYS.try_with(|ways| *ways) {
        (ways.reset)()
    }
    machine::stop()
}
