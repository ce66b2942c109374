//! The stream between socket and hyper: lets through only whole, sound heads and sound bodies.
//!
//! ```text
//!  socket ──▶ all sound ───────────────────────────────────▶ hyper's buffer, not copied
//!        └──▶ ends within a head ──▶ held ──▶ whole ───────▶ hyper
//!        └──▶ refused ──▶ a stand-in request "GET /", for which the service sends the refusal
//! ```
//! The stand-in keeps the order of pipelined replies and lets the refusal be an ordinary reply. Nothing is read after
//! it.

use super::{Framing, Refused};
use crate::frames::Frames;
use crate::line::Line;
use crate::room::SMALL_BYTES;
use bytes::{Buf, BytesMut};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What hyper reads in place of a refused head.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// How an HTTP/2 connection begins.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes a refused client may still send that are read and thrown away, so that the refusal is not lost in a reset.
const DISCARD_BYTES_MAX: usize = 1024 * 1024;

/// A reply of up to this many bytes is joined before it is written: `send` of one buffer costs the kernel less than
/// `writev` of two.
const JOINED_BYTES_MAX: usize = 1_024;

/// Watches over the bytes of one connection.
pub struct Guard<S> {
    stream: S,
    line: Arc<Line>,
    mode: Mode,
    /// Bytes of a head that is not whole, or of the stand-in; before that, what [`Guard::version`] read.
    held: BytesMut,
    /// So many of `held` may go on.
    vetted: usize,
    /// Bytes of `held` that the budget knows of.
    counted: u64,
}

#[derive(Debug)]
enum Mode {
    Http1(Framing),
    /// Every byte passes. HTTP/2 has its framing checked by h2; only what asks nothing is counted.
    Open(Frames),
    /// A stand-in is on its way, or gone.
    Refused,
    /// A body broke the framing.
    Broken(&'static str),
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http1,
    Http2,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    pub fn new(stream: S, line: Arc<Line>) -> Self {
        Self {
            stream,
            line,
            mode: Mode::Open(Frames::new(PREFACE.len())),
            held: BytesMut::new(),
            vetted: 0,
            counted: 0,
        }
    }

    /// Reads until it is clear which protocol the client speaks. `None`: it left without a word.
    pub async fn version(&mut self) -> io::Result<Option<Version>> {
        use tokio::io::AsyncReadExt;
        // A small buffer: most connections of a crowd never say anything.
        let mut first = [0; 512];
        loop {
            let length = self.stream.read(&mut first).await?;
            if length == 0 {
                return Ok(None);
            }
            self.held.extend_from_slice(&first[..length]);
            self.line.moves(length);
            if self.held.len() >= PREFACE.len() && self.held.starts_with(PREFACE) {
                self.line.head_done();
                return Ok(Some(Version::Http2));
            }
            if !PREFACE.starts_with(&self.held) {
                return Ok(Some(Version::Http1));
            }
            self.line.head_waits();
        }
    }

    /// Vets from here on. The bytes that [`Guard::version`] read come first.
    pub fn vet(&mut self, head_bytes_max: usize) {
        self.mode = Mode::Http1(Framing::new(head_bytes_max));
        self.vet_held();
    }

    /// Lets all pass from here on.
    pub fn open(&mut self) {
        let mut frames = Frames::new(PREFACE.len());
        // There is nothing to compare the first bytes with yet.
        let _ = frames.read(&self.held, Duration::default);
        self.mode = Mode::Open(frames);
        self.vetted = self.held.len();
    }

    /// Throws away what a refused client still sends. Ends when it has sent enough, or nothing more.
    pub async fn discard(&mut self) {
        use tokio::io::AsyncReadExt;
        let mut scratch = vec![0; 16 * 1024];
        let mut discarded = 0;
        while discarded < DISCARD_BYTES_MAX {
            match self.stream.read(&mut scratch).await {
                Ok(0) | Err(_) => return,
                Ok(length) => discarded += length,
            }
        }
    }

    fn vet_held(&mut self) {
        if let Mode::Http1(framing) = &mut self.mode {
            let vetted = framing.vet(&self.held);
            self.vetted = vetted.pass;
            match vetted.refused {
                Some(refused) => self.refuse(refused),
                None if self.vetted == self.held.len() => self.line.head_done(),
                None => {}
            }
        }
    }

    /// Puts the stand-in behind what is vetted, or breaks the body that is being read.
    fn refuse(&mut self, refused: Refused) {
        let Mode::Http1(framing) = &self.mode else { return };
        self.line.head_done();
        self.held.truncate(self.vetted);
        if framing.in_body() {
            self.mode = Mode::Broken(match refused {
                Refused::Malformed(what) => what,
                _ => "the body is malformed",
            });
        } else {
            self.line.refuse(framing.heads() + 1, refused);
            self.held.extend_from_slice(STAND_IN);
            self.vetted = self.held.len();
            self.mode = Mode::Refused;
        }
    }

    fn poll_vetted(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.vetted > 0 {
                let length = self.vetted.min(buf.remaining());
                buf.put_slice(&self.held[..length]);
                self.held.advance(length);
                self.vetted -= length;
                if self.held.is_empty() {
                    // Give the memory back: an idle connection holds none.
                    self.held = BytesMut::new();
                    self.count_held();
                }
                return Poll::Ready(Ok(()));
            }
            let framing = match &mut self.mode {
                Mode::Http1(framing) => framing,
                Mode::Open(_) => return self.poll_open(cx, buf),
                // Nothing comes after the stand-in, not even an end: hyper would take that for a client that left, and
                // drop the refusal. The refusal itself ends the connection.
                Mode::Refused => return Poll::Pending,
                Mode::Broken(what) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, *what))),
            };
            if self.line.is_head_late() && !framing.in_body() {
                self.held.clear();
                self.refuse(Refused::Late);
                continue;
            }
            let before = buf.filled().len();
            match Pin::new(&mut self.stream).poll_read(cx, buf) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    // Only now is it the client who is waited for: while hyper is busy, nobody reads here.
                    if !self.held.is_empty() {
                        self.line.head_waits();
                    }
                    return Poll::Pending;
                }
            }
            let arrived = &buf.filled()[before..];
            if arrived.is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.line.moves(arrived.len());
            if self.held.is_empty() {
                let vetted = framing.vet(arrived);
                if vetted.pass == arrived.len() && vetted.refused.is_none() {
                    return Poll::Ready(Ok(()));
                }
                match vetted.refused {
                    None => self.held.extend_from_slice(&arrived[vetted.pass..]),
                    Some(refused) => self.refuse(refused),
                }
                buf.set_filled(before + vetted.pass);
                if vetted.pass > 0 {
                    return Poll::Ready(Ok(()));
                }
            } else {
                self.held.extend_from_slice(arrived);
                buf.set_filled(before);
                self.vet_held();
                self.count_held();
            }
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let arrived = &buf.filled()[before..];
        self.line.moves(arrived.len());
        if let Mode::Open(frames) = &mut self.mode
            && frames.read(arrived, || self.line.age())
        {
            self.line.floods();
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "too many frames that bring no request",
            )));
        }
        Poll::Ready(Ok(()))
    }

    /// Counts what was written.
    fn wrote(&mut self, length: usize) {
        self.line.moves(length);
        if let Mode::Open(frames) = &mut self.mode {
            frames.wrote(length);
        }
    }

    /// Counts what is held of a head, where it is more than its connection counts already.
    fn count_held(&mut self) {
        let bytes = self.held.len() as u64;
        let counted = if bytes > SMALL_BYTES { bytes } else { 0 };
        if counted == self.counted {
            return;
        }
        self.line.room.drop_head(self.counted);
        self.counted = 0;
        match self.line.room.take_head(counted) {
            Ok(()) => self.counted = counted,
            Err(_) => self.refuse(Refused::NoRoom),
        }
    }
}

