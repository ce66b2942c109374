//! What the kernel offers a component in a machine of the class microvm: `lighter:unit`, and WASI 0.2.

use component::{Contract, Outermost, Shape};
use problem::Problem;

/// Every interface a component may import, with the version offered. What `kernel/core` links.
pub const OFFERED: &[(&str, &str)] = &[
    ("lighter:unit/types", "0.1.0"),
    ("lighter:unit/store", "0.1.0"),
    ("lighter:unit/queue", "0.1.0"),
    ("lighter:unit/log", "0.1.0"),
    ("lighter:unit/clock", "0.1.0"),
    ("lighter:unit/random", "0.1.0"),
    ("lighter:unit/config", "0.1.0"),
    ("lighter:unit/http", "0.1.0"),
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
];

/// Says what the image is, if a machine runs it.
///
/// # Errors
/// It is no component, exports no handler of `lighter:unit`, or imports what is not [`OFFERED`].
pub fn shape_for_machines(image: &[u8]) -> Result<Shape, Problem> {
    let outermost = Outermost::read(image)?;
    if !outermost.exports("lighter:unit/handler") {
        return Err(outermost.without_handler().with_hint(
            "a microvm runs components that export lighter:unit/handler; isolation = \"wasm\" runs wasi:http too",
        ));
    }
    for import in &outermost.imports {
        component::offered(import, OFFERED)?;
    }
    Ok(Shape { contract: Contract::Unit, imports: outermost.imports })
}
