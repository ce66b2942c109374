//! The servers we are measured beside: redis, NATS, mosquitto and rumqttd, each on a port and a folder of its own.

use crate::client::redis_answers;
use crate::process::{self, Cores, Process};
use crate::run::Bench;
use anyhow::Context as _;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A peer that keeps or passes on events.
pub struct Server {
    pub process: Process,
    pub address: SocketAddr,
}

/// When what a queue was told is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// Before it is confirmed.
    Always,
    /// Later: of redis every second, of NATS as it does by default, every two minutes.
    Relaxed,
}

/// redis with an append-only file and no snapshots.
pub fn redis(bench: &Bench, durable: Durable) -> anyhow::Result<Server> {
    let program = bench.peers.program("redis-server")?;
    let address = process::free_address()?;
    let data = bench.folder(&format!("redis-{}", address.port()));
    fs::create_dir_all(&data)?;
    let mut command = process::command(program, Cores::All);
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(&data);
    command.args(["--appendonly", "yes", "--appendfsync"]);
    command.arg(match durable {
        Durable::Always => "always",
        Durable::Relaxed => "everysec",
    });
    let mut process = Process::start(command, &data.with_extension("log"))?;
    process.wait_until(READY_TIMEOUT, || redis_answers(address)).context("could not start redis-server")?;
    Ok(Server { process, address })
}

/// NATS with JetStream.
pub fn nats(bench: &Bench, durable: Durable) -> anyhow::Result<Server> {
    let program = bench.peers.program("nats-server")?;
    let address = process::free_address()?;
    let data = bench.folder(&format!("nats-{}", address.port()));
    fs::create_dir_all(&data)?;
    let sync = match durable {
        Durable::Always => "sync_interval: always",
        Durable::Relaxed => "",
    };
    let config = data.with_extension("conf");
    fs::write(&config, format!("listen: {address}\njetstream {{\n  store_dir: {data:?}\n  {sync}\n}}\n"))?;
    let mut command = process::command(program, Cores::All);
    command.arg("--config").arg(config);
    let mut process = Process::start(command, &data.with_extension("log"))?;
    let answers = || TcpStream::connect(address).is_ok();
    process.wait_until(READY_TIMEOUT, answers).context("could not start nats-server")?;
    Ok(Server { process, address })
}

/// mosquitto with its defaults, but for the permission to connect, and without the bounds beyond which it drops
/// messages of QoS 1 to a subscriber that is slower than the publishers.
pub fn mosquitto(bench: &Bench) -> anyhow::Result<Server> {
    let program = bench.peers.program("mosquitto")?;
    let address = process::free_address()?;
    let config = bench.folder(&format!("mosquitto-{}.conf", address.port()));
    let listener = format!("listener {} 127.0.0.1\nallow_anonymous true\n", address.port());
    fs::write(&config, listener + "max_queued_messages 0\nmax_inflight_messages 0\n")?;
    let mut command = process::command(program, Cores::All);
    command.arg("-c").arg(&config);
    let mut process = Process::start(command, &config.with_extension("log"))?;
    let answers = || TcpStream::connect(address).is_ok();
    process.wait_until(READY_TIMEOUT, answers).context("could not start mosquitto")?;
    Ok(Server { process, address })
}

/// rumqttd with the limits of the configuration that it comes with, and only the listener that is used.
pub fn rumqttd(bench: &Bench) -> anyhow::Result<Server> {
    let program = bench.peers.program("rumqttd")?;
    let address = process::free_address()?;
    let config = bench.folder(&format!("rumqttd-{}.toml", address.port()));
    fs::write(
        &config,
        format!(
            "id = 0\n[router]\nid = 0\nmax_connections = 10010\nmax_outgoing_packet_count = 200\n\
             max_segment_size = 104857600\nmax_segment_count = 10\n\
             [v4.1]\nname = \"v4-1\"\nlisten = \"{address}\"\nnext_connection_delay_ms = 1\n\
             [v4.1.connections]\nconnection_timeout_ms = 60000\nmax_payload_size = 20480\n\
             max_inflight_count = 100\ndynamic_filters = true\n"
        ),
    )?;
    let mut command = process::command(program, Cores::All);
    command.args(["--quiet", "--config"]).arg(&config);
    let mut process = Process::start(command, &config.with_extension("log"))?;
    let answers = || TcpStream::connect(address).is_ok();
    process.wait_until(READY_TIMEOUT, answers).context("could not start rumqttd")?;
    Ok(Server { process, address })
}
