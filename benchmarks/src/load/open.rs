//! The open loop: requests leave on a fixed schedule, so a slow server cannot slow its own measurement down.
//!
//! A request's latency counts from when it was due if the connection was still busy then: waiting for the server is
//! the server's doing. If the connection was idle and this thread merely woke late, it counts from the sending. The
//! threads go before others on the processor where the system lets them: they stand for clients on other machines.

use super::Plan;
use super::tally::Tally;
use crate::http1;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// A reply that takes longer is an error and closes its connection.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The priority of the threads that send.
const NICENESS: i32 = -10;
/// After this many connections in a row could not be opened, a thread gives up.
const CONNECT_FAILURES_MAX: u32 = 100;

/// Runs the plan at `rate` requests a second, one thread per connection.
///
/// # Errors
/// Two histograms could not be added up. What goes wrong on a connection is counted instead.
pub fn run(plan: &Plan, rate: f64) -> anyhow::Result<Tally> {
    // Refused to ordinary users; then the generator waits for the processor like everyone else.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let begin = Instant::now();
    let interval = Duration::from_secs_f64(f64::from(plan.connections) / rate);
    let tallies = thread::scope(|scope| {
        let connection = |number: u32| {
            // The connections take turns, evenly spaced.
            let first = begin + interval.mul_f64(f64::from(number) / f64::from(plan.connections));
            scope.spawn(move || send_on_schedule(plan, number as usize, first, interval, begin + plan.warmup))
        };
        let threads: Vec<_> = (0..plan.connections).map(connection).collect();
        threads.into_iter().map(|thread| thread.join().expect("a load thread does not panic")).collect::<Vec<_>>()
    });
    let mut total = plan.tally();
    for tally in &tallies {
        total.add(tally)?;
    }
    Ok(total)
}

fn send_on_schedule(plan: &Plan, number: usize, first: Instant, interval: Duration, measure_from: Instant) -> Tally {
    let mut tally = plan.tally();
    let mut connection = None;
    let mut connect_failures = 0;
    let mut next = number % plan.requests.len();
    let mut due = first;
    while due < measure_from + plan.measured && connect_failures < CONNECT_FAILURES_MAX {
        let now = Instant::now();
        let from = if now < due {
            thread::sleep(due - now);
            Instant::now()
        } else {
            due
        };
        let stream = match connection.take().map_or_else(|| connect(plan), Ok) {
            Ok(stream) => stream,
            Err(_) => {
                connect_failures += 1;
                tally.error("connect");
                due += interval;
                continue;
            }
        };
        connect_failures = 0;
        connection = send_one(plan, &plan.requests[next], stream, from, due >= measure_from, &mut tally);
        next = (next + plan.connections as usize) % plan.requests.len();
        due += interval;
    }
    tally
}

fn connect(plan: &Plan) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&plan.to, REPLY_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    Ok(stream)
}

/// Sends one request and counts its reply. Gives the connection back if it can be used again.
fn send_one(
    plan: &Plan,
    request: &[u8],
    mut stream: TcpStream,
    from: Instant,
    measured: bool,
    tally: &mut Tally,
) -> Option<TcpStream> {
    if stream.write_all(request).is_err() {
        tally.error("write");
        return None;
    }
    let mut buffer = Vec::new();
    let reply = match http1::read_reply(&mut stream, &mut buffer) {
        Ok(reply) => reply,
        Err(_) => {
            tally.error("read");
            return None;
        }
    };
    match plan.check(&reply) {
        Some(kind) => tally.error(kind),
        None if measured => tally.reply(from.elapsed(), reply.server_timing),
        None => tally.warmup_reply(),
    }
    (!reply.close).then_some(stream)
}
