//! Any request is a list of events, no event, or a typed error; what is read can be written in every mode and reads the
//! same again.
//!
//! An input is lines of `name: value`, an empty line, and the body.
#![no_main]

use cloudevents::{BATCHED, Limits, STRUCTURED, batched, binary, decode, structured};
use event::Event;
use http::{HeaderMap, HeaderName, HeaderValue};
use lighter_fuzz::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (head, body) = match data.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&data[..end], &data[end + 2..]),
        None => (data, &b""[..]),
    };
    let limits = Limits { events_max: 8, data_bytes_max: 1_024, attribute_bytes_max: 64 };
    match decode(&headers(head), body, 7, &limits) {
        Ok(events) => events.into_iter().flatten().for_each(check),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fn headers(head: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn check(event: Event) {
    let event = sorted(event);
    let named =
        |kind: &'static str| HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let limits = Limits::default();
    let kind = event.content_type.as_deref().unwrap_or_default().trim().to_ascii_lowercase();
    // An event about an event: in the binary mode its media type would speak of the request.
    if !kind.starts_with("application/cloudevents") {
        let again = decode(&binary(&event), &event.data, 7, &limits).expect("it can be read").expect("it is an event");
        assert_eq!(again.into_iter().map(sorted).collect::<Vec<_>>(), [event.clone()]);
    }
    let trimmed = Event { data: event.data.trim_ascii().to_vec(), ..event.clone() };
    for (kind, body) in [(STRUCTURED, structured(&event)), (BATCHED, batched([&event]))] {
        let again = decode(&named(kind), &body, 7, &limits).expect("it can be read").expect("it is an event");
        let again = sorted(again.into_iter().next().expect("there is one"));
        // Blanks around JSON may go.
        assert!(again == event || again == trimmed, "{again:?} is not {event:?}");
    }
}

fn sorted(mut event: Event) -> Event {
    event.attributes.sort();
    event
}
