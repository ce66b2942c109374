//! Exports a bucket to JSON lines and imports them again, a piece at a time, in little memory.
//!
//! ```text
//! {"key":"door","value":"open"}                                     text
//! {"key":"picture","base64":"iVBORw0KGgo="}                         what is not text
//! {"key":"session/7","value":"…","expires_ms":1767225600000}        gone at this time, in ms since 1970
//! ```
//! An export is of one moment, however long it takes; what is committed meanwhile is not in it. An import adds to what
//! is there, in batches that are each a transaction, and says after each how far it has come: what was counted is
//! durable, and doing all of it again is safe.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let state = state::State::open(folder.path(), state::Options::default())?;
//! let mut import = state.import("doors")?;
//! import.feed(b"{\"key\":\"front\",\"value\":\"open\"}\n").await?;
//! assert_eq!(import.finish().await?.keys, 1);
//!
//! let mut export = state.export("doors")?;
//! while let Some(lines) = export.next_lines()? {
//!     assert_eq!(lines, b"{\"key\":\"front\",\"value\":\"open\"}\n");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

use crate::envelope;
use crate::error::{CommitError, StoreError};
use crate::keys::{self, BucketId};
use crate::page::read_failed;
use crate::{Inner, State, Transaction};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fjall::{Readable, Snapshot};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A piece of an export ends with the line that goes beyond this.
const PIECE_BYTES: usize = 256 << 10;
/// Longest line of an import: the largest value, each byte written as `\u0000`, and its key.
const LINE_BYTES_MAX: usize = 7 << 20;
/// What one transaction of an import writes at most, except that one line may be larger.
const BATCH_KEYS_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportLine<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    base64: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
}

impl State {
    /// Begins an export of `bucket` as it is now.
    pub fn export(&self, bucket: &str) -> Result<Export, StoreError> {
        keys::check_name(bucket)?;
        let inner = Arc::clone(&self.inner);
        let moment = inner.time.moment();
        loop {
            let named = inner.names.find(bucket);
            let snapshot = inner.engine.snapshot();
            if named.as_ref().is_some_and(|bucket| bucket.is_past()) {
                // Renamed between the two lines.
                continue;
            }
            let lead = named.map_or(BucketId::NONE, |bucket| bucket.id).encode();
            let (next, end) = keys::listing(&lead, "", None)?.expect("a bucket's keys have a beginning and an end");
            let (bucket, own_ms, wall_ms) = (bucket.to_owned(), moment.own_ms, moment.wall_ms);
            return Ok(Export { inner, snapshot, bucket, next, end, own_ms, wall_ms });
        }
    }

    /// Begins an import into `bucket`.
    pub fn import(&self, bucket: &str) -> Result<Import, StoreError> {
        keys::check_name(bucket)?;
        Ok(Import {
            state: self.clone(),
            bucket: bucket.to_owned(),
            partial: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            read: Imported::default(),
            durable: Imported::default(),
        })
    }
}

/// A bucket on its way out. It keeps the moment it is of alive: on disk, not in memory.
pub struct Export {
    inner: Arc<Inner>,
    snapshot: Snapshot,
    bucket: String,
    /// What is left: from this key up to, but not including, the other.
    next: Vec<u8>,
    end: Vec<u8>,
    /// When it began: the state's own time, and the wall clock's.
    own_ms: u64,
    wall_ms: u64,
}

impl Export {
    /// The next lines, each with its newline: about 256 KiB, or one line that is larger. None at the end. Reads the
    /// disk.
    pub fn next_lines(&mut self) -> Result<Option<Vec<u8>>, Problem> {
        let mut lines = Vec::new();
        for entry in self.snapshot.range(&self.inner.engine.buckets, self.next.clone()..self.end.clone()) {
            let (encoded, sealed) = entry.into_inner().map_err(|error| read_failed(&error))?;
            if lines.len() >= PIECE_BYTES {
                self.next = encoded.to_vec();
                return Ok(Some(lines));
            }
            let (header, value) = envelope::open(&sealed)?;
            let expires_ms = match header.expires_ms {
                Some(at) if at <= self.own_ms => continue,
                Some(at) => Some(self.wall_ms.saturating_add(at - self.own_ms)),
                None => None,
            };
            let key = keys::decode(keys::bucket_of(&encoded), &encoded).ok_or_else(|| {
                Problem::new(Code::StateCorrupt, format!("bucket {:?} holds a key that is not text", self.bucket))
            })?;
            lines.extend(line(key, value, expires_ms));
        }
        self.next.clone_from(&self.end);
        Ok((!lines.is_empty()).then_some(lines))
    }
}

/// A key as a line of an export, with its newline.
pub fn line(key: &str, value: &[u8], expires_ms: Option<u64>) -> Vec<u8> {
    let (text, binary) = match std::str::from_utf8(value) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(BASE64.encode(value).into())),
    };
    let line = ExportLine { key: key.into(), value: text, base64: binary, expires_ms };
    let mut line = serde_json::to_vec(&line).expect("text and numbers can be written");
    line.push(b'\n');
    line
}

/// How far an import has come; all of it is durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Lines dealt with, empty ones among them.
    pub lines: u64,
    /// Keys written.
    pub keys: u64,
    /// Keys left out, for they had expired.
    pub expired: u64,
}

/// Why an import ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// The first line that is not in the bucket; what comes after it is not either.
    pub line: u64,
    /// What is.
    pub imported: Imported,
    /// `ApiRequest` when a line is not right, `BucketFull`, and those of a commit.
    pub problem: Problem,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} lines before are imported", self.problem.detail, self.imported.lines)
    }
}

