//! Host traits and guest exports, generated from `contracts/wit`.

wasmtime::component::bindgen!({
    path: "../../contracts/wit",
    world: "lighter:unit/function",
    imports: { default: trappable },
});

pub use exports::lighter::unit::handler::{Event, Failure};
pub use lighter::unit::{clock, config, http, log, queue, random, store, types};

/// WASI 0.2 but for files and sockets: its types, and what of it is to be done. `wasi/offers.rs` links that.
#[cfg(feature = "wasi")]
#[allow(dead_code, reason = "its own way to be linked is not used")]
pub mod plain {
    wasmtime::component::bindgen!({
        path: "../../contracts/wit",
        inline: "
            package lighter:kernel;
            world wasi {
                import wasi:io/error@0.2.12;
                import wasi:io/poll@0.2.12;
                import wasi:io/streams@0.2.12;
                import wasi:clocks/monotonic-clock@0.2.12;
                import wasi:clocks/wall-clock@0.2.12;
                import wasi:random/random@0.2.12;
                import wasi:random/insecure@0.2.12;
                import wasi:random/insecure-seed@0.2.12;
                import wasi:cli/environment@0.2.12;
                import wasi:cli/exit@0.2.12;
                import wasi:cli/stdin@0.2.12;
                import wasi:cli/stdout@0.2.12;
                import wasi:cli/stderr@0.2.12;
                import wasi:cli/terminal-input@0.2.12;
                import wasi:cli/terminal-output@0.2.12;
                import wasi:cli/terminal-stdin@0.2.12;
                import wasi:cli/terminal-stdout@0.2.12;
                import wasi:cli/terminal-stderr@0.2.12;
                import wasi:http/types@0.2.12;
                import wasi:http/outgoing-handler@0.2.12;
                import wasi:keyvalue/store@0.2.0-draft;
                import wasi:keyvalue/atomics@0.2.0-draft;
                import wasi:keyvalue/batch@0.2.0-draft;
                import wasi:config/store@0.2.0-rc.1;
                import wasi:logging/logging@0.1.0-draft;
            }
        ",
        world: "lighter:kernel/wasi",
        imports: { default: trappable },
        with: {
            "wasi:io/error.error": crate::wasi::Thing,
            "wasi:io/poll.pollable": crate::wasi::Thing,
            "wasi:io/streams.input-stream": crate::wasi::Thing,
            "wasi:io/streams.output-stream": crate::wasi::Thing,
            "wasi:cli/terminal-input.terminal-input": crate::wasi::Thing,
            "wasi:cli/terminal-output.terminal-output": crate::wasi::Thing,
            "wasi:http/types.fields": crate::wasi::Thing,
            "wasi:http/types.incoming-request": crate::wasi::Thing,
            "wasi:http/types.incoming-response": crate::wasi::Thing,
            "wasi:http/types.incoming-body": crate::wasi::Thing,
            "wasi:http/types.future-trailers": crate::wasi::Thing,
            "wasi:http/types.future-incoming-response": crate::wasi::Thing,
            "wasi:http/types.outgoing-request": crate::wasi::Thing,
            "wasi:http/types.outgoing-response": crate::wasi::Thing,
            "wasi:http/types.outgoing-body": crate::wasi::Thing,
            "wasi:http/types.request-options": crate::wasi::Thing,
            "wasi:http/types.response-outparam": crate::wasi::Thing,
            "wasi:keyvalue/store.bucket": crate::wasi::Thing,
        },
    });
}

/// What serves requests.
#[cfg(feature = "wasi")]
pub mod served {
    wasmtime::component::bindgen!({
        path: "../../contracts/wit",
        inline: "
            package lighter:kernel-served;
            world served {
                export wasi:http/incoming-handler@0.2.12;
            }
        ",
        world: "lighter:kernel-served/served",
        with: {
            "wasi:io": crate::bindings::plain::wasi::io,
            "wasi:clocks": crate::bindings::plain::wasi::clocks,
            "wasi:http/types": crate::bindings::plain::wasi::http::types,
        },
    });
}

/// What components for other hosts import, from `contracts/wit-drafts`: its types.
#[cfg(feature = "wasi")]
#[allow(dead_code, reason = "its own way to be linked is not used")]
pub mod drafts {
    wasmtime::component::bindgen!({
        path: ["../../contracts/wit-drafts/keyvalue", "../../contracts/wit-drafts/spin"],
        inline: "
            package lighter:kernel-drafts;
            world drafts {
                include wasi:keyvalue/imports@0.2.0-draft2;
                include fermyon:spin/imports@2.0.0;
            }
        ",
        world: "lighter:kernel-drafts/drafts",
        imports: { default: trappable },
        with: {
            "wasi:keyvalue/store.bucket": crate::wasi::Thing,
            "wasi:keyvalue/atomics.cas": crate::wasi::Thing,
            "fermyon:spin/key-value.store": crate::wasi::Thing,
        },
    });
}
