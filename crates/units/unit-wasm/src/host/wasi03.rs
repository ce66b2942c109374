//! WASI 0.3: `wasi:http`, clocks, random numbers, environment and output; no files, no sockets, no arguments.
//!
//! What wasmtime has for it is linked as it is, but for functions by which a unit leaves texts with its host: these are
//! bounded before they are kept.

use crate::holdings::ERROR_TEXT_BYTES_MAX;
use crate::host::texts::is_too_long;
use crate::unit_state::UnitState;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;
use wasmtime::component::{
    Access, FutureConsumer, FutureReader, Lift, Linker, LinkerInstance, Lower, Resource, Source, StreamReader,
};
use wasmtime::{AsContextMut, StoreContextMut};
use wasmtime_wasi_http::p3::bindings::http::types::{
    ErrorCode, Fields, HostRequest as _, HostRequestWithStore, HostResponseWithStore, Method, Request, RequestOptions,
    Response, Trailers,
};
use wasmtime_wasi_http::{WasiHttp, WasiHttpView};

/// What a component that exports `wasi:http/handler` may import beside what all may.
pub const OFFERED: &[(&str, &str)] = &[
    ("wasi:http/types", VERSION),
    ("wasi:http/client", VERSION),
    ("wasi:clocks/types", VERSION),
    ("wasi:clocks/monotonic-clock", VERSION),
    ("wasi:clocks/system-clock", VERSION),
    ("wasi:random/random", VERSION),
    ("wasi:random/insecure", VERSION),
    ("wasi:random/insecure-seed", VERSION),
    ("wasi:cli/types", VERSION),
    ("wasi:cli/environment", VERSION),
    ("wasi:cli/exit", VERSION),
    ("wasi:cli/stdin", VERSION),
    ("wasi:cli/stdout", VERSION),
    ("wasi:cli/stderr", VERSION),
    ("wasi:cli/terminal-input", VERSION),
    ("wasi:cli/terminal-output", VERSION),
    ("wasi:cli/terminal-stdin", VERSION),
    ("wasi:cli/terminal-stdout", VERSION),
    ("wasi:cli/terminal-stderr", VERSION),
    ("wasi:filesystem/types", VERSION),
    ("wasi:filesystem/preopens", VERSION),
    ("wasi:sockets/types", VERSION),
    ("wasi:sockets/ip-name-lookup", VERSION),
    ("spin:key-value/key-value", "3.0.0"),
    ("spin:variables/variables", "3.0.0"),
];

/// What wasmtime has.
const VERSION: &str = "0.3.0";

pub fn add_to_linker(linker: &mut Linker<UnitState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p3::add_to_linker(linker)?;
    wasmtime_wasi_http::p3::add_to_linker(linker)?;
    linker.allow_shadowing(true);
    let mut types = linker.instance("wasi:http/types@0.3.0")?;
    bound_texts(&mut types)?;
    bound_errors(&mut types)?;
    linker.allow_shadowing(false);
    Ok(())
}

type Store<'a> = StoreContextMut<'a, UnitState>;
type Answer = wasmtime::Result<(Result<(), ()>,)>;

/// Texts of an outgoing request, as in 0.2.
fn bound_texts(types: &mut LinkerInstance<'_, UnitState>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]request.set-method",
        |mut store: Store<'_>, (request, method): (Resource<Request>, Method)| {
            if matches!(&method, Method::Other(word) if is_too_long(Some(word))) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_method(request, method)?,)) as Answer
        },
    )?;
    types.func_wrap(
        "[method]request.set-authority",
        |mut store: Store<'_>, (request, authority): (Resource<Request>, Option<String>)| {
            if is_too_long(authority.as_ref()) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, authority)?,)) as Answer
        },
    )?;
    types.func_wrap(
        "[method]request.set-path-with-query",
        |mut store: Store<'_>, (request, path): (Resource<Request>, Option<String>)| {
            if is_too_long(path.as_ref()) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_path_with_query(request, path)?,)) as Answer
        },
    )
}

/// How a body ended, as a unit says it. The host takes that at once and keeps it until somebody asks, perhaps never.
type Ended = FutureReader<Result<(), ErrorCode>>;
type Trailing = FutureReader<Result<Option<Resource<Trailers>>, ErrorCode>>;
type Contents = Option<StreamReader<u8>>;

