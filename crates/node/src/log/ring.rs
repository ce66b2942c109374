//! The last lines of one function, bounded in bytes and in lines a second.

use api_types::LogLine;
use manifest::Name;
use std::collections::VecDeque;
use std::sync::Arc;
use unit::{Level, Stream};

/// Lines a second of one function; more are dropped, and the gap in the numbers shows how many.
pub const LINES_A_SECOND_MAX: u32 = 10_000;

/// What a line costs beside its message.
const LINE_BYTES: usize = size_of::<KeptLine>() + 16;

#[derive(Default)]
pub struct Ring {
    lines: VecDeque<KeptLine>,
    bytes: usize,
    /// The number of the next line.
    next: u64,
    /// The second that counts lines now, and how many it had.
    second: u64,
    in_second: u32,
}

pub struct KeptLine {
    sequence: u64,
    time_ms: u64,
    pub level: Level,
    pub stream: Stream,
    pub version: u32,
    pub unit: u64,
    pub request_id: Arc<str>,
    pub message: Box<str>,
}

impl KeptLine {
    pub fn new(version: u32, line: &unit::LogLine<'_>, time_ms: u64) -> Self {
        Self {
            sequence: 0,
            time_ms,
            level: line.level,
            stream: line.stream,
            version,
            unit: line.unit,
            request_id: line.request_id.clone(),
            message: cut(line.message, unit::LogLine::BYTES_MAX).into(),
        }
    }

    pub fn published(&self, sequence: u64, function: &Name) -> LogLine {
        LogLine {
            sequence,
            time_ms: self.time_ms,
            level: self.level.as_str().to_owned(),
            function: function.as_str().to_owned(),
            version: self.version,
            unit: self.unit,
            request_id: self.request_id.to_string(),
            stream: self.stream.as_str().to_owned(),
            message: self.message.to_string(),
        }
    }

    fn cost(&self) -> usize {
        LINE_BYTES + self.message.len()
    }
}

impl Ring {
    /// Keeps the line, dropping the oldest ones beyond `bytes_max`. Returns its number, or none if lines come too fast.
    pub fn push(&mut self, mut line: KeptLine, bytes_max: usize) -> Option<u64> {
        let sequence = self.next;
        self.next += 1;
        let second = line.time_ms / 1_000;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second = self.in_second.saturating_add(1);
        if self.in_second > LINES_A_SECOND_MAX {
            return None;
        }
        line.sequence = sequence;
        self.bytes += line.cost();
        self.lines.push_back(line);
        while self.bytes > bytes_max && self.lines.len() > 1 {
            self.drop_oldest();
        }
        Some(sequence)
    }

    pub fn last(&self) -> Option<&KeptLine> {
        self.lines.back()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the oldest lines beyond `bytes_max`, and gives the memory back.
    pub fn shrink(&mut self, bytes_max: usize) {
        if self.bytes <= bytes_max {
            return;
        }
        while self.bytes > bytes_max && !self.lines.is_empty() {
            self.drop_oldest();
        }
        self.lines.shrink_to_fit();
    }

    pub fn tail(&self, lines: usize, function: &Name) -> Vec<LogLine> {
        let skip = self.lines.len().saturating_sub(lines);
        self.lines.iter().skip(skip).map(|line| line.published(line.sequence, function)).collect()
    }

    fn drop_oldest(&mut self) {
        if let Some(line) = self.lines.pop_front() {
            self.bytes -= line.cost();
        }
    }
}

/// The first bytes of a text, as many as make whole characters.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
