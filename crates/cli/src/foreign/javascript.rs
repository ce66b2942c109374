//! Handlers in JavaScript: what they use that a component of QuickJS does not have.

use super::{Code, Problem, Result, Script, native};
use std::collections::BTreeSet;
use std::path::Path;

pub const ENDS: &[&str] = &["js", "mjs", "cjs", "ts", "mts"];

/// Modules of Node.js that are not here, and what helps. What there is: `lighter_from/build.mjs`.
const ABSENT: [(&[&str], &str); 3] = [
    (&["fs", "fs/promises"], "a unit has no files: import what it reads, and keep what is to stay in the store"),
    (
        &["http", "https", "http2", "net", "tls", "dns", "dns/promises", "dgram"],
        "use fetch, with grants.hosts in lighter.toml: a unit has no other network",
    ),
    (
        &[
            "async_hooks",
            "child_process",
            "cluster",
            "inspector",
            "module",
            "readline",
            "stream",
            "stream/promises",
            "v8",
            "vm",
            "worker_threads",
            "zlib",
        ],
        "docs/compatibility.md lists what there is of Node.js",
    ),
];

/// Whether a line, from its first letter on, gives the function to others; or begins it, for who exports nothing.
pub fn begins(line: &str, function: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
    let named = |rest: &str| rest.trim_start().strip_prefix(function).is_some_and(ends);
    if let Some(rest) = line.strip_prefix("module.exports").or_else(|| line.strip_prefix("exports")) {
        let listed = || rest.trim_start().strip_prefix('=').and_then(|rest| rest.trim_start().strip_prefix('{'));
        return match rest.strip_prefix('.') {
            Some(rest) => named(rest),
            None => listed().is_some_and(|rest| rest.trim_end_matches(['}', ';', ' ']).split(',').any(named)),
        };
    }
    let exported = line.strip_prefix("export ");
    if let Some(list) = exported.and_then(|rest| rest.trim_start().strip_prefix('{')) {
        return list.trim_end_matches(['}', ';', ' ']).split(',').any(named);
    }
    let declared = exported.unwrap_or(line);
    let declared = declared.strip_prefix("async ").unwrap_or(declared);
    ["function ", "const ", "let ", "var "].iter().any(|word| declared.strip_prefix(word).is_some_and(named))
}

/// The file below a folder that Lambda means by a name without an ending.
pub fn file_of(folder: &Path, module: &str) -> Option<String> {
    ENDS.iter().map(|end| format!("{module}.{end}")).find(|file| folder.join(file).is_file())
}

pub fn lacks(folder: &Path) -> Result<BTreeSet<String>> {
    if let Some(native) = native(folder, &["node", "so"]) {
        let detail = format!("{} is native code, which no component holds", native.display());
        return Err(Problem::new(Code::HandlerForeign, detail).with_hint("use a package in plain JavaScript").into());
    }
    Ok(super::lacks_of(folder, Script::Javascript, of_line))
}

/// What one line of JavaScript asks for and does not get.
fn of_line(line: &str) -> Vec<String> {
    let code = line.split("//").next().unwrap_or_default().trim();
    let mut lacks: Vec<String> = imported(code).filter_map(absent).collect();
    let mut lack = |what: &str| lacks.push(what.to_owned());
    if code.contains("statusCode") {
        lack("statusCode is not passed on: below 400 the reply is 200, else a failure (422, 500 or 503)");
    }
    if ["headers:", "\"headers\":", "'headers':"].iter().any(|key| code.contains(key)) {
        lack("headers of the reply are left out: `reply_type` of the route says its media type");
    }
    if ["context.identity", "context.clientContext"].iter().any(|field| code.contains(field)) {
        lack("the context has no identity and no client: it is undefined");
    }
    if code.contains("process.env") {
        lack("process.env comes from [function.NAME.config] in lighter.toml");
    }
    if code.contains("setInterval(") || code.contains("setTimeout(") {
        lack("a timer waits by looking at the clock, which counts as CPU time of the call");
    }
    lacks
}

fn absent(module: &str) -> Option<String> {
    if module == "aws-sdk" || module.starts_with("@aws-sdk/") || module.starts_with("@aws-lambda-powertools/") {
        return Some("services of AWS are not here: lighter:unit has store, queue and http".to_owned());
    }
    let plain = module.strip_prefix("node:").unwrap_or(module);
    let (_, hint) = ABSENT.iter().find(|(modules, _)| modules.contains(&plain))?;
    Some(format!("{plain} is not here: {hint}"))
}

/// The modules that a line imports, whichever way.
fn imported(code: &str) -> impl Iterator<Item = &str> {
    ["require(", "import(", "from ", "import "].into_iter().flat_map(move |word| {
        code.match_indices(word).filter_map(move |(at, _)| {
            let rest = code[at + word.len()..].trim_start();
            let quote = rest.chars().next().filter(|letter| ['"', '\'', '`'].contains(letter))?;
            rest[1..].split(quote).next()
        })
    })
}
