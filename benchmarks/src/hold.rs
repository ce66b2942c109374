//! `bench hold`: opens many requests and leaves their bodies unfinished, so that as many units stay alive.

use anyhow::Context as _;
use std::io::{Read as _, Write as _};
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

/// Opens the requests, says so on stdout, and holds them until stdin ends.
pub fn run(options: &HoldOptions) -> anyhow::Result<()> {
    crate::process::raise_open_files_limit();
    let HoldOptions { address, path, .. } = options;
    let request = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {BODY_BYTES}\r\n\r\nx");
    let open = |number| {
        let open =
            TcpStream::connect(address).and_then(|mut stream| stream.write_all(request.as_bytes()).map(|()| stream));
        open.with_context(|| format!("could not open request {number} of {}", options.requests))
    };
    let held = (1..=options.requests).map(open).collect::<anyhow::Result<Vec<_>>>()?;
    println!("holding {}", held.len());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
