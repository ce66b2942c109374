//! Every folder of `contracts/conformance/frame` is read and must mean what its `case.json` says.
//!
//! The folders are written from `cases/mod.rs`: `LIGHTER_UPDATE=1 cargo test -p frame`. The README beside them
//! explains the notation.

use crate::cases::{self, Case, Meaning};
use crate::notation;
use frame::{Checksum, Frame, Kind, Limits, RecordError, Value, event_body, read_event, read_failure};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Once;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contracts/conformance/frame");
const CONTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contracts/frame.md");

#[test]
fn the_folders_are_exactly_the_cases() {
    let cases = cases::all();
    let written = folders();
    let made: BTreeSet<String> = cases.iter().map(|case| case.name.to_owned()).collect();
    assert_eq!(made.len(), cases.len(), "a name is used twice");
    assert_eq!(written, made, "run LIGHTER_UPDATE=1 cargo test -p frame, and remove what is no case any more");
    for case in &cases {
        let folder = Path::new(FOLDER).join(case.name);
        assert_eq!(read(&folder), (case.bytes.clone(), description(case)), "{}", case.name);
    }
}

#[test]
fn every_folder_means_what_it_says() {
    for name in folders() {
        let (bytes, case) = read(&Path::new(FOLDER).join(&name));
        let limits = limits(&case);
        match case.get("error").and_then(Json::as_str) {
            Some(error) => assert_eq!(read_as(&bytes, &case, &limits).err(), Some(error), "{name}"),
            None => check_meaning(&name, &bytes, &case, &limits),
        }
    }
}

#[test]
fn the_contract_names_exactly_the_errors_that_have_a_case() {
    let contract = fs::read_to_string(CONTRACT).unwrap();
    let (_, steps) = contract.split_once("## Reading, step by step").unwrap();
    let (steps, _) = steps.split_once("\n## ").unwrap();
    let named: BTreeSet<String> = steps.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let shown: BTreeSet<String> = folders()
        .iter()
        .filter_map(|name| read(&Path::new(FOLDER).join(name)).1.get("error")?.as_str().map(str::to_owned))
        .collect();
    assert_eq!(named, shown);
}

/// Decodes, and reads the record if the case expects one. The error is its word.
fn read_as(bytes: &[u8], case: &Json, limits: &Limits) -> Result<(), &'static str> {
    let frame = Frame::decode(bytes, limits).map_err(|error| error.name())?;
    let expected = match case.get("record").and_then(Json::as_str) {
        None => return Ok(()),
        Some("event") => Kind::Event,
        Some("failure") => Kind::Failure,
        Some(other) => panic!("unknown record {other}"),
    };
    if frame.kind != expected {
        return Err(RecordError::Kind(frame.kind).name());
    }
    match expected {
        Kind::Event => read_event(&frame.body).map(drop),
        _ => read_failure(&frame.body).map(drop),
    }
    .map_err(|error| error.name())
}

fn check_meaning(name: &str, bytes: &[u8], case: &Json, limits: &Limits) {
    let frame = Frame::decode(bytes, limits).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(frame.kind.name(), case["kind"], "{name}");
    assert_eq!(frame.id.to_string(), case["id"], "{name}");
    assert_eq!(notation::to_json(&frame.body), case["body"], "{name}");
    read_as(bytes, case, limits).unwrap();
    if case["written"] == json!(true) {
        let checksum = if case["checksum"] == "all" { Checksum::All } else { Checksum::Front };
        assert_eq!(frame.encode(checksum, limits).unwrap().to_vec(), bytes, "{name}");
        if case.get("record") == Some(&json!("event")) {
            let event = read_event(&frame.body).unwrap();
            assert_eq!(event_body(&event).unwrap(), frame.body, "{name}");
        }
    }
}

fn description(case: &Case) -> Json {
    let mut json = json!({ "says": case.says });
    if let Some(record) = case.record {
        json["record"] = record.into();
    }
    if let Some((limit, value)) = case.limit {
        json["limits"] = json!({ limit: value });
    }
    match &case.meaning {
        Meaning::Error(error) => json["error"] = (*error).into(),
        Meaning::Frame { kind, id, checksum, body, written } => {
            json["kind"] = kind.name().into();
            json["id"] = id.to_string().into();
            json["checksum"] = if *checksum == Checksum::All { "all" } else { "front" }.into();
            json["written"] = (*written).into();
            json["body"] = notation::to_json(body);
        }
    }
    json
}

fn limits(case: &Json) -> Limits {
    let mut limits = Limits::default();
    let Some(given) = case.get("limits").and_then(Json::as_object) else { return limits };
    for (name, value) in given {
        let value = u32::try_from(value.as_u64().unwrap()).unwrap();
        match name.as_str() {
            "total-bytes" => limits.total_bytes_max = value.into(),
            "meta-bytes" => limits.meta_bytes_max = value,
            "buffers" => limits.buffers_max = value,
            "depth" => limits.depth_max = value,
            "values" => limits.values_max = value,
            other => panic!("unknown limit {other}"),
        }
    }
    limits
}

/// The names of all cases, after writing them when asked to.
fn folders() -> BTreeSet<String> {
    static WRITTEN: Once = Once::new();
    WRITTEN.call_once(|| {
        if std::env::var_os("LIGHTER_UPDATE").is_some() {
            cases::all().iter().for_each(write);
        }
    });
    let entries = fs::read_dir(FOLDER).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn read(folder: &Path) -> (Vec<u8>, Json) {
    let bytes = notation::from_hex(&fs::read_to_string(folder.join("frame.hex")).unwrap());
    let case = serde_json::from_str(&fs::read_to_string(folder.join("case.json")).unwrap()).unwrap();
    (bytes, case)
}

fn write(case: &Case) {
    let folder = Path::new(FOLDER).join(case.name);
    fs::create_dir_all(&folder).unwrap();
    let lines: String = case.bytes.chunks(16).map(|line| notation::hex(line) + "\n").collect();
    fs::write(folder.join("frame.hex"), lines).unwrap();
    let text = serde_json::to_string_pretty(&description(case)).unwrap() + "\n";
    fs::write(folder.join("case.json"), text).unwrap();
}

#[test]
fn the_notation_tells_values_apart() {
    let values = [Value::Null, Value::Bool(false), Value::I64(0), Value::F64(0.0), Value::Str("0"), Value::Bytes(b"0")];
    let written: BTreeSet<String> = values.iter().map(|value| notation::to_json(value).to_string()).collect();
    assert_eq!(written.len(), values.len());
}
