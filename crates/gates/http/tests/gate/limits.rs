//! Clients that are slow, quiet or many.

use crate::support::{connect, get, http2, read_all, read_until, request, start, talk, within};
use gate_http::Config;
use http::Method;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SHORT: Duration = Duration::from_millis(150);

/// The least and most that a timeout of [`SHORT`] may take on a loaded machine.
#[track_caller]
fn took_about(begin: Instant, least: Duration) {
    let took = begin.elapsed();
    assert!(took >= least && took < least + Duration::from_secs(8), "took {took:?}, not {least:?}");
}

#[tokio::test]
async fn a_slow_loris_gets_408() {
    let gate = start(Config { head_timeout: SHORT, ..Config::default() });
    for dribble in ["G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: "] {
        let mut stream = connect(gate.address).await;
        let begin = Instant::now();
        stream.write_all(dribble.as_bytes()).await.unwrap();
        let reply = if dribble == "G" {
            // Bytes keep coming, one by one; the head still ends in time.
            let (mut reader, mut writer) = stream.into_split();
            let writing = tokio::spawn(async move {
                for byte in b"ET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if writer.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                }
            });
            let mut reply = Vec::new();
            let _ = within(reader.read_to_end(&mut reply)).await;
            writing.abort();
            String::from_utf8(reply).unwrap()
        } else {
            read_all(&mut stream).await
        };
        took_about(begin, SHORT);
        assert!(reply.starts_with("HTTP/1.1 408 ") && reply.contains("L4012"), "{dribble:?}: {reply}");
    }
}

