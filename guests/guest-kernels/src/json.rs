//! A JSON document read into a tree, changed, and written again.

use crate::random::Random;
use std::collections::BTreeMap;

const RECORDS: usize = 200;
/// Values inside of each other.
const DEPTH_MAX: u32 = 64;

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Bool(bool),
    Number(i64),
    Text(String),
    List(Vec<Value>),
    Record(BTreeMap<String, Value>),
}

#[inline(never)]
pub fn run(rounds: u32) -> u64 {
    let mut text = document();
    for round in 0..rounds {
        let mut value = read(&text).expect("it was written here");
        if let Value::List(records) = &mut value {
            let at = round as usize % records.len();
            records[at] = Value::List(vec![Value::Number(i64::from(round)), Value::Null, Value::Bool(true)]);
        }
        text.clear();
        write(&value, &mut text);
    }
    text.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

fn document() -> String {
    let mut random = Random::new();
    let records = (0..RECORDS).map(|number| {
        let words = (0..6).map(|_| Value::Text(format!("word\n{}", random.next() % 10_000))).collect();
        Value::Record(BTreeMap::from([
            ("id".to_owned(), Value::Number(number as i64)),
            ("celsius".to_owned(), Value::Number((random.next() % 80) as i64 - 40)),
            ("name".to_owned(), Value::Text(format!("sensor \"{number}\" of the harbour"))),
            ("words".to_owned(), Value::List(words)),
            ("fits".to_owned(), Value::Bool(number % 3 == 0)),
        ]))
    });
    let mut text = String::new();
    write(&Value::List(records.collect()), &mut text);
    text
}

fn read(text: &str) -> Option<Value> {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    let value = reader.value(DEPTH_MAX)?;
    (reader.peek().is_none()).then_some(value)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// The next byte that is no space, without going past it.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn is_next(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        self.bytes[self.at..].starts_with(word.as_bytes()).then(|| {
            self.at += word.len();
            value
        })
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        match self.peek()? {
            b'n' => self.word("null", Value::Null),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'"' => self.text().map(Value::Text),
            b'[' => {
                self.at += 1;
                let mut list = Vec::new();
                while !self.is_next(b']') {
                    if !list.is_empty() && !self.is_next(b',') {
                        return None;
                    }
                    list.push(self.value(depth)?);
                }
                Some(Value::List(list))
            }
            b'{' => {
                self.at += 1;
                let mut record = BTreeMap::new();
                while !self.is_next(b'}') {
                    if !record.is_empty() && !self.is_next(b',') {
                        return None;
                    }
                    self.peek()?;
                    let key = self.text()?;
                    if !self.is_next(b':') {
                        return None;
                    }
                    record.insert(key, self.value(depth)?);
                }
                Some(Value::Record(record))
            }
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_negative = self.is_next(b'-');
        let (begin, mut number) = (self.at, 0_i64);
        while let Some(digit) = self.bytes.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            number = number.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
            self.at += 1;
        }
        (self.at > begin).then_some(Value::Number(if is_negative { -number } else { number }))
    }

    fn text(&mut self) -> Option<String> {
        self.at += usize::from(self.bytes.get(self.at) == Some(&b'"'));
        let mut text = Vec::new();
        loop {
            let begin = self.at;
            while !matches!(self.bytes.get(self.at)?, b'"' | b'\\') {
                self.at += 1;
            }
            text.extend_from_slice(&self.bytes[begin..self.at]);
            self.at += 1;
            if self.bytes[self.at - 1] == b'"' {
                return String::from_utf8(text).ok();
            }
            text.push(match self.bytes.get(self.at)? {
                b'n' => b'\n',
                b't' => b'\t',
                other @ (b'"' | b'\\' | b'/') => *other,
                _ => return None,
            });
            self.at += 1;
        }
    }
}

fn write(value: &Value, to: &mut String) {
    match value {
        Value::Null => to.push_str("null"),
        Value::Bool(is) => to.push_str(if *is { "true" } else { "false" }),
        Value::Number(number) => to.push_str(&number.to_string()),
        Value::Text(text) => write_text(text, to),
        Value::List(list) => {
            to.push('[');
            for (at, value) in list.iter().enumerate() {
                to.push_str(if at == 0 { "" } else { "," });
                write(value, to);
            }
            to.push(']');
        }
        Value::Record(record) => {
            to.push('{');
            for (at, (key, value)) in record.iter().enumerate() {
                to.push_str(if at == 0 { "" } else { "," });
                write_text(key, to);
                to.push(':');
                write(value, to);
            }
            to.push('}');
        }
    }
}

fn write_text(text: &str, to: &mut String) {
    to.push('"');
    for character in text.chars() {
        match character {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\t' => to.push_str("\\t"),
            other => to.push(other),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let value = read(&document()).unwrap();
        let mut text = String::new();
        write(&value, &mut text);
        assert_eq!(text, document());
        assert_eq!(read(r#" { "a\n" : [ -12 , true, null ] } "#).unwrap(), {
            let list = Value::List(vec![Value::Number(-12), Value::Bool(true), Value::Null]);
            Value::Record(BTreeMap::from([("a\n".to_owned(), list)]))
        });
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "[1 2]", "{\"a\"}", "tru", "\"open", "-", "[]x", &"[".repeat(100)] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
