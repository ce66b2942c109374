//! What comes: the request that is served, replies to requests of the unit, and their bodies.

use super::super::Handle;
use super::super::bindings::wasi::http::types as t;
use super::super::bindings::wasi::io::streams::StreamError;
use super::super::io::{InputStream, Pollable};
use super::{Fields, ResponseOutparam, SERVED, error_code, failed, method_of, read_headers, scheme_of};
use crate::convert::{self as c, Strange};
use crate::imports::Outside;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frame::Value;
use kernel_abi::Verb;
use t::{ErrorCode, Method, Scheme};
use wasmtime::{Result, bail, format_err};

/// Bytes of one piece of a body.
const PIECE_BYTES_MAX: u64 = 64 << 10;

/// How long to wait for a piece: until there is one.
const FOR_EVER: Value<'static> = Value::I64(-1);
const NOT_AT_ALL: Value<'static> = Value::I64(0);

pub struct IncomingRequest {
    method: String,
    scheme: String,
    authority: Option<String>,
    path: Option<String>,
    headers: Fields,
    is_consumed: bool,
}

pub struct IncomingResponse {
    id: u64,
    status: u16,
    headers: Fields,
    is_consumed: bool,
}

pub struct IncomingBody {
    id: u64,
    is_streamed: bool,
}

pub struct FutureTrailers {
    id: u64,
    is_taken: bool,
}

pub struct FutureResponse {
    id: u64,
    is_taken: bool,
}

/// What of a body has come and was not read.
#[derive(Default)]
pub struct Arrived {
    data: Vec<u8>,
    end: Option<core::result::Result<Option<Fields>, ErrorCode>>,
}

enum Piece {
    NotYet,
    Data(Vec<u8>),
    End(Option<Fields>),
    Failed(ErrorCode),
}

fn read_piece(value: &Value<'_>) -> core::result::Result<Piece, Strange> {
    Ok(match value {
        Value::Null => Piece::NotYet,
        Value::Bytes(data) | Value::Buffer(data) => Piece::Data(data.to_vec()),
        map => match map.get("end") {
            Some(Value::Null) => Piece::End(None),
            Some(trailers) => Piece::End(Some(Fields::immutable(read_headers(trailers)?))),
            None => Piece::Failed(error_code(map)?),
        },
    })
}

impl Outside {
    /// The request of an event's frame, and the place for its reply.
    pub fn accept(&mut self, request: &Value<'_>) -> Result<(Handle, Handle)> {
        let text = |name| match request.get(name) {
            Some(Value::Str(text)) => Some((*text).to_owned()),
            _ => None,
        };
        let strange = || format_err!("the host's request makes no sense");
        let headers = request.get("headers").ok_or_else(strange)?;
        let headers = Fields::immutable(read_headers(headers).map_err(|Strange| strange())?);
        let method = text("method").ok_or_else(strange)?;
        let scheme = text("scheme").unwrap_or_else(|| "http".to_owned());
        let (authority, path) = (text("authority"), text("path"));
        self.held.arrived.insert(SERVED, Arrived::default());
        let request = IncomingRequest { method, scheme, authority, path, headers, is_consumed: false };
        Ok((self.held.push(request)?, self.held.push(ResponseOutparam)?))
    }

    fn more(&mut self, id: u64, bytes: u64, wait: Value<'static>) -> Result<Piece> {
        let bytes = c::number(bytes.min(PIECE_BYTES_MAX));
        match self.ask(Verb::HttpRead, vec![c::number(id), bytes, wait], read_piece)? {
            Ok(piece) => Ok(piece),
            Err(_) => bail!("http.read: the host gives none"),
        }
    }

    /// What there is of a body, at most so many bytes; nothing if there is nothing yet and it does not wait.
    pub fn read_body(
        &mut self,
        id: u64,
        bytes: u64,
        waits: bool,
    ) -> Result<core::result::Result<Vec<u8>, StreamError>> {
        let Some(arrived) = self.held.arrived.get(&id) else { return Ok(Err(StreamError::Closed)) };
        if bytes == 0 {
            return Ok(Ok(Vec::new()));
        }
        if arrived.data.is_empty() && arrived.end.is_none() {
            let wait = if waits { FOR_EVER } else { NOT_AT_ALL };
            let piece = self.more(id, bytes, wait)?;
            let arrived = self.held.arrived.entry(id).or_default();
            match piece {
                Piece::NotYet => return Ok(Ok(Vec::new())),
                Piece::Data(data) => arrived.data = data,
                Piece::End(trailers) => arrived.end = Some(Ok(trailers)),
                Piece::Failed(code) => arrived.end = Some(Err(code)),
            }
        }
        let arrived = self.held.arrived.entry(id).or_default();
        if arrived.data.is_empty() {
            return Ok(Err(match &arrived.end {
                Some(Err(code)) => {
                    let failed = failed(code.clone());
                    StreamError::LastOperationFailed(self.held.push(failed)?)
                }
                _ => StreamError::Closed,
            }));
        }
        let count = usize::try_from(bytes).unwrap_or(usize::MAX).min(arrived.data.len());
        let rest = arrived.data.split_off(count);
        Ok(Ok(core::mem::replace(&mut arrived.data, rest)))
    }

