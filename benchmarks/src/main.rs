//! `bench`: measures the node beside its peers. `./bench` in the root builds what is needed and starts it.
//!
//! ```text
//! bench node ─┬─ lighter up        ◀── bench load   each a process of its own,
//!             ├─ wasmtime serve    ◀── bench load   the server on one core,
//!             ├─ bench hyper       ◀── bench load   the load on another
//!             └─ crun, workerd, …
//! ```
#![forbid(unsafe_code)]

mod client;
mod events;
mod fill;
mod generator;
mod hold;
mod http1;
mod hyper_peer;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod kernel;
mod lighter;
mod load;
mod machine;
mod node;
mod peers;
mod process;
#[path = "../../guests/sift/src/reading.rs"]
mod reading;
mod report;
mod run;
mod starts;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "bench", about = "Measures the node beside its peers")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The node beside wasmtime serve, hyper, workerd and crun
    Node(run::Options),
    /// Queues, MQTT and workflows beside redis, NATS and mosquitto
    Events(run::Options),
    /// Microvm units beside the other classes and a container
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Kernel(run::Options),
    /// One end of a queue: pushes events, or handles them
    #[command(subcommand)]
    Client(client::Client),
    /// Sends HTTP requests and prints what came back as JSON
    Load(load::LoadOptions),
    /// Fills a queue and a bucket and prints how fast they are then as JSON
    Fill(fill::FillOptions),
    /// Opens many requests and keeps them unfinished until its input ends
    Hold(hold::HoldOptions),
    /// Starts a program again and again and prints the times to its first output as JSON
    Starts(starts::StartsOptions),
    /// Answers HTTP requests with a bare hyper server
    Hyper(hyper_peer::HyperOptions),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().what {
        What::Node(options) => node::run(&options),
        What::Events(options) => events::run(&options),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        What::Kernel(options) => kernel::run(&options),
        What::Client(client) => client::run(&client),
        What::Load(options) => load::run(&options),
        What::Fill(options) => fill::run(&options),
        What::Hold(options) => hold::run(&options),
        What::Starts(options) => starts::run(&options),
        What::Hyper(options) => hyper_peer::run(&options),
    }
}
