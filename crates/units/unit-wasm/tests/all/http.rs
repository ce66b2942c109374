//! `wasi:http` components: streaming, trailers, early replies, the store, and every way to go wrong. The class microvm
//! is held to the same text.

use super::stage::{empty, stage};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use manifest::{HostGrant, Isolation};
use problem::Code;
use std::time::Duration;
use unit::{BodyError, IsolationClass};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_reply_is_whole() {
    let stage = stage("hello-http.wasm", |_| {});
    let response = stage.request("GET", "/hello", empty()).await.unwrap();
    let body = response.into_body();
    assert!(http_body::Body::size_hint(&body).exact().is_some_and(|bytes| bytes > 0), "its length is known");
    stage.end().await.unwrap();
    assert!(stage.prepared.units().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_stream_both_ways_and_trailers_follow() {
    let stage = stage("echo-http.wasm", |_| {});
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, BodyError>>(1);
    let frames =
        futures_util::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let response = stage.request("POST", "/", StreamBody::new(frames).boxed_unsync()).await.unwrap();
    let mut body = response.into_body();
    for part in ["one", "two"] {
        sender.send(Ok(Frame::data(part.into()))).await.unwrap();
        let echoed = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(echoed, part, "it comes back before the next is sent");
    }
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "6".parse().unwrap())]);
    sender.send(Ok(Frame::trailers(trailers.clone()))).await.unwrap();
    drop(sender);
    assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().ok(), Some(trailers));
    assert!(body.frame().await.is_none());
    stage.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_may_begin_before_the_request_is_read() {
    let stage = stage("echo-http.wasm", |_| {});
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, BodyError>>(1);
    let frames =
        futures_util::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let mut body = stage.request("POST", "/early", StreamBody::new(frames).boxed_unsync()).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "early\n");
    sender.send(Ok(Frame::data("12345".into()))).await.unwrap();
    drop(sender);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "read 5 bytes\n");
}

/// The node counts what a unit of the class `wasm` leaves, and replaces it in time. Of a machine's handles only the
/// kernel in it knows: there the call that finds none left traps, and the next one has a fresh unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_whose_calls_leave_resources_behind_is_replaced() {
    let stage = stage("attack-http.wasm", |function| function.units.reuse_calls = 100);
    let mut trapped = 0;
    for call in 0..20 {
        match stage.request("GET", "/leave", empty()).await {
            Ok(response) => {
                let body = response.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body, "left\n", "call {call}");
                stage.end().await.unwrap();
            }
            Err(problem) => {
                assert_eq!(problem.code, Code::UnitTrapped, "{problem}");
                stage.end().await.unwrap_err();
                trapped += 1;
            }
        }
    }
    let is_counted = crate::class().isolation() == Isolation::Wasm;
    assert!(if is_counted { trapped == 0 } else { (1..10).contains(&trapped) }, "{trapped} calls trapped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reply_arrives_as_it_is_written() {
    let stage = stage("echo-http.wasm", |_| {});
    let mut body = stage.request("GET", "/slow?lines=3&pause-ms=20", empty()).await.unwrap().into_body();
    for line in 0..3 {
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), format!("line {line}\n"));
    }
    assert!(body.frame().await.is_none());
    stage.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_goes_away_stops_the_unit() {
    let stage = stage("echo-http.wasm", |_| {});
    let mut body = stage.request("GET", "/slow?lines=100000&pause-ms=5", empty()).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert_eq!(stage.prepared.units().len(), 1);
    drop(body);
    stage.is_empty().await;
}

