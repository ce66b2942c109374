//! A call's way to another node as a span of its own: what the other node records stands below it.

use crate::Node;
use crate::traces::{CallSpan, HEADER, HopEnd, Traces};
use fleet_link::RanAt;
use http::{HeaderValue, Request, Response};
use problem::Problem;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The span while the call is on its way.
pub struct Hop<'a> {
    traces: Arc<Traces>,
    span: CallSpan,
    /// The caller's own part of the trace, as it came.
    callers: Option<HeaderValue>,
    began: Instant,
    function: &'a str,
    request_id: &'a str,
}

impl<'a> Hop<'a> {
    /// Begins it, and has the request carry it. None: this node sends no traces, and passes the caller's on.
    pub fn begin<B>(node: &Node, request: &mut Request<B>, function: &'a str, request_id: &'a str) -> Option<Self> {
        let traces = node.traces.clone()?;
        let callers = request.headers_mut().remove(HEADER);
        let span = traces.begin(callers.as_ref().and_then(|value| value.to_str().ok()), SystemTime::now());
        let carried = HeaderValue::try_from(span.context.to_string()).expect("hexadecimal digits make a header");
        request.headers_mut().insert(HEADER, carried);
        Some(Self { traces, span, callers, began: Instant::now(), function, request_id })
    }

    /// The head of the reply is there.
    pub fn ran<B>(&self, response: &Response<B>) {
        let at = response.extensions().get::<RanAt>().map(|RanAt(name)| &**name);
        self.end(at, None);
    }

    pub fn failed(&self, problem: &Problem) {
        self.end(None, Some(problem));
    }

    /// The call runs here after all: it was on no way.
    pub fn came_back<B>(&self, request: &mut Request<B>) {
        request.headers_mut().remove(HEADER);
        self.callers.clone().map(|callers| request.headers_mut().insert(HEADER, callers));
    }

    fn end(&self, node: Option<&str>, problem: Option<&Problem>) {
        let (function, request_id, took) = (self.function, self.request_id, self.began.elapsed());
        self.traces.end_hop(&self.span, &HopEnd { function, request_id, node, took, problem });
    }
}
