//! `bench hold`: keeps many requests unfinished, so that as many units stay alive.
//!
//! First it opens the connections and lets each serve one whole request, so that what connections cost can be told from
//! what units cost; then, at a line on stdin, it begins a request on each and leaves its body unfinished.

use anyhow::Context as _;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// The body that each request announces; only its first byte is sent.
const BODY_BYTES: usize = 1_024;

#[derive(Debug, clap::Args)]
pub struct HoldOptions {
    /// Whom to send to.
    pub address: SocketAddr,
    pub path: String,
    #[arg(long, default_value_t = 1_000)]
    pub requests: u32,
}

/// Opens the connections, says so on stdout, waits for a line on stdin, begins the requests, says so, and holds them
/// until stdin ends.
pub fn run(options: &HoldOptions) -> anyhow::Result<()> {
    crate::process::raise_open_files_limit();
    let HoldOptions { address, path, requests } = options;
    let whole = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1\r\n\r\nx");
    let begun = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {BODY_BYTES}\r\n\r\nx");
    let open = |number| {
        let open = || {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(whole.as_bytes())?;
            // The reply is small and comes at once.
            stream.read(&mut [0; 4_096]).map(|_| stream)
        };
        open().with_context(|| format!("could not open connection {number} of {requests}"))
    };
    let mut held = (1..=*requests).map(open).collect::<anyhow::Result<Vec<_>>>()?;
    println!("connected {}", held.len());
    let mut input = std::io::stdin().lock();
    input.read_line(&mut String::new())?;
    for stream in &mut held {
        stream.write_all(begun.as_bytes()).context("could not begin a request")?;
    }
    println!("holding {}", held.len());
    input.read_to_end(&mut Vec::new())?;
    Ok(())
}
