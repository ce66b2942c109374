//! Machines that belong to no function yet, made ahead: a function without a spare waits only for its memory.
//!
//! ```text
//!   made beside calls ──▶ stock ──▶ a unit of any function ──▶ its own spares …
//!                           ▲──────── no longer wanted there ◀──┘
//! ```
//! Such a machine has a processor, a thread and its filter, but no memory except what the system keeps for it. A
//! function that may have more memory than most makes its own machines.

use crate::processor::Anchor;
use crate::tender::{Recipe, Tender};
use kvm_ioctls::Kvm;
use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Machines made ahead.
const READY: usize = 2;
/// Machines that are kept when nobody wants them any more.
const READY_MAX: usize = 4;
/// Address space of each: enough for a component of some megabytes of code with the memory a function has by default.
const MEMORY_BYTES: u64 = 96 << 20;

pub struct Stock {
    kvm: Arc<Kvm>,
    state: Mutex<State>,
    /// As long as some function may want a machine.
    _anchor: Option<Anchor>,
}

struct State {
    machines: Vec<Tender>,
    coming: usize,
    used: Instant,
}

impl Stock {
    pub fn new(kvm: Arc<Kvm>) -> Arc<Self> {
        let state = State { machines: Vec::new(), coming: 0, used: Instant::now() };
        // Without one machines are made all the same.
        let anchor = Anchor::new(&kvm).ok();
        Arc::new(Self { kvm, state: Mutex::new(state), _anchor: anchor })
    }

    /// A unit of this function: in a machine of the stock, or else in a new one. `done` has it when it waits for its
    /// first event.
    pub fn start(&self, recipe: Arc<Recipe>, number: u64, done: impl FnOnce(io::Result<Tender>) + Send + 'static) {
        let bytes = recipe.snapshot.memory_bytes();
        let ready = if bytes <= MEMORY_BYTES { self.state.lock().machines.pop() } else { None };
        match ready {
            Some(machine) => machine.become_unit(recipe, number, done),
            None => Tender::start(self.kvm.clone(), bytes.max(MEMORY_BYTES), move |made| match made {
                Ok(machine) => machine.become_unit(recipe, number, done),
                Err(error) => done(Err(error)),
            }),
        }
    }

    /// Makes machines until there are enough. Called when a call is over, for making one takes a core.
    pub fn fill(self: &Arc<Self>) {
        let missing = {
            let mut state = self.state.lock();
            state.used = Instant::now();
            READY.saturating_sub(state.machines.len() + state.coming)
        };
        for _ in 0..missing {
            let coming = Coming::new(self);
            // What fails is made by whoever needs it, and hears why.
            Tender::start(self.kvm.clone(), MEMORY_BYTES, move |made| _ = made.map(|machine| coming.came(machine)));
        }
    }

    /// Takes a machine whose function does not want it any more, or ends it if there are enough.
    pub fn take_back(self: &Arc<Self>, machine: Tender) {
        let has_room = {
            let state = self.state.lock();
            machine.memory_bytes == MEMORY_BYTES && state.machines.len() + state.coming < READY_MAX
        };
        if has_room {
            let coming = Coming::new(self);
            machine.leave(move |machine| coming.came(machine));
        }
    }

    /// Ends all of them if nobody used one for so long.
    pub fn sweep(&self, now: Instant, idle: Duration) {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.used) > idle {
            let ended = std::mem::take(&mut state.machines);
            drop(state);
            drop(ended);
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub fn ready(&self) -> usize {
        self.state.lock().machines.len()
    }

    /// Whether as many wait as are made ahead.
    pub fn is_full(&self) -> bool {
        self.state.lock().machines.len() >= READY
    }
}

/// A machine on its way, whether it arrives or not. The stock may be gone by then.
struct Coming(Weak<Stock>);

impl Coming {
    fn new(stock: &Arc<Stock>) -> Self {
        stock.state.lock().coming += 1;
        Self(Arc::downgrade(stock))
    }

    fn came(self, machine: Tender) {
        if let Some(stock) = self.0.upgrade() {
            stock.state.lock().machines.push(machine);
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if let Some(stock) = self.0.upgrade() {
            let mut state = stock.state.lock();
            state.coming = state.coming.saturating_sub(1);
        }
    }
}
