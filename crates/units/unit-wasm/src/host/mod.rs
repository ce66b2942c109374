//! What a unit can reach. Each file is one interface; each asks the function's grants before it does anything.

pub mod drafts;
pub mod head;
pub mod http;
pub mod keyvalue;
mod plain;
pub mod queue;
mod requests;
mod spin;
mod spin03;
mod store;
mod texts;
pub mod wasi;
pub mod wasi03;

use crate::bindings::drafts::{fermyon, wasi as other_drafts};
use crate::bindings::{lighter, wasi as proposals};
use crate::engine::Series;
use crate::unit_state::UnitState;
use wasmtime::component::{HasSelf, Linker};

/// The import table of every component of a series. Those of 0.3 have all that those of 0.2 have, because their
/// standard libraries import it.
pub fn linker(engine: &wasmtime::Engine, series: Series) -> wasmtime::Result<Linker<UnitState>> {
    let mut linker = Linker::new(engine);
    if series == Series::Wasi03 {
        wasi03::add_to_linker(&mut linker)?;
        spin03::add_to_linker(&mut linker)?;
    }
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasi::add_io_to_linker(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    head::add_to_linker(&mut linker)?;
    texts::add_to_linker(&mut linker)?;
    type Own = HasSelf<UnitState>;
    lighter::unit::types::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    lighter::unit::store::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    lighter::unit::queue::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    lighter::unit::log::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    lighter::unit::clock::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    lighter::unit::random::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    lighter::unit::config::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    lighter::unit::http::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    proposals::keyvalue::store::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    proposals::keyvalue::atomics::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    proposals::keyvalue::batch::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    proposals::config::store::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    other_drafts::keyvalue::store::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    other_drafts::keyvalue::atomics::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    other_drafts::keyvalue::batch::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    drafts::add_config_to_linker(&mut linker)?;
    fermyon::spin::key_value::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    fermyon::spin::variables::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    proposals::logging::logging::add_to_linker::<_, Own>(&mut linker, |state| state)?;
    Ok(linker)
}

#[cfg(test)]
mod tests;
