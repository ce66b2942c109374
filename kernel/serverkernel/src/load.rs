//! From checked bytes to a linked program, and back to nothing.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use arch_metal::{CodePages, Pages};
use kernel_core::{Host, Machine, Program};
use wasmtime::{CustomCodeMemory, Engine};

/// A program and the pages its code is in. Dropped, both are gone and scrubbed.
pub struct Linked {
    // Dropped first: it is in the pages.
    pub program: Program,
    _pages: CodePages,
}

pub fn engine(is_interpreter: bool) -> wasmtime::Result<Engine> {
    kernel_core::engine(Machine { code: Arc::new(Executable), has_feature: arch_metal::has_feature, is_interpreter })
}

/// Links code whose hash and signature have been checked.
///
/// # Errors
/// Why not, for people.
pub fn link(engine: &Engine, code: &[u8], host: Box<dyn Host>) -> Result<Linked, String> {
    let pages = CodePages::copy(code).ok_or("the board has no room for the code")?;
    // SAFETY: a signer whom the board was told to trust vouches that `kernel-code` made these bytes. They lie at the start
    // of pages that are nobody else's, and `Linked` keeps them as long as the program.
    #[expect(unsafe_code, reason = "native code that has been verified is linked here")]
    let program = unsafe { Program::link(engine.clone(), pages.bytes(), host) };
    Ok(Linked { program: program.map_err(|error| format!("{error:#}"))?, _pages: pages })
}

/// Pages of the machine, as wasmtime asks for them.
struct Executable;

impl CustomCodeMemory for Executable {
    fn required_alignment(&self) -> usize {
        Pages::BYTES
    }

    fn publish_executable(&self, start: *const u8, bytes: usize) -> wasmtime::Result<()> {
        Pages.publish(start, bytes);
        Ok(())
    }

    fn unpublish_executable(&self, start: *const u8, bytes: usize) -> wasmtime::Result<()> {
        Pages.unpublish(start, bytes);
        Ok(())
    }
}
