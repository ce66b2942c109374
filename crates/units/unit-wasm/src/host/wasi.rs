//! WASI 0.2 for units: environment and output; no files, no sockets, no arguments.

use crate::unit_state::UnitState;
use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use unit::{Deployed, Output, Stream};
use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder};
use wasmtime_wasi_io::bindings::wasi::io::{error, poll, streams};

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

/// Puts `wasi:io` in the place of the same from `wasmtime-wasi`, which asks for the whole context although streams need
/// the table alone: a unit that only replies would pay for random generators.
pub fn add_io_to_linker(linker: &mut Linker<UnitState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    error::add_to_linker::<_, Table>(linker, |state| &mut state.table)?;
    poll::add_to_linker::<_, Table>(linker, |state| {
        state.waits();
        &mut state.table
    })?;
    streams::add_to_linker::<_, Table>(linker, |state| {
        state.noted();
        &mut state.table
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
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