impl<S> Drop for Guard<S> {
    fn drop(&mut self) {
        self.line.room.drop_head(self.counted);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_vetted(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let length = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.wrote(length);
        Poll::Ready(Ok(length))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut joined = [0; JOINED_BYTES_MAX];
        let length = match join(slices, &mut joined) {
            Some(bytes) => ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?,
            None => ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?,
        };
        self.wrote(length);
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// All of `slices` in one piece, if it fits.
fn join<'a>(slices: &[io::IoSlice<'_>], joined: &'a mut [u8; JOINED_BYTES_MAX]) -> Option<&'a [u8]> {
    let mut length = 0;
    for slice in slices {
        joined.get_mut(length..length + slice.len())?.copy_from_slice(slice);
        length += slice.len();
    }
    Some(&joined[..length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;

    #[test]
    fn slices_are_joined_only_if_all_of_them_fit() {
        let mut joined = [0; JOINED_BYTES_MAX];
        let (head, body) = ([b'h'; 1_000], [b'b'; 25]);
        let joined_length =
            |joined: &mut _, body| join(&[IoSlice::new(&head), IoSlice::new(body)], joined).map(<[u8]>::len);
        assert_eq!(joined_length(&mut joined, &body[..24]), Some(JOINED_BYTES_MAX));
        assert_eq!((joined[999], joined[1_000], joined[1_023]), (b'h', b'b', b'b'));
        assert_eq!(joined_length(&mut joined, &body), None);
        assert_eq!(join(&[], &mut joined), Some(&[][..]));
    }
}
