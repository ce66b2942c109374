//! Frames from and to a unit, one after another on one stream. Every byte from a unit is taken for hostile: no length
//! is believed before it was compared with a limit, and nothing is allocated before.

use crate::turn::{TURN_BYTES, Turn};
use budget::{Full, Share};
use bytes::Bytes;
use frame::{Checksum, DecodeError, EncodeError, Encoded, Frame, HEADER_BYTES, Header, Kind, Limits, Value};
use std::fmt;
use std::io::{self, IoSlice};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Pieces given to one system call.
const PIECES_MAX: usize = 64;
/// Memory kept for the next frame.
const KEPT_BYTES: usize = 64 << 10;
/// Bytes that are read even where fewer are wanted.
const SMALL_BYTES: usize = 4 << 10;
/// Of a frame announced to be larger, so much has to come before there is room for the rest: what is announced and does
/// not come takes little. All that room is made for is counted, written to or not: the allocator gives out pages again
/// that an earlier frame has filled.
const FIRST_BYTES: usize = 1 << 20;
/// Bytes of one system call.
const STEP_BYTES: usize = TURN_BYTES;

/// Why there is no frame.
#[derive(Debug)]
pub enum Broken {
    /// The unit has closed its end.
    Ended,
    /// It announced more than the limit.
    TooLarge { kind: Option<Kind>, bytes: u64, bytes_max: u64 },
    /// These bytes are no frame.
    Garbled(String),
    /// The node has no memory for it.
    NoRoom(Full),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => write!(f, "it closed its end of the socket"),
            Self::TooLarge { bytes, bytes_max, .. } => write!(f, "a frame of {bytes} bytes, the limit is {bytes_max}"),
            Self::Garbled(why) => f.write_str(why),
            Self::NoRoom(full) => write!(f, "a frame of {} more bytes for which there is no room", full.asked_bytes),
        }
    }
}

impl From<Full> for Broken {
    fn from(full: Full) -> Self {
        Self::NoRoom(full)
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
    /// The bytes of the next frame, of which the header is checked. Dropped before its end it has lost nothing. `room`
    /// holds what comes, until the next one.
    pub async fn next<'b>(
        &'b mut self,
        stream: &mut (impl AsyncReadExt + Unpin),
        limits: &Limits,
        room: &mut Share,
    ) -> Result<&'b [u8], Broken> {
        self.bytes.drain(..self.given);
        self.given = 0;
        self.bytes.shrink_to(KEPT_BYTES);
        self.fill(stream, HEADER_BYTES, room).await?;
        let header = Header::read(&self.bytes, limits).map_err(|error| match error {
            DecodeError::TotalTooLarge { found, max } => {
                let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == self.bytes[5]);
                Broken::TooLarge { kind, bytes: found, bytes_max: max }
            }
            error => Broken::Garbled(error.to_string()),
        })?;
        let total = usize::try_from(header.total_bytes).map_err(|_| Broken::Garbled("a frame beyond memory".into()))?;
        self.fill(stream, total, room).await?;
        self.given = total;
        Ok(&self.bytes[..total])
    }

    /// The bytes of the last frame, for good.
    pub fn take(&mut self) -> Bytes {
        let rest = self.bytes.split_off(self.given);
        self.given = 0;
        std::mem::replace(&mut self.bytes, rest).into()
    }

    async fn fill(
        &mut self,
        stream: &mut (impl AsyncReadExt + Unpin),
        total: usize,
        room: &mut Share,
    ) -> Result<(), Broken> {
        // What the frame before this one held is given back.
        room.hold(self.bytes.len().saturating_sub(KEPT_BYTES) as u64)?;
        let mut turn = Turn::default();
        while self.bytes.len() < total {
            let wanted = if self.bytes.len() < FIRST_BYTES { total.min(FIRST_BYTES) } else { total };
            // What a reader keeps between frames is not asked for.
            room.hold(wanted.saturating_sub(KEPT_BYTES) as u64)?;
            if self.bytes.capacity() < wanted {
                self.bytes.reserve_exact((wanted - self.bytes.len()).max(SMALL_BYTES));
            }
            let left = (wanted - self.bytes.len()).min(STEP_BYTES);
            // A small frame arrives in one step with its header; of a large one, nothing beyond it.
            let mut room = (&mut *stream).take(left.max(SMALL_BYTES) as u64);
            let got = room.read_buf(&mut self.bytes).await?;
            if got == 0 {
                return Err(Broken::Ended);
            }
            turn.moved(got).await;
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

/// The bytes of a frame, of whose buffers no copy is made.
pub fn encode<'a>(kind: Kind, id: u64, body: Value<'a>, limits: &Limits) -> Result<Encoded<'a>, Broken> {
    let frame = Frame { kind, id, body }.encode(Checksum::Front, limits);
    frame.map_err(|error: EncodeError| Broken::Garbled(error.to_string()))
}

