//! Gives a bucket another name in one commit, whatever it holds.
//!
//! A bucket that moves from another node comes in piece by piece under a name that begins with a dot, which no grant
//! reaches, and gets its real name once it is complete: until then nobody sees any of it, from then on all of it.

use crate::books::Books;
use crate::engine::Commit;
use crate::error::{CommitError, StoreError};
use crate::ledger::BucketCounts;
use crate::pending::Space;
use crate::transaction::Writes;
use crate::{State, TRIES_MAX, Ticket, keys};
use problem::{Code, Problem};
use std::fmt;

/// Why a bucket was not renamed. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenameError {
    /// No bucket can have this name.
    BucketName { name: String },
    /// The bucket holds nothing: there is none.
    Missing { bucket: String },
    /// The bucket that has the new name holds something.
    Taken { bucket: String },
    /// As [`CommitError::Unavailable`].
    Unavailable(Problem),
}

impl fmt::Display for RenameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BucketName { name } => StoreError::BucketName { name: name.clone() }.fmt(f),
            Self::Missing { bucket } => write!(f, "bucket {bucket:?} holds nothing that could get another name"),
            Self::Taken { bucket } => write!(f, "bucket {bucket:?} holds something already"),
            Self::Unavailable(problem) => f.write_str(&problem.detail),
        }
    }
}

impl std::error::Error for RenameError {}

impl State {
    /// What bucket `from` holds is in bucket `to` from now on, and `from` holds nothing. Costs one small record,
    /// however much that is. Bounds and default time to live belong to names: those of `to` count for what is written
    /// from now on, and when keys expire stays as it is. Transactions that have to do with either name and commit
    /// afterwards are in conflict. Durable once [`State::durable`] has returned for the ticket.
    ///
    /// # Errors
    /// [`RenameError::Missing`] and [`RenameError::Taken`] rest on what is visible, which may not be durable yet.
    pub fn rename_bucket(&self, from: &str, to: &str) -> Result<Ticket, RenameError> {
        for name in [from, to] {
            keys::check_name(name).map_err(|_| RenameError::BucketName { name: name.to_owned() })?;
        }
        for _ in 0..TRIES_MAX {
            if self.bucket_counts(from) == BucketCounts::default() {
                return Err(RenameError::Missing { bucket: from.to_owned() });
            }
            if from == to || self.bucket_counts(to) != BucketCounts::default() {
                return Err(RenameError::Taken { bucket: to.to_owned() });
            }
            let commit = Commit {
                space: Space::Buckets,
                writes: Writes::new(),
                bytes: 0,
                ops: Vec::new(),
                records: Default::default(),
            };
            match self.inner.commit(commit, |oracle, _| self.inner.rename_books(oracle.next(), from, to)) {
                Ok((ticket, _)) => return Ok(ticket),
                Err(CommitError::Conflict) => {}
                Err(error) => return Err(RenameError::Unavailable(error.into())),
            }
        }
        Err(RenameError::Unavailable(Problem::new(Code::Conflict, format!("others write to {from:?} and {to:?}"))))
    }
}

impl crate::Inner {
    /// What has to be noted for `from` to be `to`. A conflict where that is not possible any more.
    fn rename_books(&self, commit: crate::oracle::CommitNumber, from: &str, to: &str) -> Result<Books, CommitError> {
        let counts = self.ledger.counts(from);
        let is_possible = counts != BucketCounts::default() && self.ledger.counts(to) == BucketCounts::default();
        let bucket = self.names.find(from).filter(|_| is_possible).ok_or(CommitError::Conflict)?;
        Ok(Books::of_rename(commit, bucket, to, counts))
    }
}
