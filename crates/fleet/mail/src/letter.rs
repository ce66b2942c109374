//! One event on its way: which queue it is for, and the event as a frame.
//!
//! ```text
//! queue bytes (1) │ queue │ delay in ms (8) │ life in ms (8, 0: the queue's own) │ the event as a frame
//! ```
//! The bytes are made once, at the push. They lie in the outbox and travel as they are.

use crate::bytes::{Reader, put_short};
use event::{Event, Gate};
use frame::{Checksum, EncodeError, Limits, RecordError, decode_event, encode_event};
use std::fmt;
use std::time::Duration;

/// Bytes of one letter. A push of a larger one is refused.
pub const LETTER_BYTES_MAX: usize = 512 << 10;
/// Bytes of a queue's name; a longer one is refused.
pub const QUEUE_BYTES_MAX: usize = 255;

/// One event for a queue of another household.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    pub queue: String,
    /// How long it waits there before it can be leased, counted from its arrival. In whole milliseconds.
    pub delay: Duration,
    /// How long it may wait there, counted from its arrival; none: what the queue says. In whole milliseconds.
    pub life: Option<Duration>,
    pub event: Event,
}

/// Why something is no letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterError {
    /// The name of the queue has no bytes, or more than [`QUEUE_BYTES_MAX`].
    Queue(usize),
    /// It has more than [`LETTER_BYTES_MAX`].
    TooLarge(usize),
    /// A delay or a life that does not fit into 64 bits of milliseconds, or a life of nothing.
    Time,
    /// It ends too early, or the name of its queue is no text.
    Malformed,
    Event(RecordError),
    Encode(EncodeError),
}

impl Letter {
    /// # Errors
    /// A field is over its bound.
    pub fn write(&self) -> Result<Vec<u8>, LetterError> {
        let queue = self.queue.as_bytes();
        if queue.is_empty() || queue.len() > QUEUE_BYTES_MAX {
            return Err(LetterError::Queue(queue.len()));
        }
        let delay = millis(self.delay)?;
        let life = self
            .life
            .map_or(Ok(0), |life| millis(life).and_then(|ms| if ms == 0 { Err(LetterError::Time) } else { Ok(ms) }))?;
        let frame = encode_event(&self.event, Checksum::Front, &limits()).map_err(LetterError::Encode)?.to_vec();
        let mut out = Vec::with_capacity(1 + queue.len() + 16 + frame.len());
        put_short(&mut out, queue);
        out.extend_from_slice(&delay.to_le_bytes());
        out.extend_from_slice(&life.to_le_bytes());
        out.extend_from_slice(&frame);
        if out.len() > LETTER_BYTES_MAX { Err(LetterError::TooLarge(out.len())) } else { Ok(out) }
    }

    /// Reads what [`Letter::write`] made. The event says that a function sent it, and `from` is its sender: the
    /// household that the parcel came from, which no sender can write.
    ///
    /// # Errors
    /// It is no letter.
    pub fn read(bytes: &[u8], from: &str) -> Result<Self, LetterError> {
        let mut letter = Self::reread(bytes)?;
        letter.event.came_by(Gate::Function, from);
        Ok(letter)
    }

    /// Reads what this very node wrote: its event says what it said before.
    ///
    /// # Errors
    /// It is no letter.
    pub fn reread(bytes: &[u8]) -> Result<Self, LetterError> {
        if bytes.len() > LETTER_BYTES_MAX {
            return Err(LetterError::TooLarge(bytes.len()));
        }
        let mut reader = Reader(bytes);
        let (queue, delay, life) = fields(&mut reader).ok_or(LetterError::Malformed)?;
        if queue.is_empty() {
            return Err(LetterError::Queue(0));
        }
        let event = decode_event(reader.0, &limits()).map_err(LetterError::Event)?;
        let life = (life > 0).then(|| Duration::from_millis(life));
        Ok(Self { queue: queue.to_owned(), delay: Duration::from_millis(delay), life, event })
    }
}

fn fields<'a>(reader: &mut Reader<'a>) -> Option<(&'a str, u64, u64)> {
    Some((std::str::from_utf8(reader.short()?).ok()?, reader.u64()?, reader.u64()?))
}

fn millis(time: Duration) -> Result<u64, LetterError> {
    u64::try_from(time.as_millis()).map_err(|_| LetterError::Time)
}

fn limits() -> Limits {
    Limits { total_bytes_max: LETTER_BYTES_MAX as u64, ..Limits::default() }
}

impl fmt::Display for LetterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(bytes) => {
                write!(f, "the name of the queue has {bytes} bytes, 1 to {QUEUE_BYTES_MAX} are possible")
            }
            Self::TooLarge(bytes) => write!(f, "the letter has {bytes} bytes, {LETTER_BYTES_MAX} are possible"),
            Self::Time => f.write_str("its delay or its life is no number of milliseconds above 0"),
            Self::Malformed => f.write_str("it ends too early, or the name of its queue is no text"),
            Self::Event(error) => write!(f, "its event cannot be read: {error}"),
            Self::Encode(error) => write!(f, "its event cannot be written: {error}"),
        }
    }
}

impl std::error::Error for LetterError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(data: usize) -> Letter {
        let mut event =
            Event { id: "7".into(), source: "/function/meter".into(), kind: "reading".into(), ..Event::default() };
        event.data = vec![7; data];
        event.attempt = 1;
        event.came_by(Gate::Function, "meters");
        Letter { queue: "readings".into(), delay: Duration::from_millis(5), life: None, event }
    }

    #[test]
    fn a_letter_is_read_as_it_was_written() {
        let with_life = Letter { life: Some(Duration::from_secs(60)), ..letter(0) };
        for letter in [letter(0), letter(1_000), with_life] {
            assert_eq!(Letter::read(&letter.write().expect("it can be written"), "meters"), Ok(letter));
        }
    }

    #[test]
    fn what_is_too_large_or_nameless_is_refused() {
        assert!(matches!(letter(LETTER_BYTES_MAX).write(), Err(LetterError::Encode(_) | LetterError::TooLarge(_))));
        assert_eq!(Letter { queue: String::new(), ..letter(0) }.write(), Err(LetterError::Queue(0)));
        let no_life = Letter { life: Some(Duration::ZERO), ..letter(0) };
        assert_eq!(no_life.write(), Err(LetterError::Time));
        let whole = letter(10).write().expect("it can be written");
        for cut in 0..whole.len() {
            assert!(Letter::read(&whole[..cut], "meters").is_err(), "{cut}");
        }
    }
}
