//! Posts events to our node, one a request: keep-alive connections, each with one request in flight.

use super::Flow;
use super::message::{message, now_ns};
use super::pump::SILENCE_MAX;
use super::tally::{Sending, Sent};
use crate::http1;
use anyhow::{Context as _, bail};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};

#[derive(Debug, Clone, clap::Args)]
pub struct PushOptions {
    #[command(flatten)]
    flow: Flow,
    #[arg(long)]
    path: String,
    /// `NAME: VALUE`, sent with each request; may be repeated.
    #[arg(long)]
    header: Vec<String>,
}

/// Pushes the events; each is confirmed by the reply to its request.
pub fn push(options: &PushOptions) -> anyhow::Result<Sent> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let connections = tokio::task::LocalSet::new();
    connections.block_on(&runtime, async {
        let flow = &options.flow;
        let mut streams = Vec::new();
        for _ in 0..flow.window {
            let stream = TcpStream::connect(flow.address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let shared = Rc::new(Shared {
            options: options.clone(),
            begin: tokio::time::Instant::now(),
            begin_ns: now_ns(),
            next: Cell::new(0),
            sending: RefCell::new(Sending::new()),
        });
        let tasks: Vec<_> = streams
            .into_iter()
            .map(|stream| tokio::task::spawn_local(connection(stream, Rc::clone(&shared))))
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(shared.sending.borrow().done())
    })
}

struct Shared {
    options: PushOptions,
    begin: tokio::time::Instant,
    begin_ns: u64,
    next: Cell<u64>,
    sending: RefCell<Sending>,
}

/// Sends one event after the other: the next that nobody has sent yet, when it is due.
async fn connection(mut stream: TcpStream, shared: Rc<Shared>) -> anyhow::Result<()> {
    let Flow { events, rate, address, .. } = shared.options.flow;
    let headers: String = shared.options.header.iter().map(|header| format!("{header}\r\n")).collect();
    let (mut buffer, mut request) = (Vec::new(), Vec::new());
    loop {
        let number = shared.next.get();
        if number == events {
            return Ok(());
        }
        shared.next.set(number + 1);
        let due = match rate {
            None => now_ns(),
            Some(rate) => {
                let after = Duration::from_secs_f64(number as f64 / rate);
                sleep_until(shared.begin + after).await;
                shared.begin_ns + after.as_nanos() as u64
            }
        };
        let body = message(number, due);
        request.clear();
        let path = &shared.options.path;
        request.extend_from_slice(
            format!("POST {path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-length: {}\r\n\r\n", body.len())
                .as_bytes(),
        );
        request.extend_from_slice(&body);
        stream.write_all(&request).await?;
        let length = loop {
            let read = timeout(SILENCE_MAX, stream.read_buf(&mut buffer)).await.context("no reply")??;
            if read == 0 {
                bail!("the node closed the connection");
            }
            let Some(reply) = http1::parse(&buffer)? else { continue };
            if !(200..300).contains(&reply.status) {
                bail!("the node answers {}: {}", reply.status, String::from_utf8_lossy(&reply.body));
            }
            break reply.length;
        };
        shared.sending.borrow_mut().confirmed(due);
        buffer.drain(..length);
    }
}
