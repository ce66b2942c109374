//! Counts the frames of an HTTP/2 connection that bring no request: a peer that sends nothing else costs CPU and asks
//! nothing.
//!
//! Reads the nine bytes before each frame as they pass, and nothing more; what is in the frames is for h2 to judge.

use std::time::Duration;

/// Bytes before a frame: three of its length, one of its type, five that do not matter here.
const HEAD_BYTES: usize = 9;

/// Types (RFC 9113, 6). All that is not one of these, DATA, HEADERS and CONTINUATION is counted as needless.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Frames without a request that any connection may send, and more for each request and each second. PINGs of a client
/// that looks after its connection, and priorities, stay far below.
const FREE: u64 = 1_024;
const FOR_A_REQUEST: u64 = 16;
const FOR_A_SECOND: u64 = 8;

/// One WINDOW_UPDATE more for so many bytes that the client was sent.
const UPDATE_BYTES: u64 = 64;

/// What passed of one connection.
#[derive(Debug)]
pub struct Frames {
    head: [u8; HEAD_BYTES],
    /// Bytes of `head` that are there.
    have: usize,
    /// Bytes to skip: what is left of a frame.
    skip: usize,
    requests: u64,
    needless: u64,
    updates: u64,
    written_bytes: u64,
}

impl Frames {
    /// For a connection whose first `preface_bytes` are no frames.
    pub fn new(preface_bytes: usize) -> Self {
        Self {
            head: [0; HEAD_BYTES],
            have: 0,
            skip: preface_bytes,
            requests: 0,
            needless: 0,
            updates: 0,
            written_bytes: 0,
        }
    }

    pub fn wrote(&mut self, bytes: usize) {
        self.written_bytes += bytes as u64;
    }

    /// Reads what passed. `since` is how long the connection has been there. Says whether it is a flood.
    pub fn read(&mut self, mut bytes: &[u8], since: impl FnOnce() -> Duration) -> bool {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let taken = (HEAD_BYTES - self.have).min(bytes.len());
            self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == HEAD_BYTES {
                self.have = 0;
                self.count();
            }
        }
        self.most() > FREE && self.is_flood(since())
    }

    fn count(&mut self) {
        let [a, b, c, kind, ..] = self.head;
        self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        match kind {
            HEADERS => self.requests += 1,
            // h2 looks after what is cancelled, and a request may have any number of parts.
            DATA | CONTINUATION | RST_STREAM => {}
            WINDOW_UPDATE => self.updates += 1,
            _ => self.needless += 1,
        }
    }

    fn most(&self) -> u64 {
        self.needless.max(self.updates)
    }

    fn is_flood(&self, since: Duration) -> bool {
        let free = FREE + self.requests * FOR_A_REQUEST + since.as_secs() * FOR_A_SECOND;
        self.needless > free || self.updates > free + self.written_bytes / UPDATE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload_bytes: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, payload_bytes, kind, 0, 0, 0, 0, 0];
        frame.resize(HEAD_BYTES + usize::from(payload_bytes), 0x55);
        frame
    }

    /// The frame that makes it a flood, from one, whatever the pieces are in which they come.
    fn flood_at(kind: u8, count: usize, seconds: u64, before: &[u8]) -> Option<usize> {
        let found = [1, 7, 9, 4_096].map(|piece| {
            let mut frames = Frames::new(before.len());
            let since = || Duration::from_secs(seconds);
            assert!(!frames.read(before, since));
            (1..=count).find(|_| frame(kind, 5).chunks(piece).any(|bytes| frames.read(bytes, since)))
        });
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        found[0]
    }

    #[test]
    fn frames_that_ask_nothing_are_a_flood_once_there_are_too_many() {
        // PRIORITY, SETTINGS, PING, WINDOW_UPDATE, one that nobody knows.
        for kind in [2, 4, 6, 8, 0x77] {
            assert_eq!(flood_at(kind, 5_000, 0, b"PRI * HTTP/2.0"), Some(1_025), "{kind}");
            assert_eq!(flood_at(kind, 2_000, 125, b""), None, "{kind}");
        }
    }

    #[test]
    fn requests_and_their_bodies_are_no_flood() {
        for kind in [0, 1, 9] {
            assert_eq!(flood_at(kind, 50_000, 0, b"PRI"), None, "{kind}");
        }
        let mut frames = Frames::new(0);
        for _ in 0..10_000 {
            assert!(!frames.read(&[frame(1, 20), frame(2, 5), frame(6, 8)].concat(), Duration::default));
        }
    }

    #[test]
    fn who_reads_much_may_say_so_often() {
        let mut frames = Frames::new(0);
        for _ in 0..50_000 {
            frames.wrote(64);
            assert!(!frames.read(&frame(8, 4), Duration::default));
        }
    }
}
