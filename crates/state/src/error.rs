//! What can go wrong with the state, and how the database's own errors become codes a user can look up.

use crate::damage::lacks_files;
use crate::keys::{BUCKET_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::ledger::Full;
use crate::page::LIMIT_MAX;
use crate::queue::EVENT_BYTES_MAX;
use crate::transaction::{WRITE_BYTES_MAX, WRITES_MAX};
use problem::{Code, Problem};
use std::{fmt, io};

const LEASE_LOST: &str = "the lease of the event ended before it was handled";

/// Why one operation on a bucket was refused. It changed nothing; the transaction can go on, except after
/// [`StoreError::Unavailable`], where it should be given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    BucketName {
        name: String,
    },
    KeyLength {
        bytes: usize,
    },
    ValueLength {
        bytes: usize,
    },
    /// The transaction already writes as many keys as one may.
    WriteCount,
    /// The transaction would hold more bytes of keys and values than one may.
    WriteBytes,
    ListLimit {
        limit: u32,
    },
    /// The value that should be counted up is not a decimal 64-bit integer.
    NotANumber {
        key: String,
    },
    /// The sum does not fit 64 bits.
    Overflow {
        key: String,
    },
    /// With this write the transaction would take the bucket beyond one of its bounds.
    BucketFull(Full),
    QueueName {
        name: String,
    },
    EventLength {
        bytes: usize,
    },
    /// The queue holds as much as it may.
    QueueFull(FullQueue),
    /// The database could not answer.
    Unavailable(Problem),
}

/// A queue that is full, and what it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullQueue {
    pub queue: String,
    pub events_max: u64,
    pub bytes_max: u64,
}

impl fmt::Display for FullQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, events_max, bytes_max } = self;
        write!(f, "queue {queue:?} is full, it holds at most {events_max} events and {bytes_max} bytes")
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BucketName { name } => {
                write!(f, "bucket {name:?}: a name is 1 to {BUCKET_BYTES_MAX} of a-z, 0-9, '.', '_' and '-'")
            }
            Self::KeyLength { bytes } => write!(f, "a key of {bytes} bytes, allowed are 1 to {KEY_BYTES_MAX}"),
            Self::ValueLength { bytes } => write!(f, "a value of {bytes} bytes, the limit is {VALUE_BYTES_MAX}"),
            Self::WriteCount => write!(f, "one handling writes at most {WRITES_MAX} keys"),
            Self::WriteBytes => write!(f, "one handling writes at most {WRITE_BYTES_MAX} bytes of keys and values"),
            Self::ListLimit { limit } => write!(f, "a list of {limit} entries, allowed are 1 to {LIMIT_MAX}"),
            Self::NotANumber { key } => write!(f, "key {key:?} does not hold a decimal 64-bit integer"),
            Self::Overflow { key } => write!(f, "key {key:?}: the sum does not fit 64 bits"),
            Self::BucketFull(full) => full.fmt(f),
            Self::QueueName { name } => {
                write!(f, "queue {name:?}: a name is 1 to {BUCKET_BYTES_MAX} of a-z, 0-9, '.', '_' and '-'")
            }
            Self::EventLength { bytes } => write!(f, "an event of {bytes} bytes, the limit is {EVENT_BYTES_MAX}"),
            Self::QueueFull(full) => full.fmt(f),
            Self::Unavailable(problem) => f.write_str(&problem.detail),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for Problem {
    /// For the node's own records, whose names and sizes are checked before they come here.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(problem) => problem,
            StoreError::BucketFull(full) => full.into(),
            StoreError::QueueFull(full) => Problem::new(Code::QueueFull, full.to_string()),
            StoreError::QueueName { .. } => Problem::new(Code::QueueUnknown, error.to_string()),
            StoreError::EventLength { .. } => Problem::new(Code::EventTooLarge, error.to_string()),
            other => Problem::new(Code::Internal, other.to_string()),
        }
    }
}

/// Why a transaction was not committed. Nothing of it was written, except as told at [`CommitError::Unavailable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitError {
    /// Another transaction wrote what this one read. Running the whole of it again may succeed.
    Conflict,
    /// A bucket would go beyond one of its bounds, by this transaction and others that came first.
    BucketFull(Full),
    /// A lease that it acks or fails has ended, and the event is ready again or in other hands.
    LeaseLost,
    /// What it pushes does not fit.
    QueueFull(FullQueue),
    /// It pushes to this queue, whose workflow has ended.
    QueueEnded(String),
    /// The disk is full, failed or behind. With [`Code::DiskFailed`] it may or may not have been written.
    Unavailable(Problem),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another handling changed the same keys"),
            Self::BucketFull(full) => full.fmt(f),
            Self::LeaseLost => f.write_str(LEASE_LOST),
            Self::QueueFull(full) => full.fmt(f),
            Self::QueueEnded(queue) => write!(f, "queue {queue:?} takes no events: its workflow has ended"),
            Self::Unavailable(problem) => f.write_str(&problem.detail),
        }
    }
}

impl std::error::Error for CommitError {}

impl From<CommitError> for Problem {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Conflict => Problem::new(Code::Conflict, "another handling changed the same keys"),
            CommitError::BucketFull(full) => full.into(),
            CommitError::LeaseLost => Problem::new(Code::LeaseLost, LEASE_LOST),
            CommitError::QueueFull(full) => Problem::new(Code::QueueFull, full.to_string()),
            CommitError::QueueEnded(_) => Problem::new(Code::WorkflowEnded, error.to_string()),
            CommitError::Unavailable(problem) => problem,
        }
    }
}

/// The problem for an error of the file system. `what` says what was tried, as in "open /var/lib/lighter".
pub fn from_io(what: &str, error: &io::Error) -> Problem {
    let code = match error.kind() {
        _ if lacks_files(error) => Code::FilesExhausted,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::DiskFull,
        // A file of the database that ends too early or holds nonsense.
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Code::StateCorrupt,
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::Unsupported => Code::DataUnusable,
        _ => Code::DiskFailed,
    };
    Problem::new(code, format!("cannot {what}: {error}"))
}

/// The problem for an error of the database.
pub fn from_database(what: &str, error: &fjall::Error) -> Problem {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => from_io(what, error),
        fjall::Error::Storage(fjall::LsmError::Damaged { path, offset, reason, .. }) => {
            let found = match &**reason {
                fjall::LsmError::Io(error) if error.kind() == io::ErrorKind::NotFound => "missing".to_owned(),
                _ => format!("damaged at byte {offset}"),
            };
            Problem::new(Code::StateCorrupt, format!("cannot {what}: {} is {found}", path.display()))
        }
        fjall::Error::Locked => Problem::new(Code::DataLocked, format!("cannot {what}: the database is in use")),
        // A thread that writes tables in the background failed earlier; its own error is in the log.
        fjall::Error::Poisoned => Problem::new(Code::DiskFailed, format!("cannot {what}: an earlier write failed")),
        damaged => Problem::new(Code::StateCorrupt, format!("cannot {what}: {damaged:?}")),
    }
}
