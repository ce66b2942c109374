//! Code for our kernel, which runs in machines of `microvm` and on boards of `metal`.

use kernel_code::Target;
use node::compiler::child::Compile;
use problem::Problem;

/// The compiler for one of the kernel's targets.
pub fn compiler(word: &str) -> Option<Result<Compile, Problem>> {
    let target = Target::from_word(word)?;
    Some(Ok(Box::new(move |image| kernel_code::compile(image, target))))
}
