//! What one call of a `wasi:http` function does is one transaction until the head of its reply, and another one after
//! it.

use super::stage::{Stage, Watcher, full, stage};
use bytes::Bytes;
use handling::{Caller, Ended, WholeReply};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use manifest::{HostGrant, Name};
use problem::{Code, Problem};
use state::{Leased, Part, Push, QueueConfig, Transaction};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use unit::{Body, BodyError};

const LONG: Duration = Duration::from_secs(20);

fn kv() -> Stage {
    stage("kv-http.wasm", |function| {
        function.grants.stores = vec!["default".into()];
        function.grants.push = vec![Name::try_from("out".to_owned()).unwrap()];
    })
}

impl Stage {
    pub fn value(&self, key: &str) -> Option<String> {
        self.state.begin().get("default", key).unwrap().map(|value| String::from_utf8(value).unwrap())
    }

    async fn set(&self, key: &str, value: &str) {
        let mut transaction = self.state.begin();
        transaction.set("default", key, value.into()).unwrap();
        self.state.durable(transaction.commit().unwrap()).await.unwrap();
    }

    fn pushed(&self) -> Vec<Vec<u8>> {
        let listed = self.state.queue("out").unwrap().list(Part::Ready, None, 10).unwrap();
        listed.into_iter().map(|listed| listed.event.data).collect()
    }

