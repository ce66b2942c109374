//! From the pipes of a unit to its log. What is over the limit is read all the same, so that a unit is never held up.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use unit::Stream;
use unit_host::Output;

const ROOM_BYTES: usize = 16 << 10;
/// Bytes still read of a unit that has ended.
const LAST_BYTES_MAX: usize = 1 << 20;

/// Reads for as long as it is polled.
pub async fn forever(pipe: &mut Receiver, output: &Output, stream: Stream) -> Infallible {
    let mut room = Vec::new();
    loop {
        if pipe.readable().await.is_err() {
            return pending().await;
        }
        room.resize(ROOM_BYTES, 0);
        match pipe.try_read(&mut room) {
            Ok(0) => return pending().await,
            Ok(got) => output.write_bytes(stream, &room[..got]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return pending().await,
        }
    }
}

/// Reads what is there, without waiting.
pub fn rest(pipe: &mut Receiver, output: &Output, stream: Stream) {
    let mut room = [0; ROOM_BYTES];
    let mut read = 0;
    while let Ok(got @ 1..) = pipe.try_read(&mut room) {
        output.write_bytes(stream, &room[..got]);
        read += got;
        if read > LAST_BYTES_MAX {
            return;
        }
    }
}

/// Reads to the end.
pub async fn all(mut pipe: Receiver, output: Arc<Output>, stream: Stream) {
    let mut room = vec![0; ROOM_BYTES];
    while let Ok(got @ 1..) = pipe.read(&mut room).await {
        output.write_bytes(stream, &room[..got]);
    }
    output.end_call();
}
