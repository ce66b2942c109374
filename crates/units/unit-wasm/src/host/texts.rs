//! Texts of an outgoing request that the host keeps until it is sent: bounded before they are kept. They
//! replace wasmtime's own.

use crate::holdings::REQUEST_TEXT_BYTES_MAX;
use crate::unit_state::UnitState;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;

type Store<'a> = StoreContextMut<'a, UnitState>;
type Request = Resource<HostOutgoingRequest>;
type Answer = wasmtime::Result<(Result<(), ()>,)>;

pub fn add_to_linker(linker: &mut Linker<UnitState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance("wasi:http/types@0.2.12")?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: Store<'_>, (request, method): (Request, Method)| {
            if matches!(&method, Method::Other(word) if is_too_long(Some(word))) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_method(request, method)?,)) as Answer
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: Store<'_>, (request, authority): (Request, Option<String>)| {
            if is_too_long(authority.as_ref()) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, authority)?,)) as Answer
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: Store<'_>, (request, path): (Request, Option<String>)| {
            if is_too_long(path.as_ref()) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_path_with_query(request, path)?,)) as Answer
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

pub fn is_too_long(text: Option<&String>) -> bool {
    text.is_some_and(|text| text.len() > REQUEST_TEXT_BYTES_MAX)
}
