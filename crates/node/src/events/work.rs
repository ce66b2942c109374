//! A queued event as the work of a function: for `lighter:unit` the event itself, for `wasi:http` a request.
//!
//! An event that the HTTP gate made of a request (type `http.request`, with the attributes of `contracts/wit/unit.wit`)
//! becomes that request again. Any other is sent in the binary mode of CloudEvents 1.0: `POST /`, attributes as `ce-`
//! headers; an event that came by a route goes to the path it was sent to, because the route decided who may send
//! there. The function's status means the same as a webhook's. A sender cannot claim that the gate made its event.

use crate::traces;
use bytes::Bytes;
use event::{Event, Gate};
use handling::Work;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use problem::{Code, Problem};
use unit::{Body, Contract};

/// Type of an event that was made of a request.
const HTTP_REQUEST: &str = "http.request";

/// The header in which a function reads how an event came in: only the node's own word stands there.
pub const GATE_HEADER: HeaderName = HeaderName::from_static("ce-gate");

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
    event.origin.gate == Some(Gate::Http) && event.kind == HTTP_REQUEST && event.attribute("httpmethod").is_some()
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
    let fields = fields.filter(|(name, _)| *name != GATE_HEADER);
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
    let path = event.attribute("httppath").filter(|_| event.origin.gate == Some(Gate::Http));
    let path = path.and_then(|path| path.parse::<Uri>().ok());
    let mut request = Request::new(body(event.data));
    *request.uri_mut() = path.unwrap_or_default();
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
        let of_gate = |kind: &str, attributes: &[(&str, &str)]| {
            let mut event = event(kind, attributes);
            event.came_by(Gate::Http, "");
            event
        };
        let head = request(of_gate("http.request", &attributes)).unwrap();
        assert_eq!((head.method, head.uri.to_string()), (Method::PUT, "/a?b=c".to_owned()));
        assert_eq!((&head.headers["x-y"], &head.headers["host"]), (&"z".parse().unwrap(), &"x.org".parse().unwrap()));
        let bad = of_gate("http.request", &[("httpmethod", "PUT"), ("httppath", "no path")]);
        assert_eq!(request(bad).unwrap_err().code, Code::EventInvalid);
    }

    /// Finding P1: whoever could queue an event could have any request made of it.
    #[test]
    fn only_the_gate_makes_requests() {
        let attributes = [("httpmethod", "DELETE"), ("httppath", "/admin"), ("gate", "http"), ("http-ce-gate", "mqtt")];
        for gate in [None, Some(Gate::Api), Some(Gate::Mqtt), Some(Gate::Function)] {
            let mut forged = event("http.request", &attributes);
            if let Some(gate) = gate {
                forged.came_by(gate, "");
            }
            assert!(!is_request(&forged));
            let head = request(forged).unwrap();
            assert_eq!((head.method, head.uri.path()), (Method::POST, "/"), "{gate:?}");
        }
        let mut made = event("http.request", &attributes);
        made.came_by(Gate::Http, "");
        assert!(is_request(&made));
        assert!(request(made).unwrap().headers.get("ce-gate").is_none(), "a caller says nothing of its gate");
        let mut sent = event("reading", &[("httppath", "/public")]);
        sent.came_by(Gate::Http, "");
        let head = request(sent).unwrap();
        assert_eq!(
            (head.method, head.uri.path(), &head.headers["ce-gate"]),
            (Method::POST, "/public", &"http".parse().unwrap())
        );
    }

    #[test]
    fn a_status_means_what_webhooks_mean_by_it() {
        let code = |status| judge(StatusCode::from_u16(status).unwrap()).map_err(|problem| problem.code);
        assert_eq!([200, 204].map(code), [Ok(()), Ok(())]);
        assert_eq!([408, 425, 429, 500, 503].map(code), [Err(Code::UnitRetry); 5]);
        assert_eq!([301, 400, 404].map(code), [Err(Code::UnitInvalid); 3]);
    }
}
