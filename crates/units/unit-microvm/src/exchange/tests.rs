//! What a kernel says that is not ours: every question about exchanges, in every wrong form.

use super::*;
use crate::question::{PIECE_BYTES_MAX, WAITED_MAX};
use frame::{Checksum, Kind};
use http_body_util::{BodyExt, Empty};
use kernel_abi::fields::BYTES_MAX;
use problem::Code;
use std::time::Duration;
use unit::{Body, Incoming, LogLine, LogWriter, Output};

#[path = "../../../unit-process/src/convert/nobody.rs"]
mod nobody;

/// All verbs of exchanges.
fn verbs() -> impl Iterator<Item = Verb> {
    Verb::ALL.into_iter().filter(|verb| verb.is_of_exchange())
}

struct Silent;

impl LogWriter for Silent {
    fn write(&self, _: LogLine<'_>) {}
}

/// An exchange that serves a request without a body; none of its own may leave.
fn exchange() -> Exchange {
    let body: Body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut request = Incoming::new(http::Request::new(body), false);
    let served = Served::new(request.give().into_body(), Arc::default());
    let output = Arc::new(Output::new(Arc::new(Silent), 1, "test".into(), 1_000));
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let fetching = Fetching { client: egress::Clients::new(), output, deadline };
    Exchange::new(Arc::new(nobody::Nobody), Budget::unbounded(), fetching, Some(served))
}

fn question(verb: Verb, arguments: Vec<Value<'_>>) -> Vec<u8> {
    let body = Value::Map(vec![("op", Value::Str(verb.op())), ("args", Value::List(arguments))]);
    Frame { kind: Kind::Call, id: 7, body }.encode(Checksum::Front, &Limits::default()).unwrap().to_vec()
}

async fn ask(exchange: &mut Exchange, verb: Verb, arguments: Vec<Value<'_>>) -> Result<Vec<u8>, Code> {
    let (asked, limits) = (question(verb, arguments), Limits::default());
    let answer = exchange.answer(verb, &asked, &limits);
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await.expect("it does not wait for nothing");
    answer.map_err(|problem| problem.code)
}

fn head(headers: &[(&'static str, &'static [u8])], status: i64) -> Vec<Value<'static>> {
    let headers = headers.iter().map(|(name, value)| Value::List(vec![Value::Str(name), Value::Bytes(value)]));
    vec![Value::I64(status), Value::List(headers.collect()), Value::Bool(true)]
}

#[tokio::test]
async fn arguments_of_other_types_or_numbers_end_the_unit() {
    let wrong = || [Value::Null, Value::Bool(true), Value::F64(0.5), Value::Str("x"), Value::Map(Vec::new())];
    for verb in verbs() {
        let mut exchange = exchange();
        assert_eq!(ask(&mut exchange, verb, Vec::new()).await, Err(Code::UnitGarbled), "{}", verb.op());
        for one in wrong() {
            if verb == Verb::HttpRefuse && matches!(one, Value::Str(_)) {
                continue;
            }
            let many = vec![one; 5];
            assert_eq!(ask(&mut exchange, verb, many).await, Err(Code::UnitGarbled), "{}", verb.op());
        }
        // One thing under the number of another, and no frame at all.
        let other = question(Verb::ConfigGet, vec![Value::Str("x")]);
        for bytes in [&other[..], b"no frame", b""] {
            let answer = exchange.answer(verb, bytes, &Limits::default()).await;
            assert_eq!(answer.map_err(|problem| problem.code), Err(Code::UnitGarbled));
        }
    }
}

#[tokio::test]
async fn a_head_cannot_carry_what_is_not_the_units() {
    let refused = [
        head(&[("x\r\nsmuggled", b"1")], 200),
        head(&[("x", b"1\r\nsmuggled: 2")], 200),
        head(&[("transfer-encoding", b"chunked")], 200),
        head(&[("Connection", b"upgrade")], 200),
        head(&[("", b"1")], 200),
        head(&[("x", &[b'x'; BYTES_MAX])], 200),
        head(&[], 99),
        head(&[], 1_000),
        head(&[], -1),
        head(&[], i64::MAX),
    ];
    for arguments in refused {
        let mut exchange = exchange();
        assert_eq!(ask(&mut exchange, Verb::HttpHead, arguments).await, Err(Code::UnitGarbled));
        assert!(!exchange.served.as_ref().unwrap().outlet.has_head());
    }
}