    /// Whether a read of a body would find something without asking.
    pub fn has_arrived(&self, id: u64) -> bool {
        self.held.arrived.get(&id).is_none_or(|arrived| !arrived.data.is_empty() || arrived.end.is_some())
    }

    /// The exchanges among `ids` that have something by now, or within so many nanoseconds, or at last.
    pub fn wait_for(&mut self, ids: &[u64], ns: Option<u64>) -> Result<Vec<u64>> {
        let wait = ns.map_or(FOR_EVER, c::number);
        let list = Value::List(ids.iter().map(|id| c::number(*id)).collect());
        let read = |value: &Value<'_>| match value {
            Value::List(ready) => {
                let id = |id: &Value<'_>| u64::try_from(c::read_integer(id)?).map_err(|_| Strange);
                ready.iter().map(id).collect()
            }
            _ => Err(Strange),
        };
        match self.ask(Verb::HttpWait, vec![list, wait], read)? {
            Ok(ready) => Ok(ready),
            Err(_) => bail!("http.wait: the host does not let the unit wait"),
        }
    }

    /// Nobody in the unit wants more of this exchange.
    fn leave(&mut self, id: u64) -> Result<()> {
        self.held.arrived.remove(&id);
        if id != SERVED {
            let _left = self.ask(Verb::HttpDrop, vec![c::number(id)], c::read_nothing)?;
        }
        Ok(())
    }
}

impl t::HostIncomingRequest for Outside {
    fn method(&mut self, request: Handle) -> Result<Method> {
        Ok(method_of(&self.held.get::<IncomingRequest>(&request)?.method))
    }

    fn path_with_query(&mut self, request: Handle) -> Result<Option<String>> {
        Ok(self.held.get::<IncomingRequest>(&request)?.path.clone())
    }

    fn scheme(&mut self, request: Handle) -> Result<Option<Scheme>> {
        Ok(Some(scheme_of(&self.held.get::<IncomingRequest>(&request)?.scheme)))
    }

    fn authority(&mut self, request: Handle) -> Result<Option<String>> {
        Ok(self.held.get::<IncomingRequest>(&request)?.authority.clone())
    }

    fn headers(&mut self, request: Handle) -> Result<Handle> {
        let headers = self.held.get::<IncomingRequest>(&request)?.headers.view();
        self.held.push(headers)
    }

    fn consume(&mut self, request: Handle) -> Result<core::result::Result<Handle, ()>> {
        if core::mem::replace(&mut self.held.get_mut::<IncomingRequest>(&request)?.is_consumed, true) {
            return Ok(Err(()));
        }
        self.held.push(IncomingBody { id: SERVED, is_streamed: false }).map(Ok)
    }

    fn drop(&mut self, request: Handle) -> Result<()> {
        self.held.delete::<IncomingRequest>(request).map(drop)
    }
}

impl t::HostIncomingResponse for Outside {
    fn status(&mut self, response: Handle) -> Result<u16> {
        Ok(self.held.get::<IncomingResponse>(&response)?.status)
    }

    fn headers(&mut self, response: Handle) -> Result<Handle> {
        let headers = self.held.get::<IncomingResponse>(&response)?.headers.view();
        self.held.push(headers)
    }

    fn consume(&mut self, response: Handle) -> Result<core::result::Result<Handle, ()>> {
        let response = self.held.get_mut::<IncomingResponse>(&response)?;
        if core::mem::replace(&mut response.is_consumed, true) {
            return Ok(Err(()));
        }
        let id = response.id;
        self.held.push(IncomingBody { id, is_streamed: false }).map(Ok)
    }

    fn drop(&mut self, response: Handle) -> Result<()> {
        let response = self.held.delete::<IncomingResponse>(response)?;
        if response.is_consumed { Ok(()) } else { self.leave(response.id) }
    }
}

