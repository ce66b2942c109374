//! The one list of isolation classes: a new class is a file here and a line in [`CLASSES`].
//!
//! ```text
//!               ┌─ open: units, what the node says of it, its part of the API
//!   a class ────┼─ command_line: commands, options, how images are made
//!               └─ compiler, program: what this program becomes when the node starts it for the class
//! ```
//! Nothing in `node`, `api` or `cli` knows one class from another but by what it brings.

mod debug;
mod kernel;
mod metal;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod microvm;
mod process;
mod wasm;

use api::Routes;
use axum::Router;
use cli::Brought;
use node::Node;
use node::compiler::child;
use node::config::Config;
use problem::Problem;
use std::process::ExitCode;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// In the order in which a node names them.
const CLASSES: &[Class] = &[
    wasm::CLASS,
    process::CLASS,
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    microvm::CLASS,
    metal::CLASS,
];

/// An isolation class, and all that it brings to the program.
struct Class {
    /// Opens it for a node.
    open: fn(&Config) -> Result<Opened, Problem>,
    /// Adds to the command line.
    command_line: Option<fn(&mut Brought)>,
    /// Describes the routes it adds to the API.
    document: Option<fn() -> OpenApi>,
    /// Makes the compiler of its code.
    compiler: Option<child::Maker>,
    /// What this program is when it is started with that first word.
    program: Option<(&'static str, fn() -> ExitCode)>,
}

/// A class as a node has it.
pub struct Opened {
    pub class: Arc<dyn node::Class>,
    router: Option<Router<Arc<Node>>>,
}

impl Opened {
    fn new(class: impl node::Class) -> Self {
        Self { class: Arc::new(class), router: None }
    }
}

/// All classes of a node, and what they add to its API.
///
/// # Errors
/// One of them cannot work on this machine.
pub fn open(config: &Config) -> Result<(Vec<Arc<dyn node::Class>>, Vec<Routes>), Problem> {
    let (mut classes, mut routes) = (Vec::new(), Vec::new());
    for class in CLASSES {
        let Opened { class: opened, router } = (class.open)(config)?;
        classes.push(opened);
        routes.extend(router.zip(class.document).map(|(router, document)| Routes { router, document }));
    }
    Ok((classes, routes))
}

/// Adds to the command line what is theirs.
pub fn bring(brought: &mut Brought) {
    CLASSES.iter().filter_map(|class| class.command_line).for_each(|add| add(brought));
}

/// What this program is in the place of a command line, if its first word says so.
pub fn program(word: &str) -> Option<ExitCode> {
    if word == child::COMMAND {
        return Some(child::main(compilers()));
    }
    let mut programs = CLASSES.iter().filter_map(|class| class.program);
    programs.find(|(name, _)| *name == word).map(|(_, main)| main())
}

fn compilers() -> impl Iterator<Item = child::Maker> {
    CLASSES.iter().filter_map(|class| class.compiler)
}

#[cfg(test)]
mod tests {
    use super::*;
    use problem::Code;

    const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/api.json");

    #[test]
    fn the_contract_describes_what_is_served() {
        let documents: Vec<_> = CLASSES.iter().filter_map(|class| class.document).collect();
        let written = serde_json::to_string_pretty(&api::document(&documents)).unwrap() + "\n";
        if std::env::var_os("LIGHTER_UPDATE").is_some() {
            std::fs::write(CONTRACT, &written).unwrap();
        }
        let kept = std::fs::read_to_string(CONTRACT).unwrap_or_default();
        assert_eq!(kept, written, "run LIGHTER_UPDATE=1 cargo test -p lighter");
    }

    #[test]
    fn every_target_has_a_compiler() {
        for target in [kernel_code::Target::Aarch64, kernel_code::Target::Pulley64] {
            assert_eq!(kernel_code::Target::from_word(&target.word()), Some(target));
            assert!(child::compiler(compilers(), &target.word()).is_ok());
        }
        let unknown = child::compiler(compilers(), "wasm-what").err();
        assert_eq!(unknown.map(|problem| problem.code), Some(Code::Internal));
    }
}