#[tokio::test]
async fn a_reply_is_given_once_and_in_order() {
    let data = || vec![Value::I64(0), Value::Bytes(b"data")];
    let mut exchange = exchange();
    assert_eq!(ask(&mut exchange, Verb::HttpWrite, data()).await, Err(Code::UnitGarbled), "before its head");
    assert!(ask(&mut exchange, Verb::HttpHead, head(&[("x", b"1")], 200)).await.is_ok());
    for (verb, arguments) in [(Verb::HttpHead, head(&[], 200)), (Verb::HttpRefuse, vec![Value::Str("no")])] {
        assert_eq!(ask(&mut exchange, verb, arguments).await, Err(Code::UnitGarbled), "a second one");
    }
    assert!(ask(&mut exchange, Verb::HttpWrite, data()).await.is_ok());
    assert!(ask(&mut exchange, Verb::HttpFinish, vec![Value::I64(0), Value::Null]).await.is_ok());
    assert_eq!(ask(&mut exchange, Verb::HttpWrite, data()).await, Err(Code::UnitGarbled), "behind its end");
    let outlet = exchange.served.as_ref().unwrap().outlet.clone();
    assert_eq!(outlet.take_head().unwrap().unwrap().headers["x"], "1");
    assert!(matches!(outlet.next(false), Poll::Ready(Some(Ok(frame))) if frame.data_ref().unwrap() == "data"));
    assert!(matches!(outlet.next(false), Poll::Ready(None)));
}

/// A unit writes faster than anybody reads: it waits, and what waits is bounded.
#[tokio::test]
async fn what_nobody_reads_holds_up_its_writer() {
    let mut exchange = exchange();
    assert!(ask(&mut exchange, Verb::HttpHead, head(&[], 200)).await.is_ok());
    let outlet = exchange.served.as_ref().unwrap().outlet.clone();
    let piece = question(Verb::HttpWrite, vec![Value::I64(0), Value::Bytes(&[b'x'; 4_096])]);
    let mut taken = 0;
    loop {
        let limits = Limits::default();
        let answer = exchange.answer(Verb::HttpWrite, &piece, &limits);
        if tokio::time::timeout(Duration::from_millis(50), answer).await.is_err() {
            break;
        }
        taken += 4_096;
        assert!(taken <= 2 * (64 << 10), "{taken} bytes and no end");
    }
    assert!(matches!(outlet.next(false), Poll::Ready(Some(Ok(_)))));
    assert!(exchange.answer(Verb::HttpWrite, &piece, &Limits::default()).await.is_ok(), "there is room again");
}

#[tokio::test]
async fn what_is_gone_is_told_and_what_was_never_there_too() {
    let mut exchange = exchange();
    let none = i64::MAX;
    for (verb, arguments) in [
        (Verb::HttpRead, vec![Value::I64(none), Value::I64(10), Value::I64(-1)]),
        (Verb::HttpFetched, vec![Value::I64(none), Value::I64(-1)]),
        (Verb::HttpWait, vec![Value::List(vec![Value::I64(none)]), Value::I64(-1)]),
        (Verb::HttpWrite, vec![Value::I64(none), Value::Bytes(b"x")]),
        (Verb::HttpFinish, vec![Value::I64(none), Value::Null]),
        (Verb::HttpAbort, vec![Value::I64(none)]),
        (Verb::HttpDrop, vec![Value::I64(none)]),
    ] {
        assert!(ask(&mut exchange, verb, arguments).await.is_ok(), "{}", verb.op());
    }
    let many = vec![Value::I64(0); WAITED_MAX + 1];
    let many = ask(&mut exchange, Verb::HttpWait, vec![Value::List(many), Value::I64(0)]).await;
    assert_eq!(many, Err(Code::UnitGarbled));
    // Whether it is there or not: more than a piece is no piece.
    for of in [0, none] {
        let large = vec![Value::I64(of), Value::Buffer(&[b'x'; PIECE_BYTES_MAX + 1])];
        assert_eq!(ask(&mut exchange, Verb::HttpWrite, large).await, Err(Code::UnitGarbled));
    }
}

