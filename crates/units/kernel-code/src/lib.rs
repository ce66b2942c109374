//! Compiles portable components ahead, for the machines the kernel runs on.
//!
//! ```text
//!   component ──shape──▶ is it portable: does it import nothing but `lighter:unit`? Or, for a machine, WASI beside it?
//!             ──compile─▶ machine code (or bytecode) that `kernel/core` loads
//! ```
//! The kernel refuses code of an engine with other settings than its own, so both have them of `kernel_abi`.

mod offer;

pub use offer::shape_for_machines;

use component::{Contract, Outermost, Shape};
use problem::{Code, Problem};
use wasmtime::{Config, Engine};

/// A machine to compile for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// x86-64 with SSE4.2 and POPCNT; see [`Features`] for what more may be used.
    X86_64(Features),
    /// 64-bit ARM, as of ARMv8.0.
    Aarch64,
    /// Portable bytecode, run by an interpreter.
    Pulley64,
}

/// Instructions beyond the least that a processor of the kernel's first machines may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features {
    pub bmi1: bool,
    pub bmi2: bool,
    pub lzcnt: bool,
}

/// What every x86-64 has on which the kernel runs: with SSE4.1 no rounding of floats needs a function of the kernel,
/// which has no registers for floats.
const X86_64_LEAST: [&str; 5] = ["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt"];

impl Target {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X86_64(_) => "x86_64-unknown-none",
            Self::Aarch64 => "aarch64-unknown-none",
            Self::Pulley64 => "pulley64",
        }
    }

    /// The word for it on the command line of the compiler.
    pub fn word(self) -> String {
        let Self::X86_64(Features { bmi1, bmi2, lzcnt }) = self else { return self.as_str().to_owned() };
        let has = [bmi1, bmi2, lzcnt].map(u8::from);
        format!("{}-{}{}{}", self.as_str(), has[0], has[1], has[2])
    }

    /// The target of a word; none if it is another's.
    pub fn from_word(word: &str) -> Option<Self> {
        let of = |bits: u8| Self::X86_64(Features { bmi1: bits & 1 > 0, bmi2: bits & 2 > 0, lzcnt: bits & 4 > 0 });
        let all = (0..8).map(of).chain([Self::Aarch64, Self::Pulley64]);
        all.into_iter().find(|target| target.word() == word)
    }

    fn engine(self) -> wasmtime::Result<Engine> {
        let mut config = Config::new();
        kernel_abi::engine_settings!(config).target(self.as_str())?;
        if let Self::X86_64(features) = self {
            let Features { bmi1, bmi2, lzcnt } = features;
            let more = [("has_bmi1", bmi1), ("has_bmi2", bmi2), ("has_lzcnt", lzcnt)];
            let more = more.into_iter().filter(|(_, is)| *is).map(|(flag, _)| flag);
            for flag in X86_64_LEAST.into_iter().chain(more) {
                // SAFETY: the kernel looks at the processor before it loads code, and refuses what that cannot do.
                #[expect(unsafe_code, reason = "names instructions the processor has")]
                unsafe {
                    config.cranelift_flag_enable(flag);
                }
            }
        }
        Engine::new(&config)
    }
}

/// Says what the image is, if it is portable: boards run no other.
///
/// # Errors
/// It is no component, exports no handler, or imports more than `lighter:unit`.
pub fn shape(image: &[u8]) -> Result<Shape, Problem> {
    let outermost = Outermost::read(image)?;
    if !outermost.exports("lighter:unit/handler") {
        return Err(outermost.without_handler().with_hint(
            "the kernel runs components that export lighter:unit/handler; isolation = \"wasm\" runs wasi:http too",
        ));
    }
    for import in &outermost.imports {
        if !import.starts_with("lighter:unit/") {
            let detail = format!("the component imports {import}; a board offers lighter:unit alone");
            return Err(Problem::new(Code::ImportUnknown, detail).with_hint(
                "the classes wasm and microvm offer WASI too; a component built for wasm32-unknown-unknown needs none",
            ));
        }
    }
    Ok(Shape { contract: Contract::Unit, imports: outermost.imports })
}

/// Compiles it. Takes seconds for large components.
///
/// # Errors
/// [`Code::CompileFailed`].
pub fn compile(image: &[u8], target: Target) -> Result<Vec<u8>, Problem> {
    let failed = |error: wasmtime::Error| {
        Problem::new(Code::CompileFailed, format!("the component did not compile for {}: {error:#}", target.as_str()))
    };
    target.engine().map_err(failed)?.precompile_component(image).map_err(failed)
}

/// Compiles for the target of a word, in this process.
///
/// # Errors
/// [`Code::CompileFailed`]; [`Code::Internal`] for a word that is no target.
pub fn compile_here(word: &str, image: &[u8]) -> Result<Vec<u8>, Problem> {
    let unknown = || Problem::new(Code::Internal, format!("there is no target {word:?}"));
    compile(image, Target::from_word(word).ok_or_else(unknown)?)
}

/// What compiled code depends on beside its image.
///
/// # Errors
/// The compiler does not know the target.
pub fn fingerprint(target: Target) -> Result<String, Problem> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let failed = |error: wasmtime::Error| {
        Problem::new(Code::Internal, format!("starting the compiler for {}: {error:#}", target.as_str()))
    };
    let engine = target.engine().map_err(failed)?;
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}
