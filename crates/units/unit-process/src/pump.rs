//! From the pipes of a unit to its log. Output over the limit is still read, so that a call is never blocked.
//!
//! A zygote's output belongs to no call: beyond a first amount it is read slowly, and a flood waits in its pipe.

use crate::turn::Turn;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::sleep;
use unit::{Output, Stream};

const ROOM_BYTES: usize = 16 << 10;
/// Reads of a zygote's output at once: while a function is loaded it may say much. After that there is a pause before
/// each.
const READS_AT_ONCE: u32 = 1_024;
const READ_PAUSE: Duration = Duration::from_millis(100);
/// Bytes still read of a unit that has ended.
const LAST_BYTES_MAX: usize = 1 << 20;

/// Reads for as long as it is polled.
pub async fn forever(pipe: &mut Receiver, output: &Output, stream: Stream) -> Infallible {
    let mut room = Vec::new();
    let mut turn = Turn::default();
    loop {
        if pipe.readable().await.is_err() {
            return pending().await;
        }
        room.resize(ROOM_BYTES, 0);
        match pipe.try_read(&mut room) {
            Ok(0) => return pending().await,
            Ok(got) => {
                output.write_bytes(stream, &room[..got]);
                turn.moved(got).await;
            }
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

/// Reads a zygote's output to its end.
pub async fn all(mut pipe: Receiver, output: Arc<Output>, stream: Stream) {
    let mut room = vec![0; ROOM_BYTES];
    let mut reads_left = READS_AT_ONCE;
    while let Ok(got @ 1..) = pipe.read(&mut room).await {
        output.write_bytes(stream, &room[..got]);
        match reads_left.checked_sub(1) {
            Some(left) => reads_left = left,
            None => sleep(READ_PAUSE).await,
        }
    }
    output.end_call();
}
