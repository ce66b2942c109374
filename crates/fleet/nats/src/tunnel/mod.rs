//! How a node reaches the engine of an anchor: through the listener that members of the fleet use anyway.
//!
//! ```text
//!  node                                                         anchor
//!  NatsNode ─▶ loopback ─▶ Near ══ lighter-engine/1, TLS 1.3 ══▶ Far ─▶ loopback ─▶ nats-server
//!                           │ the key that it will show ────────▶ │
//!                           │ ◀─────── signed, with its rights ── │
//! ```
//! So nats-server listens on loopback alone, an anchor has one open port, and whoever is taken out of the fleet loses
//! the engine at once. What is signed is signed anew for each connection: nobody has to keep it or let it end.

mod far;
mod near;
mod owner;
mod routes;

pub use far::{Far, name_of};
pub use near::{Near, Ways};
pub use routes::RouteWay;

use crate::keys::PUBLIC_KEY_CHARS;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes of what an anchor has signed. It has about 1,300.
pub(crate) const JWT_BYTES_MAX: usize = 8 << 10;
/// How long either side waits for the other, until the engine is reached.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// The node says which key it will show.
pub(crate) async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    public_key: &str,
) -> io::Result<Option<String>> {
    stream.write_all(public_key.as_bytes()).await?;
    stream.flush().await?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let length = usize::from(u16::from_le_bytes(length));
    if length > JWT_BYTES_MAX {
        return Err(io::Error::other(format!("an anchor signs {length} bytes, {JWT_BYTES_MAX} at most")));
    }
    let mut jwt = vec![0; length];
    stream.read_exact(&mut jwt).await?;
    let is_plain = jwt.iter().all(u8::is_ascii_graphic);
    match String::from_utf8(jwt) {
        Ok(jwt) if is_plain => Ok(Some(jwt).filter(|jwt| !jwt.is_empty())),
        _ => Err(io::Error::other("what an anchor has signed is no text")),
    }
}

/// The anchor hears which key a node will show.
pub(crate) async fn asked(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut key = [0; PUBLIC_KEY_CHARS];
    stream.read_exact(&mut key).await?;
    String::from_utf8(key.to_vec()).map_err(io::Error::other)
}

/// The anchor answers. None: its engine is not up.
pub(crate) async fn answer(stream: &mut (impl AsyncWrite + Unpin), jwt: Option<&str>) -> io::Result<()> {
    let jwt = jwt.unwrap_or_default().as_bytes();
    let length = u16::try_from(jwt.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_le_bytes(), jwt].concat()).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    async fn answered(bytes: &[u8]) -> io::Result<Option<String>> {
        let (mut near, mut far) = duplex(64 << 10);
        far.write_all(bytes).await?;
        drop(far);
        // The other side has gone, so the question may fail to be written; what it had said is read.
        let (mut reader, _) = tokio::io::split(&mut near);
        let mut both = tokio::io::join(&mut reader, tokio::io::sink());
        ask(&mut both, "U").await
    }

    #[tokio::test]
    async fn an_answer_reads_back_as_it_was_given() {
        for jwt in [None, Some("ey.J.x"), Some("e".repeat(JWT_BYTES_MAX).as_str())] {
            let (mut near, mut far) = duplex(64 << 10);
            answer(&mut far, jwt).await.unwrap();
            let key = "U".repeat(PUBLIC_KEY_CHARS);
            assert_eq!(ask(&mut near, &key).await.unwrap().as_deref(), jwt);
            assert_eq!(asked(&mut far).await.unwrap(), key);
        }
    }

    #[tokio::test]
    async fn what_is_no_answer_is_refused() {
        assert_eq!(answered(&[0, 0]).await.unwrap(), None);
        for wrong in [&[][..], &[1], &[2, 0, b'e'], &[0xff, 0xff], &[1, 0, b' '], &[1, 0, 0x80], &[2, 0, b'e', 0]] {
            assert!(answered(wrong).await.is_err(), "{wrong:?}");
        }
        let mut cut = &b"UABC"[..];
        assert!(asked(&mut cut).await.is_err());
    }
}
