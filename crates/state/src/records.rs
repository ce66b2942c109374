//! The node's own records (deployments, tokens): tables of their own, durable before a write returns.
//!
//! They live apart from the users' buckets, so no grant reaches them. Writes are few and go one after the other; a read
//! that prepares a write blocks other such reads meanwhile.

use crate::books::Books;
use crate::engine::Commit;
use crate::error::StoreError;
use crate::keys::{self, VALUE_BYTES_MAX};
use crate::page::{self, Page};
use crate::pending::Space;
use crate::transaction::{WRITE_BYTES_MAX, WRITES_MAX, Write, Writes};
use crate::{Inner, State};
use fjall::Readable;
use problem::Problem;
use std::sync::Arc;

/// One table of records. Cheap to clone.
#[derive(Clone)]
pub struct Records {
    state: State,
    table: String,
}

impl Records {
    pub(crate) fn new(state: State, table: &str) -> Self {
        Self { state, table: table.to_owned() }
    }

    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Problem> {
        let encoded = keys::record(&self.table, key)?;
        let engine = &self.state.inner.engine;
        let stored = engine.snapshot().get(&engine.node, encoded).map_err(|error| page::read_failed(&error))?;
        Ok(stored.map(|value| value.to_vec()))
    }

    /// Waits until all that can be read by now is durable: for an answer that rests on it.
    pub async fn settled(&self) -> Result<(), Problem> {
        self.state.durable_all().await
    }

    /// Records whose keys begin with `prefix`, in byte order, after the key `after`; bounded as
    /// [`Transaction::list`](crate::Transaction::list) is.
    pub fn list(&self, prefix: &str, after: Option<&str>, limit: u32) -> Result<Page, Problem> {
        page::check_limit(limit)?;
        let lead = keys::table(&self.table)?;
        let Some((start, end)) = keys::listing(&lead, prefix, after)? else {
            return Ok(Page::default());
        };
        let engine = &self.state.inner.engine;
        let snapshot = engine.snapshot();
        let (page, _) =
            page::fill(&lead, limit, page::stored(snapshot.range(&engine.node, start..end)), |value| Ok(Some(value)))?;
        Ok(page)
    }

    /// Writes all of them, or none. Durable once it has returned; a future dropped earlier may or may not have written.
    pub async fn put(&self, records: &[(&str, &[u8])]) -> Result<(), Problem> {
        let mut batch = Batch::default();
        for (key, value) in records {
            batch.put(&self.table, key, value.to_vec())?;
        }
        self.state.write_records(batch).await
    }

    /// Deletes all of them, or none; those that are not there do not matter. Durable as [`Records::put`] is.
    pub async fn delete(&self, keys: &[&str]) -> Result<(), Problem> {
        let mut batch = Batch::default();
        for key in keys {
            batch.delete(&self.table, key)?;
        }
        self.state.write_records(batch).await
    }
}

/// Changes to records of any tables that happen together. The last change of a key counts.
#[derive(Default)]
pub struct Batch {
    writes: Writes,
    bytes: usize,
}

impl Batch {
    pub fn put(&mut self, table: &str, key: &str, value: Vec<u8>) -> Result<(), Problem> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(StoreError::ValueLength { bytes: value.len() }.into());
        }
        self.change(keys::record(table, key)?, Some(value))
    }

    pub fn delete(&mut self, table: &str, key: &str) -> Result<(), Problem> {
        self.change(keys::record(table, key)?, None)
    }

    fn change(&mut self, encoded: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), Problem> {
        self.bytes += encoded.len() + value.as_ref().map_or(0, Vec::len);
        if self.bytes > WRITE_BYTES_MAX {
            return Err(StoreError::WriteBytes.into());
        }
        self.writes.insert(encoded, Write { value, before: None, after: None });
        if self.writes.len() > WRITES_MAX {
            return Err(StoreError::WriteCount.into());
        }
        Ok(())
    }

    pub(crate) async fn apply(self, inner: &Arc<Inner>) -> Result<(), Problem> {
        if self.writes.is_empty() {
            return Ok(());
        }
        let Self { writes, bytes } = self;
        let commit = Commit { space: Space::Node, writes, bytes, ops: Vec::new(), records: Default::default() };
        let (ticket, _) = inner.commit(commit, |_, _| Ok(Books::default()))?;
        inner.durable(ticket).await
    }
}
