//! The artefact of a function, as the engine has mapped it: given back while nobody calls.
//!
//! Loading reads all of an artefact, and each page of code that runs brings its neighbours along. A thousand functions
//! that were each called once hold 48 MB that way, and few of those pages are needed again soon. They are the file's,
//! so they can go: the system has them still, and a page that is used again comes back in a minor fault.

use std::ops::Range;
use wasmtime::component::Component;

pub struct MappedCode {
    addresses: Range<usize>,
}

impl MappedCode {
    pub fn of(component: &Component) -> Self {
        let Range { start, end } = component.image_range();
        Self { addresses: start.addr()..end.addr() }
    }

    /// Its next call brings back what it needs. A part that is not the file's alone stays: where it was compiled into
    /// memory, or the engine or a debugger has written to it.
    pub fn rests(&self) {
        // SAFETY: the component that was loaded there is kept by whoever has this. The engine has loaded it and made it
        // executable or read-only, and writes there no more.
        #[expect(unsafe_code, reason = "the addresses are the engine's")]
        let given_back = unsafe { resident::give_back_map(self.addresses.clone()) };
        if let Err(error) = given_back {
            tracing::debug!("the artefact's pages stay in memory: {error}");
        }
    }
}
