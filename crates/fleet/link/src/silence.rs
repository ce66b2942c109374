//! When the other end of a connection says nothing: a machine that lost its power or its cable sends no goodbye.
//!
//! ```text
//!   no byte has come for   1 s            2 s                          6 s
//!   calls are under way    it is asked    new calls go elsewhere       calls under way end: L9121
//!   no call is under way   nothing is asked and nothing is sent: the next report or call finds out
//! ```
//! Any byte counts as a word of the other end, so a body that arrives slowly is no silence, and a connection on which
//! much arrives is hardly asked. The serving end asks nothing: it gives a caller up who does not ask either.

use crate::limits::{CALLER_SILENCE_TIMEOUT, IDLE_TIMEOUT, PING_AFTER, PING_INTERVAL, SILENCE_TIMEOUT, SUSPECT_AFTER};
use h2::{Ping, PingPong};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How often a connection with calls is looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// What a silence means while calls are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Silence {
    /// It has just been heard.
    Short,
    /// It is worth a question.
    Asked,
    /// Calls that can still go elsewhere do.
    Suspect,
    /// It is gone.
    Over,
}

impl Silence {
    pub fn of(silent: Duration) -> Self {
        match silent {
            silent if silent >= SILENCE_TIMEOUT => Self::Over,
            silent if silent >= SUSPECT_AFTER => Self::Suspect,
            silent if silent >= PING_AFTER => Self::Asked,
            _ => Self::Short,
        }
    }
}

/// How long a caller may be silent who is served. One with calls under way would have asked.
pub fn caller_silence_max(has_calls: bool) -> Duration {
    // Whoever keeps a connection without a call closes it after twice that time.
    if has_calls { CALLER_SILENCE_TIMEOUT } else { 2 * IDLE_TIMEOUT + CALLER_SILENCE_TIMEOUT }
}

/// When something last came on a connection.
#[derive(Debug)]
pub struct LastByte {
    began: Instant,
    last_ms: AtomicU64,
}

impl LastByte {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), last_ms: AtomicU64::new(0) })
    }

    /// For how long nothing has come, counted from `since` at the earliest.
    pub fn silence(&self, since: Instant) -> Duration {
        let last = self.began + Duration::from_millis(self.last_ms.load(Relaxed));
        last.max(since).elapsed()
    }

    /// Since when the connection is there.
    pub fn began(&self) -> Instant {
        self.began
    }

    fn came(&self) {
        self.last_ms.store(self.began.elapsed().as_millis() as u64, Relaxed);
    }
}

/// Asks the other end whether it is there. A question that is still on its way is not asked twice.
pub struct Asking {
    pings: PingPong,
    asked: Instant,
}

impl Asking {
    pub fn new(pings: PingPong) -> Self {
        Self { pings, asked: Instant::now() }
    }

    /// Asks where the silence is worth it, and from time to time anyway: the far end gives a silent caller up. Calls
    /// are under way since `since`.
    pub async fn look(&mut self, silence: Silence, since: Instant) {
        let is_due = self.asked.max(since).elapsed() >= PING_INTERVAL;
        if silence < Silence::Asked && !is_due {
            return;
        }
        // The answer to the question before, if it has come: only then may there be another one.
        poll_fn(|cx| {
            let _ = self.pings.poll_pong(cx);
            Poll::Ready(())
        })
        .await;
        if self.pings.send_ping(Ping::opaque()).is_ok() {
            self.asked = Instant::now();
        }
    }
}

/// A stream that notes when something comes.
pub struct Listened<S> {
    stream: S,
    heard: Arc<LastByte>,
}

impl<S> Listened<S> {
    pub fn new(stream: S, heard: Arc<LastByte>) -> Self {
        Self { stream, heard }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Listened<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.heard.came();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listened<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[test]
    fn a_silence_is_asked_about_then_suspected_then_over() {
        let of = |ms| Silence::of(Duration::from_millis(ms));
        assert_eq!([0, 999, 1_000, 1_999].map(of), [Silence::Short, Silence::Short, Silence::Asked, Silence::Asked]);
        assert_eq!(
            [2_000, 5_999, 6_000, 60_000].map(of),
            [Silence::Suspect, Silence::Suspect, Silence::Over, Silence::Over]
        );
    }

    #[test]
    fn a_caller_that_asks_as_often_as_it_has_to_is_never_given_up() {
        assert!(caller_silence_max(true) >= 2 * PING_INTERVAL + PING_AFTER + LOOK_INTERVAL);
        assert!(caller_silence_max(false) > 2 * IDLE_TIMEOUT);
    }

    #[tokio::test]
    async fn only_bytes_that_come_end_a_silence() {
        let heard = LastByte::new();
        let mut stream = Listened::new(&b"x"[..], heard.clone());
        let long_ago = heard.began() - Duration::from_secs(9);
        assert!(heard.silence(long_ago) < Duration::from_secs(9), "the connection's beginning counts as a word");
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        let last = heard.last_ms.load(Relaxed);
        assert_eq!((stream.read(&mut byte).await.unwrap(), heard.last_ms.load(Relaxed)), (0, last));
    }
}
