//! What a guest asks of its tender, checked: pure, and fuzzed. Every number is the guest's word and no more.

use kernel_abi::exits::{CallPage, Exit};
use kernel_abi::{Policy, Verb, layout, ring};
use std::ops::Range;

/// A place in guest memory: where it begins and how many bytes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestRange {
    pub at: u64,
    pub bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Ready,
    Publish(GuestRange),
    Call {
        /// None: there is no such verb, or it is not this unit's.
        verb: Option<Verb>,
        request: GuestRange,
        answer: GuestRange,
    },
    Fetch {
        answer: GuestRange,
    },
    Receive {
        /// As the guest says.
        memory_bytes: u64,
        reply: GuestRange,
        answer: GuestRange,
    },
    Log,
    Panic(GuestRange),
}

/// What makes no sense, in words for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lie(pub String);

/// What a guest may name.
#[derive(Debug, Clone)]
pub struct Bounds {
    pub heap: Range<u64>,
    /// Pages that can still become executable; empty but while linking.
    pub code: Range<u64>,
    pub policy: Policy,
    /// Of one request or reply.
    pub bytes_max: u64,
}

/// Checks what stands in a copy of the call page when the guest wrote to `port`.
///
/// # Errors
/// [`Lie`]: the unit is ended.
pub fn check(port: u16, page: &CallPage, bounds: &Bounds) -> Result<Asked, Lie> {
    let Some(exit) = Exit::of(port) else { return Err(Lie(format!("it wrote to port {port:#x}"))) };
    Ok(match exit {
        Exit::Ready => Asked::Ready,
        Exit::Publish => Asked::Publish(pages(page, bounds)?),
        Exit::Call => Asked::Call {
            verb: u32::try_from(page.number).ok().and_then(Verb::of).filter(|verb| bounds.policy.allows(*verb)),
            request: readable(page, bounds)?,
            answer: writable(page, bounds)?,
        },
        Exit::Fetch => Asked::Fetch { answer: writable(page, bounds)? },
        Exit::Receive => Asked::Receive {
            memory_bytes: page.number,
            reply: readable(page, bounds)?,
            answer: writable(page, bounds)?,
        },
        Exit::Log => Asked::Log,
        Exit::Panic => Asked::Panic(readable(page, bounds)?),
    })
}

/// Where requests may lie: what the kernel itself can read.
fn readable(page: &CallPage, bounds: &Bounds) -> Result<GuestRange, Lie> {
    if page.request_bytes > bounds.bytes_max {
        return Err(Lie(format!("a request of {} bytes, the limit is {}", page.request_bytes, bounds.bytes_max)));
    }
    if page.request_bytes == 0 {
        return Ok(GuestRange { at: layout::CALL, bytes: 0 });
    }
    let regions =
        [layout::KERNEL..layout::KERNEL_END, layout::STACK..layout::STACK + layout::STACK_BYTES, bounds.heap.clone()];
    within(page.request, page.request_bytes, &regions)
}

/// Where answers may lie: memory that is the guest's to write, and neither code nor a page that is shared otherwise.
fn writable(page: &CallPage, bounds: &Bounds) -> Result<GuestRange, Lie> {
    let regions = [layout::INBOX..layout::INBOX + layout::INBOX_BYTES, bounds.heap.clone()];
    within(page.answer, page.answer_bytes_max, &regions)
}

fn pages(page: &CallPage, bounds: &Bounds) -> Result<GuestRange, Lie> {
    if !page.request.is_multiple_of(layout::PAGE) || !page.request_bytes.is_multiple_of(layout::PAGE) {
        return Err(Lie(format!("{:#x} is not where a page begins", page.request)));
    }
    within(page.request, page.request_bytes, std::slice::from_ref(&bounds.code))
}

