//! `wasi:keyvalue`: the operations of one call are one transaction, committed when the head of its reply is set.

use crate::bindings::wasi::keyvalue::{atomics, batch, store};
use crate::unit_state::UnitState;
use store::Error;
use unit::{Denied, Host, Refusal, bucket_denied};
use wasmtime::component::Resource;

/// Keys of one page of `list-keys`.
pub const PAGE_KEYS: u32 = 1_000;

/// Keys of one batch.
const BATCH_KEYS_MAX: usize = 1_000;

/// An open bucket.
pub struct Bucket {
    name: String,
    /// Where each page handed out ended; a cursor is an index into it.
    pages: Vec<String>,
}

type Outcome<T> = wasmtime::Result<Result<T, Error>>;

impl Bucket {
    /// Bytes it holds.
    pub fn held_bytes(&self) -> u64 {
        (self.name.len() + self.pages.iter().map(|page| page.len() + size_of::<String>()).sum::<usize>()) as u64
    }
}

impl UnitState {
    pub fn bucket(&self, bucket: &Resource<Bucket>) -> wasmtime::Result<String> {
        Ok(self.table.get(bucket)?.name.clone())
    }

    pub fn operate<T>(&mut self, operate: impl FnOnce(&dyn Host) -> Result<T, Refusal>) -> Result<T, Error> {
        self.noted();
        operate(&**self.host()).map_err(|refusal| Error::Other(refusal.why()))
    }
}

impl store::Host for UnitState {
    fn open(&mut self, identifier: String) -> Outcome<Resource<Bucket>> {
        // The proposal calls the empty name the default bucket: here the first one granted.
        let name = match identifier.is_empty() {
            true => self.deployed.function.grants.stores.first().cloned().unwrap_or_default(),
            false => identifier,
        };
        if !self.deployed.function.grants.stores.contains(&name) {
            self.output.note_denied(Denied::Bucket, &bucket_denied(&name));
            return Ok(Err(Error::AccessDenied));
        }
        Ok(Ok(self.table.push(Bucket { name, pages: Vec::new() })?))
    }
}

impl store::HostBucket for UnitState {
    fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Outcome<Option<Vec<u8>>> {
        let name = self.bucket(&bucket)?;
        Ok(self.operate(|host| host.get(&name, &key)))
    }

    fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Outcome<()> {
        let name = self.bucket(&bucket)?;
        Ok(self.operate(|host| host.set(&name, &key, value)))
    }

    fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Outcome<()> {
        let name = self.bucket(&bucket)?;
        Ok(self.operate(|host| host.delete(&name, &key)))
    }

    fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Outcome<bool> {
        let name = self.bucket(&bucket)?;
        Ok(self.operate(|host| Ok(host.get(&name, &key)?.is_some())))
    }

    fn list_keys(&mut self, bucket: Resource<Bucket>, cursor: Option<u64>) -> Outcome<store::KeyResponse> {
        let open = self.table.get(&bucket)?;
        let name = open.name.clone();
        let after = match cursor {
            None => None,
            Some(cursor) => match usize::try_from(cursor).ok().and_then(|index| open.pages.get(index)) {
                Some(after) => Some(after.clone()),
                None => return Ok(Err(Error::Other(format!("there is no cursor {cursor} of this bucket")))),
            },
        };
        let page = match self.operate(|host| host.list(&name, "", after.as_deref(), PAGE_KEYS)) {
            Ok(page) => page,
            Err(error) => return Ok(Err(error)),
        };
        let keys = page.entries.into_iter().map(|entry| entry.key).collect();
        let pages = &mut self.table.get_mut(&bucket)?.pages;
        let cursor = page.next.map(|next| {
            pages.push(next);
            pages.len() as u64 - 1
        });
        Ok(Ok(store::KeyResponse { keys, cursor }))
    }

    fn drop(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for UnitState {
    fn increment(&mut self, bucket: Resource<Bucket>, key: String, delta: u64) -> Outcome<u64> {
        let name = self.bucket(&bucket)?;
        let Ok(delta) = i64::try_from(delta) else {
            return Ok(Err(Error::Other(format!("increment by {delta}: the limit is {}", i64::MAX))));
        };
        Ok(self.operate(|host| host.increment(&name, &key, delta)).and_then(|sum| {
            let Ok(positive) = u64::try_from(sum) else {
                // What is answered with an error was not done.
                self.operate(|host| host.increment(&name, &key, -delta))?;
                return Err(Error::Other(format!("the sum {sum} is negative")));
            };
            Ok(positive)
        }))
    }
}

impl batch::Host for UnitState {
    fn get_many(&mut self, bucket: Resource<Bucket>, keys: Vec<String>) -> Outcome<Vec<Option<(String, Vec<u8>)>>> {
        let name = self.bucket(&bucket)?;
        Ok(bounded(keys.len()).and_then(|()| {
            let values = self.fetch_all(&name, keys)?.into_iter();
            Ok(values.map(|(key, value)| value.map(|value| (key, value))).collect())
        }))
    }

    fn set_many(&mut self, bucket: Resource<Bucket>, entries: Vec<(String, Vec<u8>)>) -> Outcome<()> {
        let name = self.bucket(&bucket)?;
        Ok(bounded(entries.len()).and_then(|()| {
            self.operate(|host| entries.into_iter().try_for_each(|(key, value)| host.set(&name, &key, value)))
        }))
    }

    fn delete_many(&mut self, bucket: Resource<Bucket>, keys: Vec<String>) -> Outcome<()> {
        let name = self.bucket(&bucket)?;
        Ok(bounded(keys.len())
            .and_then(|()| self.operate(|host| keys.iter().try_for_each(|key| host.delete(&name, key)))))
    }
}

impl UnitState {
    /// The values of many keys. Together they may be more than there is room for: that is found out one by one.
    pub fn fetch_all(&mut self, bucket: &str, keys: Vec<String>) -> Result<Vec<(String, Option<Vec<u8>>)>, Error> {
        let mut bytes = 0;
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            let value = self.operate(|host| host.get(bucket, &key))?;
            bytes += value.as_ref().map_or(0, Vec::len) as u64;
            self.limiter.host_adds(bytes).map_err(|problem| Error::Other(problem.detail.into()))?;
            values.push((key, value));
        }
        Ok(values)
    }
}

pub fn bounded(keys: usize) -> Result<(), Error> {
    if keys > BATCH_KEYS_MAX {
        return Err(Error::Other(format!("a batch of {keys} keys: the limit is {BATCH_KEYS_MAX}")));
    }
    Ok(())
}
