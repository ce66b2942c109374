//! What a unit asks about its exchanges over HTTP, read and checked: pure, and fuzzed. Every word is the guest's.
//!
//! A question that makes no sense ends the unit. Sizes that could hurt the node are bounded here, before anything is
//! kept: fields of a head, a piece of a body, how many exchanges are waited for.

use frame::{Frame, Kind, Value};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use kernel_abi::Verb;
use kernel_abi::fields::{BYTES_MAX, FORBIDDEN};
use problem::Problem;
use std::time::Duration;
use unit_host::kernel::garbled;

/// Exchanges that are waited for at once: a unit has no more handles. More end it.
pub const WAITED_MAX: usize = 1_000;

/// Bytes of one piece of a body, either way. A unit is given no more at once, and ended if it gives more.
pub const PIECE_BYTES_MAX: usize = 64 << 10;

/// How long to wait; none to wait for ever: the call's own time ends that.
pub type Wait = Option<Duration>;

/// A question. `of` is the number of an exchange.
#[derive(Debug)]
pub enum Question<'a> {
    /// The head of the reply to what is served.
    Head {
        head: Box<Parts>,
        has_body: bool,
    },
    /// An error in the place of a reply.
    Refuse(&'a str),
    Read {
        of: u64,
        bytes_max: usize,
        wait: Wait,
    },
    /// Which of these have something.
    Wait {
        of: Vec<u64>,
        wait: Wait,
    },
    Write {
        of: u64,
        bytes: &'a [u8],
    },
    Finish {
        of: u64,
        trailers: Option<HeaderMap>,
    },
    /// The body will not become whole.
    Abort(u64),
    Fetch(Box<Asked>),
    /// The head of the reply to a request of the unit's own.
    Fetched {
        of: u64,
        wait: Wait,
    },
    /// The unit lets go of it.
    Drop(u64),
}

/// A request of the unit's own.
#[derive(Debug)]
pub struct Asked {
    pub method: Method,
    /// None: its parts make no address that HTTP goes to.
    pub uri: Option<Uri>,
    pub headers: HeaderMap,
    pub has_body: bool,
    pub connect: Wait,
    pub first_byte: Wait,
    pub between_bytes: Wait,
}

impl<'a> Question<'a> {
    /// # Errors
    /// It makes no sense, or is of another verb.
    pub fn read(verb: Verb, frame: &Frame<'a>) -> Result<Self, Problem> {
        if frame.kind != Kind::Call || frame.body.get("op") != Some(&Value::Str(verb.op())) {
            return Err(garbled("it asked for one thing under the number of another"));
        }
        let Some(Value::List(arguments)) = frame.body.get("args") else {
            return Err(garbled("it gave no arguments"));
        };
        let mut words = Words { verb, rest: arguments.iter() };
        let question = match verb {
            Verb::HttpHead => {
                let (status, headers) = (words.number()?, fields(words.next()?)?);
                Self::Head { head: Box::new(parts(status, headers)?), has_body: words.is()? }
            }
            Verb::HttpRefuse => Self::Refuse(words.text()?),
            Verb::HttpRead => {
                let (of, bytes_max) = (words.number()?, words.number()?);
                let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
                Self::Read { of, bytes_max, wait: words.wait()? }
            }
            Verb::HttpWait => Self::Wait { of: words.numbers()?, wait: words.wait()? },
            Verb::HttpWrite => Self::Write { of: words.number()?, bytes: words.piece()? },
            Verb::HttpFinish => {
                let (of, trailers) = (words.number()?, words.next()?);
                let trailers = if *trailers == Value::Null { None } else { Some(fields(trailers)?) };
                Self::Finish { of, trailers }
            }
            Verb::HttpAbort => Self::Abort(words.number()?),
            Verb::HttpFetch => Self::Fetch(Box::new(Asked::read(words.next()?)?)),
            Verb::HttpFetched => Self::Fetched { of: words.number()?, wait: words.wait()? },
            Verb::HttpDrop => Self::Drop(words.number()?),
            _ => return Err(garbled("it asked an exchange for what is not of one")),
        };
        words.end()?;
        Ok(question)
    }
}

