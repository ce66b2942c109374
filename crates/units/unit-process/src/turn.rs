//! How much of a unit's bytes the node works on before others have a turn.
//!
//! The threads that hear units are those that serve everybody. What a unit sends may be large, and what it costs to
//! read is its own choice: so bytes are moved in steps, with a turn for others after each, and a frame whose reading
//! takes long is read aside, one at a time, while another thread serves in this one's place.

use frame::{Header, Kind};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::pin;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, yield_now};

/// Bytes that are moved before others have a turn: a fraction of a millisecond, page faults among it.
pub const TURN_BYTES: usize = 256 << 10;

/// Where a header has its flags, of which there is one: a checksum of the buffers (`contracts/frame.md`).
const FLAGS_AT: usize = 6;

/// Bytes moved since others had a turn.
#[derive(Debug, Default)]
pub struct Turn {
    bytes: usize,
}

impl Turn {
    /// Counts what was moved, and gives others a turn when it is time.
    pub async fn moved(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= TURN_BYTES {
            self.bytes = 0;
            yield_now().await;
        }
    }
}

/// Bytes of a frame that have to be looked at or copied where it is read: its front, its buffers where it has a
/// checksum of them, and all that a question carries. A frame that is none is found out at once.
pub fn bytes_to_read(frame: &[u8], limits: &frame::Limits) -> usize {
    let Ok(header) = Header::read(frame, limits) else { return 0 };
    if header.kind == Kind::Call || frame[FLAGS_AT] != 0 {
        return frame.len();
    }
    usize::try_from(header.front_bytes()).unwrap_or(usize::MAX).min(frame.len())
}

/// Works on so many bytes of a unit: aside, if that takes long. One frame of all is worked on there at a time, for the
/// processors are everybody's.
pub async fn aside<F: Future>(bytes: usize, work: F) -> F::Output {
    static TURNS: Mutex<()> = Mutex::new(());
    // With a single thread there is no other that could serve in its place.
    if bytes <= TURN_BYTES || Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return work.await;
    }
    let mut work = pin!(work);
    poll_fn(|context| {
        block_in_place(|| {
            let _turn = TURNS.lock();
            work.as_mut().poll(context)
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use frame::{Checksum, Frame, Limits, Value};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;
    use tokio::sync::oneshot;

    #[test]
    fn what_has_to_be_read_is_counted() {
        let (limits, data) = (Limits::default(), vec![7; 1 << 19]);
        let count = |kind, checksum, body: Value<'_>| {
            let bytes = Frame { kind, id: 1, body }.encode(checksum, &limits).unwrap().to_vec();
            (bytes_to_read(&bytes, &limits), bytes.len())
        };
        let (read, _) = count(Kind::Reply, Checksum::Front, Value::Buffer(&data));
        assert!(read < 200, "{read} bytes of a reply that is passed on as it is");
        for (kind, checksum, body) in [
            (Kind::Reply, Checksum::All, Value::Buffer(&data)),
            (Kind::Call, Checksum::Front, Value::Buffer(&data)),
            (Kind::Reply, Checksum::Front, Value::Bytes(&data)),
        ] {
            let (read, all) = count(kind, checksum, body);
            assert_eq!(read, all);
        }
        assert_eq!(bytes_to_read(&[0; 64], &limits), 0);
    }

    /// A frame that took long to read kept the only thread there was: nothing else of the node went on.
    #[test]
    fn others_are_served_while_a_frame_is_read_aside() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let (ask, asked) = oneshot::channel();
            let (answer, answered) = std::sync::mpsc::channel();
            let neighbour = tokio::spawn(async move {
                asked.await.unwrap();
                answer.send(()).unwrap();
            });
            let reading = tokio::spawn(aside(TURN_BYTES + 1, async move {
                ask.send(()).unwrap();
                // Comes only if somebody else is served meanwhile.
                answered.recv().unwrap();
            }));
            reading.await.unwrap();
            neighbour.await.unwrap();
        });
    }

    #[test]
    fn one_frame_is_read_aside_at_a_time() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
        static READING: AtomicUsize = AtomicUsize::new(0);
        let reading = || async {
            assert_eq!(READING.fetch_add(1, SeqCst), 0, "two are read at once");
            thread::yield_now();
            READING.fetch_sub(1, SeqCst);
        };
        runtime.block_on(async {
            let all = (0..64).map(|_| tokio::spawn(aside(TURN_BYTES + 1, reading())));
            for one in all.collect::<Vec<_>>() {
                one.await.unwrap();
            }
        });
    }
}