#[tokio::test]
async fn a_late_second_head_gets_408_too() {
    let gate = start(Config { head_timeout: SHORT, ..Config::default() });
    let reply = talk(gate.address, b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\nGET /hello HT").await;
    assert!(reply.contains("hello") && reply.contains("HTTP/1.1 408 "), "{reply}");
}

#[tokio::test]
async fn a_head_is_not_late_while_the_node_is_busy_with_the_one_before() {
    let gate = start(Config { head_timeout: SHORT, ..Config::default() });
    let mut stream = connect(gate.address).await;
    let hello = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
    stream.write_all(format!("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n{hello}{}", &hello[..9]).as_bytes()).await.unwrap();
    while gate.node.begun.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    stream.write_all(&hello.as_bytes()[9..]).await.unwrap();
    tokio::time::sleep(SHORT * 3).await;
    gate.node.release.notify_one();
    let reply = read_until(&mut stream, "waited").await;
    let rest = if reply.matches("hello").count() == 2 { String::new() } else { read_until(&mut stream, "hello").await };
    assert!(!format!("{reply}{rest}").contains(" 408 "), "{reply}{rest}");
}

#[tokio::test]
async fn quiet_connections_are_closed() {
    let gate = start(Config { idle_timeout: SHORT, ..Config::default() });
    for said in ["", "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut stream = connect(gate.address).await;
        let begin = Instant::now();
        stream.write_all(said.as_bytes()).await.unwrap();
        let reply = read_all(&mut stream).await;
        took_about(begin, SHORT);
        assert_eq!(reply.contains("hello"), !said.is_empty());
    }
    let mut client = http2(gate.address).await;
    client.send_request(request(Method::GET, "/hello")).await.unwrap();
    let begin = Instant::now();
    within(async {
        while client.ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    took_about(begin, SHORT / 2);
}

#[tokio::test]
async fn a_connection_the_node_works_for_is_not_quiet() {
    let gate = start(Config { idle_timeout: SHORT, ..Config::default() });
    let mut stream = connect(gate.address).await;
    stream.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    tokio::time::sleep(SHORT * 4).await;
    gate.node.release.notify_one();
    read_until(&mut stream, "waited").await;
}

#[tokio::test]
async fn a_client_that_stops_reading_is_closed() {
    let gate = start(Config { idle_timeout: SHORT, ..Config::default() });
    let mut stream = connect(gate.address).await;
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while gate.gate.connections() == 0 {
        tokio::task::yield_now().await;
    }
    let begin = Instant::now();
    within(async {
        while gate.gate.connections() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    took_about(begin, SHORT / 2);
    drop(stream);
}

#[tokio::test]
async fn a_body_that_stops_coming_fails() {
    let gate = start(Config { body_timeout: SHORT, ..Config::default() });
    let mut stream = connect(gate.address).await;
    let begin = Instant::now();
    stream.write_all(b"POST /collect HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").await.unwrap();
    let reply = read_all(&mut stream).await;
    took_about(begin, SHORT);
    assert!(reply.starts_with("HTTP/1.1 408 ") && reply.contains("L4012"), "{reply}");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let gate = start(Config { connections_max: 2, idle_timeout: SHORT * 40, ..Config::default() });
    let mut working = [connect(gate.address).await, connect(gate.address).await];
    for stream in &mut working {
        stream.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    }
    while gate.node.begun.load(SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let mut third = connect(gate.address).await;
    third.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(tokio::time::timeout(SHORT, third.read_u8()).await.is_err(), "served beyond the limit");
    assert_eq!(gate.gate.connections(), 2);
    // The one that is answered gives way.
    gate.node.release.notify_one();
    read_until(&mut third, "hello").await;
}

/// 256 silent connections, without a token, locked the administrator out: each refilled as soon as it was closed.
#[tokio::test]
async fn who_holds_places_without_using_them_gives_way_and_who_is_worked_for_does_not() {
    let gate = start(Config { connections_max: 16, ..Config::default() });
    let mut working = connect(gate.address).await;
    working.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    while gate.node.begun.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let address = gate.address;
    let refill = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let mut stream = connect(address).await;
            // Nothing; half a head; a request, and then nothing.
            let said: [&[u8]; 3] = [b"", b"GET /hello HTTP/1.1\r\nHo", b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"];
            let _ = stream.write_all(said[held.len() % 3]).await;
            held.push(stream);
            if held.len() > 64 {
                held.clear();
            }
        }
    });
    let mut slowest = Duration::ZERO;
    for _ in 0..50 {
        let begin = Instant::now();
        assert!(get(gate.address, "/hello").await.contains("hello"));
        slowest = slowest.max(begin.elapsed());
    }
    refill.abort();
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    gate.node.release.notify_one();
    read_until(&mut working, "waited").await;
}

/// The same by memory: on a small node as many as fit, which are fewer than there are places.
#[tokio::test]
async fn at_the_api_who_holds_memory_without_using_it_gives_way() {
    let budget = budget::Budget::new(2 << 20);
    let gate = start(Config { budget: budget.clone(), is_administration: true, ..Config::default() });
    let silent: Vec<_> = futures_util::future::join_all((0..40).map(|_| connect(gate.address))).await;
    for _ in 0..10 {
        assert!(get(gate.address, "/hello").await.contains("hello"));
    }
    drop(silent);
}

#[tokio::test]
async fn a_full_gate_closes_quiet_connections_sooner() {
    let gate = start(Config { connections_max: 2, idle_timeout: Duration::from_secs(4), ..Config::default() });
    let _quiet = [connect(gate.address).await, connect(gate.address).await];
    while gate.gate.connections() < 2 {
        tokio::task::yield_now().await;
    }
    let begin = Instant::now();
    assert!(get(gate.address, "/hello").await.contains("hello"));
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn two_thousand_idle_connections_do_not_slow_another_request() {
    let gate = start(Config::default());
    let mut idle = Vec::new();
    for number in 0..2_000 {
        let mut stream = connect(gate.address).await;
        if number % 2 == 0 {
            stream.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        }
        idle.push(stream);
    }
    for stream in idle.iter_mut().step_by(2) {
        read_until(stream, "hello").await;
    }
    assert_eq!(gate.gate.connections(), 2_000);
    let begin = Instant::now();
    assert!(get(gate.address, "/hello").await.contains("hello"));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn asking_and_taking_back_ends_the_connection() {
    let gate = start(Config::default());
    let mut client = http2(gate.address).await;
    within(async {
        for _ in 0..5_000 {
            if client.ready().await.is_err() {
                return;
            }
            let begun = gate.node.begun.load(SeqCst);
            let mut asked = pin!(client.send_request(request(Method::GET, "/forever")));
            poll_fn(|cx| {
                let _ = asked.as_mut().poll(cx);
                std::task::Poll::Ready(())
            })
            .await;
            // Wait for the node to begin: this is what costs, and what a limit on waiting streams does not see.
            for _ in 0..50 {
                tokio::task::yield_now().await;
                if gate.node.begun.load(SeqCst) > begun {
                    break;
                }
            }
        }
        panic!("5,000 requests asked and taken back");
    })
    .await;
    assert!(gate.node.begun.load(SeqCst) < 1_000, "{}", gate.node.begun.load(SeqCst));
    assert!(get(gate.address, "/hello").await.contains("hello"));
}
