//! The one list of isolation classes: a new class is a file here and a line in [`CLASSES`].
//!
//! ```text
//!               ┌─ options, configure: its options of `lighter up`, checked before anything starts
//!               ├─ what that returns opens it: units, what the node says of it, its part of the API
//!   a class ────┼─ command_line: commands, their options, how images are made
//!               └─ compiler, program: what this program becomes when the node starts it for the class
//! ```
//! Nothing in `node`, `api` or `cli` knows one class from another but by what it brings.

mod attach;
mod debug;
mod kernel;
mod metal;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod microvm;
mod process;
mod wasm;

use api::Routes;
use axum::Router;
use clap::Command;
use cli::Brought;
use node::Node;
use node::compiler::child;
use node::config::Config;
use node::options::Asked;
use problem::Problem;
use serde_json::{Map, Value};
use std::process::ExitCode;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// In the order in which a node names them.
const CLASSES: &[Class] = &[
    wasm::CLASS,
    process::CLASS,
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    microvm::CLASS,
    metal::CLASS,
];

/// An isolation class, and all that it brings to the program.
struct Class {
    /// Adds its options of `lighter up`.
    options: Option<fn(Command) -> Command>,
    /// Checks what is asked for, and says how to open it so.
    configure: fn(&Asked<'_>) -> Result<Open, Problem>,
    /// Adds to the command line.
    command_line: Option<fn(&mut Brought)>,
    /// Describes the routes it adds to the API.
    document: Option<fn() -> OpenApi>,
    /// Makes the compiler of its code.
    compiler: Option<child::Maker>,
    /// What this program is when it is started with that first word.
    program: Option<(&'static str, fn() -> ExitCode)>,
}

/// Opens a class for a node, as it was asked for.
type Open = Box<dyn FnOnce(&Config) -> Result<Opened, Problem>>;

/// A class as a node has it.
struct Opened {
    class: Arc<dyn node::Class>,
    router: Option<Router<Arc<Node>>>,
    /// What `node.json` says of it.
    found: Option<(&'static str, Value)>,
}

impl Opened {
    fn new(class: impl node::Class) -> Self {
        Self { class: Arc::new(class), router: None, found: None }
    }
}

/// A class of which all that is asked for has been checked.
pub struct Configured {
    open: Open,
    document: Option<fn() -> OpenApi>,
}

/// All classes of a node, what they add to its API, and what `node.json` says of them.
#[derive(Default)]
pub struct Classes {
    pub all: Vec<Arc<dyn node::Class>>,
    pub routes: Vec<Routes>,
    pub found: Map<String, Value>,
}

/// Adds to `lighter up` the options that are theirs.
pub fn augment(command: Command) -> Command {
    CLASSES.iter().filter_map(|class| class.options).fold(command, |command, add| add(command))
}

/// Checks what is asked of each class.
///
/// # Errors
/// [`Code::ConfigInvalid`](problem::Code::ConfigInvalid) names the option.
pub fn configure(asked: &Asked<'_>) -> Result<Vec<Configured>, Problem> {
    let configure = |class: &Class| Ok(Configured { open: (class.configure)(asked)?, document: class.document });
    CLASSES.iter().map(configure).collect()
}

/// # Errors
/// One of them cannot work on this machine.
pub fn open(configured: Vec<Configured>, config: &Config) -> Result<Classes, Problem> {
    let mut classes = Classes::default();
    for Configured { open, document } in configured {
        let Opened { class, router, found } = open(config)?;
        classes.all.push(class);
        classes.routes.extend(router.zip(document).map(|(router, document)| Routes { router, document }));
        classes.found.extend(found.map(|(name, value)| (name.to_owned(), value)));
    }
    Ok(classes)
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
