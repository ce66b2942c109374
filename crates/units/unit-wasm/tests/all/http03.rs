//! `wasi:http` 0.3 components: what those of 0.2 are held to, and what tasks, streams and futures add.

use super::stage::{Stage, empty, full, image, stage, stage_of};
use super::{class, http_transactions::text, toolchains::unpacked};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use manifest::HostGrant;
use problem::Code;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use unit::{Body, BodyError, IsolationClass};

const LONG: Duration = Duration::from_secs(20);

/// A body that is sent piece by piece.
fn piecemeal() -> (mpsc::Sender<Result<Frame<Bytes>, BodyError>>, Body) {
    let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, BodyError>>(1);
    let frames =
        futures_util::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    (sender, StreamBody::new(frames).boxed_unsync())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_reply_is_whole() {
    let stage = stage("hello-http03.wasm", |_| {});
    for method in ["GET", "HEAD"] {
        let response = stage.request(method, "/hello", empty()).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/plain");
        let body = response.into_body();
        assert!(method == "HEAD" || http_body::Body::size_hint(&body).exact() == Some(13), "its length is known");
        stage.end().await.unwrap();
        stage.is_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_stream_both_ways_and_trailers_follow() {
    let stage = stage("echo-http03.wasm", |_| {});
    // Once through the function, and once by the stream itself.
    for path in ["/", "/pass"] {
        let (sender, body) = piecemeal();
        let mut body = stage.request("POST", path, body).await.unwrap().into_body();
        for part in ["one", "two"] {
            sender.send(Ok(Frame::data(part.into()))).await.unwrap();
            let echoed = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(echoed, part, "{path}: it comes back before the next is sent");
        }
        assert_eq!(stage.prepared.units().len(), 1, "{path}: it lives while its body does");
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "6".parse().unwrap())]);
        sender.send(Ok(Frame::trailers(trailers.clone()))).await.unwrap();
        drop(sender);
        assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().ok(), Some(trailers), "{path}");
        assert!(body.frame().await.is_none());
        stage.end().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_passes_through_ends_with_its_time() {
    let stage = stage("echo-http03.wasm", |_| {});
    let (sender, body) = piecemeal();
    let request = Request::post("http://localhost/pass").body(body).unwrap();
    let mut body = stage.send(request, Duration::from_millis(300)).await.unwrap().into_body();
    sender.send(Ok(Frame::data("one".into()))).await.unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
    let Err(BodyError::Unit(problem)) = body.frame().await.unwrap() else { panic!("nothing else was sent") };
    assert_eq!(problem.code, Code::TimeExceeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_may_begin_before_the_request_is_read_and_arrives_as_it_is_written() {
    let stage = stage("echo-http03.wasm", |_| {});
    let (sender, body) = piecemeal();
    let mut body = stage.request("POST", "/early", body).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "early\n");
    sender.send(Ok(Frame::data("12345".into()))).await.unwrap();
    drop(sender);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "read 5 bytes\n");
    assert!(body.frame().await.is_none());
    stage.end().await.unwrap();
    let mut body = stage.request("GET", "/slow?lines=3&pause-ms=20", empty()).await.unwrap().into_body();
    for line in 0..3 {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), format!("line {line}\n"));
    }
    assert!(body.frame().await.is_none());
    stage.end().await.unwrap();
    let (_, head) = stage.text("GET", "/head?a=b", "").await;
    assert!(head.starts_with("GET /head?a=b\nauthority: localhost\n"), "{head}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_comes_back_whole() {
    let stage = stage("echo-http03.wasm", |_| {});
    let large = "0123456789abcdef".repeat(64 << 10);
    for path in ["/", "/pass"] {
        assert_eq!(stage.text("POST", path, &large).await, (200, large.clone()), "{path}");
        stage.end().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_goes_away_stops_the_unit() {
    let stage = stage("echo-http03.wasm", |_| {});
    let mut body = stage.request("GET", "/slow?lines=100000&pause-ms=5", empty()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(stage.prepared.units().len(), 1);
    drop(body);
    stage.is_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stays_and_does_not_read_keeps_no_unit() {
    let stage = stage("echo-http03.wasm", |_| {});
    let request = Request::get("http://localhost/slow?lines=100000&pause-ms=0").body(empty()).unwrap();
    let mut body = stage.send(request, Duration::from_millis(300)).await.unwrap().into_body();
    assert!(body.frame().await.unwrap().unwrap().is_data());
    assert_eq!(stage.end().await, Err(Code::TimeExceeded));
    stage.is_empty().await;
    let Err(BodyError::Unit(problem)) = body.frame().await.unwrap() else { panic!("the rest is not there") };
    assert_eq!(problem.code, Code::TimeExceeded);
    assert!(body.frame().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_may_serve_again_when_the_manifest_says_so() {
    let stage = stage("hello-http03.wasm", |function| function.units.reuse_calls = 3);
    for _ in 0..3 {
        assert_eq!(stage.text("GET", "/", "").await, (200, "hello, world\n".into()));
        stage.end().await.unwrap();
    }
    stage.is_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_go_wrong_has_its_code() {
    let stage = stage("attack-http03.wasm", |function| function.limits.cpu_ms = 100);
    let short = Duration::from_millis(200);
    for (path, time, code) in [
        // Its own runtime sees that nothing will come.
        ("/never", LONG, Code::UnitTrapped),
        ("/error", LONG, Code::UnitBadReply),
        ("/loop", LONG, Code::CpuExceeded),
        ("/half", LONG, Code::UnitBadReply),
        ("/too-much", LONG, Code::UnitBadReply),
        ("/trap", LONG, Code::UnitTrapped),
        ("/trap-in-body", LONG, Code::UnitTrapped),
        ("/sleep", short, Code::TimeExceeded),
        ("/yield", LONG, Code::CpuExceeded),
        ("/ping-pong", LONG, Code::CpuExceeded),
        ("/cancel", LONG, Code::CpuExceeded),
    ] {
        assert_eq!(stage.fails(path, time).await, code, "{path}: {:?}", stage.log.0.lock().unwrap().last());
        stage.is_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_goes_on_after_its_reply_until_its_time_is_up() {
    let stage = stage("attack-http03.wasm", |_| {});
    let request = Request::get("http://localhost/early-then-sleep").body(empty()).unwrap();
    let response = stage.send(request, Duration::from_millis(300)).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "early\n");
    assert_eq!(stage.end().await, Err(Code::TimeExceeded));
    stage.is_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_of_anything_end_with_a_limit() {
    for what in ["streams", "futures", "timers", "sets", "fields", "requests", "bodies"] {
        let stage = stage("attack-http03.wasm", |function| function.limits.cpu_ms = 10_000);
        let code = stage.fails(&format!("/keep/{what}"), LONG).await;
        assert!(matches!(code, Code::UnitTrapped | Code::MemoryExceeded), "{what}: {code}");
        stage.is_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_engine_keeps_for_tasks_counts_as_memory() {
    let stage = stage("attack-http03.wasm", |function| function.limits.memory_bytes = 4 << 20);
    for what in ["streams", "timers"] {
        let code = stage.fails(&format!("/full/{what}?count=3000"), LONG).await;
        assert_eq!(code, Code::MemoryExceeded, "{what}: {:?}", stage.log.0.lock().unwrap().last());
        stage.is_empty().await;
    }
}

fn kv() -> Stage {
    stage("kv-http03.wasm", |function| function.grants.stores = vec!["default".into()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_gives_the_request_to_a_fresh_unit() {
    let stage = kv();
    let response = stage.append_disturbed("/append/a", &[b"one ", b"two"]).await.unwrap();
    assert_eq!(text(response).await, "other one two");
    assert_eq!(stage.value("a").as_deref(), Some("other one two"));
    assert_eq!(stage.reruns().await, 1);
    stage.is_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_after_the_head_is_a_transaction_of_its_own() {
    let stage = kv();
    assert_eq!(stage.text("POST", "/after/a", "bird").await, (200, "early\n".into()));
    stage.end().await.unwrap();
    assert_eq!(stage.value("a").as_deref(), Some("bird"));
    assert_eq!(stage.text("GET", "/keys/a", "").await, (200, "bird".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_instead_of_a_response_undoes_what_was_written() {
    let stage = kv();
    let request = Request::post("http://localhost/fail/a").body(full("")).unwrap();
    assert_eq!(stage.send(request, LONG).await.unwrap_err().code, Code::UnitBadReply);
    assert_eq!(stage.value("a"), None);
}

/// A server that gives each request the same answer, after `pause`.
async fn answering(answer: &'static [u8], pause: Duration) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4_096]).await;
                tokio::time::sleep(pause).await;
                let _ = stream.write_all(answer).await;
            });
        }
    });
    address
}

const PONG: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\npong";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outgoing_requests_need_a_grant() {
    let at = answering(PONG, Duration::ZERO).await;
    let path = format!("/?url=http://{at}/");
    let denied = stage("fetch-http03.wasm", |_| {});
    let (status, why) = denied.text("GET", &path, "").await;
    assert!(status == 502 && why.contains("HttpRequestDenied"), "{why}");
    let said = format!("outgoing request denied: no grant covers {at}; add it to grants.hosts of the function");
    assert_eq!(*denied.log.0.lock().unwrap(), [said]);
    let granted = stage("fetch-http03.wasm", |function| {
        function.grants.hosts = vec![HostGrant::try_from(at.clone()).unwrap()];
    });
    assert_eq!(granted.text("GET", &path, "").await, (200, "pong".into()));
    granted.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_under_way_are_bounded_in_number_and_in_bytes() {
    let at = answering(PONG, Duration::from_millis(500)).await;
    let asks = |memory_bytes| {
        stage("fetch-http03.wasm", |function| {
            function.grants.hosts = vec![HostGrant::try_from(at.clone()).unwrap()];
            function.limits.memory_bytes = memory_bytes;
        })
    };
    let path = |times| format!("/?url=http://{at}/&times={times}");
    let (_, said) = asks(1 << 30).text("GET", &path(300), "").await;
    assert!(said.starts_with("answered 250\n"), "{said}");
    assert_eq!(said.matches("ConnectionLimitReached").count(), 50, "{said}");
    let (_, said) = asks(64 << 20).text("GET", &path(20), "").await;
    assert_eq!(said, "answered 20\n");
    assert_eq!(asks(64 << 20).fails(&path(200), LONG).await, Code::MemoryExceeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_timeouts_of_an_outgoing_request_are_kept() {
    let (slow, stuck) = (answering(PONG, LONG).await, answering(&PONG[..PONG.len() - 2], Duration::ZERO).await);
    let stage = stage("fetch-http03.wasm", |function| {
        function.grants.hosts = [&slow, &stuck].map(|at| HostGrant::try_from(at.clone()).unwrap()).to_vec();
    });
    let (status, why) = stage.text("GET", &format!("/?url=http://{slow}/&first=200"), "").await;
    assert_eq!((status, why.contains("ConnectionReadTimeout")), (502, true), "{why}");
    // The head was passed on before; its body breaks off.
    assert_eq!(stage.fails(&format!("/?url=http://{stuck}/&between=200"), LONG).await, Code::UnitBadReply);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_spins_rust_sdk_makes_reaches_store_variables_environment_and_other_hosts() {
    let name = "hello-spin03.wasm.xz";
    let at = answering(PONG, Duration::ZERO).await;
    let stage = stage_of(name, &unpacked(name), |function| {
        function.grants.stores = vec!["default".into()];
        function.grants.hosts = vec![HostGrant::try_from(at.clone()).unwrap()];
        function.config.insert("GREETING".into(), "hi".into());
        function.environment.insert("HARBOUR".into(), "north".into());
    });
    let ok = |said: &str| (200, said.to_owned());
    assert_eq!(stage.text("POST", "/hello?name=you", "you").await, ok("hello from Spin: name=you you\n"));
    assert!(stage.log.0.lock().unwrap().iter().any(|line| line == "POST /hello"));
    for count in ["1", "2"] {
        assert_eq!(stage.text("POST", "/count/a", "").await, ok(count));
    }
    assert_eq!(stage.text("GET", "/keys/a", "").await, ok("2"));
    assert_eq!(stage.text("GET", "/keys/b", "").await.0, 404);
    let mut transaction = stage.state.begin();
    (0..2_500).for_each(|key| transaction.set("default", &format!("k{key:04}"), vec![0]).unwrap());
    stage.state.durable(transaction.commit().unwrap()).await.unwrap();
    let (_, keys) = stage.text("GET", "/keys", "").await;
    assert!(keys.lines().count() == 2_501 && keys.starts_with("a\nk0000\n") && keys.ends_with("k2499"), "{keys}");
    assert_eq!(stage.text("GET", "/stores/other", "").await.0, 403);
    assert_eq!(stage.text("GET", "/variables/GREETING", "").await, ok("hi"));
    assert_eq!(stage.text("GET", "/variables/OTHER", "").await.0, 404);
    assert_eq!(stage.text("GET", "/environment", "").await, ok("HARBOUR=north\n"));
    assert_eq!(stage.text("GET", &format!("/ask/{at}"), "").await, ok("pong"));
}

/// The bytes of an image with one name in place of another of the same length.
fn renamed(name: &str, from: &str, to: &str) -> Vec<u8> {
    let (mut image, from, to) = (image(name), from.as_bytes(), to.as_bytes());
    assert_eq!(from.len(), to.len());
    while let Some(at) = image.windows(from.len()).position(|window| window == from) {
        image[at..at + to.len()].copy_from_slice(to);
    }
    image
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_versions_are_refused_by_name() {
    let class = class();
    class.check(&image("hello-http03.wasm")).unwrap();
    for version in ["0.4.0", "1.3.2"] {
        let problem =
            class.check(&renamed("hello-http03.wasm", "types@0.3.2", &format!("types@{version}"))).unwrap_err();
        assert_eq!(problem.code, Code::ImportUnknown, "{problem}");
        assert!(problem.detail.contains(&format!("types@{version}")), "{problem}");
        assert!(problem.hint.contains("@0.3.0"), "{problem}");
    }
    // What belongs to 0.3 is not there for a handler of 0.2.
    let problem = class.check(&renamed("hello-http.wasm", "types@0.2.12", "types@0.3.12")).unwrap_err();
    assert_eq!(problem.code, Code::ImportUnknown, "{problem}");
}
