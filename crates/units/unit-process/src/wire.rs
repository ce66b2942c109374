//! Frames from and to a unit, one after another on one stream. Every byte from a unit is taken for hostile: no length is
//! believed before it was compared with a limit, and nothing is allocated before.

use bytes::Bytes;
use frame::{Checksum, DecodeError, EncodeError, Frame, HEADER_BYTES, Header, Kind, Limits, Value};
use std::fmt;
use std::io::{self, IoSlice};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Pieces given to one system call.
const PIECES_MAX: usize = 64;
/// Memory that is made at once for a frame announced to be larger, the rest as it comes: what is not written to is not there.
const ROOM_BYTES: usize = 64 << 20;
/// Memory kept for the next frame.
const KEPT_BYTES: usize = 64 << 10;
/// Bytes that are read even where fewer are wanted.
const SMALL_BYTES: usize = 4 << 10;

/// Why there is no frame.
#[derive(Debug)]
pub enum Broken {
    /// The unit has closed its end.
    Ended,
    /// It announced more than the limit.
    TooLarge { kind: Option<Kind>, bytes: u64, bytes_max: u64 },
    /// These bytes are no frame.
    Garbled(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => write!(f, "it closed its end of the socket"),
            Self::TooLarge { bytes, bytes_max, .. } => write!(f, "a frame of {bytes} bytes, the limit is {bytes_max}"),
            Self::Garbled(why) => f.write_str(why),
        }
    }
}

impl From<io::Error> for Broken {
    /// Whatever the system says of the stream, there will be nothing more on it.
    fn from(_: io::Error) -> Self {
        Self::Ended
    }
}

/// Collects the bytes of one frame after another.
#[derive(Default)]
pub struct Reader {
    /// One frame, and what came with it of those that follow.
    bytes: Vec<u8>,
    /// Bytes of the frame that was given last.
    given: usize,
}

impl Reader {
    /// The bytes of the next frame, of which the header is checked. Dropped before its end it has lost nothing.
    pub async fn next<'b>(
        &'b mut self,
        stream: &mut (impl AsyncReadExt + Unpin),
        limits: &Limits,
    ) -> Result<&'b [u8], Broken> {
        self.bytes.drain(..self.given);
        self.given = 0;
        self.bytes.shrink_to(KEPT_BYTES);
        self.fill(stream, HEADER_BYTES).await?;
        let header = Header::read(&self.bytes, limits).map_err(|error| match error {
            DecodeError::TotalTooLarge { found, max } => {
                let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == self.bytes[5]);
                Broken::TooLarge { kind, bytes: found, bytes_max: max }
            }
            error => Broken::Garbled(error.to_string()),
        })?;
        let total = usize::try_from(header.total_bytes).map_err(|_| Broken::Garbled("a frame beyond memory".into()))?;
        self.fill(stream, total).await?;
        self.given = total;
        Ok(&self.bytes[..total])
    }

    /// The bytes of the last frame, for good.
    pub fn take(&mut self) -> Bytes {
        let rest = self.bytes.split_off(self.given);
        self.given = 0;
        std::mem::replace(&mut self.bytes, rest).into()
    }

    async fn fill(&mut self, stream: &mut (impl AsyncReadExt + Unpin), total: usize) -> Result<(), Broken> {
        while self.bytes.len() < total {
            let left = total - self.bytes.len();
            if self.bytes.capacity() == self.bytes.len() {
                // Doubling: what a unit announces and does not send costs it nothing, so it costs the node little.
                self.bytes.reserve_exact(left.min(ROOM_BYTES.max(self.bytes.len())).max(SMALL_BYTES));
            }
            // A small frame arrives in one step with its header; of a large one, nothing beyond it.
            let mut room = (&mut *stream).take(left.max(SMALL_BYTES) as u64);
            if room.read_buf(&mut self.bytes).await? == 0 {
                return Err(Broken::Ended);
            }
        }
        Ok(())
    }
}

