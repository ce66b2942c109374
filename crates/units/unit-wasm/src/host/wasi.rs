//! WASI 0.2 for units: environment and output; no files, no sockets, no arguments.

use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use unit::{Deployed, Stream};
use unit_host::Output;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder};

pub fn context(deployed: &Deployed, output: &Arc<Output>) -> WasiCtx {
    let mut builder = WasiCtxBuilder::new();
    builder
        .stdout(ToLog { output: output.clone(), stream: Stream::Stdout })
        .stderr(ToLog { output: output.clone(), stream: Stream::Stderr })
        .allow_tcp(false)
        .allow_udp(false)
        .allow_blocking_current_thread(false);
    for (name, value) in &deployed.function.environment {
        builder.env(name, value);
    }
    builder.build()
}

/// Stdout or stderr of a unit, as lines in its log. Never waits: what is over the limit is dropped there.
#[derive(Clone)]
struct ToLog {
    output: Arc<Output>,
    stream: Stream,
}

impl IsTerminal for ToLog {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for ToLog {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for ToLog {
    async fn ready(&mut self) {}
}

impl OutputStream for ToLog {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.output.write_bytes(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

impl AsyncWrite for ToLog {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.output.write_bytes(self.stream, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
