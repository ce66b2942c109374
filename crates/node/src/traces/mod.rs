//! Traces: one span for every recorded call, with children for queue, start and run, sent by OTLP over HTTP.
//!
//! Only with `--otlp`; without it calls do not come here at all. Spans wait in a bounded queue and are sent in batches
//! by a thread of their own; when the receiver is slow, spans are dropped and calls are not held up.

mod context;
mod exporter;

pub use context::{HEADER, STATE_HEADER, TraceContext};

use super::config::TraceTarget;
use super::ids::Ids;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanEvents, SpanExporter, SpanLinks, SpanProcessor,
};
use problem::Problem;
use std::borrow::Cow;
use std::time::{Duration, SystemTime};

/// Spans that wait to be sent; more are dropped.
const QUEUE_SPANS_MAX: usize = 8_192;

pub struct Traces {
    processor: BatchSpanProcessor,
    scope: InstrumentationScope,
    ids: Ids,
    /// Traces that begin here are recorded if a random number is below this.
    recorded_below: u64,
}

/// The span of one call, from its beginning.
#[derive(Debug, Clone, Copy)]
pub struct CallSpan {
    pub context: TraceContext,
    parent: Option<SpanId>,
    kind: Kind,
    start: SystemTime,
}

/// Who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Event,
}

impl CallSpan {
    /// Whether its trace begins with it.
    pub fn is_first(&self) -> bool {
        self.parent.is_none()
    }

    /// Says that it is the handling of a queued event.
    #[must_use]
    pub fn of_event(self) -> Self {
        Self { kind: Kind::Event, ..self }
    }
}

/// What is known of a call when it has ended.
pub struct CallEnd<'a> {
    pub function: &'a str,
    pub version: u32,
    pub request_id: &'a str,
    pub queue: Duration,
    pub start: Duration,
    pub run: Duration,
    pub total: Duration,
    pub problem: Option<&'a Problem>,
}

/// What is known of a call's way to another node when the head of its reply is there.
pub struct HopEnd<'a> {
    pub function: &'a str,
    pub request_id: &'a str,
    /// Where it ran.
    pub node: Option<&'a str>,
    pub took: Duration,
    pub problem: Option<&'a Problem>,
}

impl Traces {
    /// # Errors
    /// The exporter cannot be made.
    pub fn new(target: &TraceTarget, ids: Ids) -> Result<Self, Problem> {
        Ok(Self::with_exporter(exporter::new(&target.url)?, target.share, ids))
    }

