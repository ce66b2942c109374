//! `bench client`: the programs on both ends of a queue, each a process of its own: one pushes events, one handles
//! them.
//!
//! ```text
//! bench client PEER-push ──▶ server ──▶ bench client PEER-handle      of our node only the first: it handles itself
//! ```
//! Times are nanoseconds of the system's monotonic clock, which all processes share: an event carries the time it was
//! due, and whoever handles it knows how long that took. The result is one line of JSON.

mod http;
mod message;
mod mqtt;
mod nats;
mod probe;
mod pump;
mod redis;
mod tally;

use clap::{Args, Subcommand};
pub use message::{message, now_ns};
pub use mqtt::TOPIC;
pub use probe::Probed;
pub use redis::answers as redis_answers;
use std::net::SocketAddr;
pub use tally::{Handled, Sent};

/// How many events to send where.
#[derive(Debug, Clone, Args)]
pub struct Flow {
    pub address: SocketAddr,
    #[arg(long)]
    pub events: u64,
    /// Events on their way at once: sent and not confirmed, or received and not acked.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub window: u64,
    /// Events a second: an open loop. Without it, as fast as they are confirmed.
    #[arg(long)]
    pub rate: Option<f64>,
}

#[derive(Debug, Subcommand)]
pub enum Client {
    /// LPUSH on one pipelined connection
    RedisPush(Flow),
    /// BRPOPLPUSH and LREM, each on a pipelined connection
    RedisHandle(Flow),
    /// Publishes to a JetStream work queue
    NatsPush(Flow),
    /// Handles and acks the events of a JetStream work queue
    NatsHandle(Flow),
    /// Publishes with QoS 1
    MqttPush(mqtt::PushOptions),
    /// Subscribes with QoS 1
    MqttHandle(Flow),
    /// Keeps subscribers connected that hear nothing
    MqttHold(mqtt::HoldOptions),
    /// Posts one event a request, each on a connection of its own
    HttpPush(http::PushOptions),
    /// Sends one event after the other through a workflow
    Probe(probe::ProbeOptions),
}

/// Runs one client to its end and prints what it counted.
pub fn run(client: &Client) -> anyhow::Result<()> {
    crate::process::raise_open_files_limit();
    let line = match client {
        Client::RedisPush(flow) => serde_json::to_string(&redis::push(flow)?),
        Client::RedisHandle(flow) => serde_json::to_string(&redis::handle(flow)?),
        Client::NatsPush(flow) => serde_json::to_string(&nats::push(flow)?),
        Client::NatsHandle(flow) => serde_json::to_string(&nats::handle(flow)?),
        Client::MqttPush(options) => serde_json::to_string(&mqtt::push(options)?),
        Client::MqttHandle(flow) => serde_json::to_string(&mqtt::handle(flow)?),
        Client::MqttHold(options) => return mqtt::hold(options),
        Client::HttpPush(options) => serde_json::to_string(&http::push(options)?),
        Client::Probe(options) => serde_json::to_string(&probe::run(options)?),
    };
    println!("{}", line?);
    Ok(())
}

/// Tells whoever started this client that it is ready for events.
fn say_ready() -> std::io::Result<()> {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(b"ready\n")?;
    stdout.flush()
}