fn within(at: u64, bytes: u64, regions: &[Range<u64>]) -> Result<GuestRange, Lie> {
    let lie = || Lie(format!("{bytes} bytes at {at:#x} are not its to name"));
    let end = at.checked_add(bytes).ok_or_else(lie)?;
    if !regions.iter().any(|region| region.start <= at && end <= region.end) {
        return Err(lie());
    }
    Ok(GuestRange { at, bytes: usize::try_from(bytes).map_err(|_| lie())? })
}

/// The lines of a log ring, of which `bytes` is a copy.
pub fn lines(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    ring::records(bytes).map(|(level, text)| (level, text.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: Range<u64> = 0x100_0000..0x200_0000;

    fn bounds() -> Bounds {
        Bounds { heap: HEAP, code: 0..0, policy: Policy::least(), bytes_max: 1 << 20 }
    }

    fn page(request: u64, request_bytes: u64, answer: u64, answer_bytes_max: u64) -> CallPage {
        let number = Verb::ConfigGet.number().into();
        CallPage { number, request, request_bytes, answer, answer_bytes_max, ..CallPage::default() }
    }

    fn call(page: &CallPage) -> Result<Asked, Lie> {
        check(Exit::Call.port(), page, &bounds())
    }

    #[test]
    fn what_is_in_its_heap_may_be_named() {
        let range = |at, bytes| GuestRange { at, bytes };
        let asked = call(&page(HEAP.start, 10, layout::INBOX, layout::INBOX_BYTES)).unwrap();
        let answer = range(layout::INBOX, layout::INBOX_BYTES as usize);
        assert_eq!(asked, Asked::Call { verb: Some(Verb::ConfigGet), request: range(HEAP.start, 10), answer });
        // A request and its answer on the same bytes are the guest's own trouble: the request is copied first.
        assert!(call(&page(HEAP.start, 10, HEAP.start, 10)).is_ok());
    }

    #[test]
    fn what_is_not_its_own_may_not() {
        let inbox = (layout::INBOX, 8);
        for (at, bytes) in [
            (0, 8),
            (layout::PAGE_TABLES, 8),
            (layout::BOOT, 8),
            (HEAP.end, 1),
            (HEAP.end - 1, 2),
            (HEAP.start - 1, 2),
            (u64::MAX, 2),
            (HEAP.start, u64::MAX),
            (HEAP.start, (1 << 20) + 1),
        ] {
            assert!(call(&page(at, bytes, inbox.0, inbox.1)).is_err(), "{at:#x}");
        }
        for (at, bytes) in [(layout::KERNEL, 8), (layout::CODE, 8), (layout::CALL, 8), (layout::BOOT, 8), (0x1000, 8)] {
            assert!(call(&page(HEAP.start, 8, at, bytes)).is_err(), "{at:#x}");
        }
        assert!(check(0x4ff, &page(HEAP.start, 8, inbox.0, 8), &bounds()).is_err());
    }

    #[test]
    fn verbs_outside_of_the_policy_are_none() {
        let denied = CallPage { number: Verb::StoreGet.number().into(), ..page(HEAP.start, 8, layout::INBOX, 8) };
        assert!(matches!(call(&denied), Ok(Asked::Call { verb: None, .. })));
        let none = CallPage { number: u64::MAX, ..denied };
        assert!(matches!(call(&none), Ok(Asked::Call { verb: None, .. })));
    }

    #[test]
    fn code_is_published_only_while_linking_and_by_pages() {
        let asked = |request, request_bytes, code| {
            let page = CallPage { request, request_bytes, ..CallPage::default() };
            check(Exit::Publish.port(), &page, &Bounds { code, ..bounds() })
        };
        let code = layout::CODE..layout::CODE + 0x4000;
        assert!(asked(layout::CODE, 0x2000, code.clone()).is_ok());
        assert!(asked(layout::CODE, 0x2000, 0..0).is_err());
        assert!(asked(layout::CODE + 8, 0x1000, code.clone()).is_err());
        assert!(asked(layout::CODE, 0x5000, code.clone()).is_err());
        assert!(asked(HEAP.start, 0x1000, code).is_err());
    }
}
