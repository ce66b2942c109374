//! What leaves: the reply, requests of the unit's own, and their bodies.
//!
//! A body may be written before what it belongs to is handed over. So long little of it is kept here; afterwards each
//! piece goes to the host, which takes it when there is room.

use super::super::Handle;
use super::super::bindings::wasi::http::outgoing_handler;
use super::super::bindings::wasi::http::types as t;
use super::super::bindings::wasi::io::streams::StreamError;
use super::super::io::OutputStream;
use super::{
    Fields, SERVED, TEXT_BYTES_MAX, error_code, failed, headers_value, is_token, method_of, scheme_word, word_of,
};
use crate::bindings::types::Error;
use crate::convert as c;
use crate::imports::Outside;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frame::Value;
use kernel_abi::Verb;
use t::{ErrorCode, Method, Scheme};
use wasmtime::{Result, bail};

/// Bytes of a body that are kept before anybody is there to take them.
const KEPT_BYTES_MAX: usize = 64 << 10;

pub struct ResponseOutparam;

pub struct OutgoingResponse {
    status: u16,
    headers: Fields,
    /// The number of its body, once that was taken.
    body: Option<u32>,
}

pub struct OutgoingRequest {
    method: Method,
    scheme: Option<Scheme>,
    authority: Option<String>,
    path: Option<String>,
    headers: Fields,
    body: Option<u32>,
}

#[derive(Default, Clone, Copy)]
pub struct RequestOptions {
    connect: Option<u64>,
    first_byte: Option<u64>,
    between_bytes: Option<u64>,
}

pub struct OutgoingBody {
    number: u32,
    is_written: bool,
}

/// A body on its way.
#[derive(Default)]
pub struct Going {
    /// The exchange it belongs to, once that is handed over.
    to: Option<u64>,
    kept: Vec<u8>,
    /// What its head promises.
    length: Option<u64>,
    written: u64,
    end: Option<End>,
}

enum End {
    Whole(Option<Fields>),
    Broken,
}

type Done = core::result::Result<(), ()>;

impl Outside {
    fn new_body(&mut self, length: Option<u64>) -> Result<(u32, Handle)> {
        let number = self.held.bodies;
        self.held.bodies += 1;
        self.held.going.insert(number, Going { length, ..Going::default() });
        Ok((number, self.held.push(OutgoingBody { number, is_written: false })?))
    }

    /// Bytes a body takes now.
    pub fn body_room(&self, number: u32) -> u64 {
        match self.held.going.get(&number) {
            Some(Going { to: None, kept, .. }) => (KEPT_BYTES_MAX - kept.len()) as u64,
            _ => KEPT_BYTES_MAX as u64,
        }
    }

    /// More than a body ever has room for is no unit's to write at once.
    pub fn check_piece(bytes: usize) -> Result<()> {
        if bytes > KEPT_BYTES_MAX {
            bail!("wasi:io/streams: {bytes} bytes, a body takes at most {KEPT_BYTES_MAX} at once");
        }
        Ok(())
    }

    pub fn write_body(&mut self, number: u32, bytes: &[u8]) -> Result<core::result::Result<(), StreamError>> {
        Self::check_piece(bytes.len())?;
        let Some(going) = self.held.going.get_mut(&number) else { return Ok(Err(StreamError::Closed)) };
        going.written += bytes.len() as u64;
        if let Some(length) = going.length
            && going.written > length
        {
            let failed = failed(ErrorCode::HttpResponseBodySize(Some(going.written)));
            return Ok(Err(StreamError::LastOperationFailed(self.held.push(failed)?)));
        }
        match going.to {
            Some(id) => self.send(id, bytes),
            None if going.kept.len() + bytes.len() > KEPT_BYTES_MAX => {
                bail!("wasi:http: a body nobody takes yet, of more than {KEPT_BYTES_MAX} bytes")
            }
            None => {
                going.kept.extend_from_slice(bytes);
                Ok(Ok(()))
            }
        }
    }

    fn send(&mut self, id: u64, bytes: &[u8]) -> Result<core::result::Result<(), StreamError>> {
        if bytes.is_empty() {
            return Ok(Ok(()));
        }
        match self.ask(Verb::HttpWrite, vec![c::number(id), c::bytes(bytes)], c::read_bool)? {
            Ok(true) => Ok(Ok(())),
            Ok(false) => Ok(Err(StreamError::Closed)),
            Err(_) => bail!("http.write: the host takes none"),
        }
    }