#[tokio::test]
async fn no_request_leaves_without_a_grant() {
    let mut exchange = exchange();
    let request = |scheme, authority, path| {
        vec![Value::Map(vec![
            ("method", Value::Str("GET")),
            ("scheme", Value::Str(scheme)),
            ("authority", Value::Str(authority)),
            ("path", Value::Str(path)),
            ("headers", Value::List(Vec::new())),
            ("has-body", Value::Bool(false)),
            ("connect-ns", Value::Null),
            ("first-byte-ns", Value::Null),
            ("between-bytes-ns", Value::Null),
        ])]
    };
    for (scheme, authority, path, word) in [
        ("http", "127.0.0.1:1", "/", "denied"),
        ("file", "127.0.0.1", "/etc/passwd", "uri"),
        ("http", "a b", "/", "uri"),
        ("http", "", "/", "uri"),
    ] {
        let answer = ask(&mut exchange, Verb::HttpFetch, request(scheme, authority, path)).await.unwrap();
        let answer = Frame::decode(&answer, &Limits::default()).unwrap();
        assert_eq!(answer.body.get("failed"), Some(&Value::Str(word)), "{scheme}://{authority}{path}");
    }
    assert!(exchange.fetches.is_empty());
}

/// Frames that are nearly right, from one seed: an answer or a refusal, and never more than that.
#[tokio::test]
async fn no_nearly_right_question_does_harm() {
    let mut seed = 11_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    let limits = Limits::default();
    for verb in verbs() {
        let whole = question(
            verb,
            vec![Value::I64(0), Value::List(vec![Value::I64(0)]), Value::I64(0), Value::Bytes(b"x"), Value::Null],
        );
        let mut exchange = exchange();
        for _ in 0..500 {
            let mut bytes = whole.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                bytes[at] = random(256) as u8;
            }
            let answer = exchange.answer(verb, &bytes, &limits);
            match tokio::time::timeout(Duration::from_millis(20), answer).await {
                Ok(Ok(answer)) => assert!(Frame::decode(&answer, &limits).is_ok()),
                Ok(Err(problem)) => assert_eq!(problem.code, Code::UnitGarbled, "{problem}"),
                Err(_waits) => {}
            }
        }
    }
}

#[tokio::test]
async fn a_bucket_is_opened_by_name_and_grant_and_nothing_else() {
    let deployed = unit::Deployed {
        name: "test".parse().unwrap(),
        version: 1,
        function: Arc::new(manifest::Function { grants: granted("mine"), ..manifest::Function::new("test") }),
        contract: unit::Contract::WasiHttp,
        secrets: Arc::default(),
        log: Arc::new(Silent),
        budget: Budget::unbounded(),
    };
    let mut answers = unit_host::answers(&deployed, 1, "test".into(), Arc::new(nobody::Nobody));
    let limits = Limits::default();
    let text = Value::Str;
    for (verb, arguments) in [
        (Verb::StoreOpen, vec![]),
        (Verb::StoreOpen, vec![Value::Null]),
        (Verb::StoreOpen, vec![Value::I64(1)]),
        (Verb::StoreOpen, vec![text("mine"), text("mine")]),
        (Verb::ConfigAll, vec![text("all")]),
    ] {
        let answer = unit_host::kernel::answer(&mut answers, verb, &question(verb, arguments), &limits).await;
        assert_eq!(answer.unwrap_err().code, Code::UnitGarbled, "{}", verb.op());
    }
    for (name, opened) in [("mine", Some("mine")), ("", Some("mine")), ("other", None), ("../mine", None)] {
        let asked = question(Verb::StoreOpen, vec![text(name)]);
        let answer = unit_host::kernel::answer(&mut answers, Verb::StoreOpen, &asked, &limits).await.unwrap();
        let answer = Frame::decode(&answer, &limits).unwrap();
        assert_eq!(answer.kind == Kind::Reply, opened.is_some(), "{name:?}");
        assert!(opened.is_none_or(|opened| answer.body == text(opened)), "{name:?}");
    }
}

fn granted(bucket: &str) -> manifest::Grants {
    manifest::Grants { stores: vec![bucket.to_owned()], ..manifest::Grants::default() }
}
