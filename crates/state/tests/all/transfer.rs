//! What is exported is imported again as it was, in pieces of any size, and an import says how far it came.

use crate::common;
use crate::common::{durable, open, wait};
use problem::Code;
use random::Random;
use state::{BucketConfig, BucketCounts, Import, Imported, State};
use std::time::Duration;

fn export(state: &State) -> Vec<u8> {
    let mut export = state.export("b").unwrap();
    let mut all = Vec::new();
    while let Some(lines) = export.next_lines().unwrap() {
        assert!(lines.ends_with(b"\n"));
        assert!(lines.len() < 3 << 20, "a piece of {} bytes", lines.len());
        all.extend(lines);
    }
    all
}

fn import(state: &State, input: &[u8]) -> Result<Imported, state::ImportError> {
    let mut import = state.import("b").unwrap();
    wait(import.feed(input))?;
    wait(import.finish())
}

fn get(state: &State, key: &str) -> Option<Vec<u8>> {
    state.begin().get("b", key).unwrap()
}

#[test]
fn an_export_reads_back_to_the_same_bucket_wherever_it_is_cut() {
    let folders = [common::folder(), common::folder()];
    let [from, to] = folders.each_ref().map(|folder| open(folder.path()));
    let mut rng = Random(1);
    let mut transaction = from.begin();
    for number in 0..3_000_u64 {
        let length = if number % 500 == 0 { 900_000 } else { rng.below(60) };
        let text = |rng: &mut Random| ['a', '"', '\n', 'é', '\u{10ffff}', '\0'][rng.below(6) as usize];
        let value = match number % 2 {
            0 => (0..length).map(|_| rng.next() as u8).collect(),
            _ => (0..length).map(|_| text(&mut rng)).collect::<String>().into_bytes(),
        };
        let key = format!("{number} {}", text(&mut rng));
        match number % 10 {
            3 => transaction.set_with_ttl("b", &key, value, Duration::from_secs(3_600)).unwrap(),
            _ => transaction.set("b", &key, value).unwrap(),
        }
    }
    transaction.set("other", "k", b"not in it".to_vec()).unwrap();
    durable(&from, transaction.commit().unwrap()).unwrap();
    let exported = export(&from);
    let mut feeding: Import = to.import("b").unwrap();
    let mut rest = &exported[..];
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(1 + rng.below(200_000) as usize));
        wait(feeding.feed(piece)).unwrap();
        rest = after;
    }
    let imported = wait(feeding.finish()).unwrap();
    assert_eq!(imported, Imported { lines: 3_000, keys: 3_000, expired: 0 });
    assert_eq!(to.bucket_counts("b"), from.bucket_counts("b"));
    let without_times = |bytes: Vec<u8>| {
        let lines = String::from_utf8(bytes).unwrap();
        let cut = |line: &str| line.split_once(",\"expires_ms\":").map_or(line.to_owned(), |(line, _)| line.to_owned());
        lines.lines().map(cut).collect::<Vec<_>>()
    };
    assert_eq!(without_times(export(&to)), without_times(exported));
}

#[test]
fn an_export_is_of_one_moment() {
    let folder = common::folder();
    let state = open(folder.path());
    let mut transaction = state.begin();
    for number in 0..4 {
        transaction.set("b", &number.to_string(), vec![b'v'; 300_000]).unwrap();
    }
    durable(&state, transaction.commit().unwrap()).unwrap();
    let mut export = state.export("b").unwrap();
    let first = export.next_lines().unwrap().unwrap();
    let mut transaction = state.begin();
    transaction.delete("b", "3").unwrap();
    transaction.set("b", "4", b"new".to_vec()).unwrap();
    durable(&state, transaction.commit().unwrap()).unwrap();
    let mut lines = first.iter().filter(|byte| **byte == b'\n').count();
    while let Some(more) = export.next_lines().unwrap() {
        lines += more.iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(lines, 4);
}

#[test]
fn each_kind_of_line_is_taken_and_what_has_expired_is_left_out() {
    let folder = common::folder();
    let state = open(folder.path());
    let far = u64::MAX;
    let input = format!(
        "{{\"key\":\"text\",\"value\":\"\\u00e9\"}}\n\n  \r\n{{\"key\":\"binary\",\"base64\":\"AP8=\"}}\r\n\
         {{\"key\":\"gone\",\"value\":\"\",\"expires_ms\":1}}\n{{\"expires_ms\":{far},\"value\":\"\",\"key\":\"stays\"}}"
    );
    assert_eq!(import(&state, input.as_bytes()), Ok(Imported { lines: 6, keys: 3, expired: 1 }));
    assert_eq!(get(&state, "text").unwrap(), "é".as_bytes());
    assert_eq!(get(&state, "binary").unwrap(), [0, 255]);
    assert_eq!((get(&state, "gone"), get(&state, "stays")), (None, Some(vec![])));
}

#[test]
fn a_line_that_is_not_right_ends_the_import_and_says_how_far_it_came() {
    let good = |number: usize| format!("{{\"key\":\"{number}\",\"value\":\"v\"}}\n");
    for (bad, said) in [
        ("{\"key\":\"k\"}", "one of \"value\" and \"base64\""),
        ("{\"key\":\"k\",\"value\":\"\",\"base64\":\"\"}", "one of"),
        ("{\"key\":\"k\",\"value\":1}", "invalid type"),
        ("{\"key\":\"k\",\"vlue\":\"\"}", "unknown field `vlue`"),
        ("{\"key\":\"k\",\"base64\":\"?\"}", "base64"),
        ("{\"key\":\"\",\"value\":\"\"}", "a key of 0 bytes"),
        ("nonsense", "expected"),
        ("{\"key\":\"k\"", "EOF"),
    ] {
        let folder = common::folder();
        let state = open(folder.path());
        let input: String = (1..=2_500).map(good).chain([bad.to_owned(), "\n".to_owned(), good(2_502)]).collect();
        let error = import(&state, input.as_bytes()).unwrap_err();
        assert_eq!((error.problem.code, error.line), (Code::ApiRequest, 2_001), "{bad}");
        assert_eq!(error.imported, Imported { lines: 2_000, keys: 2_000, expired: 0 });
        let text = error.to_string();
        assert!(text.starts_with("line 2501: ") && text.contains(said), "{bad}: {text}");
        assert_eq!(state.bucket_counts("b").keys, 2_000);
    }
}

#[test]
fn an_import_keeps_to_the_bounds_of_the_bucket() {
    let folder = common::folder();
    let state = open(folder.path());
    state.configure_bucket("b", BucketConfig { keys_max: Some(1_500), ..BucketConfig::default() }).unwrap();
    let input: String = (0..2_000).map(|number| format!("{{\"key\":\"{number:04}\",\"value\":\"v\"}}\n")).collect();
    let error = import(&state, input.as_bytes()).unwrap_err();
    assert_eq!((error.problem.code, error.line, error.imported.keys), (Code::BucketFull, 1_001, 1_000));
    assert!(error.to_string().starts_with("line 1501: "), "{error}");
    assert_eq!(state.bucket_counts("b"), BucketCounts { keys: 1_000, bytes: 5_000 });
}

#[test]
fn an_endless_line_is_refused_before_it_fills_the_memory() {
    let folder = common::folder();
    let state = open(folder.path());
    let mut feeding = state.import("b").unwrap();
    let piece = vec![b' '; 1 << 20];
    let refused = (0..20).find_map(|_| wait(feeding.feed(&piece)).err()).unwrap();
    assert_eq!(refused.problem.code, Code::ApiRequest);
}