/// Nothing but the reader's polls ran the unit's clock: one who kept 255 streams open and read none of them kept as
/// many units.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stays_and_does_not_read_keeps_no_unit() {
    let stage = stage("echo-http.wasm", |_| {});
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
async fn head_has_no_body_and_its_unit_ends() {
    let stage = stage("hello-http.wasm", |_| {});
    stage.request("HEAD", "/", empty()).await.unwrap();
    stage.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unit_goes_on_after_its_reply_until_its_time_is_up() {
    let stage = stage("attack-http.wasm", |_| {});
    let request = Request::get("http://localhost/early-then-sleep").body(empty()).unwrap();
    let response = stage.send(request, Duration::from_millis(300)).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "early\n");
    assert_eq!(stage.end().await, Err(Code::TimeExceeded));
    assert!(stage.prepared.units().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_go_wrong_has_its_code() {
    let stage = stage("attack-http.wasm", |function| function.limits.cpu_ms = 100);
    let long = Duration::from_secs(20);
    let short = Duration::from_millis(200);
    for (path, time, code) in [
        ("/silent", long, Code::UnitNoReply),
        ("/error", long, Code::UnitBadReply),
        ("/loop", long, Code::CpuExceeded),
        ("/half", long, Code::UnitBadReply),
        ("/too-much", long, Code::UnitBadReply),
        ("/trap", long, Code::UnitTrapped),
        ("/trap-in-body", long, Code::UnitTrapped),
        ("/set-twice", long, Code::UnitTrapped),
        ("/sleep", short, Code::TimeExceeded),
        ("/bad-header", long, Code::UnitTrapped),
        ("/bad-status", long, Code::UnitTrapped),
        ("/many-headers", long, Code::UnitTrapped),
    ] {
        assert_eq!(stage.fails(path, time).await, code, "{path}: {:?}", stage.log.0.lock().unwrap().last());
        stage.is_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_a_unit_does_not_finish_is_not_whole() {
    for reuse_calls in [1, 100] {
        let stage = stage("attack-http.wasm", |function| function.units.reuse_calls = reuse_calls);
        for _ in 0..2 {
            assert_eq!(stage.fails("/unfinished", Duration::from_secs(20)).await, Code::UnitBadReply);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_a_unit_does_not_finish_is_not_whole() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"half\r\n") {
            stream.read_buf(&mut read).await.unwrap();
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut read).await;
        String::from_utf8(read).unwrap()
    });
    let stage = stage("attack-http.wasm", |function| {
        function.grants.hosts = vec![HostGrant::try_from(to.to_string()).unwrap()];
    });
    let path = format!("/upload?to={to}");
    assert_eq!(stage.fails(&path, Duration::from_secs(20)).await, Code::UnitTrapped);
    let read = tokio::time::timeout(Duration::from_secs(20), server).await.expect("it ends").unwrap();
    assert!(read.ends_with("half\r\n"), "no chunk of no bytes follows: {read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_output_is_cut() {
    let stage = stage("attack-http.wasm", |function| function.limits.log_bytes = 10_000);
    let flood = Request::get("http://localhost/stdout").body(empty()).unwrap();
    // It is a gigabyte, of which a machine that is busy with other tests makes little in a minute.
    let response = stage.send(flood, Duration::from_secs(300)).await.unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(response.status(), 200);
    assert!(stage.log.0.lock().unwrap().iter().map(String::len).sum::<usize>() < 11_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_a_guest_keeps_for_ever_end_with_its_limits() {
    let stage = stage("attack-http.wasm", |function| function.limits.cpu_ms = 5_000);
    let code = stage.fails("/keep-resources", Duration::from_secs(20)).await;
    assert!(matches!(code, Code::UnitTrapped | Code::CpuExceeded | Code::TimeExceeded), "{code}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wasi_names_reach_store_config_and_log() {
    let stage = stage("kv-http.wasm", |function| {
        function.grants.stores = vec!["default".into()];
        function.config.insert("GREETING".into(), "hi".into());
    });
    assert_eq!(stage.text("GET", "/keys/a", "").await.0, 404);
    stage.text("PUT", "/keys/a", "1").await;
    assert_eq!(stage.text("GET", "/keys/a", "").await, (200, "1".into()));
    assert_eq!(stage.text("POST", "/increment/a?by=4", "").await.1.trim(), "5");
    stage.text("POST", "/batch", "b=2\nc=3").await;
    assert_eq!(stage.text("GET", "/keys", "").await.1.lines().collect::<Vec<_>>(), ["a", "b", "c"]);
    stage.text("DELETE", "/keys/b", "").await;
    assert_eq!(stage.text("GET", "/keys/b", "").await.0, 404);
    assert_eq!(stage.text("GET", "/config/GREETING", "").await.1.trim(), "hi");
    stage.text("POST", "/log?level=warn", "take care").await;
    assert!(stage.log.0.lock().unwrap().iter().any(|line| line.contains("take care")));
    let (status, _) = stage.text("GET", "/keys/a?bucket=other", "").await;
    assert!(status >= 400, "another bucket is not granted: {status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_drafts_of_other_hosts_reach_the_same_store() {
    let stage = stage("drafts-http.wasm", |function| {
        function.grants.stores = vec!["default".into()];
        function.config.insert("GREETING".into(), "hi".into());
    });
    assert_eq!(stage.text("GET", "/get/a", "").await.0, 404);
    stage.text("POST", "/set/a/1", "").await;
    assert_eq!(stage.text("GET", "/get/a", "").await, (200, "1".into()));
    assert_eq!(stage.text("POST", "/increment/a/-3", "").await, (200, "-2".into()));
    assert_eq!(stage.text("GET", "/many/a/b", "").await, (200, "a=-2\nb=-\n".into()));
    assert_eq!(stage.text("POST", "/swap/b/new", "").await, (200, "-".into()));
    assert_eq!(stage.text("POST", "/swap-stale/b/newer", "").await, (200, "meanwhile".into()));
    assert_eq!(stage.state.begin().get("default", "b").unwrap(), Some(b"newer".to_vec()));
    assert_eq!(stage.text("GET", "/config/GREETING", "").await, (200, "hi".into()));
    assert_eq!(stage.text("GET", "/config/OTHER", "").await.0, 404);
    let mut transaction = stage.state.begin();
    (0..2_500).for_each(|key| transaction.set("default", &format!("k{key:04}"), vec![0]).unwrap());
    stage.state.durable(transaction.commit().unwrap()).await.unwrap();
    assert_eq!(stage.text("GET", "/keys", "").await.1.lines().count(), 2_502, "in three pages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outgoing_requests_need_a_grant() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\npong").await;
        }
    });
    let path = format!("/?url=http://127.0.0.1:{port}/");
    let denied = stage("fetch-http.wasm", |function| function.units.reuse_calls = 2);
    for _ in 0..2 {
        assert_eq!(denied.text("GET", &path, "").await.0, 502);
        denied.end().await.unwrap();
    }
    let said =
        format!("outgoing request denied: no grant covers 127.0.0.1:{port}; add it to grants.hosts of the function");
    // The kernel of a machine, which says so there, does not know calls apart.
    let times = if crate::class().isolation() == Isolation::Wasm { 2 } else { 1 };
    assert_eq!(*denied.log.0.lock().unwrap(), vec![said; times], "once for each call");
    let granted = stage("fetch-http.wasm", |function| {
        function.grants.hosts = vec![HostGrant::try_from(format!("127.0.0.1:{port}")).unwrap()];
    });
    assert_eq!(granted.text("GET", &path, "").await, (200, "pong".into()));
}

/// Finding P3: a guest that asked for 300 ms to connect hung until its own time was up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_timeouts_of_an_outgoing_request_are_kept() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    // Its queue is full, and nobody accepts: the next one hears nothing.
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = full.listen(0).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) =
        tokio::time::timeout(Duration::from_millis(300), tokio::net::TcpStream::connect(full.local_addr().unwrap()))
            .await
    {
        waiting.push(stream.unwrap());
    }
    let slow = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (full_at, slow_at) = (full.local_addr().unwrap(), slow.local_addr().unwrap());
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = slow.accept().await {
            // The second one gets a head and a byte; nobody gets more.
            if held.len() == 1 {
                // To a client that has not asked, an answer is an error.
                assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\np").await.unwrap();
            }
            held.push(stream);
        }
    });
    let stage = stage("fetch-http.wasm", |function| {
        function.grants.hosts =
            [full_at, slow_at].map(|address| HostGrant::try_from(address.to_string()).unwrap()).to_vec();
    });
    let began = std::time::Instant::now();
    let (status, why) = stage.text("GET", &format!("/?url=http://{full_at}/&connect=300"), "").await;
    assert_eq!((status, why.contains("ConnectionTimeout")), (502, true), "{why}");
    let (status, why) = stage.text("GET", &format!("/?url=http://{slow_at}/&first=300"), "").await;
    assert_eq!((status, why.contains("ConnectionReadTimeout")), (502, true), "{why}");
    let between = format!("/?url=http://{slow_at}/&between=300");
    assert_eq!(stage.fails(&between, Duration::from_secs(60)).await, Code::UnitTrapped);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
