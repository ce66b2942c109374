//! `wasi:keyvalue`, as the class `wasm` has it: the store of `lighter:unit` by other names.

use super::Handle;
use super::bindings::wasi::keyvalue::{atomics, batch, store};
use crate::bindings::types;
use crate::convert as c;
use crate::imports::Outside;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frame::Value;
use kernel_abi::Verb;
use store::Error;
use wasmtime::Result;

/// Keys of one page of `list-keys`.
const PAGE_KEYS: u64 = 1_000;

/// Keys of one batch.
const BATCH_KEYS_MAX: usize = 1_000;

/// An open bucket.
pub struct Bucket {
    name: String,
    /// Where each page handed out ended; a cursor is an index into it.
    pages: Vec<String>,
}

pub type Outcome<T> = Result<core::result::Result<T, Error>>;

/// What the proposals say of any refusal.
fn other<T>(answer: core::result::Result<T, types::Error>) -> core::result::Result<T, Error> {
    answer.map_err(|error| {
        let (types::Error::Denied(why) | types::Error::Invalid(why) | types::Error::Unavailable(why)) = error;
        Error::Other(why)
    })
}

/// Goes on with what is there, or returns the refusal.
macro_rules! granted {
    ($outcome:expr) => {
        match $outcome {
            Ok(value) => value,
            Err(error) => return Ok(Err(error.into())),
        }
    };
}
pub(super) use granted;

impl Outside {
    pub fn bucket(&self, bucket: &Handle) -> Result<String> {
        Ok(self.held.get::<Bucket>(bucket)?.name.clone())
    }

    pub fn fetch(&mut self, bucket: &str, key: &str) -> Outcome<Option<Vec<u8>>> {
        Ok(other(self.ask(Verb::StoreGet, vec![Value::Str(bucket), Value::Str(key)], c::read_maybe_bytes)?))
    }

    /// The values of many keys, at most as many as a batch may have.
    pub fn fetch_all(&mut self, bucket: &str, keys: Vec<String>) -> Outcome<Vec<(String, Option<Vec<u8>>)>> {
        granted!(bounded(keys.len()));
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            let value = granted!(self.fetch(bucket, &key)?);
            values.push((key, value));
        }
        Ok(Ok(values))
    }

    fn put(&mut self, bucket: &str, key: &str, value: &[u8]) -> Outcome<()> {
        let arguments = vec![Value::Str(bucket), Value::Str(key), c::bytes(value)];
        Ok(other(self.ask(Verb::StoreSet, arguments, c::read_nothing)?))
    }

    fn remove(&mut self, bucket: &str, key: &str) -> Outcome<()> {
        Ok(other(self.ask(Verb::StoreDelete, vec![Value::Str(bucket), Value::Str(key)], c::read_nothing)?))
    }

    pub fn add(&mut self, bucket: &str, key: &str, delta: i64) -> Outcome<i64> {
        let arguments = vec![Value::Str(bucket), Value::Str(key), Value::I64(delta)];
        Ok(other(self.ask(Verb::StoreIncrement, arguments, c::read_integer)?))
    }

    pub fn swap_if(&mut self, bucket: &str, key: &str, expected: Option<&Vec<u8>>, value: &[u8]) -> Outcome<bool> {
        let arguments = vec![Value::Str(bucket), Value::Str(key), c::maybe_bytes(expected), c::bytes(value)];
        Ok(other(self.ask(Verb::StoreCompareAndSet, arguments, c::read_bool)?))
    }

    /// A page of keys, and what to ask for the next one by.
    pub fn keys(&mut self, bucket: &str, after: Option<&String>) -> Outcome<(Vec<String>, Option<String>)> {
        let arguments = vec![Value::Str(bucket), Value::Str(""), c::maybe_text(after), c::number(PAGE_KEYS)];
        let page = granted!(other(self.ask(Verb::StoreList, arguments, c::read_page)?));
        Ok(Ok((page.entries.into_iter().map(|entry| entry.key).collect(), page.next)))
    }
}

