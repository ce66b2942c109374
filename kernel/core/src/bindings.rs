//! Host traits and guest exports, generated from `contracts/wit`.

wasmtime::component::bindgen!({
    path: "../../contracts/wit",
    world: "lighter:unit/function",
    imports: { default: trappable },
});

pub use exports::lighter::unit::handler::{Event, Failure};
pub use lighter::unit::{clock, config, http, log, queue, random, store, types};

/// WASI 0.2 but for files and sockets.
#[cfg(feature = "wasi")]
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
            }
        ",
        world: "lighter:kernel/wasi",
        imports: { default: trappable },
        with: {
            "wasi:io/error.error": crate::wasi::Failed,
            "wasi:io/poll.pollable": crate::wasi::Pollable,
            "wasi:io/streams.input-stream": crate::wasi::InputStream,
            "wasi:io/streams.output-stream": crate::wasi::OutputStream,
            "wasi:cli/terminal-input.terminal-input": crate::wasi::Nothing,
            "wasi:cli/terminal-output.terminal-output": crate::wasi::Nothing,
        },
    });
}
