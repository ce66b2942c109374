//! Answers to questions about exchanges, as they are written.

use frame::{Checksum, Frame, Kind, Limits, Value};
use http::HeaderMap;
use problem::Problem;
use unit_host::kernel::garbled;

/// What went wrong outside, in a word the kernel knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub word: &'static str,
    pub number: Option<u64>,
    pub text: Option<String>,
}

impl Failure {
    pub const fn of(word: &'static str) -> Self {
        Self { word, number: None, text: None }
    }

    pub fn value(&self) -> Value<'_> {
        failed(self.word, self.number, self.text.as_deref())
    }
}

pub fn failed<'a>(word: &'static str, number: Option<u64>, text: Option<&'a str>) -> Value<'a> {
    let number = number.and_then(|number| i64::try_from(number).ok()).map_or(Value::Null, Value::I64);
    let text = text.map_or(Value::Null, Value::Str);
    Value::Map(vec![("failed", Value::Str(word)), ("number", number), ("text", text)])
}

/// Fields as a unit is told them; a name may stand there more than once.
pub fn headers(headers: &HeaderMap) -> Value<'_> {
    let pairs = headers.iter().map(|(name, value)| {
        let value = value.as_bytes();
        Value::List(vec![Value::Str(name.as_str()), Value::Bytes(value)])
    });
    Value::List(pairs.collect())
}

/// # Errors
/// It does not fit into a frame: pieces of bodies and heads do.
pub fn reply(id: u64, body: Value<'_>) -> Result<Vec<u8>, Problem> {
    let limits = Limits { meta_bytes_max: 4 << 20, values_max: 1 << 16, ..Limits::default() };
    let frame = Frame { kind: Kind::Reply, id, body }.encode(Checksum::Front, &limits);
    Ok(frame.map_err(|error| garbled(&error.to_string()))?.to_vec())
}
