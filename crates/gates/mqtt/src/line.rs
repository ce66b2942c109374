//! What is to be sent over one connection, and who sends it.
//!
//! The task that made the broker put something into a connection also writes it to the socket at once, so that passing
//! a message on costs no switch to another task. Only when the socket is full does the connection's own task wait for
//! it.

use crate::bell::{Bell, Ring};
use crate::limits::SEND_BYTES_FREE;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::tcp::OwnedWriteHalf;

/// What a buffer may keep once it is empty.
const BUFFER_BYTES_KEPT: usize = 4_096;

/// One connection, as those see it who send to it.
#[derive(Debug)]
pub struct Line {
    pub key: u32,
    /// None with TLS: then only the connection's task writes.
    pub socket: Option<OwnedWriteHalf>,
    sending: Mutex<Sending>,
    /// The broker has more for this line than was taken from it.
    has_more: AtomicBool,
    /// The connection ends once all is sent.
    is_closing: AtomicBool,
    /// Reading waits until the broker takes more.
    pub is_held_up: AtomicBool,
    /// Wakes the connection's task.
    pub bell: Bell,
}

#[derive(Debug, Default)]
struct Sending {
    buffer: Vec<u8>,
    sent: usize,
    /// Whether the connection's task has taken the buffer out and sends it.
    is_out: bool,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrote {
    /// Everything; the broker may have more.
    All,
    /// The socket takes no more now.
    Some,
    /// The connection is gone.
    Gone,
}

impl Line {
    pub fn new(key: u32, socket: Option<OwnedWriteHalf>) -> Self {
        Self {
            key,
            socket,
            sending: Mutex::default(),
            has_more: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_held_up: AtomicBool::new(false),
            bell: Bell::default(),
        }
    }

    /// Lets `take` fill the buffer if it is empty and nobody is writing; whoever writes comes back for it otherwise.
    /// `take` says whether the connection ends. Called under the broker's lock. Says whether there is something to do.
    pub fn fill(&self, take: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        // Said before trying, so that whoever holds the buffer sees it after letting go.
        self.has_more.store(true, Ordering::SeqCst);
        let Some(mut sending) = self.sending.try_lock() else { return false };
        if sending.is_out || sending.sent < sending.buffer.len() {
            return false;
        }
        self.has_more.store(false, Ordering::SeqCst);
        sending.buffer.clear();
        sending.sent = 0;
        if take(&mut sending.buffer) {
            self.is_closing.store(true, Ordering::SeqCst);
        }
        true
    }

    /// Whether the broker is to be asked for more.
    pub fn has_more(&self) -> bool {
        self.has_more.load(Ordering::SeqCst)
    }

    pub fn set_closing(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.bell.ring(Ring::Write);
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Whether the connection ends now, nothing being left in the broker. The end may be known before the last words
    /// are taken, if somebody was writing just then.
    pub fn is_over(&self) -> bool {
        self.is_closing() && !self.has_more()
    }

    /// Writes what the socket takes.
    pub fn write(&self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> Wrote {
        let mut sending = self.sending.lock();
        while sending.sent < sending.buffer.len() {
            match write(&sending.buffer[sending.sent..]) {
                Ok(0) => return Wrote::Gone,
                Ok(bytes) => sending.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Wrote::Some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Wrote::Gone,
            }
        }
        sending.buffer.clear();
        sending.sent = 0;
        if sending.buffer.capacity() > SEND_BYTES_FREE {
            // The broker counts it until it is asked again.
            self.has_more.store(true, Ordering::SeqCst);
        }
        sending.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Wrote::All
    }

    /// Takes the buffer out, for a task that writes by itself. Nothing comes after it until [`Line::sent`].
    pub fn take(&self) -> Vec<u8> {
        let mut sending = self.sending.lock();
        sending.sent = 0;
        sending.is_out = true;
        if sending.buffer.capacity() > SEND_BYTES_FREE {
            self.has_more.store(true, Ordering::SeqCst);
        }
        std::mem::take(&mut sending.buffer)
    }

    /// What was taken out is sent, and its memory given back.
    pub fn sent(&self) {
        self.sending.lock().is_out = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_that_come_while_somebody_writes_are_still_to_be_sent() {
        let line = Line::new(1, None);
        assert!(line.fill(|buffer| {
            buffer.extend_from_slice(b"message");
            false
        }));
        let wrote = line.write(|bytes| {
            assert!(!line.fill(|_| unreachable!("somebody is writing")));
            line.set_closing();
            Ok(bytes.len())
        });
        assert_eq!(wrote, Wrote::All);
        assert!(line.has_more() && !line.is_over());
        assert!(line.fill(|buffer| {
            buffer.extend_from_slice(b"goodbye");
            true
        }));
        assert_eq!(line.write(|bytes| Ok(bytes.len())), Wrote::All);
        assert!(line.is_over());
    }
}