/// Errors that a unit hands over with a body.
fn bound_errors(types: &mut LinkerInstance<'_, UnitState>) -> wasmtime::Result<()> {
    type NewRequest = (Resource<Fields>, Contents, Trailing, Option<Resource<RequestOptions>>);
    type NewResponse = (Resource<Fields>, Contents, Trailing);
    types.func_wrap(
        "[static]request.new",
        |mut store: Store<'_>, (fields, contents, trailers, options): NewRequest| {
            let trailers = short(&mut store, trailers)?;
            let access = Access::<_, WasiHttp>::new(store, UnitState::http);
            let made = <WasiHttp as HostRequestWithStore<UnitState>>::new(access, fields, contents, trailers, options);
            made.map(|made| (made,))
        },
    )?;
    types.func_wrap("[static]response.new", |mut store: Store<'_>, (fields, contents, trailers): NewResponse| {
        let trailers = short(&mut store, trailers)?;
        let access = Access::<_, WasiHttp>::new(store, UnitState::http);
        let made = <WasiHttp as HostResponseWithStore<UnitState>>::new(access, fields, contents, trailers);
        made.map(|made| (made,))
    })?;
    types.func_wrap(
        "[static]request.consume-body",
        |mut store: Store<'_>, (request, ended): (Resource<Request>, Ended)| {
            let ended = short(&mut store, ended)?;
            let access = Access::<_, WasiHttp>::new(store, UnitState::http);
            let body = <WasiHttp as HostRequestWithStore<UnitState>>::consume_body(access, request, ended);
            body.map(|body| (body,))
        },
    )?;
    types.func_wrap(
        "[static]response.consume-body",
        |mut store: Store<'_>, (response, ended): (Resource<Response>, Ended)| {
            let ended = short(&mut store, ended)?;
            let access = Access::<_, WasiHttp>::new(store, UnitState::http);
            let body = <WasiHttp as HostResponseWithStore<UnitState>>::consume_body(access, response, ended);
            body.map(|body| (body,))
        },
    )
}

/// The same future, with the text of an error cut short when it arrives.
fn short<V>(
    store: &mut Store<'_>,
    future: FutureReader<Result<V, ErrorCode>>,
) -> wasmtime::Result<FutureReader<Result<V, ErrorCode>>>
where
    V: Default + Lift + Lower + Send + Sync + 'static,
{
    let (sender, receiver) = oneshot::channel();
    future.pipe(store.as_context_mut(), Short(Some(sender)))?;
    // A unit that says nothing says nothing bad.
    let value = async move { wasmtime::error::Ok(receiver.await.unwrap_or(Ok(V::default()))) };
    FutureReader::new(store.as_context_mut(), value)
}

struct Short<V>(Option<oneshot::Sender<Result<V, ErrorCode>>>);

impl<V: Lift + Send + 'static> FutureConsumer<UnitState> for Short<V> {
    type Item = Result<V, ErrorCode>;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        mut store: Store<'_>,
        mut source: Source<'_, Self::Item>,
        _finish: bool,
    ) -> Poll<wasmtime::Result<()>> {
        let mut value = None;
        source.read(&mut store, &mut value)?;
        if let (Some(mut value), Some(sender)) = (value, self.0.take()) {
            if let Err(code) = &mut value {
                cut(code);
            }
            // Whoever was to be told may have gone.
            drop(sender.send(value));
        }
        Poll::Ready(Ok(()))
    }
}

fn cut(code: &mut ErrorCode) {
    let Some(text) = text(code).filter(|text| text.len() > ERROR_TEXT_BYTES_MAX) else { return };
    text.truncate(text.floor_char_boundary(ERROR_TEXT_BYTES_MAX));
    text.shrink_to_fit();
}

/// The one text an error may have.
fn text(code: &mut ErrorCode) -> Option<&mut String> {
    match code {
        ErrorCode::DnsError(payload) => payload.rcode.as_mut(),
        ErrorCode::TlsAlertReceived(payload) => payload.alert_message.as_mut(),
        ErrorCode::HttpRequestHeaderSize(Some(payload))
        | ErrorCode::HttpRequestTrailerSize(payload)
        | ErrorCode::HttpResponseHeaderSize(payload)
        | ErrorCode::HttpResponseTrailerSize(payload) => payload.field_name.as_mut(),
        ErrorCode::HttpResponseTransferCoding(text)
        | ErrorCode::HttpResponseContentCoding(text)
        | ErrorCode::InternalError(text) => text.as_mut(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_of_errors_are_cut_at_a_character() {
        let mut code = ErrorCode::InternalError(Some("ö".repeat(ERROR_TEXT_BYTES_MAX)));
        cut(&mut code);
        assert_eq!(text(&mut code).unwrap().len(), ERROR_TEXT_BYTES_MAX);
        let mut code = ErrorCode::InternalError(Some("short".into()));
        cut(&mut code);
        assert_eq!(text(&mut code).unwrap(), "short");
        cut(&mut ErrorCode::LoopDetected);
    }
}
