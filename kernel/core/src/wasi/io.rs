//! `wasi:io` over the few streams there are: input without an end to read, output that goes to the log.

use super::bindings::wasi::io::{error, poll, streams};
use crate::convert as c;
use crate::imports::Outside;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use kernel_abi::{Verb, ring};
use streams::StreamError;
use wasmtime::component::Resource;
use wasmtime::{Result, bail};

/// Bytes a stream takes at once.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Why a stream broke off.
pub struct Failed(pub String);

/// What can be waited for.
pub enum Pollable {
    Ready,
    /// A moment of the monotonic clock.
    At(u64),
}

pub enum InputStream {
    /// It has ended before it began: `wasi:cli/stdin`.
    Empty,
}

#[derive(Clone, Copy)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

type Streamed<T> = Result<core::result::Result<T, StreamError>>;

impl error::Host for Outside {}

impl error::HostError for Outside {
    fn to_debug_string(&mut self, failed: Resource<Failed>) -> Result<String> {
        Ok(self.held.get(&failed)?.0.clone())
    }

    fn drop(&mut self, failed: Resource<Failed>) -> Result<()> {
        self.held.delete(failed)
    }
}

impl Outside {
    /// Whether it is ready at the moment `now`; the moment it will be if it is not.
    fn is_ready(&self, pollable: &Resource<Pollable>, now: u64) -> Result<core::result::Result<(), u64>> {
        Ok(match self.held.get(pollable)? {
            Pollable::At(when) if *when > now => Err(*when),
            Pollable::Ready | Pollable::At(_) => Ok(()),
        })
    }

    fn wait(&mut self, ns: u64) -> Result<()> {
        match self.ask(Verb::ClockSleep, vec![c::number(ns)], c::read_nothing)? {
            Ok(()) => Ok(()),
            Err(_) => bail!("the host does not let the unit wait"),
        }
    }
}

impl poll::Host for Outside {
    fn poll(&mut self, pollables: Vec<Resource<Pollable>>) -> Result<Vec<u32>> {
        if pollables.is_empty() {
            bail!("wasi:io/poll: there is nothing to wait for");
        }
        loop {
            let now = self.host()?.monotonic_ns();
            let (mut ready, mut first) = (Vec::new(), u64::MAX);
            for (index, pollable) in (0..).zip(&pollables) {
                match self.is_ready(pollable, now)? {
                    Ok(()) => ready.push(index),
                    Err(when) => first = first.min(when),
                }
            }
            if !ready.is_empty() {
                return Ok(ready);
            }
            self.wait(first - now)?;
        }
    }
}

impl poll::HostPollable for Outside {
    fn ready(&mut self, pollable: Resource<Pollable>) -> Result<bool> {
        let now = self.host()?.monotonic_ns();
        Ok(self.is_ready(&pollable, now)?.is_ok())
    }

    fn block(&mut self, pollable: Resource<Pollable>) -> Result<()> {
        poll::Host::poll(self, vec![pollable]).map(drop)
    }

    fn drop(&mut self, pollable: Resource<Pollable>) -> Result<()> {
        self.held.delete(pollable)
    }
}

impl streams::Host for Outside {}

impl streams::HostInputStream for Outside {
    fn read(&mut self, stream: Resource<InputStream>, _: u64) -> Streamed<Vec<u8>> {
        let InputStream::Empty = self.held.get(&stream)?;
        Ok(Err(StreamError::Closed))
    }

    fn blocking_read(&mut self, stream: Resource<InputStream>, bytes: u64) -> Streamed<Vec<u8>> {
        self.read(stream, bytes)
    }

    fn skip(&mut self, stream: Resource<InputStream>, bytes: u64) -> Streamed<u64> {
        Ok(self.read(stream, bytes)?.map(|read| read.len() as u64))
    }

    fn blocking_skip(&mut self, stream: Resource<InputStream>, bytes: u64) -> Streamed<u64> {
        Ok(self.blocking_read(stream, bytes)?.map(|read| read.len() as u64))
    }

    fn subscribe(&mut self, stream: Resource<InputStream>) -> Result<Resource<Pollable>> {
        let InputStream::Empty = self.held.get(&stream)?;
        self.held.push(Pollable::Ready)
    }

    fn drop(&mut self, stream: Resource<InputStream>) -> Result<()> {
        self.held.delete(stream)
    }
}

impl streams::HostOutputStream for Outside {
    fn check_write(&mut self, stream: Resource<OutputStream>) -> Streamed<u64> {
        self.held.get(&stream)?;
        Ok(Ok(WRITE_BYTES_MAX as u64))
    }

    fn write(&mut self, stream: Resource<OutputStream>, contents: Vec<u8>) -> Streamed<()> {
        let stream = match self.held.get(&stream)? {
            OutputStream::Stdout => ring::STDOUT,
            OutputStream::Stderr => ring::STDERR,
        };
        self.host()?.print(stream, &contents);
        Ok(Ok(()))
    }

    fn blocking_write_and_flush(&mut self, stream: Resource<OutputStream>, contents: Vec<u8>) -> Streamed<()> {
        self.write(stream, contents)
    }

    fn flush(&mut self, stream: Resource<OutputStream>) -> Streamed<()> {
        self.held.get(&stream)?;
        Ok(Ok(()))
    }

    fn blocking_flush(&mut self, stream: Resource<OutputStream>) -> Streamed<()> {
        self.flush(stream)
    }

    fn subscribe(&mut self, stream: Resource<OutputStream>) -> Result<Resource<Pollable>> {
        self.held.get(&stream)?;
        self.held.push(Pollable::Ready)
    }

    fn write_zeroes(&mut self, stream: Resource<OutputStream>, bytes: u64) -> Streamed<()> {
        match usize::try_from(bytes) {
            Ok(bytes @ 0..=WRITE_BYTES_MAX) => self.write(stream, vec![0; bytes]),
            _ => bail!("wasi:io/streams: {bytes} zeroes, a stream takes at most {WRITE_BYTES_MAX} bytes at once"),
        }
    }

    fn blocking_write_zeroes_and_flush(&mut self, stream: Resource<OutputStream>, bytes: u64) -> Streamed<()> {
        self.write_zeroes(stream, bytes)
    }

    fn splice(&mut self, to: Resource<OutputStream>, from: Resource<InputStream>, bytes: u64) -> Streamed<u64> {
        let read = match streams::HostInputStream::read(self, from, bytes.min(WRITE_BYTES_MAX as u64))? {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = read.len() as u64;
        Ok(self.write(to, read)?.map(|()| bytes))
    }

    fn blocking_splice(
        &mut self,
        to: Resource<OutputStream>,
        from: Resource<InputStream>,
        bytes: u64,
    ) -> Streamed<u64> {
        let read = match streams::HostInputStream::blocking_read(self, from, bytes.min(WRITE_BYTES_MAX as u64))? {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = read.len() as u64;
        Ok(self.write(to, read)?.map(|()| bytes))
    }

    fn drop(&mut self, stream: Resource<OutputStream>) -> Result<()> {
        self.held.delete(stream)
    }
}
