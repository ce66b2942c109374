//! `lighter:unit/store`, as the host of the attempt answers it.

use crate::bindings::lighter::unit::store as contract;
use crate::bindings::types;
use crate::unit_state::UnitState;
use std::time::Duration;
use unit::Refusal;

impl From<Refusal> for types::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Denied(why) => Self::Denied(why),
            Refusal::Invalid(why) => Self::Invalid(why),
            Refusal::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

type Outcome<T> = wasmtime::Result<Result<T, types::Error>>;

impl contract::Host for UnitState {
    fn get(&mut self, bucket: String, key: String) -> Outcome<Option<Vec<u8>>> {
        Ok(self.host().get(&bucket, &key).map_err(Into::into))
    }

    fn set(&mut self, bucket: String, key: String, value: Vec<u8>) -> Outcome<()> {
        Ok(self.host().set(&bucket, &key, value).map_err(Into::into))
    }

    fn set_with_ttl(&mut self, bucket: String, key: String, value: Vec<u8>, ttl_ms: u64) -> Outcome<()> {
        Ok(self.host().set_with_ttl(&bucket, &key, value, Duration::from_millis(ttl_ms)).map_err(Into::into))
    }

    fn delete(&mut self, bucket: String, key: String) -> Outcome<()> {
        Ok(self.host().delete(&bucket, &key).map_err(Into::into))
    }

    fn increment(&mut self, bucket: String, key: String, delta: i64) -> Outcome<i64> {
        Ok(self.host().increment(&bucket, &key, delta).map_err(Into::into))
    }

    fn compare_and_set(
        &mut self,
        bucket: String,
        key: String,
        expected: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
    ) -> Outcome<bool> {
        Ok(self.host().compare_and_set(&bucket, &key, expected.as_deref(), value).map_err(Into::into))
    }

    fn list(&mut self, bucket: String, prefix: String, after: Option<String>, limit: u32) -> Outcome<contract::Page> {
        let page = self.host().list(&bucket, &prefix, after.as_deref(), limit).map(|page| {
            let entries = page.entries.into_iter().map(|entry| contract::Entry { key: entry.key, value: entry.value });
            contract::Page { entries: entries.collect(), next: page.next }
        });
        Ok(page.map_err(Into::into))
    }
}
