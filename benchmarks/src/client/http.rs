//! Posts events to our node, one a request or several as a CloudEvents batch: keep-alive connections, each with one
//! request in flight.

use super::Flow;
use super::message::{message, now_ns};
use super::pump::SILENCE_MAX;
use super::tally::{Sending, Sent};
use crate::http1;
use anyhow::{Context as _, bail};
use std::cell::{Cell, RefCell};
use std::ops::Range;
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
    /// Events of one request.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    batch: u64,
    /// The data of every event, instead of a message with its number.
    #[arg(long, conflicts_with = "batch")]
    data: Option<String>,
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
        for _ in 0..flow.window.div_ceil(options.batch) {
            let stream = TcpStream::connect(flow.address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let push = Rc::new(Push {
            options: options.clone(),
            begin: tokio::time::Instant::now(),
            begin_ns: now_ns(),
            next: Cell::new(0),
            sending: RefCell::new(Sending::new()),
        });
        let tasks: Vec<_> =
            streams.into_iter().map(|stream| tokio::task::spawn_local(connection(stream, Rc::clone(&push)))).collect();
        for task in tasks {
            task.await??;
        }
        Ok(push.sending.borrow().done())
    })
}

/// One push, as all its connections see it.
struct Push {
    options: PushOptions,
    begin: tokio::time::Instant,
    begin_ns: u64,
    next: Cell<u64>,
    sending: RefCell<Sending>,
}

/// Sends one request after the other, of the next events that nobody has sent yet, when the first of them is due.
async fn connection(mut stream: TcpStream, push: Rc<Push>) -> anyhow::Result<()> {
    let PushOptions { flow, path, batch, data, header } = &push.options;
    let mut headers = header.clone();
    if *batch > 1 {
        headers.push("content-type: application/cloudevents-batch+json".to_owned());
    }
    let host = flow.address.to_string();
    let mut buffer = Vec::new();
    loop {
        let first = push.next.get();
        let end = flow.events.min(first + batch);
        if first == end {
            return Ok(());
        }
        push.next.set(end);
        let due = match flow.rate {
            None => now_ns(),
            Some(rate) => {
                let after = Duration::from_secs_f64(first as f64 / rate);
                sleep_until(push.begin + after).await;
                push.begin_ns + after.as_nanos() as u64
            }
        };
        let body = match data {
            Some(data) => data.clone().into_bytes(),
            None if *batch == 1 => message(first, due),
            None => cloud_events(first..end, due),
        };
        stream.write_all(&http1::request_with("POST", &host, path, &headers, &body)).await?;
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
        for _ in first..end {
            push.sending.borrow_mut().confirmed(due);
        }
        buffer.drain(..length);
    }
}

/// A batch as CloudEvents 1.0 writes it in JSON.
fn cloud_events(numbers: Range<u64>, due: u64) -> Vec<u8> {
    let mut batch = vec![b'['];
    for number in numbers {
        if batch.len() > 1 {
            batch.push(b',');
        }
        batch.extend_from_slice(
            format!(r#"{{"specversion":"1.0","id":"{number}","source":"/bench","type":"reading","data":"#).as_bytes(),
        );
        batch.extend_from_slice(&message(number, due));
        batch.push(b'}');
    }
    batch.push(b']');
    batch
}
