//! A function as it takes calls: what stays through all its versions, and the version that runs now.

use super::history::Version;
use super::rest::{NEVER, Resting};
use crate::log::FunctionLog;
use crate::metrics::Counters;
use dispatch::Admission;
use manifest::{Function, Name};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use unit::{Contract, Prepared};
use warehouse::ImageHash;

/// What a function keeps when it is deployed anew.
pub struct Identity {
    pub name: Name,
    /// The name again, for those who keep it.
    pub label: Arc<str>,
    pub admission: Admission,
    pub counters: Counters,
    pub log: Arc<FunctionLog>,
}

/// One version that takes calls. Calls hold it, so a version that was replaced lives until its last call has ended.
pub struct Live {
    pub identity: Arc<Identity>,
    pub version: u32,
    pub function: Arc<Function>,
    pub contract: Contract,
    pub image: ImageHash,
    /// Ready to start units; none until the first call, and again after a long pause.
    prepared: RwLock<Option<Arc<dyn Prepared>>>,
    /// Held while it is made ready.
    pub loading: tokio::sync::Mutex<()>,
    /// Milliseconds from the node's start to the last call.
    used_ms: AtomicU64,
    /// The same of the last call after which it was let rest.
    rested_ms: AtomicU64,
    /// Whether it is being loaded without a call, or was and could not be.
    warming: AtomicBool,
}

impl Live {
    pub fn new(identity: Arc<Identity>, version: &Version, image: ImageHash) -> Arc<Self> {
        Arc::new(Self {
            identity,
            version: version.version,
            function: version.function.clone(),
            contract: version.contract,
            image,
            prepared: RwLock::new(None),
            loading: tokio::sync::Mutex::new(()),
            used_ms: AtomicU64::new(0),
            rested_ms: AtomicU64::new(NEVER),
            warming: AtomicBool::new(false),
        })
    }

    pub fn name(&self) -> &Name {
        &self.identity.name
    }

    pub fn prepared(&self) -> Option<Arc<dyn Prepared>> {
        self.prepared.read().clone()
    }

    pub fn set_prepared(&self, prepared: Arc<dyn Prepared>) {
        *self.prepared.write() = Some(prepared);
    }

    pub fn note_use(&self, ms: u64) {
        self.used_ms.store(ms, Relaxed);
    }

    pub fn used_ms(&self) -> u64 {
        self.used_ms.load(Relaxed)
    }

    /// Whether it is to rest, if its last call was not after this moment. If it is, it is taken to do so.
    pub fn rests_since(&self, until_ms: u64) -> Resting {
        let used_ms = self.used_ms();
        let resting = Resting::of(used_ms, self.rested_ms.load(Relaxed), until_ms);
        if resting == Resting::Begins {
            self.rested_ms.store(used_ms, Relaxed);
        }
        resting
    }

    /// Whether loading it without a call may begin; then it has begun.
    pub fn begin_warming(&self) -> bool {
        !self.warming.swap(true, Relaxed)
    }

    /// One that could not be loaded is not tried again without a call.
    pub fn end_warming(&self, is_loaded: bool) {
        self.warming.store(!is_loaded, Relaxed);
    }

    /// Gives the memory back. Calls that run end as they would; the next one makes it ready again.
    pub fn unload(&self, now: Instant) {
        let prepared = self.prepared.write().take();
        if let Some(prepared) = prepared {
            prepared.sweep(now, true);
        }
    }
}
