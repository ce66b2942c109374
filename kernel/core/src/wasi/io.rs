//! `wasi:io` over the few streams there are: output that goes to the log, and bodies of HTTP, either way.

use super::Handle;
use super::bindings::wasi::http::types::ErrorCode;
use super::bindings::wasi::io::{error, poll, streams};
use crate::convert as c;
use crate::imports::Outside;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use kernel_abi::{Verb, ring};
use streams::StreamError;
use wasmtime::{Result, bail};

/// Bytes a stream takes at once.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Why a stream broke off.
pub struct Failed {
    pub text: String,
    pub code: Option<ErrorCode>,
}

/// What can be waited for.
pub enum Pollable {
    Ready,
    /// A moment of the monotonic clock.
    At(u64),
    /// The next piece of a body, or the head of a reply, of this exchange.
    Exchange(u64),
}

pub enum InputStream {
    /// It has ended before it began: `wasi:cli/stdin`.
    Empty,
    /// The body of this exchange.
    Body(u64),
}

#[derive(Clone, Copy)]
pub enum OutputStream {
    Stdout,
    Stderr,
    /// The body of this number.
    Body(u32),
}

type Streamed<T> = Result<core::result::Result<T, StreamError>>;

impl error::Host for Outside {}

impl error::HostError for Outside {
    fn to_debug_string(&mut self, failed: Handle) -> Result<String> {
        Ok(self.held.get::<Failed>(&failed)?.text.clone())
    }

    fn drop(&mut self, failed: Handle) -> Result<()> {
        self.held.delete::<Failed>(failed).map(drop)
    }
}

impl Outside {
    /// Whether it is ready at the moment `now`; what it waits for if it is not.
    fn is_ready(&self, pollable: &Handle, now: u64) -> Result<core::result::Result<(), Waits>> {
        Ok(match self.held.get::<Pollable>(pollable)? {
            Pollable::At(when) if *when > now => Err(Waits::Until(*when)),
            Pollable::Exchange(id) if !self.has_arrived(*id) => Err(Waits::For(*id)),
            Pollable::Ready | Pollable::At(_) | Pollable::Exchange(_) => Ok(()),
        })
    }

    /// Which of them are ready, after a wait if `waits`.
    fn ready_of(&mut self, pollables: &[Handle], waits: bool) -> Result<Vec<u32>> {
        loop {
            let now = self.host()?.monotonic_ns();
            let (mut ready, mut first, mut others) = (Vec::new(), None::<u64>, Vec::new());
            for (index, pollable) in (0..).zip(pollables) {
                match self.is_ready(pollable, now)? {
                    Ok(()) => ready.push(index),
                    Err(Waits::Until(when)) => first = Some(first.map_or(when, |first| first.min(when))),
                    Err(Waits::For(id)) => others.push((index, id)),
                }
            }
            let left = first.map(|first| first - now);
            if !others.is_empty() {
                let ids: Vec<u64> = others.iter().map(|(_, id)| *id).collect();
                let left = if waits && ready.is_empty() { left } else { Some(0) };
                let arrived = self.wait_for(&ids, left)?;
                ready.extend(others.iter().filter(|(_, id)| arrived.contains(id)).map(|(index, _)| *index));
            } else if ready.is_empty() && waits {
                self.wait(left.unwrap_or(u64::MAX))?;
            }
            if !ready.is_empty() || !waits {
                return Ok(ready);
            }
        }
    }

    fn wait(&mut self, ns: u64) -> Result<()> {
        match self.ask(Verb::ClockSleep, vec![c::number(ns)], c::read_nothing)? {
            Ok(()) => Ok(()),
            Err(_) => bail!("the host does not let the unit wait"),
        }
    }
}

impl poll::Host for Outside {
    fn poll(&mut self, pollables: Vec<Handle>) -> Result<Vec<u32>> {
        if pollables.is_empty() {
            bail!("wasi:io/poll: there is nothing to wait for");
        }
        self.ready_of(&pollables, true)
    }
}

impl poll::HostPollable for Outside {
    fn ready(&mut self, pollable: Handle) -> Result<bool> {
        Ok(!self.ready_of(&[pollable], false)?.is_empty())
    }

    fn block(&mut self, pollable: Handle) -> Result<()> {
        poll::Host::poll(self, vec![pollable]).map(drop)
    }

    fn drop(&mut self, pollable: Handle) -> Result<()> {
        self.held.delete::<Pollable>(pollable).map(drop)
    }
}

/// What a pollable waits for.
enum Waits {
    Until(u64),
    For(u64),
}

impl Outside {
    fn read_stream(&mut self, stream: &Handle, bytes: u64, waits: bool) -> Streamed<Vec<u8>> {
        match *self.held.get::<InputStream>(stream)? {
            InputStream::Empty => Ok(Err(StreamError::Closed)),
            InputStream::Body(id) => self.read_body(id, bytes, waits),
        }
    }