impl Asked {
    fn read(asked: &Value<'_>) -> Result<Self, Problem> {
        let text = |name| match asked.get(name) {
            Some(Value::Str(text)) => Ok(*text),
            _ => Err(garbled("http.fetch: a part of the request is missing")),
        };
        let time = |name| match asked.get(name) {
            Some(Value::Null) => Ok(None),
            Some(Value::I64(ns)) => Ok(u64::try_from(*ns).ok().map(Duration::from_nanos)),
            _ => Err(garbled("http.fetch: a time that is none")),
        };
        let Ok(method) = Method::from_bytes(text("method")?.as_bytes()) else {
            return Err(garbled("http.fetch: a method that HTTP does not allow"));
        };
        let uri = Uri::builder().scheme(text("scheme")?).authority(text("authority")?).path_and_query(text("path")?);
        let Some(Value::Bool(has_body)) = asked.get("has-body") else {
            return Err(garbled("http.fetch: it does not say whether there is a body"));
        };
        Ok(Self {
            method,
            uri: uri.build().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https"))),
            headers: fields(asked.get("headers").unwrap_or(&Value::Null))?,
            has_body: *has_body,
            connect: time("connect-ns")?,
            first_byte: time("first-byte-ns")?,
            between_bytes: time("between-bytes-ns")?,
        })
    }
}

/// Arguments in their order.
struct Words<'v, 'a> {
    verb: Verb,
    rest: std::slice::Iter<'v, Value<'a>>,
}

impl<'v, 'a> Words<'v, 'a> {
    fn wrong(&self) -> Problem {
        garbled(&format!("{}: an argument is missing, or of another type", self.verb.op()))
    }

    fn next(&mut self) -> Result<&'v Value<'a>, Problem> {
        self.rest.next().ok_or_else(|| self.wrong())
    }

    fn end(&mut self) -> Result<(), Problem> {
        if self.rest.next().is_some() { Err(self.wrong()) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<u64, Problem> {
        number_of(self.next()?)
    }

    fn numbers(&mut self) -> Result<Vec<u64>, Problem> {
        let Value::List(numbers) = self.next()? else { return Err(self.wrong()) };
        if numbers.is_empty() || numbers.len() > WAITED_MAX {
            return Err(garbled(&format!("it waits for {} exchanges", numbers.len())));
        }
        numbers.iter().map(number_of).collect()
    }

    fn is(&mut self) -> Result<bool, Problem> {
        if let Value::Bool(is) = self.next()? { Ok(*is) } else { Err(self.wrong()) }
    }

    fn text(&mut self) -> Result<&'a str, Problem> {
        if let Value::Str(text) = self.next()? { Ok(text) } else { Err(self.wrong()) }
    }

    fn piece(&mut self) -> Result<&'a [u8], Problem> {
        match self.next()? {
            Value::Bytes(bytes) | Value::Buffer(bytes) if bytes.len() <= PIECE_BYTES_MAX => Ok(bytes),
            Value::Bytes(bytes) | Value::Buffer(bytes) => {
                Err(garbled(&format!("a piece of {} bytes, the limit is {PIECE_BYTES_MAX}", bytes.len())))
            }
            _ => Err(self.wrong()),
        }
    }

    /// Nanoseconds; less than none of them: for ever.
    fn wait(&mut self) -> Result<Wait, Problem> {
        match self.next()? {
            Value::I64(ns) => Ok(u64::try_from(*ns).ok().map(Duration::from_nanos)),
            _ => Err(self.wrong()),
        }
    }
}

fn number_of(value: &Value<'_>) -> Result<u64, Problem> {
    let number = if let Value::I64(number) = value { u64::try_from(*number).ok() } else { None };
    number.ok_or_else(|| garbled("a number that is none"))
}

fn parts(status: u64, headers: HeaderMap) -> Result<Parts, Problem> {
    let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status.ok_or_else(|| garbled("a status that HTTP does not know"))?;
    parts.headers = headers;
    Ok(parts)
}

/// Header fields, as what they claim to be.
fn fields(value: &Value<'_>) -> Result<HeaderMap, Problem> {
    let Value::List(pairs) = value else { return Err(garbled("header fields that are none")) };
    let (mut headers, mut bytes) = (HeaderMap::new(), 0);
    for pair in pairs {
        let Value::List(pair) = pair else { return Err(garbled("a header field that is none")) };
        let [Value::Str(name), Value::Bytes(value) | Value::Buffer(value)] = pair.as_slice() else {
            return Err(garbled("a header field that is none"));
        };
        bytes += name.len() + value.len();
        let is_allowed = bytes <= BYTES_MAX && !FORBIDDEN.contains(&name.to_ascii_lowercase().as_str());
        if !is_allowed {
            return Err(garbled("header fields that are not a unit's, or too large"));
        }
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) else {
            return Err(garbled("a header field that HTTP does not allow"));
        };
        if headers.try_append(name, value).is_err() {
            return Err(garbled("header fields too many"));
        }
    }
    Ok(headers)
}

/// Whether a field of a request is shown to a unit.
pub fn is_shown(name: &HeaderName) -> bool {
    !FORBIDDEN.contains(&name.as_str())
}
