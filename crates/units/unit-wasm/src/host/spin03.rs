//! Spin's own key-value store and variables as its SDK for WASI 0.3 calls them: asynchronous in form, answered at once.

use crate::bindings::drafts::fermyon::spin::variables as synchronous;
use crate::bindings::spin03::spin::{key_value::key_value, variables::variables};
use crate::bindings::wasi::keyvalue::store as first;
use crate::host::keyvalue::{Bucket, PAGE_KEYS};
use crate::unit_state::UnitState;
use key_value::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use wasmtime::component::{
    Accessor, Destination, FutureReader, HasSelf, Linker, Resource, StreamProducer, StreamReader, StreamResult,
    VecBuffer,
};
use wasmtime::{AsContextMut, StoreContextMut};

type Own = HasSelf<UnitState>;
type Tasks = Accessor<UnitState, Own>;
type Outcome<T> = wasmtime::Result<Result<T, Error>>;

pub fn add_to_linker(linker: &mut Linker<UnitState>) -> wasmtime::Result<()> {
    key_value::add_to_linker::<_, Own>(linker, |state| state)?;
    variables::add_to_linker::<_, Own>(linker, |state| state)
}

impl From<first::Error> for Error {
    fn from(error: first::Error) -> Self {
        match error {
            first::Error::NoSuchStore => Self::NoSuchStore,
            first::Error::AccessDenied => Self::AccessDenied,
            first::Error::Other(why) => Self::Other(why),
        }
    }
}

/// Asks the store while no task runs.
fn ask<T>(tasks: &Tasks, ask: impl FnOnce(&mut UnitState) -> wasmtime::Result<Result<T, first::Error>>) -> Outcome<T> {
    tasks.with(|mut unit| Ok(ask(unit.get())?.map_err(Error::from)))
}

impl key_value::Host for UnitState {}

impl key_value::HostStore for UnitState {
    fn drop(&mut self, store: Resource<Bucket>) -> wasmtime::Result<()> {
        first::HostBucket::drop(self, store)
    }
}

impl key_value::HostStoreWithStore<UnitState> for Own {
    async fn open(tasks: &Tasks, label: String) -> Outcome<Resource<Bucket>> {
        ask(tasks, |unit| first::Host::open(unit, label))
    }

    async fn get(tasks: &Tasks, store: Resource<Bucket>, key: String) -> Outcome<Option<Vec<u8>>> {
        ask(tasks, |unit| first::HostBucket::get(unit, store, key))
    }

    async fn set(tasks: &Tasks, store: Resource<Bucket>, key: String, value: Vec<u8>) -> Outcome<()> {
        ask(tasks, |unit| first::HostBucket::set(unit, store, key, value))
    }

    async fn delete(tasks: &Tasks, store: Resource<Bucket>, key: String) -> Outcome<()> {
        ask(tasks, |unit| first::HostBucket::delete(unit, store, key))
    }

    async fn exists(tasks: &Tasks, store: Resource<Bucket>, key: String) -> Outcome<bool> {
        ask(tasks, |unit| first::HostBucket::exists(unit, store, key))
    }

    async fn get_keys(
        tasks: &Tasks,
        store: Resource<Bucket>,
    ) -> wasmtime::Result<(StreamReader<String>, FutureReader<Result<(), Error>>)> {
        tasks.with(|mut unit| {
            let bucket = unit.get().bucket(&store)?;
            let (told, ended) = oneshot::channel();
            let keys = StreamReader::new(&mut unit, Keys { bucket, after: None, told: Some(told) })?;
            // Who stops listening hears that nothing was wrong so far.
            let ended = async move { wasmtime::error::Ok(ended.await.unwrap_or(Ok(()))) };
            Ok((keys, FutureReader::new(&mut unit, ended)?))
        })
    }
}

/// The keys of a bucket, listed as they are read: what was listed ahead would be kept, and nobody would count it.
struct Keys {
    bucket: String,
    after: Option<String>,
    /// Who hears how it ended; none once they have.
    told: Option<oneshot::Sender<Result<(), Error>>>,
}

impl Keys {
    fn end(&mut self, how: Result<(), Error>) -> StreamResult {
        if let Some(told) = self.told.take() {
            // Nobody may want to know.
            drop(told.send(how));
        }
        StreamResult::Dropped
    }
}

impl StreamProducer<UnitState> for Keys {
    type Item = String;
    type Buffer = VecBuffer<String>;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        mut store: StoreContextMut<'a, UnitState>,
        mut keys: Destination<'a, String, VecBuffer<String>>,
        _finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        let wanted = keys.remaining(store.as_context_mut()).unwrap_or(1).min(PAGE_KEYS as usize) as u32;
        if wanted == 0 {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        let Keys { bucket, after, .. } = &*self;
        let page = match store.data_mut().operate(|host| host.list(bucket, "", after.as_deref(), wanted)) {
            Ok(page) => page,
            Err(error) => return Poll::Ready(Ok(self.end(Err(error.into())))),
        };
        keys.set_buffer(page.entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>().into());
        self.after = page.next;
        Poll::Ready(Ok(match self.after {
            Some(_) => StreamResult::Completed,
            None => self.end(Ok(())),
        }))
    }
}

impl variables::Host for UnitState {}

impl variables::HostWithStore<UnitState> for Own {
    async fn get(tasks: &Tasks, name: String) -> wasmtime::Result<Result<String, variables::Error>> {
        let found = tasks.with(|mut unit| synchronous::Host::get(unit.get(), name))?;
        Ok(found.map_err(|error| match error {
            synchronous::Error::InvalidName(why) => variables::Error::InvalidName(why),
            synchronous::Error::Undefined(why) => variables::Error::Undefined(why),
            synchronous::Error::Provider(why) => variables::Error::Provider(why),
            synchronous::Error::Other(why) => variables::Error::Other(why),
        }))
    }
}
