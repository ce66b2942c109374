//! Every folder of `contracts/conformance/cloudevents` is read and must mean what its `case.json` says.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cloudevents::{Limits, STRUCTURED, batched, binary, decode, structured};
use event::Event;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::fs;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contracts/conformance/cloudevents");
const NOW_MS: u64 = 1_000;

fn cases() -> Vec<(String, Value)> {
    let folders = fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let case = serde_json::from_slice(&fs::read(path.join("case.json")).unwrap());
        (name.clone(), case.unwrap_or_else(|error| panic!("{name}: {error}")))
    };
    folders.map(read).collect()
}

fn pairs(list: &Value) -> Vec<(String, String)> {
    let pair = |pair: &Value| (pair[0].as_str().unwrap().to_owned(), pair[1].as_str().unwrap().to_owned());
    list.as_array().into_iter().flatten().map(pair).collect()
}

fn headers(list: &Value) -> HeaderMap {
    let header = |(name, value): (String, String)| {
        (name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut headers = HeaderMap::new();
    pairs(list).into_iter().map(header).for_each(|(name, value)| _ = headers.append(name, value));
    headers
}

/// `NAME` as text, or `NAME_base64`.
fn bytes(of: &Value, name: &str) -> Vec<u8> {
    match of[format!("{name}_base64")].as_str() {
        Some(encoded) => BASE64_STANDARD.decode(encoded).unwrap(),
        None => of[name].as_str().unwrap_or_default().as_bytes().to_vec(),
    }
}

fn event(case: &Value) -> Event {
    let text = |name: &str| case[name].as_str().map(str::to_owned);
    let mut attributes = pairs(&case["attributes"]);
    attributes.sort();
    Event {
        id: text("id").unwrap(),
        source: text("source").unwrap(),
        kind: text("type").unwrap(),
        subject: text("subject"),
        time_ms: case["time_ms"].as_u64().unwrap(),
        content_type: text("content_type"),
        attributes,
        attempt: 1,
        data: bytes(case, "data"),
        ..Event::default()
    }
}

fn sorted(mut event: Event) -> Event {
    event.attributes.sort();
    event
}

fn limits(case: &Value) -> Limits {
    let number = |name: &str| case[name].as_u64().map(|number| usize::try_from(number).unwrap());
    let defaults = Limits::default();
    Limits {
        events_max: number("events_max").unwrap_or(defaults.events_max),
        data_bytes_max: number("data_bytes_max").unwrap_or(defaults.data_bytes_max),
        ..defaults
    }
}

#[test]
fn every_request_means_what_its_case_says() {
    for (name, case) in cases().into_iter().filter(|(_, case)| case.get("headers").is_some()) {
        let found = decode(&headers(&case["headers"]), &bytes(&case, "body"), NOW_MS, &limits(&case));
        match (&case["events"], &case["error"]) {
            (Value::Array(events), Value::Null) => {
                let found =
                    found.unwrap_or_else(|error| panic!("{name}: {error}")).unwrap_or_else(|| panic!("{name}: plain"));
                let found: Vec<Event> = found.into_iter().map(sorted).collect();
                assert_eq!(found, events.iter().map(event).collect::<Vec<_>>(), "{name}");
            }
            (Value::Null, Value::Object(_)) => {
                let error = found.expect_err(&name);
                let mut said = json!({ "attribute": error.attribute, "fault": error.fault.word() });
                if let Some(index) = error.index {
                    said["index"] = index.into();
                }
                assert_eq!(said, case["error"], "{name}");
                assert!(
                    problem::Problem::from(error).detail.contains(case["error"]["attribute"].as_str().unwrap()),
                    "{name}"
                );
            }
            _ => {
                assert_eq!(case["plain"], true, "{name}");
                assert_eq!(found, Ok(None), "{name}");
            }
        }
    }
}

#[test]
fn every_event_is_written_as_its_case_says_and_reads_back() {
    for (name, case) in cases().into_iter().filter(|(_, case)| case.get("event").is_some()) {
        let event = event(&case["event"]);
        assert_eq!(binary(&event), headers(&case["binary"]["headers"]), "{name}");
        assert_eq!(event.data, bytes(&case["binary"], "body"), "{name}");
        assert_eq!(serde_json::from_slice::<Value>(&structured(&event)).unwrap(), case["structured"], "{name}");
    }
}

/// Whatever came in goes out in every mode and comes in again as the same event.
#[test]
fn what_was_read_and_is_written_reads_the_same_again() {
    for (name, case) in cases() {
        for event in case["events"].as_array().into_iter().flatten().map(event) {
            let limits = Limits::default();
            let again = decode(&binary(&event), &event.data, NOW_MS, &limits).unwrap().unwrap().remove(0);
            assert_eq!(sorted(again), event, "{name}: binary");
            let mut headers = HeaderMap::new();
            headers.insert("content-type", STRUCTURED.parse().unwrap());
            let again = decode(&headers, &structured(&event), NOW_MS, &limits).unwrap().unwrap().remove(0);
            assert_eq!(sorted(again), event, "{name}: structured");
            headers.insert("content-type", cloudevents::BATCHED.parse().unwrap());
            let again = decode(&headers, &batched([&event, &event]), NOW_MS, &limits).unwrap().unwrap();
            assert_eq!(again.into_iter().map(sorted).collect::<Vec<_>>(), [event.clone(), event], "{name}: batched");
        }
    }
}

fn of_json(data: &str) -> Event {
    let (id, source, kind) = ("7".into(), "/s".into(), "t".into());
    let content_type = Some("application/json".into());
    Event { id, source, kind, content_type, attempt: 1, data: data.into(), ..Event::default() }
}

/// Data of 127 levels could not be read as part of an event by the node itself.
#[test]
fn deep_json_goes_out_as_bytes_and_comes_back() {
    let nested = |levels: usize| format!("{}\"\\\"[\"{}", "[".repeat(levels), "]".repeat(levels));
    for (levels, member) in [(64, "data"), (65, "data_base64"), (200, "data_base64"), (100_000, "data_base64")] {
        let event = of_json(&nested(levels));
        let json: Value = serde_json::from_slice(&structured(&event)).unwrap();
        assert!(!json[member].is_null(), "{levels}");
        let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(STRUCTURED))]);
        let again = decode(&headers, &structured(&event), 0, &Limits::default()).unwrap().unwrap().remove(0);
        assert_eq!(again.data, event.data, "{levels}");
    }
    let opaque: Value = serde_json::from_slice(&cloudevents::structured_opaque(&of_json("1e999"))).unwrap();
    assert_eq!(opaque["data_base64"], BASE64_STANDARD.encode("1e999"));
}

#[test]
fn a_content_type_that_is_none_does_not_go_out() {
    let event = Event { content_type: Some("not a media type".into()), ..of_json("x") };
    assert!(binary(&event).get("content-type").is_none());
    let json: Value = serde_json::from_slice(&structured(&event)).unwrap();
    assert!(json["datacontenttype"].is_null(), "{json}");
}

#[test]
fn a_list_that_is_much_too_long_is_not_even_held() {
    let body = format!("[{}{{}}]", "{},".repeat(20_000));
    let mut headers = HeaderMap::new();
    headers.insert("content-type", cloudevents::BATCHED.parse().unwrap());
    assert_eq!(decode(&headers, body.as_bytes(), 0, &Limits::default()).unwrap_err().fault.word(), "json");
}
