//! Host traits and guest exports, generated from `contracts/wit`.

wasmtime::component::bindgen!({
    path: "../../contracts/wit",
    world: "lighter:unit/function",
    imports: { default: trappable },
});

pub use exports::lighter::unit::handler::{Event, Failure};
pub use lighter::unit::{clock, config, http, log, queue, random, store, types};
