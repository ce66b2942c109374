//! `wasi:keyvalue`, `wasi:config` and `wasi:logging`, in the drafts that components for other hosts import too, and
//! Spin's own names: the same store by other types, the same values by other versions.

use super::Handle;
use super::bindings::wasi::config::store as config;
use super::bindings::wasi::keyvalue::store as first;
use super::bindings::wasi::logging::logging;
use super::keyvalue::{Outcome, granted};
use crate::bindings::drafts::fermyon::spin::{key_value, variables};
use crate::bindings::drafts::wasi::keyvalue::atomics::CasError;
use crate::bindings::drafts::wasi::keyvalue::store;
use crate::convert as c;
use crate::imports::Outside;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frame::Value;
use kernel_abi::Verb;
use wasmtime::{Result, bail};

/// Pages that Spin's `get-keys` reads, which has no pages of its own.
const PAGES_MAX: usize = 16;

/// What a key held when the handle was made.
pub struct Cas {
    bucket: String,
    key: String,
    value: Option<Vec<u8>>,
}

type Spun<T> = Result<core::result::Result<T, key_value::Error>>;

impl From<first::Error> for key_value::Error {
    fn from(error: first::Error) -> Self {
        match error {
            first::Error::NoSuchStore => Self::NoSuchStore,
            first::Error::AccessDenied => Self::AccessDenied,
            first::Error::Other(why) => Self::Other(why),
        }
    }
}

/// What the second draft has in other forms than the first one.
impl Outside {
    pub fn list_after(&mut self, bucket: &Handle, cursor: Option<String>) -> Outcome<store::KeyResponse> {
        let name = self.bucket(bucket)?;
        let (keys, cursor) = granted!(self.keys(&name, cursor.as_ref())?);
        Ok(Ok(store::KeyResponse { keys, cursor }))
    }

    pub fn get_many_pairs(&mut self, bucket: &Handle, keys: Vec<String>) -> Outcome<Vec<(String, Option<Vec<u8>>)>> {
        let name = self.bucket(bucket)?;
        self.fetch_all(&name, keys)
    }

    pub fn increment_signed(&mut self, bucket: &Handle, key: String, delta: i64) -> Outcome<i64> {
        let name = self.bucket(bucket)?;
        self.add(&name, &key, delta)
    }

    pub fn new_cas(&mut self, bucket: &Handle, key: String) -> Outcome<Handle> {
        let name = self.bucket(bucket)?;
        self.cas(name, key)
    }

    fn cas(&mut self, bucket: String, key: String) -> Outcome<Handle> {
        let value = granted!(self.fetch(&bucket, &key)?);
        Ok(Ok(self.held.push(Cas { bucket, key, value })?))
    }

    pub fn current(&mut self, cas: &Handle) -> Outcome<Option<Vec<u8>>> {
        Ok(Ok(self.held.get::<Cas>(cas)?.value.clone()))
    }

    pub fn swap(&mut self, cas: Handle, value: Vec<u8>) -> Result<core::result::Result<(), CasError>> {
        let Cas { bucket, key, value: before } = self.held.delete::<Cas>(cas)?;
        let failed = |error: first::Error| {
            CasError::StoreError(match error {
                first::Error::NoSuchStore => store::Error::NoSuchStore,
                first::Error::AccessDenied => store::Error::AccessDenied,
                first::Error::Other(why) => store::Error::Other(why),
            })
        };
        Ok(match self.swap_if(&bucket, &key, before.as_ref(), &value)? {
            Ok(true) => Ok(()),
            // Only this unit itself can have written since: what others write makes the whole call conflict.
            Ok(false) => Err(match self.cas(bucket, key)? {
                Ok(fresh) => CasError::CasFailed(fresh),
                Err(error) => failed(error),
            }),
            Err(error) => Err(failed(error)),
        })
    }

    pub fn drop_cas(&mut self, cas: Handle) -> Result<()> {
        self.held.delete::<Cas>(cas).map(drop)
    }
}

impl config::Host for Outside {
    fn get(&mut self, name: String) -> Result<core::result::Result<Option<String>, config::Error>> {
        crate::bindings::config::Host::get(self, name).map(Ok)
    }

    fn get_all(&mut self) -> Result<core::result::Result<Vec<(String, String)>, config::Error>> {
        match self.ask(Verb::ConfigAll, Vec::new(), c::read_pairs)? {
            Ok(values) => Ok(Ok(values)),
            Err(_) => bail!("wasi:config: the host gives none"),
        }
    }
}

impl logging::Host for Outside {
    fn log(&mut self, level: logging::Level, context: String, message: String) -> Result<()> {
        let level = match level {
            logging::Level::Trace => 0,
            logging::Level::Debug => 1,
            logging::Level::Info => 2,
            logging::Level::Warn => 3,
            logging::Level::Error | logging::Level::Critical => 4,
        };
        match context.is_empty() {
            true => self.host()?.log(level, &message),
            false => self.host()?.log(level, &format!("{context}: {message}")),
        }
        Ok(())
    }
}

impl key_value::Host for Outside {}

impl key_value::HostStore for Outside {
    fn open(&mut self, label: String) -> Spun<Handle> {
        Ok(first::Host::open(self, label)?.map_err(key_value::Error::from))
    }

    fn get(&mut self, store: Handle, key: String) -> Spun<Option<Vec<u8>>> {
        Ok(first::HostBucket::get(self, store, key)?.map_err(key_value::Error::from))
    }

    fn set(&mut self, store: Handle, key: String, value: Vec<u8>) -> Spun<()> {
        Ok(first::HostBucket::set(self, store, key, value)?.map_err(key_value::Error::from))
    }

    fn delete(&mut self, store: Handle, key: String) -> Spun<()> {
        Ok(first::HostBucket::delete(self, store, key)?.map_err(key_value::Error::from))
    }

    fn exists(&mut self, store: Handle, key: String) -> Spun<bool> {
        Ok(first::HostBucket::exists(self, store, key)?.map_err(key_value::Error::from))
    }

    fn get_keys(&mut self, store: Handle) -> Spun<Vec<String>> {
        let name = self.bucket(&store)?;
        let (mut keys, mut after) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let (mut page, next) = granted!(self.keys(&name, after.as_ref())?);
            keys.append(&mut page);
            after = next;
            if after.is_none() {
                return Ok(Ok(keys));
            }
        }
        let why = format!("get-keys gives {PAGES_MAX} pages and there are more: wasi:keyvalue lists them page by page");
        Ok(Err(key_value::Error::Other(why)))
    }

    fn drop(&mut self, store: Handle) -> Result<()> {
        first::HostBucket::drop(self, store)
    }
}

impl variables::Host for Outside {
    fn get(&mut self, name: String) -> Result<core::result::Result<String, variables::Error>> {
        let undefined = || variables::Error::Undefined(format!("no {name:?} in config, and no such secret is granted"));
        match self.ask(Verb::ConfigGet, vec![Value::Str(&name)], c::read_maybe_text)? {
            Ok(value) => Ok(value.ok_or_else(undefined)),
            Err(_) => bail!("variables.get: the host gives none"),
        }
    }
}
