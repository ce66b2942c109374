//! The closed loop: each connection sends its next request when the last one is answered. What is in flight at the end
//! is waited for, so that the slowest calls are not those that nobody counts.

use super::Plan;
use super::tally::Tally;
use crate::http1;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a connection that failed stays away before it is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(5);
const READ_BYTES: usize = 16 << 10;
/// How long after the end replies are waited for. Those that do not come by then are errors.
const LATE_MAX: Duration = Duration::from_secs(10);

/// Runs the plan to its end on this thread.
///
/// # Errors
/// The asynchronous runtime could not be made. What goes wrong on a connection is counted instead.
pub fn run(plan: &Rc<Plan>) -> std::io::Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tally = Rc::new(RefCell::new(plan.tally()));
    let from = Instant::now() + plan.warmup;
    let end = from + plan.measured;
    let connections = tokio::task::LocalSet::new();
    for number in 0..plan.connections {
        let connection = connection(Rc::clone(plan), number as usize, from..end, Rc::clone(&tally));
        let tally = Rc::clone(&tally);
        connections.spawn_local(async move {
            if tokio::time::timeout_at((end + LATE_MAX).into(), connection).await.is_err() {
                tally.borrow_mut().error("no reply");
            }
        });
    }
    if plan.awake {
        connections.spawn_local(async move {
            while Instant::now() < end {
                tokio::task::yield_now().await;
            }
        });
    }
    runtime.block_on(connections);
    Ok(Rc::into_inner(tally).expect("every connection has ended").into_inner())
}

/// Sends until the end. What is sent within `measured` is measured.
async fn connection(plan: Rc<Plan>, number: usize, measured: Range<Instant>, tally: Rc<RefCell<Tally>>) {
    // Spread over the functions from the first request on.
    let mut next = number % plan.requests.len();
    while let Err(kind) = serve_connection(&plan, &mut next, &measured, &tally).await {
        tally.borrow_mut().error(kind);
        tokio::time::sleep(RECONNECT_PAUSE).await;
        if Instant::now() >= measured.end {
            return;
        }
    }
}

/// One connection until the end, or until it fails; the kind of failure.
async fn serve_connection(
    plan: &Plan,
    next: &mut usize,
    measured: &Range<Instant>,
    tally: &RefCell<Tally>,
) -> Result<(), &'static str> {
    let mut stream = TcpStream::connect(plan.to).await.map_err(|_| "connect")?;
    stream.set_nodelay(true).map_err(|_| "connect")?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    while Instant::now() < measured.end {
        let request = &plan.requests[*next];
        *next = (*next + plan.connections as usize) % plan.requests.len();
        let sent = Instant::now();
        stream.write_all(request).await.map_err(|_| "write")?;
        let (length, close) = loop {
            if stream.read_buf(&mut buffer).await.map_err(|_| "read")? == 0 {
                return Err("closed");
            }
            let Some(reply) = http1::parse(&buffer).map_err(|_| "malformed")? else { continue };
            let now = Instant::now();
            let mut tally = tally.borrow_mut();
            match plan.check(&reply) {
                Some(kind) => tally.error(kind),
                None if sent < measured.start => tally.warmup_reply(),
                None if now > measured.end => tally.late_reply(now - sent, reply.server_timing),
                None => tally.reply(now - sent, reply.server_timing),
            }
            break (reply.length, reply.close);
        };
        if buffer.len() != length {
            return Err("bytes after the reply");
        }
        buffer.clear();
        if close {
            return Err("closed after the reply");
        }
    }
    Ok(())
}
