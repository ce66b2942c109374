//! What a function says, and what it sends to others, rests on what the disk has confirmed.

use super::common::GatedDisk;
use super::stage::{Stage, full, image, stage_on};
use http::Request;
use http_body_util::BodyExt;
use manifest::HostGrant;
use state::{Leased, Push};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;

/// Long enough for an answer that did not wait.
const LOOK: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

fn kv(disk: &Arc<GatedDisk>, hosts: &[String]) -> Stage {
    stage_on(disk.clone(), "kv-http.wasm", &image("kv-http.wasm"), |function| {
        function.grants.stores = vec!["default".into()];
        function.grants.hosts = hosts.iter().map(|host| HostGrant::try_from(host.clone()).unwrap()).collect();
    })
}

/// Commits a key without waiting for it.
fn set(stage: &Stage, key: &str) {
    let mut transaction = stage.state.begin();
    transaction.set("default", key, b"done".to_vec()).unwrap();
    let _never_waited_for = transaction.commit().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_finds_its_work_done_says_so_once_that_is_durable() {
    let disk = Arc::new(GatedDisk::default());
    let stage = kv(&disk, &[]);
    (0..3).for_each(|number| set(&stage, &format!("old{number}")));
    stage.state.durable_all().await.unwrap();
    disk.set_shut(true);
    set(&stage, "new");
    // Keys share places by chance: one of them may have to wait.
    let mut answered = 0;
    for number in 0..3 {
        let reply = timeout(LOOK * 5, stage.text("GET", &format!("/keys/old{number}"), "")).await;
        answered += u32::from(reply.is_ok_and(|reply| reply == (200, "done".into())));
    }
    assert!(answered >= 2, "{answered} of 3 answered");
    assert_eq!(timeout(LONG, stage.text("GET", "/config/none", "")).await.unwrap().0, 404, "it reads nothing");
    let mut waits = Box::pin(stage.text("GET", "/keys/new", ""));
    assert!(timeout(LOOK, &mut waits).await.is_err());
    disk.set_shut(false);
    assert_eq!(waits.await, (200, "done".into()));
}

/// Counts who asks for anything.
async fn host() -> (String, Arc<AtomicU32>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap().to_string(), Arc::<AtomicU32>::default());
    let count = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4_096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
    });
    (address, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_goes_out_once_its_event_and_what_was_read_are_durable() {
    for leased in [true, false] {
        let disk = Arc::new(GatedDisk::default());
        let (host, asked) = host().await;
        let stage = kv(&disk, &[host.clone()]);
        disk.set_shut(true);
        let lease = leased.then(|| lease(&stage));
        if !leased {
            set(&stage, "a");
        }
        let request = Request::post(format!("http://localhost/append/a?to={host}")).body(full("x")).unwrap();
        let mut waits = Box::pin(stage.call(request, LONG, stage.ended.clone(), lease));
        assert!(timeout(LOOK, &mut waits).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 0, "leased: {leased}");
        disk.set_shut(false);
        assert!(!waits.await.unwrap().into_body().collect().await.unwrap().to_bytes().is_empty());
        assert_eq!(asked.load(Ordering::SeqCst), 1, "leased: {leased}");
    }
}

/// An event that is not durable.
fn lease(stage: &Stage) -> Arc<Leased> {
    let mut transaction = stage.state.begin();
    let push = Push { event: event::Event::default(), delay: Duration::ZERO, ttl: None };
    transaction.push("in", &push, 1).unwrap();
    let _never_waited_for = transaction.commit().unwrap();
    Arc::new(stage.state.queue("in").unwrap().lease(1, 1_000_000, 1).unwrap().remove(0))
}
