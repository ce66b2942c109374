//! Kits that publish, and a receiver of what becomes of it: `sensor publish`, `sensor receive`.
#![forbid(unsafe_code)]

mod publish;
mod receive;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Simulated Smart Citizen Kits, and a receiver of their alerts
#[derive(Debug, Parser)]
#[command(name = "sensor")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish readings to an MQTT broker
    Publish(publish::Publish),
    /// Take requests as a Slack-compatible webhook does, and print their texts
    Receive(receive::Receive),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Publish(publish) => publish.run().await,
        Command::Receive(receive) => receive.run().await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sensor: {error}");
            ExitCode::FAILURE
        }
    }
}
