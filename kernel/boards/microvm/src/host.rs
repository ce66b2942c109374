//! The tender as the kernel's host: calls through the call page, log lines through the ring, time from its stamps.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use kernel_abi::exits::{CallPage, DONE, Exit, READ_AHEAD};
use kernel_abi::{Verb, layout, ring};
use kernel_arch::ring3;
use kernel_core::{Host, Lost};

struct Tender {
    /// The latest moment that was told: stamps of two exits may overlap by what an exit takes.
    monotonic_ns: u64,
}

pub fn tender() -> Box<dyn Host> {
    Box::new(Tender { monotonic_ns: 0 })
}

impl Host for Tender {
    fn call(&mut self, verb: Verb, request: &[u8]) -> Result<Vec<u8>, Lost> {
        let page = CallPage { number: verb.number().into(), ..asking(request) };
        answer(ring3::exit(Exit::Call, page)).ok_or(Lost)
    }

    /// Lines are gathered in the ring and go with the next exit, whatever it is for.
    fn log(&mut self, level: u32, text: &str) {
        // A line is cut by whoever reads it, far below what the ring holds.
        for line in text.lines() {
            gather(level, &line.as_bytes()[..line.len().min(LINE_BYTES_MAX)]);
        }
    }

    fn print(&mut self, stream: u32, bytes: &[u8]) {
        for some in bytes.chunks(LINE_BYTES_MAX) {
            gather(stream, some);
        }
    }

    fn unix_ns(&mut self) -> u64 {
        ring3::now().0
    }

    fn monotonic_ns(&mut self) -> u64 {
        self.monotonic_ns = self.monotonic_ns.max(ring3::now().1);
        self.monotonic_ns
    }
}

/// What one record of the ring holds.
const LINE_BYTES_MAX: usize = ring::text_max(layout::LOG_BYTES as usize);

fn gather(level: u32, bytes: &[u8]) {
    if !ring3::with_log(|log| ring::write(log, level, bytes)) {
        ring3::exit(Exit::Log, CallPage::default());
        // The tender has emptied it; if it has not, these are lost.
        let _ = ring3::with_log(|log| ring::write(log, level, bytes));
    }
}

/// Gives the reply to the event before, tells how much memory the unit has by now, and waits for the next one.
pub fn receive(reply: &[u8], memory_bytes: u64) -> Vec<u8> {
    loop {
        let page = ring3::exit(Exit::Receive, CallPage { number: memory_bytes, ..asking(reply) });
        if page.status == READ_AHEAD {
            ring3::read_ahead(page.request, page.request_bytes);
        } else if let Some(event) = answer(page) {
            return event;
        }
    }
}

/// The last words.
pub fn end(why: &str) -> ! {
    ring3::exit(Exit::Panic, asking(why.as_bytes()));
    ring3::halt()
}

fn asking(request: &[u8]) -> CallPage {
    CallPage {
        request: request.as_ptr() as u64,
        request_bytes: request.len() as u64,
        answer: layout::INBOX,
        answer_bytes_max: layout::INBOX_BYTES,
        ..CallPage::default()
    }
}

/// What the tender answered: from the inbox, or fetched if it was too large for that. None: it refused.
fn answer(page: CallPage) -> Option<Vec<u8>> {
    let bytes = usize::try_from(page.answer_bytes).ok()?;
    if page.status != DONE {
        return None;
    }
    if page.answer_bytes <= layout::INBOX_BYTES {
        return Some(ring3::with_inbox(bytes, <[u8]>::to_vec));
    }
    let mut room = vec![0_u8; bytes];
    let fetch = CallPage { answer: room.as_mut_ptr() as u64, answer_bytes_max: bytes as u64, ..CallPage::default() };
    let page = ring3::exit(Exit::Fetch, fetch);
    (page.status == DONE && page.answer_bytes == bytes as u64).then_some(room)
}
