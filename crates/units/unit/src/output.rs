//! What one unit says, cut into lines and bounded, on its way to the function's log.

use crate::{Level, LogLine, LogWriter, Stream};
use parking_lot::Mutex;
use std::sync::Arc;

pub struct Output {
    log: Arc<dyn LogWriter>,
    unit: u64,
    state: Mutex<State>,
}

/// What a unit asked for and may not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// A bucket without a grant.
    Bucket,
    /// A request that no grant covers.
    Request,
    /// A request to an address that has to be named.
    Address,
}

/// Bytes of a line about something denied. The rest is cut: part of it is the unit's own words.
const DENIED_BYTES_MAX: usize = 512;

struct State {
    request_id: Arc<str>,
    left_bytes: u64,
    dropped_bytes: u64,
    /// What was noted in this call of each sort of [`Denied`].
    denied: [bool; 3],
    /// Begun lines of stdout and stderr, each of at most [`LogLine::BYTES_MAX`].
    begun: [Vec<u8>; 2],
}

impl Output {
    pub fn new(log: Arc<dyn LogWriter>, unit: u64, request_id: Arc<str>, bytes_max: u64) -> Self {
        let state = State {
            request_id,
            left_bytes: bytes_max,
            dropped_bytes: 0,
            denied: [false; 3],
            begun: Default::default(),
        };
        Self { log, unit, state: Mutex::new(state) }
    }

    pub fn request_id(&self) -> Arc<str> {
        self.state.lock().request_id.clone()
    }

    pub fn next_call(&self, request_id: Arc<str>, bytes_max: u64) {
        let mut state = self.state.lock();
        state.request_id = request_id;
        state.left_bytes = bytes_max;
        state.denied = [false; 3];
    }

    /// Lines from the function. Longer ones are cut, those over the limit dropped and counted.
    pub fn write(&self, level: Level, stream: Stream, text: &str) {
        let mut state = self.state.lock();
        for line in text.lines() {
            self.emit(&mut state, level, stream, line);
        }
    }

    /// Bytes from stdout or stderr; what follows the last line end waits for its own. A longer line than there may be
    /// becomes several, so that no more of it ever waits here.
    pub fn write_bytes(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.state.lock();
        let index = usize::from(stream == Stream::Stderr);
        let mut begun = std::mem::take(&mut state.begun[index]);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (mut text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            while !text.is_empty() {
                if begun.len() == LogLine::BYTES_MAX {
                    let whole = whole_characters(&begun);
                    self.emit_bytes(&mut state, stream, &begun[..whole]);
                    begun.drain(..whole);
                }
                let (piece, rest) = text.split_at(text.len().min(LogLine::BYTES_MAX - begun.len()));
                begun.extend_from_slice(piece);
                text = rest;
            }
            if ends {
                self.emit_bytes(&mut state, stream, &begun);
                begun.clear();
            }
        }
        state.begun[index] = begun;
    }

    /// To be called when a call ends: writes begun lines and says how much was dropped.
    pub fn end_call(&self) {
        let mut state = self.state.lock();
        for (index, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
            let begun = std::mem::take(&mut state.begun[index]);
            if !begun.is_empty() {
                self.emit_bytes(&mut state, stream, &begun);
            }
        }
        let dropped_bytes = std::mem::take(&mut state.dropped_bytes);
        if dropped_bytes > 0 {
            let message = format!("{dropped_bytes} bytes of log output dropped: over limits.log_bytes");
            self.to_log(&state, Level::Warn, Stream::Node, &message);
        }
    }

    /// A line from the node about the unit, outside the function's limit.
    pub fn note(&self, level: Level, message: &str) {
        let state = self.state.lock();
        for line in message.lines() {
            self.to_log(&state, level, Stream::Node, line);
        }
    }

    /// A line from the node about what it denied the unit: once in a call for each sort. A unit can ask in a loop,
    /// and such a line is outside the function's limit.
    pub fn note_denied(&self, what: Denied, message: &str) {
        if !std::mem::replace(&mut self.state.lock().denied[what as usize], true) {
            self.note(Level::Warn, cut(message, DENIED_BYTES_MAX));
        }
    }

    fn emit_bytes(&self, state: &mut State, stream: Stream, bytes: &[u8]) {
        let level = if stream == Stream::Stderr { Level::Warn } else { Level::Info };
        self.emit(state, level, stream, String::from_utf8_lossy(bytes).trim_end_matches(['\n', '\r']));
    }

    fn emit(&self, state: &mut State, level: Level, stream: Stream, line: &str) {
        let bytes = line.len() as u64;
        if bytes >= state.left_bytes {
            state.left_bytes = 0;
            state.dropped_bytes += bytes;
            // At once: a unit that is stopped does not come to its end.
            self.log.dropped(bytes);
            return;
        }
        // A line costs at least one byte, so that a flood of empty lines ends too.
        state.left_bytes -= bytes.max(1);
        self.to_log(state, level, stream, line);
    }