impl std::error::Error for ImportError {}

impl From<ImportError> for Problem {
    fn from(error: ImportError) -> Self {
        Self::new(error.problem.code, error.to_string())
    }
}

/// One line that waits for its batch.
struct Entry {
    line: u64,
    key: String,
    value: Vec<u8>,
    ttl: Option<Duration>,
}

/// A bucket on its way in. Dropping it leaves what was imported, and nothing else.
pub struct Import {
    state: State,
    bucket: String,
    /// The beginning of a line whose end has not come.
    partial: Vec<u8>,
    batch: Vec<Entry>,
    batch_bytes: usize,
    /// What has been read, and what of it is durable.
    read: Imported,
    durable: Imported,
}

impl Import {
    /// Takes more of the input, cut anywhere. Waits for the disk when a batch is full. A key that does not say when it
    /// expires lives as one that is [`set`](crate::Transaction::set).
    ///
    /// # Errors
    /// After any, the import is over.
    pub async fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ImportError> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            self.keep(line)?;
            let line = std::mem::take(&mut self.partial);
            self.take(&line)?;
            if self.batch.len() >= BATCH_KEYS_MAX || self.batch_bytes >= BATCH_BYTES_MAX {
                self.write().await?;
            }
        }
        self.keep(bytes)
    }

    /// Ends the import; a last line needs no newline.
    pub async fn finish(mut self) -> Result<Imported, ImportError> {
        if !self.partial.is_empty() {
            let line = std::mem::take(&mut self.partial);
            self.take(&line)?;
        }
        self.write().await?;
        Ok(self.durable)
    }

    /// How far it has come.
    pub fn imported(&self) -> Imported {
        self.durable
    }

    /// Bytes of the input that it keeps in memory: what is not durable yet.
    pub fn held_bytes(&self) -> u64 {
        (self.partial.len() + self.batch_bytes) as u64
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), ImportError> {
        if self.partial.len() + part.len() > LINE_BYTES_MAX {
            return Err(self.refused(&format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        self.partial.extend_from_slice(part);
        Ok(())
    }

    /// Reads one line into the batch.
    fn take(&mut self, line: &[u8]) -> Result<(), ImportError> {
        if line.iter().all(u8::is_ascii_whitespace) {
            self.read.lines += 1;
            return Ok(());
        }
        let ExportLine { key, value, base64, expires_ms } =
            serde_json::from_slice(line).map_err(|error| self.refused(&error.to_string()))?;
        let value = match (value, base64) {
            (Some(text), None) => text.into_owned().into_bytes(),
            (None, Some(encoded)) => {
                BASE64.decode(encoded.as_bytes()).map_err(|error| self.refused(&format!("base64: {error}")))?
            }
            _ => return Err(self.refused("one of \"value\" and \"base64\" is needed")),
        };
        let wall_ms = self.state.inner.time.moment().wall_ms;
        let ttl = expires_ms.map(|at| at.saturating_sub(wall_ms));
        self.read.lines += 1;
        if ttl == Some(0) {
            self.read.expired += 1;
            return Ok(());
        }
        self.read.keys += 1;
        self.batch_bytes += key.len() + value.len();
        let ttl = ttl.map(Duration::from_millis);
        self.batch.push(Entry { line: self.read.lines, key: key.into_owned(), value, ttl });
        Ok(())
    }

    /// Writes the batch and waits until it is durable. A batch reads nothing, so it conflicts only when very much else
    /// is written.
    async fn write(&mut self) -> Result<(), ImportError> {
        let next = self.durable.lines + 1;
        let written = self.state.transact(|transaction| self.set(transaction));
        let ((), ticket) = written.map_err(|Refused { line, why }| self.error(line.unwrap_or(next), why.into()))?;
        self.state.durable(ticket).await.map_err(|problem| self.error(next, problem))?;
        (self.batch_bytes, self.durable) = (0, self.read);
        self.batch.clear();
        Ok(())
    }

    fn set(&self, transaction: &mut Transaction) -> Result<(), Refused> {
        for Entry { line, key, value, ttl } in &self.batch {
            let set = match ttl {
                None => transaction.set(&self.bucket, key, value.clone()),
                Some(ttl) => transaction.set_with_ttl(&self.bucket, key, value.clone(), *ttl),
            };
            set.map_err(|why| Refused { line: Some(*line), why: refusal(why) })?;
        }
        Ok(())
    }

    fn refused(&self, what: &str) -> ImportError {
        let line = self.read.lines + 1;
        self.error(line, Problem::new(Code::ApiRequest, what.to_owned()))
    }

    /// `line` was refused. What is in the same batch before it is not there either.
    fn error(&self, line: u64, problem: Problem) -> ImportError {
        let detail = format!("line {line}: {}", problem.detail);
        ImportError {
            line: self.durable.lines + 1,
            imported: self.durable,
            problem: Problem::new(problem.code, detail),
        }
    }
}

/// Why a batch was not written.
struct Refused {
    /// None: the whole batch was refused.
    line: Option<u64>,
    why: CommitError,
}

impl From<CommitError> for Refused {
    fn from(why: CommitError) -> Self {
        Self { line: None, why }
    }
}

fn refusal(refused: StoreError) -> CommitError {
    match refused {
        StoreError::BucketFull(full) => CommitError::BucketFull(full),
        StoreError::Unavailable(problem) => CommitError::Unavailable(problem),
        invalid => CommitError::Unavailable(Problem::new(Code::ApiRequest, invalid.to_string())),
    }
}