    /// A body that nobody takes has no more room however long it is waited for: the call's time ends that.
    fn wait_for_room(&mut self, number: u32, bytes: usize) -> Result<()> {
        Self::check_piece(bytes)?;
        while self.body_room(number) < bytes as u64 {
            self.wait(u64::MAX)?;
        }
        Ok(())
    }
}

impl streams::Host for Outside {}

impl streams::HostInputStream for Outside {
    fn read(&mut self, stream: Handle, bytes: u64) -> Streamed<Vec<u8>> {
        self.read_stream(&stream, bytes, false)
    }

    fn blocking_read(&mut self, stream: Handle, bytes: u64) -> Streamed<Vec<u8>> {
        self.read_stream(&stream, bytes, true)
    }

    fn skip(&mut self, stream: Handle, bytes: u64) -> Streamed<u64> {
        Ok(self.read(stream, bytes)?.map(|read| read.len() as u64))
    }

    fn blocking_skip(&mut self, stream: Handle, bytes: u64) -> Streamed<u64> {
        Ok(self.blocking_read(stream, bytes)?.map(|read| read.len() as u64))
    }

    fn subscribe(&mut self, stream: Handle) -> Result<Handle> {
        let pollable = match self.held.get::<InputStream>(&stream)? {
            InputStream::Empty => Pollable::Ready,
            InputStream::Body(id) => Pollable::Exchange(*id),
        };
        self.held.push(pollable)
    }

    fn drop(&mut self, stream: Handle) -> Result<()> {
        self.held.delete::<InputStream>(stream).map(drop)
    }
}

impl streams::HostOutputStream for Outside {
    fn check_write(&mut self, stream: Handle) -> Streamed<u64> {
        Ok(Ok(match *self.held.get::<OutputStream>(&stream)? {
            OutputStream::Body(number) => self.body_room(number),
            OutputStream::Stdout | OutputStream::Stderr => WRITE_BYTES_MAX as u64,
        }))
    }

    fn write(&mut self, stream: Handle, contents: Vec<u8>) -> Streamed<()> {
        let stream = match *self.held.get::<OutputStream>(&stream)? {
            OutputStream::Stdout => ring::STDOUT,
            OutputStream::Stderr => ring::STDERR,
            OutputStream::Body(number) => return self.write_body(number, &contents),
        };
        self.host()?.print(stream, &contents);
        Ok(Ok(()))
    }

    fn blocking_write_and_flush(&mut self, stream: Handle, contents: Vec<u8>) -> Streamed<()> {
        if let OutputStream::Body(number) = *self.held.get::<OutputStream>(&stream)? {
            self.wait_for_room(number, contents.len())?;
        }
        self.write(stream, contents)
    }

    fn flush(&mut self, stream: Handle) -> Streamed<()> {
        self.held.get::<OutputStream>(&stream)?;
        Ok(Ok(()))
    }

    fn blocking_flush(&mut self, stream: Handle) -> Streamed<()> {
        self.flush(stream)
    }

    fn subscribe(&mut self, stream: Handle) -> Result<Handle> {
        let pollable = match *self.held.get::<OutputStream>(&stream)? {
            // Nothing that happens while it is waited for makes room.
            OutputStream::Body(number) if self.body_room(number) == 0 => Pollable::At(u64::MAX),
            _ => Pollable::Ready,
        };
        self.held.push(pollable)
    }

    fn write_zeroes(&mut self, stream: Handle, bytes: u64) -> Streamed<()> {
        match usize::try_from(bytes) {
            Ok(bytes @ 0..=WRITE_BYTES_MAX) => self.write(stream, vec![0; bytes]),
            _ => bail!("wasi:io/streams: {bytes} zeroes, a stream takes at most {WRITE_BYTES_MAX} bytes at once"),
        }
    }

    fn blocking_write_zeroes_and_flush(&mut self, stream: Handle, bytes: u64) -> Streamed<()> {
        self.write_zeroes(stream, bytes)
    }

    fn splice(&mut self, to: Handle, from: Handle, bytes: u64) -> Streamed<u64> {
        let read = match streams::HostInputStream::read(self, from, bytes.min(WRITE_BYTES_MAX as u64))? {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = read.len() as u64;
        Ok(self.write(to, read)?.map(|()| bytes))
    }

    fn blocking_splice(&mut self, to: Handle, from: Handle, bytes: u64) -> Streamed<u64> {
        let read = match streams::HostInputStream::blocking_read(self, from, bytes.min(WRITE_BYTES_MAX as u64))? {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = read.len() as u64;
        Ok(self.write(to, read)?.map(|()| bytes))
    }

    fn drop(&mut self, stream: Handle) -> Result<()> {
        self.held.delete::<OutputStream>(stream).map(drop)
    }
}