/// Sends bytes that are a frame already.
pub async fn send_bytes(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> Result<(), Broken> {
    send_pieces(stream, std::iter::once(frame)).await
}

/// Sends what is a frame together.
pub async fn send_pieces<'p>(
    stream: &mut (impl AsyncWrite + Unpin),
    pieces: impl Iterator<Item = &'p [u8]>,
) -> Result<(), Broken> {
    // No system call is given more than others may wait for, however much the socket would take.
    let mut slices: Vec<IoSlice<'_>> = pieces.flat_map(|piece| piece.chunks(STEP_BYTES)).map(IoSlice::new).collect();
    let mut left = &mut slices[..];
    let mut turn = Turn::default();
    while !left.is_empty() {
        let mut bytes = 0;
        let fits = |piece: &&IoSlice<'_>| {
            bytes += piece.len();
            bytes <= STEP_BYTES
        };
        let count = left.iter().take(PIECES_MAX).take_while(fits).count().max(1);
        let sent = stream.write_vectored(&left[..count]).await?;
        if sent == 0 {
            return Err(Broken::Ended);
        }
        IoSlice::advance_slices(&mut left, sent);
        turn.moved(sent).await;
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
    use budget::{Budget, Purpose};
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll};
    use tokio::io::{AsyncRead, ReadBuf};

    fn room() -> Share {
        Budget::unbounded().share(Purpose::HostCalls)
    }

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
            let first = reader.next(&mut far, &limits(1 << 20), &mut room()).await.unwrap();
            assert_eq!(decode(first, &Limits::default()).unwrap().body, Value::Buffer(&[7; 5_000]));
            let taken = reader.take();
            assert_eq!(decode(&taken, &Limits::default()).unwrap().body, Value::Buffer(&[7; 5_000]));
            let second = reader.next(&mut far, &limits(1 << 20), &mut room()).await.unwrap();
            assert_eq!(decode(second, &Limits::default()).unwrap().body, Value::Str("x"));
            sending.await.unwrap().unwrap();
            assert!(matches!(reader.next(&mut far, &limits(1 << 20), &mut room()).await, Err(Broken::Ended)));
        }
    }

    #[tokio::test]
    async fn what_a_unit_announces_is_not_believed() {
        let large = bytes(Value::Buffer(&[7; 5_000]));
        let refused = Reader::default().next(&mut &large[..], &limits(1_000), &mut room()).await.map(<[u8]>::len);
        assert!(
            matches!(refused, Err(Broken::TooLarge { kind: Some(Kind::Reply), bytes: 5_128, bytes_max: 1_000 })),
            "{refused:?}"
        );
        for (sent, is_ended) in [(&b"GET / HTTP/1.1\r\n\r\n"[..], true), (&[b'x'; 64], false), (&large[..100], true)] {
            let broken = Reader::default()
                .next(&mut &sent[..], &limits(1 << 20), &mut room())
                .await
                .map(<[u8]>::len)
                .unwrap_err();
            assert_eq!(matches!(broken, Broken::Ended), is_ended, "{broken}");
        }
    }

    #[tokio::test]
    async fn a_frame_holds_room_for_what_has_come_of_it_and_no_more() {
        let budget = Budget::new(8 << 20);
        let mut room = budget.share(Purpose::HostCalls);
        let large = bytes(Value::Buffer(&vec![7; 4 << 20]));
        // All but its header is still to come.
        let short = Reader::default().next(&mut &large[..100], &limits(8 << 20), &mut room).await.map(<[u8]>::len);
        assert!(matches!(short, Err(Broken::Ended)), "{short:?}");
        assert!(budget.total_bytes() <= FIRST_BYTES as u64);
        let whole = Reader::default().next(&mut &large[..], &limits(8 << 20), &mut room).await.map(<[u8]>::len);
        assert!(matches!(whole, Err(Broken::NoRoom(_))), "{whole:?}");
        drop(room);
        assert_eq!(budget.total_bytes(), 0);
    }

    /// A stream that always has more and always takes more; counts what passes.
    struct Greedy<'a> {
        left: &'a [u8],
        passed: &'a Cell<usize>,
    }

    impl AsyncRead for Greedy<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let (now, later) = self.left.split_at(buf.remaining().min(self.left.len()));
            buf.put_slice(now);
            self.passed.set(self.passed.get() + now.len());
            self.left = later;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Greedy<'_> {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.passed.set(self.passed.get() + bytes.len());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let bytes = slices.iter().map(|slice| slice.len()).sum();
            self.passed.set(self.passed.get() + bytes);
            Poll::Ready(Ok(bytes))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The most that passes before others have a turn, and what comes of the work.
    async fn most_in_a_turn<F: Future>(work: F, passed: &Cell<usize>) -> (usize, F::Output) {
        let (mut work, mut most) = (pin!(work), 0);
        let done = poll_fn(|context| {
            passed.set(0);
            let polled = work.as_mut().poll(context);
            most = most.max(passed.get());
            polled
        });
        let done = done.await;
        (most, done)
    }

    /// Units whose frames were as large as they may be kept a neighbour waiting for 281 ms: one was read, and one was
    /// sent, in a single turn.
    #[tokio::test]
    async fn others_have_a_turn_while_a_large_frame_passes() {
        let (passed, data) = (Cell::new(0), vec![7; 9 << 20]);
        let frame = bytes(Value::Buffer(&data));
        let mut stream = Greedy { left: &frame, passed: &passed };
        let (mut reader, limits, mut room) = (Reader::default(), limits(16 << 20), room());
        let reading = async { reader.next(&mut stream, &limits, &mut room).await.map(<[u8]>::len) };
        let (most, read) = most_in_a_turn(reading, &passed).await;
        assert_eq!(read.unwrap(), frame.len());
        assert!(most < 2 * TURN_BYTES, "{most} bytes were read in one turn");
        let frame = encode(Kind::Reply, 1, Value::Buffer(&data), &limits).unwrap();
        let sending = send_pieces(&mut stream, frame.pieces());
        let (most, sent) = most_in_a_turn(sending, &passed).await;
        sent.unwrap();
        assert!(most < 2 * TURN_BYTES, "{most} bytes were sent in one turn");
    }

    /// Sixteen units that sent 16 MiB each took 64 MiB more of the node than was counted: room was made for all of a
    /// frame and counted as it came, and pages that other frames had filled were in it.
    #[tokio::test]
    async fn all_that_room_is_made_for_is_counted() {
        let budget = Budget::new(64 << 20);
        let mut room = budget.share(Purpose::HostCalls);
        let large = bytes(Value::Buffer(&vec![7; 8 << 20]));
        for come in [100, 1 << 20, (1 << 20) + 1, 3 << 20, large.len()] {
            let mut reader = Reader::default();
            let limits = limits(16 << 20);
            let reading = reader.next(&mut &large[..come], &limits, &mut room).await.map(<[u8]>::len);
            assert_eq!(reading.is_ok(), come == large.len());
            let made = reader.bytes.capacity().saturating_sub(KEPT_BYTES) as u64;
            assert!(made <= budget.total_bytes(), "{made} bytes for {come} that have come");
        }
    }

    #[test]
    fn the_frame_of_a_ready_child_is_the_sdks() {
        assert_eq!(ready().len(), HEADER_BYTES + 1);
    }
}
