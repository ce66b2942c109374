//! What a unit can reach. Each file is one interface; each asks the function's grants before it does anything.

pub mod drafts;
pub mod head;
pub mod http;
pub mod keyvalue;
mod plain;
pub mod queue;
mod spin;
mod store;
mod texts;
pub mod wasi;

use crate::bindings::drafts::{fermyon, wasi as other_drafts};
use crate::bindings::{lighter, wasi as proposals};
use crate::unit_state::UnitState;
use wasmtime::component::{HasSelf, Linker};

/// Every interface a component may import, with the version offered.
pub const OFFERED: &[(&str, &str)] = &[
    ("lighter:unit/types", "0.1.0"),
    ("lighter:unit/store", "0.1.0"),
    ("lighter:unit/queue", "0.1.0"),
    ("lighter:unit/log", "0.1.0"),
    ("lighter:unit/clock", "0.1.0"),
    ("lighter:unit/random", "0.1.0"),
    ("lighter:unit/config", "0.1.0"),
    ("lighter:unit/http", "0.1.0"),
    ("wasi:http/types", "0.2.12"),
    ("wasi:http/outgoing-handler", "0.2.12"),
    ("wasi:keyvalue/store", "0.2.0-draft"),
    ("wasi:keyvalue/atomics", "0.2.0-draft"),
    ("wasi:keyvalue/batch", "0.2.0-draft"),
    ("wasi:keyvalue/store", "0.2.0-draft2"),
    ("wasi:keyvalue/atomics", "0.2.0-draft2"),
    ("wasi:keyvalue/batch", "0.2.0-draft2"),
    ("wasi:config/store", "0.2.0-rc.1"),
    ("wasi:config/store", "0.2.0-draft"),
    ("wasi:config/store", "0.2.0-draft-2024-09-27"),
    ("wasi:logging/logging", "0.1.0-draft"),
    ("wasi:io/error", "0.2.12"),
    ("wasi:io/poll", "0.2.12"),
    ("wasi:io/streams", "0.2.12"),
    ("wasi:clocks/wall-clock", "0.2.12"),
    ("wasi:clocks/monotonic-clock", "0.2.12"),
    ("wasi:random/random", "0.2.12"),
    ("wasi:random/insecure", "0.2.12"),
    ("wasi:random/insecure-seed", "0.2.12"),
    ("wasi:cli/environment", "0.2.12"),
    ("wasi:cli/exit", "0.2.12"),
    ("wasi:cli/stdin", "0.2.12"),
    ("wasi:cli/stdout", "0.2.12"),
    ("wasi:cli/stderr", "0.2.12"),
    ("wasi:cli/terminal-input", "0.2.12"),
    ("wasi:cli/terminal-output", "0.2.12"),
    ("wasi:cli/terminal-stdin", "0.2.12"),
    ("wasi:cli/terminal-stdout", "0.2.12"),
    ("wasi:cli/terminal-stderr", "0.2.12"),
    ("wasi:filesystem/types", "0.2.12"),
    ("wasi:filesystem/preopens", "0.2.12"),
    ("wasi:sockets/network", "0.2.12"),
    ("wasi:sockets/instance-network", "0.2.12"),
    ("wasi:sockets/ip-name-lookup", "0.2.12"),
    ("wasi:sockets/tcp", "0.2.12"),
    ("wasi:sockets/tcp-create-socket", "0.2.12"),
    ("wasi:sockets/udp", "0.2.12"),
    ("wasi:sockets/udp-create-socket", "0.2.12"),
    ("fermyon:spin/key-value", "2.0.0"),
    ("fermyon:spin/variables", "2.0.0"),
];

/// The import table of every component.
pub fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<UnitState>> {
    let mut linker = Linker::new(engine);
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
