//! `lighter:unit/store`: every operation of one handling goes into one transaction.

use crate::bindings::lighter::unit::store as contract;
use crate::bindings::types;
use crate::unit_state::UnitState;
use state::{StoreError, Transaction};
use std::time::Duration;

impl UnitState {
    /// The handling's transaction, if the function is granted the bucket.
    fn store(&mut self, bucket: &str) -> Result<&mut Transaction, types::Error> {
        if !self.is_granted(bucket) {
            return Err(types::Error::Denied(denied(bucket)));
        }
        Ok(self.transaction())
    }

    pub fn is_granted(&self, bucket: &str) -> bool {
        self.deployed.function.grants.stores.iter().any(|granted| granted == bucket)
    }
}

pub fn denied(bucket: &str) -> String {
    format!("no grant covers the bucket {bucket:?}; add it to grants.stores of the function")
}

pub fn error(error: StoreError) -> types::Error {
    match error {
        StoreError::Unavailable(problem) => types::Error::Unavailable(problem.detail.into_owned()),
        // Not the argument's fault: there may be room again later.
        full @ (StoreError::BucketFull(_) | StoreError::QueueFull(_)) => types::Error::Unavailable(full.to_string()),
        invalid => types::Error::Invalid(invalid.to_string()),
    }
}

type Outcome<T> = wasmtime::Result<Result<T, types::Error>>;

impl contract::Host for UnitState {
    fn get(&mut self, bucket: String, key: String) -> Outcome<Option<Vec<u8>>> {
        Ok(self.store(&bucket).and_then(|transaction| transaction.get(&bucket, &key).map_err(error)))
    }

    fn set(&mut self, bucket: String, key: String, value: Vec<u8>) -> Outcome<()> {
        Ok(self.store(&bucket).and_then(|transaction| transaction.set(&bucket, &key, value).map_err(error)))
    }

    fn set_with_ttl(&mut self, bucket: String, key: String, value: Vec<u8>, ttl_ms: u64) -> Outcome<()> {
        let ttl = Duration::from_millis(ttl_ms);
        Ok(self.store(&bucket).and_then(|transaction| transaction.set_with_ttl(&bucket, &key, value, ttl).map_err(error)))
    }

    fn delete(&mut self, bucket: String, key: String) -> Outcome<()> {
        Ok(self.store(&bucket).and_then(|transaction| transaction.delete(&bucket, &key).map_err(error)))
    }

    fn increment(&mut self, bucket: String, key: String, delta: i64) -> Outcome<i64> {
        Ok(self.store(&bucket).and_then(|transaction| transaction.increment(&bucket, &key, delta).map_err(error)))
    }

    fn compare_and_set(
        &mut self,
        bucket: String,
        key: String,
        expected: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
    ) -> Outcome<bool> {
        Ok(self.store(&bucket).and_then(|transaction| {
            transaction.compare_and_set(&bucket, &key, expected.as_deref(), value).map_err(error)
        }))
    }

    fn list(&mut self, bucket: String, prefix: String, after: Option<String>, limit: u32) -> Outcome<contract::Page> {
        Ok(self.store(&bucket).and_then(|transaction| {
            let page = transaction.list(&bucket, &prefix, after.as_deref(), limit).map_err(error)?;
            let entries = page.entries.into_iter().map(|entry| contract::Entry { key: entry.key, value: entry.value }).collect();
            Ok(contract::Page { entries, next: page.next })
        }))
    }
}
