//! All queues of a state, by name.

use super::core::Core;
use super::keys::{self, Numbers};
use super::varint::Reader;
use super::{LeaseId, QueueConfig};
use crate::engine::Engine;
use crate::error::{StoreError, from_database};
use crate::keys::is_name;
use fjall::Readable;
use parking_lot::{Mutex, RwLock};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::watch;

/// What all handles of one queue share.
pub struct QueueInner {
    pub name: Arc<str>,
    pub core: Mutex<Core>,
    /// Held by whoever reads events from disk that are not in memory, and by whoever removes such.
    pub disk: Mutex<()>,
    pub watch: watch::Sender<u64>,
    /// Highest id that was ever given to a queue of this state.
    pub last_id: Arc<AtomicU32>,
}

impl QueueInner {
    fn new(name: &str, numbers: Numbers, last_id: &Arc<AtomicU32>) -> Arc<Self> {
        let core = Mutex::new(Core::new(QueueConfig::default(), numbers));
        let (disk, watch, last_id) = (Mutex::new(()), watch::Sender::default(), Arc::clone(last_id));
        Arc::new(Self { name: name.into(), core, disk, watch, last_id })
    }

    /// A queue that is not there, where nothing is leased.
    pub fn gone(name: &str) -> Arc<Self> {
        Self::new(name, Numbers::default(), &Arc::default())
    }

    /// Tells those who watch that something became ready.
    pub fn tell(&self) {
        if self.watch.receiver_count() > 0 {
            self.watch.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    pub fn release(&self, lease: LeaseId) {
        let news = {
            let mut core = self.core.lock();
            core.release(lease);
            std::mem::take(&mut core.has_news)
        };
        if news {
            self.tell();
        }
    }
}

pub struct Registry {
    by_name: RwLock<BTreeMap<Arc<str>, Arc<QueueInner>>>,
    last_id: Arc<AtomicU32>,
}

impl Registry {
    /// Reads the numbers of all queues; of their events none.
    pub fn read(engine: &Engine) -> Result<Self, Problem> {
        let failed = |error: &fjall::Error| from_database("read the queues", error);
        let (mut by_name, last_id) = (BTreeMap::new(), Arc::<AtomicU32>::default());
        for guard in engine.snapshot().prefix(&engine.queues, keys::LAST_ID) {
            let (key, value) = guard.into_inner().map_err(|error| failed(&error))?;
            let Some(name) = keys::name_of(&key) else {
                let stored = Reader(&value).number().and_then(|id| u32::try_from(id).ok());
                let damaged = || Problem::new(Code::StateCorrupt, "the last id of a queue cannot be read");
                last_id.fetch_max(stored.ok_or_else(damaged)?, Ordering::Relaxed);
                continue;
            };
            let damaged = || Problem::new(Code::StateCorrupt, format!("the numbers of queue {name:?} cannot be read"));
            let numbers = Numbers::decode(&value).ok_or_else(damaged)?;
            last_id.fetch_max(numbers.id, Ordering::Relaxed);
            let shared = QueueInner::new(name, numbers, &last_id);
            by_name.insert(Arc::clone(&shared.name), shared);
        }
        Ok(Self { by_name: RwLock::new(by_name), last_id })
    }

    /// The queue of this name, which begins to exist if need be.
    pub fn get(&self, name: &str) -> Result<Arc<QueueInner>, StoreError> {
        if let Some(shared) = self.by_name.read().get(name) {
            return Ok(Arc::clone(shared));
        }
        if !is_name(name) {
            return Err(StoreError::QueueName { name: name.chars().take(crate::BUCKET_BYTES_MAX).collect() });
        }
        let make = || {
            let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
            QueueInner::new(name, Numbers { id, ..Numbers::default() }, &self.last_id)
        };
        Ok(Arc::clone(self.by_name.write().entry(name.into()).or_insert_with(make)))
    }

    pub fn known(&self, name: &str) -> Option<Arc<QueueInner>> {
        self.by_name.read().get(name).cloned()
    }

    pub fn names(&self) -> Vec<String> {
        self.by_name.read().keys().map(|name| name.to_string()).collect()
    }

    /// Forgets a queue, if it is still this one.
    pub fn forget(&self, shared: &Arc<QueueInner>) {
        let mut by_name = self.by_name.write();
        if by_name.get(&shared.name).is_some_and(|known| Arc::ptr_eq(known, shared)) {
            by_name.remove(&shared.name);
        }
    }
}