/// Reads a frame that was received.
///
/// # Errors
/// [`Broken::Garbled`] with the contract's word for what is wrong.
pub fn decode<'b>(bytes: &'b [u8], limits: &Limits) -> Result<Frame<'b>, Broken> {
    Frame::decode(bytes, limits).map_err(|error| Broken::Garbled(error.to_string()))
}

/// Sends a frame; its buffers are not copied.
pub async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    kind: Kind,
    id: u64,
    body: Value<'_>,
    limits: &Limits,
) -> Result<(), Broken> {
    let frame = Frame { kind, id, body }.encode(Checksum::Front, limits);
    let frame = frame.map_err(|error: EncodeError| Broken::Garbled(error.to_string()))?;
    let pieces: Vec<&[u8]> = frame.pieces().collect();
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut left = &mut slices[..];
    while !left.is_empty() {
        let count = left.len().min(PIECES_MAX);
        let sent = stream.write_vectored(&left[..count]).await?;
        if sent == 0 {
            return Err(Broken::Ended);
        }
        IoSlice::advance_slices(&mut left, sent);
    }
    Ok(())
}

/// By this frame a child says that it is ready.
pub fn ready() -> Vec<u8> {
    let frame = Frame { kind: Kind::Reply, id: 0, body: Value::Null };
    frame.encode(Checksum::Front, &Limits::default()).expect("it is within every limit").to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(total_bytes_max: u64) -> Limits {
        Limits { total_bytes_max, ..Limits::default() }
    }

    fn bytes(body: Value<'_>) -> Vec<u8> {
        Frame { kind: Kind::Reply, id: 1, body }.encode(Checksum::Front, &Limits::default()).unwrap().to_vec()
    }

    #[tokio::test]
    async fn frames_come_one_after_another_however_they_are_cut() {
        let stream = [bytes(Value::Buffer(&[7; 5_000])), bytes(Value::Str("x"))].concat();
        for cut in [1, 63, 64, 65, 5_100] {
            let (mut near, mut far) = tokio::io::duplex(cut);
            let all = stream.clone();
            let sending = tokio::spawn(async move { near.write_all(&all).await });
            let mut reader = Reader::default();
            let first = reader.next(&mut far, &limits(1 << 20)).await.unwrap();
            assert_eq!(decode(first, &Limits::default()).unwrap().body, Value::Buffer(&[7; 5_000]));
            let taken = reader.take();
            assert_eq!(decode(&taken, &Limits::default()).unwrap().body, Value::Buffer(&[7; 5_000]));
            let second = reader.next(&mut far, &limits(1 << 20)).await.unwrap();
            assert_eq!(decode(second, &Limits::default()).unwrap().body, Value::Str("x"));
            sending.await.unwrap().unwrap();
            assert!(matches!(reader.next(&mut far, &limits(1 << 20)).await, Err(Broken::Ended)));
        }
    }

    #[tokio::test]
    async fn what_a_unit_announces_is_not_believed() {
        let large = bytes(Value::Buffer(&[7; 5_000]));
        let refused = Reader::default().next(&mut &large[..], &limits(1_000)).await.map(<[u8]>::len);
        assert!(
            matches!(refused, Err(Broken::TooLarge { kind: Some(Kind::Reply), bytes: 5_128, bytes_max: 1_000 })),
            "{refused:?}"
        );
        for (sent, is_ended) in [(&b"GET / HTTP/1.1\r\n\r\n"[..], true), (&[b'x'; 64], false), (&large[..100], true)] {
            let broken = Reader::default().next(&mut &sent[..], &limits(1 << 20)).await.map(<[u8]>::len).unwrap_err();
            assert_eq!(matches!(broken, Broken::Ended), is_ended, "{broken}");
        }
    }

    #[test]
    fn the_frame_of_a_ready_child_is_the_sdks() {
        assert_eq!(ready().len(), HEADER_BYTES + 1);
    }
}