impl store::Host for Outside {
    fn open(&mut self, identifier: String) -> Outcome<Handle> {
        // The host knows which one the empty name means, and notes a bucket without a grant in the log.
        match self.ask(Verb::StoreOpen, vec![Value::Str(&identifier)], c::read_text)? {
            Ok(name) => Ok(Ok(self.held.push(Bucket { name, pages: Vec::new() })?)),
            Err(types::Error::Denied(_)) => Ok(Err(Error::AccessDenied)),
            Err(error) => Ok(other(Err(error))),
        }
    }
}

impl store::HostBucket for Outside {
    fn get(&mut self, bucket: Handle, key: String) -> Outcome<Option<Vec<u8>>> {
        let name = self.bucket(&bucket)?;
        self.fetch(&name, &key)
    }

    fn set(&mut self, bucket: Handle, key: String, value: Vec<u8>) -> Outcome<()> {
        let name = self.bucket(&bucket)?;
        self.put(&name, &key, &value)
    }

    fn delete(&mut self, bucket: Handle, key: String) -> Outcome<()> {
        let name = self.bucket(&bucket)?;
        self.remove(&name, &key)
    }

    fn exists(&mut self, bucket: Handle, key: String) -> Outcome<bool> {
        Ok(self.get(bucket, key)?.map(|value| value.is_some()))
    }

    fn list_keys(&mut self, bucket: Handle, cursor: Option<u64>) -> Outcome<store::KeyResponse> {
        let open = self.held.get::<Bucket>(&bucket)?;
        let name = open.name.clone();
        let after = match cursor {
            None => None,
            Some(cursor) => match usize::try_from(cursor).ok().and_then(|index| open.pages.get(index)) {
                Some(after) => Some(after.clone()),
                None => return Ok(Err(Error::Other(format!("there is no cursor {cursor} of this bucket")))),
            },
        };
        let (keys, next) = granted!(self.keys(&name, after.as_ref())?);
        let pages = &mut self.held.get_mut::<Bucket>(&bucket)?.pages;
        let cursor = next.map(|next| {
            pages.push(next);
            pages.len() as u64 - 1
        });
        Ok(Ok(store::KeyResponse { keys, cursor }))
    }

    fn drop(&mut self, bucket: Handle) -> Result<()> {
        self.held.delete::<Bucket>(bucket).map(drop)
    }
}

impl atomics::Host for Outside {
    fn increment(&mut self, bucket: Handle, key: String, delta: u64) -> Outcome<u64> {
        let name = self.bucket(&bucket)?;
        let Ok(delta) = i64::try_from(delta) else {
            return Ok(Err(Error::Other(format!("increment by {delta}: the limit is {}", i64::MAX))));
        };
        let sum = granted!(self.add(&name, &key, delta)?);
        Ok(u64::try_from(sum).map_err(|_| Error::Other(format!("the sum {sum} is negative"))))
    }
}

impl batch::Host for Outside {
    fn get_many(&mut self, bucket: Handle, keys: Vec<String>) -> Outcome<Vec<Option<(String, Vec<u8>)>>> {
        let name = self.bucket(&bucket)?;
        let values = granted!(self.fetch_all(&name, keys)?);
        Ok(Ok(values.into_iter().map(|(key, value)| value.map(|value| (key, value))).collect()))
    }

    fn set_many(&mut self, bucket: Handle, entries: Vec<(String, Vec<u8>)>) -> Outcome<()> {
        let name = self.bucket(&bucket)?;
        granted!(bounded(entries.len()));
        for (key, value) in entries {
            granted!(self.put(&name, &key, &value)?);
        }
        Ok(Ok(()))
    }

    fn delete_many(&mut self, bucket: Handle, keys: Vec<String>) -> Outcome<()> {
        let name = self.bucket(&bucket)?;
        granted!(bounded(keys.len()));
        for key in keys {
            granted!(self.remove(&name, &key)?);
        }
        Ok(Ok(()))
    }
}

fn bounded(keys: usize) -> core::result::Result<(), Error> {
    if keys > BATCH_KEYS_MAX {
        return Err(Error::Other(format!("a batch of {keys} keys: the limit is {BATCH_KEYS_MAX}")));
    }
    Ok(())
}
