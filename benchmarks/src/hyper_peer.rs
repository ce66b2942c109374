//! `bench hyper`: a bare hyper server that answers every request with the same few bytes.
//!
//! The upper bound for our gate: one thread, HTTP/1.1, no routing, no limits, no function.

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use tokio::net::TcpListener;

#[derive(Debug, clap::Args)]
pub struct HyperOptions {
    /// Where to listen.
    pub address: SocketAddr,
    /// The body of every reply.
    #[arg(long, default_value = "hello, world\n")]
    pub body: String,
}

/// Serves until it is stopped from outside.
pub fn run(options: &HyperOptions) -> anyhow::Result<()> {
    crate::process::raise_open_files_limit();
    let body = Bytes::from(options.body.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = TcpListener::bind(options.address).await;
        let listener = listener.with_context(|| format!("could not listen on {}", options.address))?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let body = body.clone();
            tokio::task::spawn_local(async move {
                let answer = service_fn(move |_request: Request<Incoming>| {
                    let mut response = Response::new(Full::new(body.clone()));
                    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
                    std::future::ready(Ok::<_, Infallible>(response))
                });
                // A connection that breaks is its client's affair: the load generator counts it.
                let _ =
                    http1::Builder::new().pipeline_flush(false).serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    })
}
