//! What a hostile guest can ask about its exchanges over HTTP: refused, or within the bounds of what the node keeps.
#![no_main]
#![allow(dead_code, reason = "what is read of a question is more than what is checked here")]

#[path = "../../crates/units/unit-microvm/src/question.rs"]
mod question;

use frame::{Checksum, Frame, Kind, Limits, Value};
use http::HeaderMap;
use kernel_abi::Verb;
use kernel_abi::fields::BYTES_MAX;
use lighter_fuzz::fuzz_target;
use problem::Code;
use question::{PIECE_BYTES_MAX, Question, WAITED_MAX};

/// What `http.fetch` names.
const PARTS: [&str; 9] =
    ["method", "scheme", "authority", "path", "headers", "has-body", "connect-ns", "first-byte-ns", "between-bytes-ns"];

/// Values out of few bytes: a kind each, and what it takes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn some(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.byte()?).min(self.0.len());
        let (some, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(some)
    }

    fn text(&mut self) -> Option<&'a str> {
        Some(str::from_utf8(self.some()?).unwrap_or("GET"))
    }

    fn value(&mut self, depth: usize) -> Option<Value<'a>> {
        let kind = self.byte()?;
        if depth > 3 {
            return Some(Value::Null);
        }
        Some(match kind % 9 {
            0 => Value::Null,
            1 => Value::Bool(kind > 100),
            2 => Value::I64(i64::from(self.byte()?.cast_signed())),
            3 => {
                let (number, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Value::I64(i64::from_le_bytes(*number))
            }
            4 => Value::Str(self.text()?),
            5 => Value::Bytes(self.some()?),
            6 => Value::List(self.values(depth)),
            7 => {
                let field = |reader: &mut Self| {
                    Some(Value::List(vec![Value::Str(reader.text()?), Value::Bytes(reader.some()?)]))
                };
                Value::List((0..usize::from(self.byte()?)).map_while(|_| field(self)).collect())
            }
            _ => Value::Map(PARTS.iter().map_while(|part| Some((*part, self.value(depth + 1)?))).collect()),
        })
    }

    fn values(&mut self, depth: usize) -> Vec<Value<'a>> {
        let count = self.byte().unwrap_or(0);
        (0..count).map_while(|_| self.value(depth + 1)).collect()
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((number, bytes)) = data.split_first() else { return };
    let exchanges: Vec<Verb> = Verb::ALL.into_iter().filter(|verb| verb.is_of_exchange()).collect();
    // One more than those of exchanges: whoever asks for another thing is refused.
    let verb = exchanges.get(usize::from(*number) % (exchanges.len() + 1)).copied().unwrap_or(Verb::StoreGet);
    if let Ok(frame) = Frame::decode(bytes, &Limits::default()) {
        check(Question::read(verb, &frame));
    }
    // The same as the arguments of a question: few bytes are a frame.
    let arguments = Value::List(Reader(bytes).values(0));
    let body = Value::Map(vec![("op", Value::Str(verb.op())), ("args", arguments)]);
    check(Question::read(verb, &Frame { kind: Kind::Call, id: 7, body: body.clone() }));
    // And as the tender would hand it over.
    if let Ok(encoded) = (Frame { kind: Kind::Call, id: 7, body }).encode(Checksum::Front, &Limits::default()) {
        let encoded = encoded.to_vec();
        let frame = Frame::decode(&encoded, &Limits::default()).expect("what was encoded is decoded");
        check(Question::read(verb, &frame));
    }
});

fn check(read: Result<Question<'_>, problem::Problem>) {
    match read {
        Err(problem) => assert_eq!(problem.code, Code::UnitGarbled),
        Ok(Question::Head { head, .. }) => {
            assert!((100..1_000).contains(&head.status.as_u16()));
            bounded(&head.headers);
        }
        Ok(Question::Read { bytes_max, .. }) => assert!(bytes_max <= PIECE_BYTES_MAX),
        Ok(Question::Wait { of, .. }) => assert!((1..=WAITED_MAX).contains(&of.len())),
        Ok(Question::Write { bytes, .. }) => assert!(bytes.len() <= PIECE_BYTES_MAX),
        Ok(Question::Finish { trailers, .. }) => trailers.iter().for_each(bounded),
        Ok(Question::Fetch(asked)) => {
            bounded(&asked.headers);
            let is_web = |uri: &http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
            assert!(asked.uri.as_ref().is_none_or(is_web), "{asked:?}");
        }
        Ok(Question::Refuse(_) | Question::Abort(_) | Question::Fetched { .. } | Question::Drop(_)) => {}
    }
}

fn bounded(headers: &HeaderMap) {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(bytes <= BYTES_MAX);
    for (name, value) in headers {
        assert!(question::is_shown(name), "{name}");
        assert!(value.as_bytes().iter().all(|byte| *byte == b'\t' || (*byte >= 32 && *byte != 127)));
    }
}
