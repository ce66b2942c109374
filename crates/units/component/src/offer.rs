//! Whether what a component imports is among what a class offers it.

use problem::{Code, Problem};

/// Every interface that a component may import in the classes `wasm` and `microvm`, with the version offered: what
/// `kernel/core` and the linker of `unit-wasm` link.
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

/// Whether `offer`, interfaces each with its version, has one that `import` can be linked to.
///
/// # Errors
/// [`Code::ImportUnknown`], with what of the same package there is.
pub fn offered(import: &str, offer: &[(&str, &str)]) -> Result<(), Problem> {
    // Imports of plain functions and types are left to the linker, which knows their types too.
    if !import.contains(':') {
        return Ok(());
    }
    let (interface, version) = import.split_once('@').unwrap_or((import, ""));
    let package = interface.split('/').next().unwrap_or(interface);
    if offer.iter().any(|(name, offered)| *name == interface && compatible(version, offered)) {
        return Ok(());
    }
    let near: Vec<String> = offer
        .iter()
        .filter(|(name, _)| name.split('/').next() == Some(package))
        .map(|(name, version)| format!("{name}@{version}"))
        .collect();
    let problem = Problem::new(Code::ImportUnknown, format!("the component imports {import}"));
    Err(match near.is_empty() {
        true => problem,
        false => problem.with_hint(format!("of {package} this class offers {}", near.join(", "))),
    })
}

/// 0.2.x of WASI are compatible among themselves; drafts only with themselves.
fn compatible(wanted: &str, offered: &str) -> bool {
    let series = |version: &str| version.rsplit_once('.').map(|(series, _)| series.to_owned());
    wanted == offered || (!wanted.contains('-') && !offered.contains('-') && series(wanted) == series(offered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_series_fit_and_drafts_do_not() {
        assert!(compatible("0.2.0", "0.2.12"));
        assert!(compatible("0.2.0-draft", "0.2.0-draft"));
        assert!(!compatible("0.3.0", "0.2.12"));
        assert!(!compatible("0.2.0-draft2", "0.2.0-draft"));
    }

    #[test]
    fn what_is_not_offered_is_named_with_what_is() {
        let offer = [("wasi:http/types", "0.2.12"), ("wasi:keyvalue/store", "0.2.0-draft")];
        assert!(offered("wasi:http/types@0.2.1", &offer).is_ok() && offered("plain-function", &offer).is_ok());
        let problem = offered("wasi:keyvalue/store@9.9.9", &offer).unwrap_err();
        assert_eq!(problem.code, Code::ImportUnknown);
        assert!(problem.hint.contains("wasi:keyvalue/store@0.2.0-draft"), "{problem}");
    }
}
