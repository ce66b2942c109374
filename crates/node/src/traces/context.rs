//! `traceparent` (W3C Trace Context): which trace a call belongs to and whether it is recorded.
//!
//! ```text
//!   00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//!   version  trace id                   span id          flags, 1: recorded
//! ```

use opentelemetry::trace::{SpanId, TraceId};
use std::fmt;

pub const HEADER: &str = "traceparent";

/// What others have added to the trace; means nothing without the [`HEADER`] it came with.
pub const STATE_HEADER: &str = "tracestate";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    pub recorded: bool,
}

impl TraceContext {
    /// None for anything the standard calls invalid: the call then begins a trace of its own.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lower_hex = |part: &str, digits| {
            part.len() == digits && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let well_formed = lower_hex(version, 2)
            && lower_hex(trace, 32)
            && lower_hex(span, 16)
            && lower_hex(flags, 2)
            && version != "ff";
        // Version 00 has exactly four parts; a later one may have more.
        if !well_formed || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace = TraceId::from_hex(trace).ok().filter(|id| *id != TraceId::INVALID)?;
        let span = SpanId::from_hex(span).ok().filter(|id| *id != SpanId::INVALID)?;
        Some(Self { trace, span, recorded: u8::from_str_radix(flags, 16).ok()? & 1 == 1 })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.recorded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_reads_and_writes_back() {
        let context = TraceContext::parse(GOOD).unwrap();
        assert!(context.recorded);
        assert_eq!(context.to_string(), GOOD);
        assert!(!TraceContext::parse(&GOOD.replace("-01", "-02")).unwrap().recorded);
        assert!(TraceContext::parse(&format!("{}-more", GOOD.replace("00-", "01-"))).is_some());
    }

    #[test]
    fn what_the_standard_calls_invalid_is_ignored() {
        let zero_span = format!("00-{}-0000000000000000-01", "a".repeat(32));
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let more = format!("{GOOD}-more");
        let newest = GOOD.replace("00-", "ff-");
        let capital = GOOD.to_uppercase();
        for text in
            ["", "00", &zero_span, &zero_trace, &more, &newest, &capital, &GOOD[1..], &GOOD.replace("-01", "-1")]
        {
            assert_eq!(TraceContext::parse(text), None, "{text:?}");
        }
    }
}
