//! Units that go on behind their reply, whatever becomes of its reader.

use super::*;
use crate::{Cause, Ended};
use bytes::Bytes;
use manifest::Function;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use unit::{Contract, Deployed, Given, LogLine, LogWriter, Spent, Timing};

/// A unit in a machine of its own: it has written its body, and nobody knows yet that this was all.
struct Writes {
    frames: VecDeque<&'static str>,
    may_end: Arc<AtomicBool>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Running for Writes {
    fn poll_given(&mut self, _: &mut Context<'_>) -> Poll<Result<Given, Problem>> {
        unreachable!("its head was given")
    }

    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Problem>>> {
        self.frames.pop_front().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data.into())))))
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Problem>> {
        *self.waker.lock().unwrap() = Some(cx.waker().clone());
        if self.may_end.load(SeqCst) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn spent(&self) -> Spent {
        Spent { timing: Timing::default(), cpu: Duration::ZERO, memory_bytes: 0 }
    }

    fn give_back(&mut self) -> Option<event::Event> {
        None
    }
}

struct Silent;

impl LogWriter for Silent {
    fn write(&self, _: LogLine<'_>) {}
}

struct Tells(oneshot::Sender<Result<(), Problem>>);

impl Caller for Tells {
    fn ended(self, ended: Ended) {
        self.0.send(ended.result).ok();
    }
}

/// A reply that streams, and what there is to steer and to watch its unit.
struct Streamed {
    body: Body,
    may_end: Arc<AtomicBool>,
    waker: Arc<Mutex<Option<Waker>>>,
    ended: oneshot::Receiver<Result<(), Problem>>,
    _folder: tempfile::TempDir,
}

/// A reply that promises so many bytes, of a call with this time.
async fn streamed(promised: Option<&str>, time: Duration) -> Streamed {
    let folder = tempfile::tempdir().unwrap();
    let handler = Handler::new(state::State::open(folder.path(), state::Options::default()).unwrap());
    let deployed = Arc::new(Deployed {
        name: "test".parse().unwrap(),
        version: 1,
        function: Arc::new(Function::new("test")),
        contract: Contract::WasiHttp,
        secrets: Arc::default(),
        log: Arc::new(Silent),
        budget: budget::Budget::unbounded(),
    });
    let deadline = Instant::now() + time;
    let host = Arc::new(Handling::new(&handler, deployed, "test".into(), deadline, Cause::default()));
    let (may_end, waker) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::default()));
    let running = Writes { frames: ["abc", "de"].into(), may_end: may_end.clone(), waker: waker.clone() };
    let (sender, ended) = oneshot::channel();
    let tail = Tail::new(&handler, Box::new(running), host, 0, Tells(sender), 0);
    let mut head = Response::builder();
    if let Some(promised) = promised {
        head = head.header(CONTENT_LENGTH, promised);
    }
    let (head, ()) = head.body(()).unwrap().into_parts();
    let Content::Http(response) = send(tail, head, false, deadline).await.unwrap().content else {
        panic!("a response")
    };
    Streamed { body: response.into_body(), may_end, waker, ended, _folder: folder }
}

const LONG: Duration = Duration::from_secs(20);

/// Reads `read` pieces of a reply that promises so many bytes, goes away, and says whether the unit came to its end.
async fn unit_ends(promised: Option<&str>, read: usize) -> bool {
    let Streamed { mut body, may_end, waker, ended, _folder } = streamed(promised, LONG).await;
    for _ in 0..read {
        assert!(body.frame().await.unwrap().unwrap().is_data());
    }
    drop(body);
    may_end.store(true, SeqCst);
    tokio::task::yield_now().await;
    if let Some(waker) = waker.lock().unwrap().take() {
        waker.wake();
    }
    ended.await.is_ok_and(|result| result.is_ok())
}

/// A reader that has what the head promised drops the body and does not ask for its end, which a unit in a machine of
/// its own may not have told yet: such a unit was stopped in the middle of what it does behind its reply.
#[tokio::test]
async fn a_reader_that_has_all_it_was_promised_stops_no_unit() {
    assert!(unit_ends(Some("5"), 2).await);
    assert!(!unit_ends(Some("5"), 1).await, "it left before the end");
    assert!(!unit_ends(None, 2).await, "nobody said that this was all");
}

/// As long as nobody read, nobody asked the unit either whether its time was up.
#[tokio::test]
async fn a_reply_that_nobody_reads_ends_with_its_time() {
    let mut one = streamed(None, Duration::from_millis(1)).await;
    assert!(one.body.frame().await.unwrap().unwrap().is_data());
    assert_eq!(one.ended.await.unwrap().unwrap_err().code, Code::TimeExceeded);
    let Err(BodyError::Unit(problem)) = one.body.frame().await.unwrap() else { panic!("what is cut is not whole") };
    assert_eq!(problem.code, Code::TimeExceeded);
    assert!(one.body.frame().await.is_none());
}

#[tokio::test]
async fn who_waits_for_the_next_frame_hears_that_the_time_is_up() {
    let mut one = streamed(None, Duration::from_millis(1)).await;
    for _ in 0..2 {
        assert!(one.body.frame().await.unwrap().unwrap().is_data());
    }
    assert!(one.body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn a_unit_that_has_ended_in_time_is_told_of_though_nobody_reads() {
    let mut one = streamed(None, Duration::from_millis(1)).await;
    one.may_end.store(true, SeqCst);
    one.ended.await.unwrap().unwrap();
    assert!(one.body.frame().await.unwrap().unwrap().is_data(), "its reply is whole");
}