    /// How often it was begun again, once it has ended: whoever has read its reply may be before that.
    pub async fn reruns(&self) -> u32 {
        loop {
            if let Some(ended) = self.ended.0.lock().unwrap().take() {
                return ended.reruns;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Appends `parts` to the key `a`; while the unit waits for more of the body, another one sets the key.
    pub async fn append_disturbed(&self, path: &str, parts: &[&[u8]]) -> Result<Response<Body>, Problem> {
        let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, BodyError>>(1);
        let frames =
            futures_util::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
        let request =
            Request::post(format!("http://localhost{path}")).body(StreamBody::new(frames).boxed_unsync()).unwrap();
        let disturb = async {
            let gone = || panic!("the unit is gone: {:?}", self.log.0.lock().unwrap());
            for part in parts {
                sender.send(Ok(Frame::data(Bytes::copy_from_slice(part)))).await.unwrap_or_else(|_| gone());
            }
            // There is room for one frame: once there is room again, the unit reads the body, and has read the key
            // before.
            sender.reserve().await.map(drop).unwrap_or_else(|_| gone());
            self.set("a", "other ").await;
            drop(sender);
        };
        tokio::join!(self.send(request, LONG), disturb).0
    }
}

pub async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_gives_the_request_to_a_fresh_unit() {
    let stage = kv();
    let response = stage.append_disturbed("/append/a", &[b"one ", b"two"]).await.unwrap();
    assert_eq!(text(response).await, "other one two");
    assert_eq!(stage.value("a").as_deref(), Some("other one two"));
    assert_eq!(stage.reruns().await, 1);
    assert!(stage.prepared.units().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_with_a_large_body_is_said() {
    let stage = kv();
    let large = vec![b'x'; 70 << 10];
    let problem = stage.append_disturbed("/append/a", &[&large, b"end"]).await.unwrap_err();
    assert_eq!(problem.code, Code::Conflict, "{problem}");
    assert_eq!(stage.value("a").as_deref(), Some("other "), "nothing of it was written");
    assert_eq!(stage.end().await, Err(Code::Conflict));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_after_a_request_left_the_node_is_said() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4_096]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        assert!(listener.accept().await.is_err(), "it is asked once");
    });
    let stage = stage("kv-http.wasm", |function| {
        function.grants.stores = vec!["default".into()];
        function.grants.hosts = vec![HostGrant::try_from(host.clone()).unwrap()];
    });
    let problem = stage.append_disturbed(&format!("/append/a?to={host}"), &[b"one"]).await.unwrap_err();
    assert_eq!(problem.code, Code::Conflict, "{problem}");
    assert_eq!(stage.value("a").as_deref(), Some("other "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_and_pushes_are_one_before_the_head() {
    let stage = kv();
    assert_eq!(stage.text("POST", "/push/out", "one").await, (200, "pushed".into()));
    assert_eq!((stage.value("pushed").as_deref(), stage.pushed()), (Some("one"), vec![b"one".to_vec()]));
    let ungranted = stage.text("POST", "/push/other", "two").await;
    assert!(ungranted.0 == 500 && ungranted.1.contains("grants.push"), "{ungranted:?}");
    // The function was told, and replied; what it wrote before is its own decision.
    assert_eq!(stage.value("pushed").as_deref(), Some("two"));
    // A push that the queue has no room for is found at the commit at the latest: nothing is written.
    stage.state.queue("out").unwrap().configure(QueueConfig { events_max: 1, ..QueueConfig::default() });
    let refused = stage.text("POST", "/push/out", "three").await;
    assert!(refused.0 == 500 && refused.1.contains("full"), "{refused:?}");
    assert_eq!(stage.pushed(), [b"one".to_vec()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_after_the_head_is_a_transaction_of_its_own() {
    let stage = kv();
    assert_eq!(stage.text("POST", "/late/a", " bird").await, (200, "early bird".into()));
    stage.end().await.unwrap();
    assert_eq!(stage.value("a").as_deref(), Some("early bird"));
    let request = Request::post("http://localhost/late/b?trap=1").body(full(" bird")).unwrap();
    if let Ok(response) = stage.send(request, LONG).await {
        response.into_body().collect().await.unwrap_err();
    }
    assert_eq!(stage.end().await, Err(Code::UnitTrapped));
    assert_eq!(stage.value("b").as_deref(), Some("early"), "the head was the promise; what came after it is undone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_instead_of_a_response_undoes_what_was_written() {
    let stage = kv();
    let request = Request::post("http://localhost/error/a").body(full("")).unwrap();
    assert_eq!(stage.send(request, LONG).await.unwrap_err().code, Code::UnitBadReply);
    assert_eq!(stage.value("a"), None);
}

/// Writes down the reply, and lets another one set the key `a` before the first commit.
struct Keeper {
    ended: Watcher,
    disturbs: Option<state::State>,
}

impl Caller for Keeper {
    fn commits(&mut self, transaction: &mut Transaction, reply: &WholeReply) -> Result<(), Problem> {
        let WholeReply::Http(reply) = reply else { panic!("a wasi:http function replies with a response") };
        transaction.set("default", "reply", format!("{} {:?}", reply.status(), reply.body()).into_bytes()).unwrap();
        if let Some(state) = self.disturbs.take() {
            let mut other = state.begin();
            other.set("default", "a", b"other ".to_vec()).unwrap();
            let _never_waited_for = other.commit().unwrap();
        }
        Ok(())
    }

    fn ended(self, ended: Ended) {
        self.ended.ended(ended);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leased_work_is_acked_with_its_whole_reply() {
    let stage = kv();
    let push = Push { event: event::Event::default(), delay: Duration::ZERO, ttl: None };
    let mut transaction = stage.state.begin();
    transaction.push("in", &push, 1).unwrap();
    stage.state.durable(transaction.commit().unwrap()).await.unwrap();
    let queue = stage.state.queue("in").unwrap();
    let leased: Arc<Leased> = Arc::new(queue.lease(1, 1_000_000, 1).unwrap().remove(0));

    let keeper = || Keeper { ended: stage.ended.clone(), disturbs: None };
    let request = || Request::post("http://localhost/late/b?trap=1").body(full("x")).unwrap();
    let problem = stage.call(request(), LONG, keeper(), Some(leased.clone())).await.unwrap_err();
    assert_eq!(problem.code, Code::UnitTrapped);
    assert_eq!(
        (stage.value("b"), stage.value("reply")),
        (None, None),
        "it ended badly: nothing was done, early or late"
    );
    assert_eq!(queue.counts().leased, 1);

    let keeper = Keeper { ended: stage.ended.clone(), disturbs: Some(stage.state.clone()) };
    let request = Request::post("http://localhost/append/a").body(full("mine")).unwrap();
    let response = stage.call(request, LONG, keeper, Some(leased)).await.unwrap();
    assert_eq!(text(response).await, "other mine");
    assert_eq!(stage.value("a").as_deref(), Some("other mine"));
    assert_eq!(stage.value("reply").as_deref(), Some("200 OK b\"other mine\""));
    assert_eq!((stage.reruns().await, queue.counts().leased, queue.counts().since_start.acked), (1, 0, 1));
}
