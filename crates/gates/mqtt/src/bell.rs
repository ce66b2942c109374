//! Wakes the one task that serves a connection, and says what for.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering::AcqRel, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

/// What a task can be woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ring {
    /// There is something to write, or an end.
    Write = 1,
    /// Reading may go on.
    Read = 2,
    /// The gate is gone, and the connection with it.
    Cut = 4,
}

/// Calls that nobody has heard yet, each at most once, and the task that hears them.
#[derive(Debug, Default)]
pub struct Bell {
    rung: AtomicU8,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// The task hears it now, or when it next listens.
    pub fn ring(&self, ring: Ring) {
        // Who rang before has woken the task, or is about to.
        if self.rung.fetch_or(ring as u8, AcqRel) & ring as u8 == 0
            && let Some(waker) = &*self.waker.lock()
        {
            waker.wake_by_ref();
        }
    }

    /// From now on calls wake this task. To be said before [`Bell::heard`], so that none is missed in between.
    pub fn listen(&self, cx: &Context<'_>) {
        let mut waker = self.waker.lock();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Whether there was such a call; it is answered by that.
    pub fn heard(&self, ring: Ring) -> bool {
        let bit = ring as u8;
        self.rung.load(Relaxed) & bit != 0 && self.rung.fetch_and(!bit, AcqRel) & bit != 0
    }

    /// Waits for a call. All who wait are parts of one task.
    pub async fn hear(&self, ring: Ring) {
        poll_fn(|cx| {
            self.listen(cx);
            if self.heard(ring) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_call_is_heard_once_whether_it_comes_before_or_after_somebody_listens() {
        let bell = Arc::new(Bell::default());
        bell.ring(Ring::Write);
        bell.ring(Ring::Write);
        bell.hear(Ring::Write).await;
        assert!(!bell.heard(Ring::Write));
        let heard = tokio::spawn({
            let bell = bell.clone();
            async move { bell.hear(Ring::Write).await }
        });
        tokio::task::yield_now().await;
        bell.ring(Ring::Read);
        tokio::task::yield_now().await;
        assert!(!heard.is_finished(), "it was another call");
        bell.ring(Ring::Write);
        heard.await.unwrap();
        assert!(bell.heard(Ring::Read) && !bell.heard(Ring::Cut));
    }
}
