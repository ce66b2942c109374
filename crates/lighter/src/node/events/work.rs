//! A queued event as the work of a function: for `lighter:unit` the event itself, for `wasi:http` a request.
//!
//! An event that was made of a request (type `http.request`, with the attributes of `contracts/wit/unit.wit`) becomes that
//! request again. Any other is sent as CloudEvents 1.0 says in binary mode: `POST /`, attributes as `ce-` headers. What
//! the function's status means is what webhooks mean by it.

use crate::node::traces;
use bytes::Bytes;
use event::Event;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use problem::{Code, Problem};
use unit::{Body, Contract, Work};

/// Type of an event that was made of a request.
const HTTP_REQUEST: &str = "http.request";

/// # Errors
/// [`Code::EventInvalid`]: the event says it was a request, and cannot be one.
pub fn of(contract: Contract, event: Event) -> Result<Work, Problem> {
    match contract {
        Contract::Unit | Contract::Call => Ok(Work::Event(event)),
        Contract::WasiHttp if is_request(&event) => Ok(Work::Http(original(event)?)),
        Contract::WasiHttp => Ok(Work::Http(cloud_event(event))),
    }
}

/// Whether the event was made of a request, whose reply somebody may want to read whatever its status.
pub fn is_request(event: &Event) -> bool {
    event.kind == HTTP_REQUEST && event.attribute("httpmethod").is_some()
}

/// What the status of a `wasi:http` function says about the event it was sent.
///
/// # Errors
/// [`Code::UnitRetry`] for 408, 425, 429 and 5xx; [`Code::UnitInvalid`] for all else but 2xx.
pub fn judge(status: StatusCode) -> Result<(), Problem> {
    let code = match status.as_u16() {
        200..=299 => return Ok(()),
        408 | 425 | 429 | 500..=599 => Code::UnitRetry,
        _ => Code::UnitInvalid,
    };
    Err(Problem::new(code, format!("the function answered the event with {status}")))
}

/// Puts the event into a trace.
pub fn set_trace(event: &mut Event, traceparent: &str) {
    event.attributes.retain(|(name, _)| name != traces::HEADER);
    event.attributes.push((traces::HEADER.to_owned(), traceparent.to_owned()));
}

fn original(event: Event) -> Result<Request<Body>, Problem> {
    let bad = |what: &str| Problem::new(Code::EventInvalid, format!("the event is no request: {what}"));
    let method = event.attribute("httpmethod").unwrap_or("POST");
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad("httpmethod"))?;
    let path = event.attribute("httppath").unwrap_or("/");
    let target = event.attribute("httpquery").map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let uri: Uri = target.parse().map_err(|_| bad("httppath"))?;
    let mut request = Request::builder().method(method).uri(uri);
    let fields = event.attributes.iter().filter_map(|(name, value)| Some((name.strip_prefix("http-")?, value)));
    for (name, value) in fields {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
            return Err(bad(name));
        };
        request = request.header(name, value);
    }
    let headers = request.headers_mut().ok_or_else(|| bad("its head"))?;
    let known = [(HOST, event.attribute("httphost")), (CONTENT_TYPE, event.content_type.as_deref())];
    let trace = (HeaderName::from_static(traces::HEADER), event.attribute(traces::HEADER));
    for (name, value) in known.into_iter().chain([trace]) {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    request.body(body(event.data)).map_err(|_| bad("its head"))
}

fn cloud_event(event: Event) -> Request<Body> {
    let mut headers = cloudevents::binary(&event);
    // The standard's own headers, which libraries look for, beside the attributes.
    for name in [traces::HEADER, traces::STATE_HEADER] {
        if let Some(value) = event.attribute(name).and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    headers.insert(HOST, HeaderValue::from_static("localhost"));
    let mut request = Request::new(body(event.data));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = headers;
    request
}

fn body(data: Vec<u8>) -> Body {
    Full::new(Bytes::from(data)).map_err(|never| match never {}).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, attributes: &[(&str, &str)]) -> Event {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (id, source) = ("7".to_owned(), "/meter".to_owned());
        let content_type = Some("text/plain".to_owned());
        Event { id, source, kind: kind.to_owned(), content_type, attributes, data: b"21".to_vec(), ..Event::default() }
    }

    fn request(event: Event) -> Result<http::request::Parts, Problem> {
        match of(Contract::WasiHttp, event)? {
            Work::Http(request) => Ok(request.into_parts().0),
            Work::Event(_) => panic!("it is for wasi:http"),
        }
    }

    #[test]
    fn an_event_is_posted_as_a_cloud_event() {
        let mut event = event("reading", &[("traceparent", "old"), ("tracestate", "a=b")]);
        set_trace(&mut event, "new");
        let head = request(event).unwrap();
        assert_eq!((head.method, head.uri.path()), (Method::POST, "/"));
        for (name, value) in [
            ("ce-id", "7"),
            ("ce-type", "reading"),
            ("content-type", "text/plain"),
            ("traceparent", "new"),
            ("tracestate", "a=b"),
        ] {
            assert_eq!(head.headers[name], value, "{name}");
        }
    }

    #[test]
    fn a_request_that_was_queued_is_that_request_again() {
        let attributes =
            [("httpmethod", "PUT"), ("httppath", "/a"), ("httpquery", "b=c"), ("httphost", "x.org"), ("http-x-y", "z")];
        let head = request(event("http.request", &attributes)).unwrap();
        assert_eq!((head.method, head.uri.to_string()), (Method::PUT, "/a?b=c".to_owned()));
        assert_eq!((&head.headers["x-y"], &head.headers["host"]), (&"z".parse().unwrap(), &"x.org".parse().unwrap()));
        let bad = event("http.request", &[("httpmethod", "PUT"), ("httppath", "no path")]);
        assert_eq!(request(bad).unwrap_err().code, Code::EventInvalid);
    }

    #[test]
    fn a_status_means_what_webhooks_mean_by_it() {
        let code = |status| judge(StatusCode::from_u16(status).unwrap()).map_err(|problem| problem.code);
        assert_eq!([200, 204].map(code), [Ok(()), Ok(())]);
        assert_eq!([408, 425, 429, 500, 503].map(code), [Err(Code::UnitRetry); 5]);
        assert_eq!([301, 400, 404].map(code), [Err(Code::UnitInvalid); 3]);
    }
}