impl t::HostIncomingBody for Outside {
    fn stream(&mut self, body: Handle) -> Result<core::result::Result<Handle, ()>> {
        let body = self.held.get_mut::<IncomingBody>(&body)?;
        if core::mem::replace(&mut body.is_streamed, true) {
            return Ok(Err(()));
        }
        let id = body.id;
        self.held.push(InputStream::Body(id)).map(Ok)
    }

    fn finish(&mut self, body: Handle) -> Result<Handle> {
        let IncomingBody { id, .. } = self.held.delete::<IncomingBody>(body)?;
        self.held.push(FutureTrailers { id, is_taken: false })
    }

    fn drop(&mut self, body: Handle) -> Result<()> {
        let IncomingBody { id, .. } = self.held.delete::<IncomingBody>(body)?;
        self.leave(id)
    }
}

impl t::HostFutureTrailers for Outside {
    /// What was not read of the body is passed over when the trailers are taken, which waits.
    fn subscribe(&mut self, trailers: Handle) -> Result<Handle> {
        self.held.get::<FutureTrailers>(&trailers)?;
        self.held.push(Pollable::Ready)
    }

    fn get(
        &mut self,
        trailers: Handle,
    ) -> Result<Option<core::result::Result<core::result::Result<Option<Handle>, ErrorCode>, ()>>> {
        let future = self.held.get_mut::<FutureTrailers>(&trailers)?;
        if core::mem::replace(&mut future.is_taken, true) {
            return Ok(Some(Err(())));
        }
        let id = future.id;
        while self.read_body(id, PIECE_BYTES_MAX, true)?.is_ok() {}
        let end = self.held.arrived.remove(&id).and_then(|arrived| arrived.end);
        Ok(Some(Ok(match end.unwrap_or(Ok(None)) {
            Ok(None) => Ok(None),
            Ok(Some(trailers)) => Ok(Some(self.held.push(trailers)?)),
            Err(code) => Err(code),
        })))
    }

    fn drop(&mut self, trailers: Handle) -> Result<()> {
        let FutureTrailers { id, .. } = self.held.delete::<FutureTrailers>(trailers)?;
        self.leave(id)
    }
}

impl Outside {
    /// A request of the unit's own that has left.
    pub fn departed(&mut self, id: u64) -> Result<Handle> {
        self.held.arrived.insert(id, Arrived::default());
        self.held.push(FutureResponse { id, is_taken: false })
    }
}

type Head = core::result::Result<(u16, Vec<(String, Vec<u8>)>), ErrorCode>;

fn read_head(value: &Value<'_>) -> core::result::Result<Option<Head>, Strange> {
    if *value == Value::Null {
        return Ok(None);
    }
    let (Some(status), Some(headers)) = (value.get("status"), value.get("headers")) else {
        return error_code(value).map(|code| Some(Err(code)));
    };
    let status = u16::try_from(c::read_integer(status)?).map_err(|_| Strange)?;
    Ok(Some(Ok((status, read_headers(headers)?))))
}

impl t::HostFutureIncomingResponse for Outside {
    fn subscribe(&mut self, future: Handle) -> Result<Handle> {
        let FutureResponse { id, is_taken } = self.held.get::<FutureResponse>(&future)?;
        let pollable = if *is_taken { Pollable::Ready } else { Pollable::Exchange(*id) };
        self.held.push(pollable)
    }

    fn get(
        &mut self,
        future: Handle,
    ) -> Result<Option<core::result::Result<core::result::Result<Handle, ErrorCode>, ()>>> {
        let FutureResponse { id, is_taken } = self.held.get::<FutureResponse>(&future)?;
        let id = *id;
        if *is_taken {
            return Ok(Some(Err(())));
        }
        let head = match self.ask(Verb::HttpFetched, vec![c::number(id), NOT_AT_ALL], read_head)? {
            Ok(None) => return Ok(None),
            Ok(Some(head)) => head,
            Err(_) => bail!("http.fetched: the host gives none"),
        };
        self.held.get_mut::<FutureResponse>(&future)?.is_taken = true;
        Ok(Some(Ok(match head {
            Ok((status, headers)) => {
                let headers = Fields::immutable(headers);
                Ok(self.held.push(IncomingResponse { id, status, headers, is_consumed: false })?)
            }
            Err(code) => {
                self.leave(id)?;
                Err(code)
            }
        })))
    }

    fn drop(&mut self, future: Handle) -> Result<()> {
        let FutureResponse { id, is_taken } = self.held.delete::<FutureResponse>(future)?;
        if is_taken { Ok(()) } else { self.leave(id) }
    }
}