    fn with_exporter(exporter: impl SpanExporter + 'static, share: f64, ids: Ids) -> Self {
        let config = BatchConfigBuilder::default().with_max_queue_size(QUEUE_SPANS_MAX).build();
        let mut processor = BatchSpanProcessor::new(exporter, config);
        let service =
            [KeyValue::new("service.name", "lighter"), KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))];
        processor.set_resource(&Resource::builder_empty().with_attributes(service).build());
        let scope = InstrumentationScope::builder("lighter").with_version(env!("CARGO_PKG_VERSION")).build();
        Self { processor, scope, ids, recorded_below: (share * u64::MAX as f64) as u64 }
    }

    /// Begins a span: in the caller's trace if it sent one, else in a new one.
    pub fn begin(&self, traceparent: Option<&str>, now: SystemTime) -> CallSpan {
        let caller = traceparent.and_then(TraceContext::parse);
        let context = TraceContext {
            trace: caller.map_or_else(|| self.new_trace(), |caller| caller.trace),
            span: SpanId::from_bytes(self.ids.next().to_be_bytes()),
            recorded: caller.map_or_else(|| self.ids.next() <= self.recorded_below, |caller| caller.recorded),
        };
        CallSpan { context, parent: caller.map(|caller| caller.span), kind: Kind::Call, start: now }
    }

    /// Ends it, and queues it to be sent.
    pub fn end(&self, call: &CallSpan, end: &CallEnd<'_>) {
        if !call.context.recorded {
            return;
        }
        let status = end.problem.map_or(Status::Unset, |problem| Status::error(problem.to_string()));
        let mut attributes = vec![
            KeyValue::new("faas.name", end.function.to_owned()),
            KeyValue::new("faas.version", i64::from(end.version)),
            KeyValue::new("faas.invocation_id", end.request_id.to_owned()),
        ];
        attributes.extend(end.problem.map(|problem| KeyValue::new("error.type", problem.code.to_string())));
        let parent = call.parent.unwrap_or(SpanId::INVALID);
        let whole = Part { name: end.function.to_owned().into(), start: call.start, duration: end.total };
        let kind = match call.kind {
            Kind::Call => SpanKind::Server,
            Kind::Event => SpanKind::Consumer,
        };
        let mut span = self.span(call, call.context.span, parent, whole, kind);
        span.parent_span_is_remote = call.parent.is_some();
        (span.attributes, span.status) = (attributes, status);
        self.processor.on_end(span);

        let mut start = call.start;
        for (name, duration) in [("queue", end.queue), ("start", end.start), ("run", end.run)] {
            let part = Part { name: name.into(), start, duration };
            start += duration;
            let id = SpanId::from_bytes(self.ids.next().to_be_bytes());
            self.processor.on_end(self.span(call, id, call.context.span, part, SpanKind::Internal));
        }
    }

    /// Ends the span of a call's way to another node.
    pub fn end_hop(&self, hop: &CallSpan, end: &HopEnd<'_>) {
        if !hop.context.recorded {
            return;
        }
        let part = Part { name: format!("hop {}", end.function).into(), start: hop.start, duration: end.took };
        let mut span = self.span(hop, hop.context.span, hop.parent.unwrap_or(SpanId::INVALID), part, SpanKind::Client);
        span.parent_span_is_remote = hop.parent.is_some();
        span.status = end.problem.map_or(Status::Unset, |problem| Status::error(problem.to_string()));
        span.attributes = vec![
            KeyValue::new("faas.invoked_name", end.function.to_owned()),
            KeyValue::new("faas.invocation_id", end.request_id.to_owned()),
        ];
        span.attributes.extend(end.node.map(|node| KeyValue::new("server.address", node.to_owned())));
        span.attributes.extend(end.problem.map(|problem| KeyValue::new("error.type", problem.code.to_string())));
        self.processor.on_end(span);
    }

    /// A push of an event to a queue, which takes no time. Returns the `traceparent` for the event.
    pub fn push(&self, traceparent: Option<&str>, queue: &str, event: &str, now: SystemTime) -> String {
        let push = self.begin(traceparent, now);
        if push.context.recorded {
            let part = Part { name: format!("push {queue}").into(), start: now, duration: Duration::ZERO };
            let parent = push.parent.unwrap_or(SpanId::INVALID);
            let mut span = self.span(&push, push.context.span, parent, part, SpanKind::Producer);
            span.parent_span_is_remote = push.parent.is_some();
            let (queue, event) = (queue.to_owned(), event.to_owned());
            span.attributes =
                vec![KeyValue::new("messaging.destination.name", queue), KeyValue::new("messaging.message.id", event)];
            self.processor.on_end(span);
        }
        push.context.to_string()
    }

    /// Sends what waits. Blocks for as long as the receiver takes, a few seconds at most.
    pub fn shutdown(&self) {
        if let Err(error) = self.processor.shutdown_with_timeout(Duration::from_secs(3)) {
            tracing::warn!("the last traces may not have been sent: {error}");
        }
    }

    fn new_trace(&self) -> TraceId {
        let (high, low) = (u128::from(self.ids.next()), u128::from(self.ids.next()));
        TraceId::from_bytes((high << 64 | low).to_be_bytes())
    }

    fn span(&self, call: &CallSpan, id: SpanId, parent: SpanId, part: Part, kind: SpanKind) -> SpanData {
        let flags = TraceFlags::SAMPLED;
        SpanData {
            span_context: SpanContext::new(call.context.trace, id, flags, false, TraceState::NONE),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: kind,
            name: part.name,
            start_time: part.start,
            end_time: part.start + part.duration,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

struct Part {
    name: Cow<'static, str>,
    start: SystemTime,
    duration: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_sdk::error::OTelSdkResult;
    use parking_lot::Mutex;
    use problem::Code;
    use std::sync::Arc;

    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().extend(batch);
            Ok(())
        }
    }

    fn end(problem: Option<&Problem>) -> CallEnd<'_> {
        let [queue, start, run, total] = [1, 2, 3, 7].map(Duration::from_millis);
        CallEnd { function: "hello", version: 2, request_id: "r1", queue, start, run, total, problem }
    }

    fn traced(share: f64, traceparent: Option<&str>, problem: Option<&Problem>) -> Vec<SpanData> {
        let kept = Kept::default();
        let traces = Traces::with_exporter(kept.clone(), share, Ids::new(7));
        let span = traces.begin(traceparent, SystemTime::UNIX_EPOCH);
        traces.end(&span, &end(problem));
        traces.shutdown();
        kept.0.lock().clone()
    }

    #[test]
    fn a_call_is_a_span_in_the_callers_trace_with_three_children_one_after_the_other() {
        let spans = traced(0.0, Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), None);
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["hello", "queue", "start", "run"]);
        assert_eq!(spans[0].parent_span_id.to_string(), "b7ad6b7169203331");
        assert!(
            spans.iter().all(|span| span.span_context.trace_id().to_string() == "0af7651916cd43dd8448eb211c80319c")
        );
        assert!(spans[1..].iter().all(|span| span.parent_span_id == spans[0].span_context.span_id()));
        assert!(spans[1].end_time == spans[2].start_time && spans[2].end_time == spans[3].start_time);
    }

    #[test]
    fn a_way_to_another_node_is_a_span_between_the_caller_and_what_runs_there() {
        let (near, far) = (Kept::default(), Kept::default());
        let [here, there] = [&near, &far].map(|kept| Traces::with_exporter(kept.clone(), 1.0, Ids::new(7)));
        let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let hop = here.begin(Some(caller), SystemTime::UNIX_EPOCH);
        let call = there.begin(Some(&hop.context.to_string()), SystemTime::UNIX_EPOCH);
        there.end(&call, &end(None));
        let took = Duration::from_millis(9);
        let ended = HopEnd { function: "hello", request_id: "r1", node: Some("pi-7"), took, problem: None };
        here.end_hop(&hop, &ended);
        [&here, &there].into_iter().for_each(Traces::shutdown);
        let (near, far) = (near.0.lock(), far.0.lock());
        assert_eq!((&*near[0].name, near[0].parent_span_id.to_string()), ("hop hello", "b7ad6b7169203331".to_owned()));
        assert!(near[0].attributes.contains(&KeyValue::new("server.address", "pi-7")));
        assert_eq!(near[0].span_context.trace_id(), far[0].span_context.trace_id());
        assert_eq!((near.len(), far[0].parent_span_id), (1, near[0].span_context.span_id()));
    }

    #[test]
    fn the_share_decides_only_where_the_caller_does_not() {
        assert_eq!(traced(0.0, None, None).len(), 0);
        assert_eq!(traced(1.0, None, None).len(), 4);
        assert_eq!(traced(1.0, Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"), None).len(), 0);
    }

    #[test]
    fn a_failed_call_says_its_code() {
        let problem = Problem::new(Code::TimeExceeded, "too long");
        let spans = traced(1.0, None, Some(&problem));
        assert!(spans[0].attributes.contains(&KeyValue::new("error.type", "L3001")));
        assert!(matches!(spans[0].status, Status::Error { .. }));
    }
}