    /// What was handed over has this number from now on; what was written of its body goes there.
    fn hand_over(&mut self, number: Option<u32>, id: u64) -> Result<()> {
        let Some(going) = number.and_then(|number| self.held.going.get_mut(&number)) else { return Ok(()) };
        going.to = Some(id);
        let (kept, end) = (core::mem::take(&mut going.kept), going.end.take());
        let _closed_is_told_by_the_next_write = self.send(id, &kept)?;
        if let Some(end) = end {
            self.held.going.remove(&number.unwrap_or(0));
            self.end_body(id, end)?;
        }
        Ok(())
    }

    fn end_body(&mut self, id: u64, end: End) -> Result<()> {
        let (verb, arguments) = match &end {
            End::Whole(trailers) => {
                let trailers = trailers.as_ref().map_or(Value::Null, |trailers| headers_value(&trailers.entries));
                (Verb::HttpFinish, vec![c::number(id), trailers])
            }
            End::Broken => (Verb::HttpAbort, vec![c::number(id)]),
        };
        match self.ask(verb, arguments, c::read_nothing)? {
            Ok(()) => Ok(()),
            Err(_) => bail!("{}: the host does not take it", verb.op()),
        }
    }

    fn close(&mut self, number: u32, end: End) -> Result<()> {
        let Some(going) = self.held.going.get_mut(&number) else { return Ok(()) };
        match going.to {
            Some(id) => {
                self.held.going.remove(&number);
                self.end_body(id, end)
            }
            None => {
                going.end = Some(end);
                Ok(())
            }
        }
    }
}

impl t::HostResponseOutparam for Outside {
    fn set(&mut self, out: Handle, response: core::result::Result<Handle, ErrorCode>) -> Result<()> {
        self.held.delete::<ResponseOutparam>(out)?;
        let response = match response {
            Ok(response) => self.held.delete::<OutgoingResponse>(response)?,
            Err(code) => {
                let why = format!("{code:?}");
                return match self.ask(Verb::HttpRefuse, vec![Value::Str(&why)], c::read_nothing)? {
                    Ok(()) => Ok(()),
                    Err(_) => bail!("http.refuse: the host does not take it"),
                };
            }
        };
        let head = vec![
            c::number(response.status.into()),
            headers_value(&response.headers.entries),
            Value::Bool(response.body.is_some()),
        ];
        match self.ask(Verb::HttpHead, head, c::read_nothing)? {
            Ok(()) => self.hand_over(response.body, SERVED),
            Err(Error::Denied(why) | Error::Invalid(why) | Error::Unavailable(why)) => bail!("http.head: {why}"),
        }
    }

    fn send_informational(
        &mut self,
        _: Handle,
        _: u16,
        headers: Handle,
    ) -> Result<core::result::Result<(), ErrorCode>> {
        self.held.delete::<Fields>(headers)?;
        Ok(Err(ErrorCode::InternalError(Some("informational responses are not offered".into()))))
    }

    fn drop(&mut self, out: Handle) -> Result<()> {
        self.held.delete::<ResponseOutparam>(out).map(drop)
    }
}

impl t::HostOutgoingResponse for Outside {
    fn new(&mut self, headers: Handle) -> Result<Handle> {
        let headers = self.held.delete::<Fields>(headers)?;
        self.held.push(OutgoingResponse { status: 200, headers, body: None })
    }

    fn status_code(&mut self, response: Handle) -> Result<u16> {
        Ok(self.held.get::<OutgoingResponse>(&response)?.status)
    }

    fn set_status_code(&mut self, response: Handle, status: u16) -> Result<Done> {
        let response = self.held.get_mut::<OutgoingResponse>(&response)?;
        if !(100..1_000).contains(&status) {
            return Ok(Err(()));
        }
        response.status = status;
        Ok(Ok(()))
    }

    fn headers(&mut self, response: Handle) -> Result<Handle> {
        let headers = self.held.get::<OutgoingResponse>(&response)?.headers.view();
        self.held.push(headers)
    }

    fn body(&mut self, response: Handle) -> Result<core::result::Result<Handle, ()>> {
        let outgoing = self.held.get::<OutgoingResponse>(&response)?;
        if outgoing.body.is_some() {
            return Ok(Err(()));
        }
        let length = outgoing.headers.content_length();
        let (number, body) = self.new_body(length)?;
        self.held.get_mut::<OutgoingResponse>(&response)?.body = Some(number);
        Ok(Ok(body))
    }

