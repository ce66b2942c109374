//! An HTTP request as an event: what a `lighter:unit` function sees of it. The attributes stand in
//! `contracts/wit/unit.wit`.

use super::traces;
use event::{ATTRIBUTES_MAX, Event};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, request::Parts};
use problem::{Code, Problem};

/// Where the event happened, and when.
pub struct Origin<'a> {
    /// URI reference, for instance `/http/hello`.
    pub source: &'a str,
    pub request_id: &'a str,
    pub time_ms: u64,
    /// The span of the handling, in the caller's trace if it sent one. None where nothing is traced: then the caller's
    /// own goes on.
    pub traceparent: Option<String>,
}

/// # Errors
/// [`Code::HeadersTooLarge`]: the headers make more attributes than an event may have.
pub fn from_request(head: &Parts, data: Vec<u8>, origin: Origin<'_>) -> Result<Event, Problem> {
    let mut attributes = Vec::with_capacity(head.headers.len() + 5);
    let mut add = |name: &str, value: &str| attributes.push((name.to_owned(), value.to_owned()));
    add("httpmethod", head.method.as_str());
    add("httppath", head.uri.path());
    if let Some(query) = head.uri.query() {
        add("httpquery", query);
    }
    if let Some(host) = host(head) {
        add("httphost", host);
    }
    attributes.extend(trace(&head.headers, origin.traceparent));
    for (name, value) in &head.headers {
        attributes.push((["http-", name.as_str()].concat(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    }
    // The gate it came by is one more.
    let room = ATTRIBUTES_MAX - 1;
    if attributes.len() > room {
        let detail = format!("the request makes {} attributes, the limit is {room}", attributes.len());
        return Err(Problem::new(Code::HeadersTooLarge, detail).with_hint("send fewer headers"));
    }
    Ok(Event {
        id: origin.request_id.to_owned(),
        source: origin.source.to_owned(),
        kind: "http.request".to_owned(),
        subject: None,
        time_ms: origin.time_ms,
        content_type: text(&head.headers, CONTENT_TYPE.as_str()).map(str::to_owned),
        attributes,
        attempt: 1,
        data,
        ..Event::default()
    })
}

/// A call of a function with arguments: its body is what they travel in, and of its headers only the trace goes on.
pub fn of_call(head: &Parts, data: Vec<u8>, origin: Origin<'_>) -> Event {
    Event {
        id: origin.request_id.to_owned(),
        source: origin.source.to_owned(),
        kind: "lighter.call".to_owned(),
        subject: None,
        time_ms: origin.time_ms,
        content_type: Some(frame::MEDIA_TYPE.to_owned()),
        attributes: trace(&head.headers, origin.traceparent).collect(),
        attempt: 1,
        data,
        ..Event::default()
    }
}

/// Takes out of the headers what is for the node alone: the token that opened the route.
pub fn hide_token(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
}

/// The attributes by which an event is part of a trace.
fn trace(headers: &HeaderMap, traceparent: Option<String>) -> impl Iterator<Item = (String, String)> {
    let parent = traceparent.or_else(|| text(headers, traces::HEADER).map(str::to_owned));
    let state = parent.is_some().then(|| text(headers, traces::STATE_HEADER).map(str::to_owned)).flatten();
    let named = [(traces::HEADER, parent), (traces::STATE_HEADER, state)];
    named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))
}

fn host(head: &Parts) -> Option<&str> {
    head.uri.authority().map(http::uri::Authority::as_str).or_else(|| text(&head.headers, HOST.as_str()))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(headers: usize) -> Parts {
        let mut request =
            http::Request::get("/a/b?name=x").header("host", "example.org").header("content-type", "text/plain");
        for number in 0..headers {
            request = request.header(format!("x-{number}"), "v");
        }
        request.body(()).unwrap().into_parts().0
    }

    fn event(head: &Parts, traceparent: Option<&str>) -> Result<Event, Problem> {
        let traceparent = traceparent.map(str::to_owned);
        from_request(head, b"data".to_vec(), Origin { source: "/http/f", request_id: "r1", time_ms: 7, traceparent })
    }

    #[test]
    fn a_request_becomes_the_event_the_contract_describes() {
        let event = event(&head(1), None).unwrap();
        assert_eq!((event.id.as_str(), event.source.as_str(), event.kind.as_str()), ("r1", "/http/f", "http.request"));
        assert_eq!((event.time_ms, event.attempt, event.data.as_slice()), (7, 1, &b"data"[..]));
        assert_eq!(event.content_type.as_deref(), Some("text/plain"));
        for (name, value) in [
            ("httpmethod", "GET"),
            ("httppath", "/a/b"),
            ("httpquery", "name=x"),
            ("httphost", "example.org"),
            ("http-x-0", "v"),
        ] {
            assert_eq!(event.attribute(name), Some(value), "{name}");
        }
        assert_eq!(event.attribute("traceparent"), None);
    }

    #[test]
    fn the_trace_of_the_call_goes_before_the_callers() {
        let mut head = head(0);
        head.headers.insert("tracestate", "a=b".parse().unwrap());
        assert_eq!(event(&head, None).unwrap().attribute("tracestate"), None, "it belongs to no trace");
        head.headers.insert("traceparent", "callers".parse().unwrap());
        for (ours, goes_on) in [(None, "callers"), (Some("ours"), "ours")] {
            let origin = Origin { source: "/f", request_id: "r1", time_ms: 7, traceparent: ours.map(str::to_owned) };
            for event in [event(&head, ours).unwrap(), of_call(&head, Vec::new(), origin)] {
                let trace = ["traceparent", "tracestate"].map(|name| event.attribute(name));
                assert_eq!(trace, [Some(goes_on), Some("a=b")]);
            }
        }
    }

    #[test]
    fn a_request_with_too_many_headers_is_refused() {
        assert!(event(&head(120), None).is_ok());
        assert_eq!(event(&head(130), None).unwrap_err().code, Code::HeadersTooLarge);
    }
}
