//! `wasi:keyvalue` and `wasi:config` in the drafts that components for other hosts import: the same store by other
//! types, the same values by other versions.

use crate::bindings::drafts::wasi::keyvalue::{atomics, batch, store};
use crate::bindings::wasi::config::store as config;
use crate::bindings::wasi::keyvalue::store as first;
use crate::host::keyvalue::{Bucket, PAGE_KEYS, bounded};
use crate::unit_state::UnitState;
use atomics::CasError;
use store::Error;
use wasmtime::component::{Linker, Resource};

/// Drafts of `wasi:config` in which only the version is another: wasmCloud's and Spin's.
const CONFIG_DRAFTS: [&str; 2] = ["0.2.0-draft", "0.2.0-draft-2024-09-27"];

/// What a key held when the handle was made.
pub struct Cas {
    bucket: String,
    key: String,
    value: Option<Vec<u8>>,
}

impl Cas {
    /// Bytes it holds.
    pub fn held_bytes(&self) -> u64 {
        (self.bucket.len() + self.key.len() + self.value.as_ref().map_or(0, Vec::len)) as u64
    }
}

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

impl store::Host for UnitState {
    fn open(&mut self, identifier: String) -> Outcome<Resource<Bucket>> {
        Ok(first::Host::open(self, identifier)?.map_err(Error::from))
    }
}

impl store::HostBucket for UnitState {
    fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Outcome<Option<Vec<u8>>> {
        Ok(first::HostBucket::get(self, bucket, key)?.map_err(Error::from))
    }

    fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Outcome<()> {
        Ok(first::HostBucket::set(self, bucket, key, value)?.map_err(Error::from))
    }

    fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Outcome<()> {
        Ok(first::HostBucket::delete(self, bucket, key)?.map_err(Error::from))
    }

    fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Outcome<bool> {
        Ok(first::HostBucket::exists(self, bucket, key)?.map_err(Error::from))
    }

    fn list_keys(&mut self, bucket: Resource<Bucket>, cursor: Option<String>) -> Outcome<store::KeyResponse> {
        let name = self.bucket(&bucket)?;
        Ok(self.operate(|host| host.list(&name, "", cursor.as_deref(), PAGE_KEYS)).map_err(Error::from).map(|page| {
            let keys = page.entries.into_iter().map(|entry| entry.key).collect();
            store::KeyResponse { keys, cursor: page.next }
        }))
    }

    fn drop(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        first::HostBucket::drop(self, bucket)
    }
}

impl atomics::Host for UnitState {
    fn increment(&mut self, bucket: Resource<Bucket>, key: String, delta: i64) -> Outcome<i64> {
        let name = self.bucket(&bucket)?;
        Ok(self.operate(|host| host.increment(&name, &key, delta)).map_err(Error::from))
    }

    fn swap(&mut self, cas: Resource<Cas>, value: Vec<u8>) -> wasmtime::Result<Result<(), CasError>> {
        let Cas { bucket, key, value: before } = self.table.delete(cas)?;
        let swapped = self.operate(|host| host.compare_and_set(&bucket, &key, before.as_deref(), Some(value)));
        Ok(match swapped {
            Ok(true) => Ok(()),
            // Only this unit itself can have written since: what others write makes the whole call conflict.
            Ok(false) => match self.cas(bucket, key)? {
                Ok(fresh) => Err(CasError::CasFailed(fresh)),
                Err(error) => Err(CasError::StoreError(error)),
            },
            Err(error) => Err(CasError::StoreError(error.into())),
        })
    }
}

impl atomics::HostCas for UnitState {
    fn new(&mut self, bucket: Resource<Bucket>, key: String) -> Outcome<Resource<Cas>> {
        let name = self.bucket(&bucket)?;
        self.cas(name, key)
    }

    fn current(&mut self, cas: Resource<Cas>) -> Outcome<Option<Vec<u8>>> {
        Ok(Ok(self.table.get(&cas)?.value.clone()))
    }

    fn drop(&mut self, cas: Resource<Cas>) -> wasmtime::Result<()> {
        self.table.delete(cas)?;
        Ok(())
    }
}

impl UnitState {
    fn cas(&mut self, bucket: String, key: String) -> Outcome<Resource<Cas>> {
        match self.operate(|host| host.get(&bucket, &key)) {
            Ok(value) => {
                self.noted_bytes(value.as_ref().map_or(0, Vec::len)).map_err(wasmtime::Error::new)?;
                Ok(Ok(self.table.push(Cas { bucket, key, value })?))
            }
            Err(error) => Ok(Err(error.into())),
        }
    }
}

impl batch::Host for UnitState {
    fn get_many(&mut self, bucket: Resource<Bucket>, keys: Vec<String>) -> Outcome<Vec<(String, Option<Vec<u8>>)>> {
        let name = self.bucket(&bucket)?;
        let values = bounded(keys.len()).and_then(|()| self.fetch_all(&name, keys));
        Ok(values.map_err(Error::from))
    }

    fn set_many(&mut self, bucket: Resource<Bucket>, entries: Vec<(String, Vec<u8>)>) -> Outcome<()> {
        Ok(crate::bindings::wasi::keyvalue::batch::Host::set_many(self, bucket, entries)?.map_err(Error::from))
    }

    fn delete_many(&mut self, bucket: Resource<Bucket>, keys: Vec<String>) -> Outcome<()> {
        Ok(crate::bindings::wasi::keyvalue::batch::Host::delete_many(self, bucket, keys)?.map_err(Error::from))
    }
}

pub fn add_config_to_linker(linker: &mut Linker<UnitState>) -> wasmtime::Result<()> {
    for version in CONFIG_DRAFTS {
        let mut store = linker.instance(&format!("wasi:config/store@{version}"))?;
        store.func_wrap("get", |mut unit, (name,): (String,)| Ok((config::Host::get(unit.data_mut(), name)?,)))?;
        store.func_wrap("get-all", |mut unit, ()| Ok((config::Host::get_all(unit.data_mut())?,)))?;
    }
    Ok(())
}