    fn drop(&mut self, response: Handle) -> Result<()> {
        self.held.delete::<OutgoingResponse>(response).map(drop)
    }
}

impl t::HostOutgoingBody for Outside {
    fn write(&mut self, body: Handle) -> Result<core::result::Result<Handle, ()>> {
        let body = self.held.get_mut::<OutgoingBody>(&body)?;
        if core::mem::replace(&mut body.is_written, true) {
            return Ok(Err(()));
        }
        let number = body.number;
        self.held.push(OutputStream::Body(number)).map(Ok)
    }

    fn finish(&mut self, body: Handle, trailers: Option<Handle>) -> Result<core::result::Result<(), ErrorCode>> {
        let OutgoingBody { number, .. } = self.held.delete::<OutgoingBody>(body)?;
        let trailers = trailers.map(|trailers| self.held.delete::<Fields>(trailers)).transpose()?;
        let Some(going) = self.held.going.get(&number) else { return Ok(Ok(())) };
        if going.length.is_some_and(|length| length != going.written) {
            let code = ErrorCode::HttpResponseBodySize(Some(going.written));
            self.close(number, End::Broken)?;
            return Ok(Err(code));
        }
        self.close(number, End::Whole(trailers))?;
        Ok(Ok(()))
    }

    fn drop(&mut self, body: Handle) -> Result<()> {
        let OutgoingBody { number, .. } = self.held.delete::<OutgoingBody>(body)?;
        self.close(number, End::Broken)
    }
}

impl t::HostOutgoingRequest for Outside {
    fn new(&mut self, headers: Handle) -> Result<Handle> {
        let headers = self.held.delete::<Fields>(headers)?;
        let (method, scheme, authority, path, body) = (Method::Get, None, None, None, None);
        self.held.push(OutgoingRequest { method, scheme, authority, path, headers, body })
    }

    fn body(&mut self, request: Handle) -> Result<core::result::Result<Handle, ()>> {
        let outgoing = self.held.get::<OutgoingRequest>(&request)?;
        if outgoing.body.is_some() {
            return Ok(Err(()));
        }
        let length = outgoing.headers.content_length();
        let (number, body) = self.new_body(length)?;
        self.held.get_mut::<OutgoingRequest>(&request)?.body = Some(number);
        Ok(Ok(body))
    }

    fn method(&mut self, request: Handle) -> Result<Method> {
        Ok(self.held.get::<OutgoingRequest>(&request)?.method.clone())
    }

    fn set_method(&mut self, request: Handle, method: Method) -> Result<Done> {
        let request = self.held.get_mut::<OutgoingRequest>(&request)?;
        let word = word_of(&method);
        if word.len() > TEXT_BYTES_MAX || !is_token(word) {
            return Ok(Err(()));
        }
        request.method = method_of(word);
        Ok(Ok(()))
    }

    fn path_with_query(&mut self, request: Handle) -> Result<Option<String>> {
        Ok(self.held.get::<OutgoingRequest>(&request)?.path.clone())
    }

    fn set_path_with_query(&mut self, request: Handle, path: Option<String>) -> Result<Done> {
        let request = self.held.get_mut::<OutgoingRequest>(&request)?;
        if !path.as_deref().is_none_or(is_place) {
            return Ok(Err(()));
        }
        request.path = path;
        Ok(Ok(()))
    }

    fn scheme(&mut self, request: Handle) -> Result<Option<Scheme>> {
        Ok(self.held.get::<OutgoingRequest>(&request)?.scheme.clone())
    }

    fn set_scheme(&mut self, request: Handle, scheme: Option<Scheme>) -> Result<Done> {
        let request = self.held.get_mut::<OutgoingRequest>(&request)?;
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        if let Some(Scheme::Other(word)) = &scheme
            && (word.is_empty() || word.len() > TEXT_BYTES_MAX || !word.bytes().all(is_right))
        {
            return Ok(Err(()));
        }
        request.scheme = scheme;
        Ok(Ok(()))
    }

    fn authority(&mut self, request: Handle) -> Result<Option<String>> {
        Ok(self.held.get::<OutgoingRequest>(&request)?.authority.clone())
    }