    fn to_log(&self, state: &State, level: Level, stream: Stream, message: &str) {
        let message = cut(message, LogLine::BYTES_MAX);
        self.log.write(LogLine { unit: self.unit, request_id: &state.request_id, level, stream, message });
    }
}

/// Bytes before a last character that is only begun; all of them if there is none.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// The longest start of `text` that has at most `bytes_max` bytes and whole characters.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Lines(Mutex<Vec<String>>, Mutex<u64>);

    impl LogWriter for Lines {
        fn write(&self, line: LogLine<'_>) {
            self.0.lock().push(format!("{} {} {}", line.stream.as_str(), line.level.as_str(), line.message));
        }

        fn dropped(&self, bytes: u64) {
            *self.1.lock() += bytes;
        }
    }

    fn lines(bytes_max: u64, say: impl Fn(&Output)) -> Vec<String> {
        let log = Arc::new(Lines::default());
        let output = Output::new(log.clone(), 7, "r1".into(), bytes_max);
        say(&output);
        output.end_call();
        log.0.lock().clone()
    }

    #[test]
    fn bytes_become_lines_across_writes() {
        let got = lines(100, |output| {
            output.write_bytes(Stream::Stdout, b"one\ntw");
            output.write_bytes(Stream::Stderr, b"oops");
            output.write_bytes(Stream::Stdout, b"o\r\nthree");
        });
        assert_eq!(got, ["stdout info one", "stdout info two", "stdout info three", "stderr warn oops"]);
    }

    #[test]
    fn a_flood_is_dropped_and_said() {
        let got = lines(10, |output| {
            for _ in 0..5 {
                output.write(Level::Info, Stream::Log, "sixsix");
            }
        });
        assert_eq!(got, ["log info sixsix", "node warn 24 bytes of log output dropped: over limits.log_bytes"]);
    }

    #[test]
    fn what_is_dropped_is_counted_even_of_a_call_that_does_not_end() {
        let log = Arc::new(Lines::default());
        let output = Output::new(log.clone(), 7, "r1".into(), 10);
        (0..5).for_each(|_| output.write(Level::Info, Stream::Log, "sixsix"));
        drop(output);
        assert_eq!((log.0.lock().len(), *log.1.lock()), (1, 24));
    }

    #[test]
    fn a_flood_of_empty_lines_ends() {
        assert!(lines(10, |output| output.write_bytes(Stream::Stdout, &[b'\n'; 1_000])).len() < 12);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        let got = lines(1 << 20, |output| output.write(Level::Info, Stream::Log, &"é".repeat(LogLine::BYTES_MAX)));
        assert_eq!(got[0].len(), "log info ".len() + LogLine::BYTES_MAX);
    }
    /// A write of 16 MiB took as much of the node, outside of every limit, before its first line was cut.
    #[test]
    fn a_huge_write_takes_no_more_than_a_line() {
        let log = Arc::new(Lines::default());
        let output = Output::new(log.clone(), 7, "r1".into(), 64 << 10);
        output.write_bytes(Stream::Stdout, &vec![b'x'; 16 << 20]);
        output.write_bytes(Stream::Stderr, &vec![b'y'; 16 << 20]);
        assert!(output.state.lock().begun.iter().all(|begun| begun.capacity() <= 32 << 10));
        assert!((1..8).contains(&log.0.lock().len()));
    }

    #[test]
    fn a_long_line_becomes_several_with_whole_characters() {
        let half = LogLine::BYTES_MAX / 2;
        let text = format!("a{}\n{}\nend\n", "é".repeat(half), "b".repeat(LogLine::BYTES_MAX));
        let got = lines(1 << 20, |output| output.write_bytes(Stream::Stdout, text.as_bytes()));
        let said: Vec<_> = got.iter().map(|line| line.strip_prefix("stdout info ").unwrap()).collect();
        assert_eq!(said, [&format!("a{}", "é".repeat(half - 1)), "é", &"b".repeat(LogLine::BYTES_MAX), "end"]);
    }
    /// A thousand buckets without a grant were a thousand lines, whatever `log_bytes` said.
    #[test]
    fn what_is_denied_is_noted_once_in_a_call() {
        let log = Arc::new(Lines::default());
        let output = Output::new(log.clone(), 7, "r1".into(), 10);
        for call in 1..=2 {
            for _ in 0..1_000 {
                output.note_denied(Denied::Bucket, &"x".repeat(10_000));
                output.note_denied(Denied::Address, "no");
            }
            let lines: Vec<_> = log.0.lock().iter().map(String::len).collect();
            assert_eq!(lines, [DENIED_BYTES_MAX, 2].map(|bytes| "node warn ".len() + bytes).repeat(call));
            output.next_call("r2".into(), 10);
        }
    }
}
