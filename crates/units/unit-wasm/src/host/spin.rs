//! Spin's own key-value store and variables, which its SDK calls: the same store, configuration and secrets.

use crate::bindings::drafts::fermyon::spin::{key_value, variables};
use crate::bindings::wasi::keyvalue::store as first;
use crate::host::keyvalue::{Bucket, PAGE_KEYS};
use crate::unit_state::UnitState;
use key_value::Error;
use wasmtime::component::Resource;

/// Pages that `get-keys` reads, which has no pages of its own.
const PAGES_MAX: usize = 16;

type Outcome<T> = wasmtime::Result<Result<T, Error>>;

impl From<first::Error> for Error {
    fn from(error: first::Error) -> Self {
        match error {
            first::Error::NoSuchStore => Self::NoSuchStore,
            first::Error::AccessDenied => Self::AccessDenied,
            first::Error::Other(why) => Self::Other(why),
        }
    }
}

impl key_value::Host for UnitState {}

impl key_value::HostStore for UnitState {
    fn open(&mut self, label: String) -> Outcome<Resource<Bucket>> {
        Ok(first::Host::open(self, label)?.map_err(Error::from))
    }

    fn get(&mut self, store: Resource<Bucket>, key: String) -> Outcome<Option<Vec<u8>>> {
        Ok(first::HostBucket::get(self, store, key)?.map_err(Error::from))
    }

    fn set(&mut self, store: Resource<Bucket>, key: String, value: Vec<u8>) -> Outcome<()> {
        Ok(first::HostBucket::set(self, store, key, value)?.map_err(Error::from))
    }

    fn delete(&mut self, store: Resource<Bucket>, key: String) -> Outcome<()> {
        Ok(first::HostBucket::delete(self, store, key)?.map_err(Error::from))
    }

    fn exists(&mut self, store: Resource<Bucket>, key: String) -> Outcome<bool> {
        Ok(first::HostBucket::exists(self, store, key)?.map_err(Error::from))
    }

    fn get_keys(&mut self, store: Resource<Bucket>) -> Outcome<Vec<String>> {
        let name = self.bucket(&store)?;
        let (mut keys, mut after) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = self.operate(|host| host.list(&name, "", after.as_deref(), PAGE_KEYS));
            let page = match page {
                Ok(page) => page,
                Err(error) => return Ok(Err(error.into())),
            };
            if let Err(problem) = self.noted_bytes(page.entries.iter().map(|entry| entry.key.len()).sum()) {
                return Ok(Err(Error::Other(problem.detail.into())));
            }
            keys.extend(page.entries.into_iter().map(|entry| entry.key));
            after = page.next;
            if after.is_none() {
                return Ok(Ok(keys));
            }
        }
        let why = format!("get-keys gives {PAGES_MAX} pages and there are more: wasi:keyvalue lists them page by page");
        Ok(Err(Error::Other(why)))
    }

    fn drop(&mut self, store: Resource<Bucket>) -> wasmtime::Result<()> {
        first::HostBucket::drop(self, store)
    }
}

impl variables::Host for UnitState {
    fn get(&mut self, name: String) -> wasmtime::Result<Result<String, variables::Error>> {
        let undefined = || variables::Error::Undefined(format!("no {name:?} in config, and no such secret is granted"));
        Ok(self.host().config(&name).map(str::to_owned).ok_or_else(undefined))
    }
}
