//! The access log.

use crate::support::{connect, read_all, start, within};
use gate_http::Config;
use std::fmt::{Debug, Write};
use std::sync::Arc;
use std::sync::Mutex;
use tokio::io::AsyncWriteExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the fields of every event of the access log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "access"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn one_line_a_request_and_no_secrets() {
    let log = Log::default();
    // For the whole process: the other tests log too, so lines are told apart by the client's address.
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let gate = start(Config::default());
    for (request, parts) in [
        (
            "POST /collect?token=secret HTTP/1.1\r\nHost: a\r\nX-Request-Id: id-1\r\nAuthorization: Bearer secret\r\n\
             Cookie: secret\r\nContent-Length: 4\r\nConnection: close\r\n\r\nabcd",
            &[
                "method=\"POST\"",
                "path=\"/collect\"",
                "status=200",
                "whole=true",
                "bytes_in=4",
                "bytes_out=18",
                "duration_us=",
                "function=\"test\"",
                "request_id=\"id-1\"",
                "tls=false",
            ][..],
        ),
        ("GET /breaks HTTP/1.1\r\nHost: a\r\n\r\n", &["path=\"/breaks\"", "status=200", "whole=false", "bytes_out=5"]),
        ("GET /?secret HTTP/1.1\r\nsecret\r\n\r\n", &["method=\"-\"", "path=\"-\"", "status=400", "function=\"-\""]),
    ] {
        let mut stream = connect(gate.address).await;
        let peer = format!("peer={} ", stream.local_addr().unwrap());
        stream.write_all(request.as_bytes()).await.unwrap();
        read_all(&mut stream).await;
        let lines = within(async {
            loop {
                let lines: Vec<String> =
                    log.0.lock().unwrap().iter().filter(|line| line.contains(&peer)).cloned().collect();
                if !lines.is_empty() {
                    return lines;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in parts {
            assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
        }
        assert!(!lines[0].contains("secret"), "{}", lines[0]);
    }
}