    fn set_authority(&mut self, request: Handle, authority: Option<String>) -> Result<Done> {
        let request = self.held.get_mut::<OutgoingRequest>(&request)?;
        if !authority.as_deref().is_none_or(|authority| is_place(authority) && !authority.contains(['/', '?', '#'])) {
            return Ok(Err(()));
        }
        request.authority = authority;
        Ok(Ok(()))
    }

    fn headers(&mut self, request: Handle) -> Result<Handle> {
        let headers = self.held.get::<OutgoingRequest>(&request)?.headers.view();
        self.held.push(headers)
    }

    fn drop(&mut self, request: Handle) -> Result<()> {
        self.held.delete::<OutgoingRequest>(request).map(drop)
    }
}

/// Text that may stand in a URI; whether it makes one is the host's to say.
fn is_place(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl t::HostRequestOptions for Outside {
    fn new(&mut self) -> Result<Handle> {
        self.held.push(RequestOptions::default())
    }

    fn connect_timeout(&mut self, options: Handle) -> Result<Option<u64>> {
        Ok(self.held.get::<RequestOptions>(&options)?.connect)
    }

    fn set_connect_timeout(&mut self, options: Handle, ns: Option<u64>) -> Result<Done> {
        self.held.get_mut::<RequestOptions>(&options)?.connect = ns;
        Ok(Ok(()))
    }

    fn first_byte_timeout(&mut self, options: Handle) -> Result<Option<u64>> {
        Ok(self.held.get::<RequestOptions>(&options)?.first_byte)
    }

    fn set_first_byte_timeout(&mut self, options: Handle, ns: Option<u64>) -> Result<Done> {
        self.held.get_mut::<RequestOptions>(&options)?.first_byte = ns;
        Ok(Ok(()))
    }

    fn between_bytes_timeout(&mut self, options: Handle) -> Result<Option<u64>> {
        Ok(self.held.get::<RequestOptions>(&options)?.between_bytes)
    }

    fn set_between_bytes_timeout(&mut self, options: Handle, ns: Option<u64>) -> Result<Done> {
        self.held.get_mut::<RequestOptions>(&options)?.between_bytes = ns;
        Ok(Ok(()))
    }

    fn drop(&mut self, options: Handle) -> Result<()> {
        self.held.delete::<RequestOptions>(options).map(drop)
    }
}

impl outgoing_handler::Host for Outside {
    fn handle(&mut self, request: Handle, options: Option<Handle>) -> Result<core::result::Result<Handle, ErrorCode>> {
        let request = self.held.delete::<OutgoingRequest>(request)?;
        let options = match options {
            Some(options) => self.held.delete::<RequestOptions>(options)?,
            None => RequestOptions::default(),
        };
        let maybe = |ns: Option<u64>| ns.map_or(Value::Null, c::number);
        let Some(authority) = request.authority else { return Ok(Err(ErrorCode::HttpRequestUriInvalid)) };
        let asked = Value::Map(vec![
            ("method", Value::Str(word_of(&request.method))),
            ("scheme", Value::Str(scheme_word(request.scheme.as_ref()))),
            ("authority", Value::Str(&authority)),
            ("path", Value::Str(request.path.as_deref().unwrap_or("/"))),
            ("headers", headers_value(&request.headers.entries)),
            ("has-body", Value::Bool(request.body.is_some())),
            ("connect-ns", maybe(options.connect)),
            ("first-byte-ns", maybe(options.first_byte)),
            ("between-bytes-ns", maybe(options.between_bytes)),
        ]);
        let read = |value: &Value<'_>| match value {
            Value::I64(id) => u64::try_from(*id).map(Ok).map_err(|_| c::Strange),
            map => {
                let why = if let Some(Value::Str(why)) = map.get("why") { Some((*why).to_owned()) } else { None };
                Ok(Err((error_code(map)?, why)))
            }
        };
        match self.ask(Verb::HttpFetch, vec![asked], read)? {
            Ok(Ok(id)) => {
                self.hand_over(request.body, id)?;
                Ok(Ok(self.departed(id)?))
            }
            Ok(Err((code, why))) => {
                // Once for each unit: one that asks in a loop says nothing new.
                if let Some(why) = why
                    && !core::mem::replace(&mut self.held.is_denied, true)
                {
                    self.host()?.log(3, &format!("outgoing request denied: {why}"));
                }
                Ok(Err(code))
            }
            Err(Error::Denied(why) | Error::Invalid(why) | Error::Unavailable(why)) => {
                Ok(Err(ErrorCode::InternalError(Some(why))))
            }
        }
    }
}
