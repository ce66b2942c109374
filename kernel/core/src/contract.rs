//! The contract a component fulfils: it takes events, or with WASI it may serve requests instead.

use crate::bindings::{Function, FunctionPre};
use crate::program::Unit;
use crate::{convert, failure};
use alloc::vec::Vec;
use frame::Value;
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Result, Store, format_err};
#[cfg(feature = "wasi")]
use {
    crate::bindings::served::{Served, ServedPre},
    wasmtime::component::types::ComponentItem,
};

/// A component whose imports are resolved.
pub enum Ready {
    Unit(FunctionPre<Unit>),
    #[cfg(feature = "wasi")]
    Http(ServedPre<Unit>),
}

/// An instance of it.
pub enum Instance {
    Unit(Function),
    #[cfg(feature = "wasi")]
    Http(Served),
}

impl Ready {
    /// # Errors
    /// The component imports what is not in `linker`, or fulfils no contract.
    pub fn of(engine: &Engine, linker: &Linker<Unit>, component: &Component) -> Result<Self> {
        let ready = linker.instantiate_pre(component)?;
        #[cfg(feature = "wasi")]
        if does_serve(engine, component) {
            return Ok(Self::Http(ServedPre::new(ready)?));
        }
        #[cfg(not(feature = "wasi"))]
        let _ = engine;
        Ok(Self::Unit(FunctionPre::new(ready)?))
    }

    pub fn instantiate(&self, store: &mut Store<Unit>) -> Result<Instance> {
        Ok(match self {
            Self::Unit(ready) => Instance::Unit(ready.instantiate(store)?),
            #[cfg(feature = "wasi")]
            Self::Http(ready) => Instance::Http(ready.instantiate(store)?),
        })
    }
}

/// Whether it serves requests and takes no events.
#[cfg(feature = "wasi")]
fn does_serve(engine: &Engine, component: &Component) -> bool {
    let exports = |interface: &str| {
        let component = component.component_type();
        let mut exports = component.exports(engine);
        exports.any(|(name, export)| {
            matches!(export.ty, ComponentItem::ComponentInstance(_)) && name.split('@').next() == Some(interface)
        })
    };
    exports("wasi:http/incoming-handler") && !exports("lighter:unit/handler")
}

impl Instance {
    /// Does the work of a frame, and returns the frame that ends it. Whoever serves a request has replied meanwhile.
    ///
    /// # Errors
    /// A trap; work that makes no sense.
    pub fn work(&self, store: &mut Store<Unit>, work: &Value<'_>) -> Result<Vec<u8>> {
        match self {
            Self::Unit(function) => {
                let event = convert::read_event(work).map_err(|_| format_err!("the host's event makes no sense"))?;
                Ok(match function.lighter_unit_handler().call_handle(store, &event)? {
                    Ok(data) => failure::reply(&data),
                    Err(verdict) => failure::said(&verdict),
                })
            }
            #[cfg(feature = "wasi")]
            Self::Http(served) => {
                let (request, out) = store.data_mut().outside.accept(work)?;
                served.wasi_http_incoming_handler().call_handle(store, request, out)?;
                Ok(failure::reply(&[]))
            }
        }
    }
}
