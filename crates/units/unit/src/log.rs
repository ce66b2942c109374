//! What units say, on its way to the log.

use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// The contract's `log`, or `wasi:logging`.
    Log,
    Stdout,
    Stderr,
    /// The node, about the unit.
    Node,
}

impl Stream {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Node => "node",
        }
    }
}

pub struct LogLine<'a> {
    pub unit: u64,
    pub request_id: &'a Arc<str>,
    pub level: Level,
    pub stream: Stream,
    /// One line, without its end; at most [`LogLine::BYTES_MAX`].
    pub message: &'a str,
}

impl LogLine<'_> {
    /// A longer line is cut here.
    pub const BYTES_MAX: usize = 8 << 10;
}

/// Takes the lines of one function. Called on the unit's thread: must be quick and must not wait.
pub trait LogWriter: Send + Sync {
    fn write(&self, line: LogLine<'_>);

    /// So many bytes of a line were not written: its call had used up `limits.log_bytes`.
    fn dropped(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// A function on the stack of a unit, and where in it the unit was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackFrame {
    pub function: String,
    /// Bytes into the image.
    pub offset: Option<u64>,
}
