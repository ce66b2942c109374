//! Shows connections out that have ended: a few, then others have a turn.
//!
//! Thousands may end in one moment, because their client closes them all or a link breaks. To close one takes the
//! kernel longer than most requests take the node. Handed over here they wait for each other, and nobody else waits for
//! them.

use tokio::sync::mpsc;
use tokio::task::yield_now;

/// Connections closed before others have a turn.
const AT_ONCE: usize = 8;

/// What a connection held until its end; dropping it closes the connection.
type Held = Box<dyn Send>;

/// Where connections are handed over. What waits is bounded by the places of connections, which are given back last.
#[derive(Debug, Clone)]
pub struct Usher(mpsc::UnboundedSender<Held>);

impl Usher {
    /// An usher, and its work, which somebody has to run. Once that is dropped, connections are closed where they end.
    pub fn new() -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, waiting) = mpsc::unbounded_channel();
        (Self(sender), work(waiting))
    }

    /// Closes what has ended, soon.
    pub fn shows_out(&self, held: impl Send + 'static) {
        // Without a usher it is dropped here.
        let _ = self.0.send(Box::new(held));
    }
}

async fn work(mut waiting: mpsc::UnboundedReceiver<Held>) {
    let mut closed = 0_usize;
    while let Some(held) = waiting.recv().await {
        drop(held);
        closed += 1;
        if closed.is_multiple_of(AT_ONCE) {
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[tokio::test]
    async fn others_have_a_turn_after_a_few() {
        let (usher, work) = Usher::new();
        let closed = Arc::new(AtomicUsize::new(0));
        for _ in 0..1_000 {
            usher.shows_out(Counted(closed.clone()));
        }
        let work = tokio::spawn(work);
        let mut seen = 0;
        while seen < 1_000 {
            yield_now().await;
            let now = closed.load(Relaxed);
            assert!(now - seen <= AT_ONCE, "{} were closed in one turn", now - seen);
            seen = now;
        }
        work.abort();
        work.await.unwrap_err();
        usher.shows_out(Counted(closed.clone()));
        assert_eq!(closed.load(Relaxed), 1_001);
    }
}
