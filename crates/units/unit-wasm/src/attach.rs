//! Somebody attaches to a call that runs: they ask, and the unit answers on its own thread when its slice ends.
//!
//! ```text
//!   attach ── Ask ──▶ Asks ◀── looked at when a slice ends (1 ms) ── the unit
//!      ◀────────── Here: frames, and where its log is ──────────────┘ and it goes on
//! ```
//! A unit that waits for its host runs no code, so it has no slice that could end: that is what is said of it then.
//! With a core its call ends, because its memory can be had of a trap alone.

use crate::failure;
use crate::prepared::PreparedWasm;
use crate::unit_state::UnitState;
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot;
use unit::{Level, Output, Prepared, Seen, StackFrame, ended_meanwhile};
use wasmtime::{StoreContextMut, WasmBacktrace};

/// How long a unit that runs is waited for: its slices are much shorter, unless the machine is busy.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// What was asked of the units of one function.
#[derive(Default)]
pub struct Asks {
    /// How many there are: all that a unit looks at while there are none.
    count: AtomicUsize,
    waiting: Mutex<Vec<Ask>>,
}

struct Ask {
    unit: u64,
    core: Option<CoreTo>,
    here: oneshot::Sender<Here>,
}

/// Where the core of a call goes that ends for it.
pub type CoreTo = oneshot::Sender<Vec<u8>>;

/// Where a unit is.
struct Here {
    frames: Vec<StackFrame>,
    output: Arc<Output>,
}

impl Asks {
    fn put(&self, ask: Ask) {
        let mut waiting = self.waiting.lock();
        waiting.push(ask);
        self.count.store(waiting.len(), Relaxed);
    }

    /// Forgets what nobody waits for any more.
    fn clean(&self) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|ask| !ask.here.is_closed());
        self.count.store(waiting.len(), Relaxed);
    }

    fn take(&self, unit: u64) -> Option<Ask> {
        let mut waiting = self.waiting.lock();
        let found = waiting.iter().position(|ask| ask.unit == unit && !ask.here.is_closed())?;
        let ask = waiting.swap_remove(found);
        self.count.store(waiting.len(), Relaxed);
        Some(ask)
    }
}

/// A slice of a unit ends: it answers what is asked of it.
///
/// # Errors
/// Its call is to end, because its core was asked for.
pub fn answer(mut context: StoreContextMut<'_, UnitState>) -> wasmtime::Result<()> {
    let state = context.data();
    if state.asks.count.load(Relaxed) == 0 {
        return Ok(());
    }
    let Some(Ask { unit, core, here }) = state.asks.take(state.number) else { return Ok(()) };
    let frames = failure::frames(&WasmBacktrace::force_capture(&context));
    let state = context.data_mut();
    state.output.note(Level::Info, "somebody attached to the unit, which is here:");
    // Whoever no longer waits asks for no core either.
    if here.send(Here { frames, output: state.output.clone() }).is_err() {
        return Ok(());
    }
    let Some(core) = core else { return Ok(()) };
    state.core_to = Some(core);
    let detail = format!("unit {unit} was ended by whoever attached to it and took its core");
    Err(wasmtime::Error::new(Problem::new(Code::UnitTrapped, detail)))
}

/// Asks the unit, and has the log told where it is.
pub async fn attach(prepared: Arc<PreparedWasm>, unit: u64, wants_core: bool) -> Result<Seen, Problem> {
    let (here, is_here) = oneshot::channel();
    let (core, has_core) = oneshot::channel();
    prepared.asks.put(Ask { unit, core: wants_core.then_some(core), here });
    let Ok(answered) = tokio::time::timeout(ANSWER_WAIT, is_here).await else {
        prepared.asks.clean();
        let is_at_work = prepared.units().iter().any(|one| one.unit == unit && one.request_id.is_some());
        return Err(match is_at_work {
            true => {
                let why = format!("unit {unit} runs no code now: it waits for its host, or has no processor");
                unit::refused(why)
                    .with_hint("what it waits for is the store, a queue, HTTP or a slow reader; try again")
            }
            false => ended_meanwhile(unit),
        });
    };
    let Here { frames, output } = answered.map_err(|_| ended_meanwhile(unit))?;
    prepared.tell(frames, &output).wait().await;
    let core = match wants_core {
        true => Some(has_core.await.map_err(|_| ended_meanwhile(unit))?),
        false => None,
    };
    let lines = core.as_ref().map(|_| "its call has ended, so that its memory could be had".to_owned());
    Ok(Seen { lines: lines.into_iter().collect(), core })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_unit_that_is_meant_answers_and_only_who_still_waits() {
        let asks = Asks::default();
        let ask = |unit| {
            let (here, is_here) = oneshot::channel();
            asks.put(Ask { unit, core: None, here });
            is_here
        };
        let (gone, mut waits) = (ask(1), ask(2));
        drop(gone);
        assert!(asks.take(1).is_none(), "nobody waits for it");
        assert!(asks.take(3).is_none());
        assert_eq!(asks.take(2).map(|ask| ask.unit), Some(2));
        assert!(asks.take(2).is_none(), "it was asked once");
        assert!(waits.try_recv().is_err(), "the ask was dropped without an answer");
        let left = ask(4);
        drop(left);
        asks.clean();
        assert_eq!(asks.count.load(Relaxed), 0);
    }
}
