//! What a unit asks of its host while it works, and how it ends: the verbs of `contracts/wit/unit.wit` and WASI, as
//! frames.
//!
//! For classes whose units are on the other side of a wire. A question is a frame of the kind `call` with `{op, args}`;
//! its answer one of the kind `reply` or `failure`.

use budget::{Budget, Share};
use bytes::Bytes;
use event::Failure;
use frame::{Checksum, Frame, Kind, Limits, Value};
use manifest::Function;
use problem::Code;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use unit::{Denied, Host, Level, Outbound, Outgoing, Output, Refusal, StackFrame, Stages};

/// Answers what one unit asks during one attempt.
pub struct Answers {
    pub host: Arc<dyn Host>,
    pub function: Arc<Function>,
    pub output: Arc<Output>,
    /// The node's memory.
    pub budget: Arc<Budget>,
    /// The last answer, in the node's budget: a unit may be slow to read it.
    pub held: Share,
}

/// A question that makes no sense; its unit is ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Nonsense(pub String);

type Answered = Result<Vec<u8>, Refusal>;

impl Answers {
    /// The frame that answers the question with this id; none for what is not answered.
    pub async fn answer(&mut self, id: u64, body: &Value<'_>) -> Result<Option<Vec<u8>>, Nonsense> {
        let nonsense = |why: &str| Nonsense(format!("the unit asked its host for something, and {why}"));
        names_each_buffer_once(body)?;
        let Some(Value::Str(verb)) = body.get("op") else { return Err(nonsense("did not say what")) };
        let Some(Value::List(arguments)) = body.get("args") else { return Err(nonsense("gave no arguments")) };
        let mut arguments = Arguments(arguments.iter());
        if *verb == "log.write" {
            let (level, message) = (arguments.text()?, arguments.text()?);
            self.host.log(&self.output, level_of(level)?, message);
            return Ok(None);
        }
        let answered = match *verb {
            "http.send" => self.send(id, &mut arguments).await?,
            "queue.push" | "queue.push-all" | "queue.pop" => self.queue(id, verb, &mut arguments)?,
            "config.get" => {
                let name = arguments.text()?;
                Ok(reply(id, self.host.config(name).map_or(Value::Null, Value::Str)))
            }
            "random.bytes" => {
                let count = arguments.integer()?;
                let count = u32::try_from(count).map_err(|_| Nonsense(format!("random.bytes: {count} bytes")))?;
                let bytes = self.host.random(count).map_err(Refusal::Unavailable);
                bytes.map(|bytes| reply(id, bytes_value(&bytes)))
            }
            "environment.all" => {
                let variables = self.function.environment.iter();
                let variables = variables.map(|(name, value)| Value::List(vec![Value::Str(name), Value::Str(value)]));
                Ok(reply(id, Value::List(variables.collect())))
            }
            "config.all" => {
                let values = self.host.configs();
                let pairs = values.iter().map(|(name, value)| Value::List(vec![Value::Str(name), Value::Str(value)]));
                Ok(reply(id, Value::List(pairs.collect())))
            }
            "store.open" => Ok(self.open(id, arguments.text()?)),
            "clock.sleep" => {
                let ns = u64::try_from(arguments.integer()?).map_err(|_| Nonsense("clock.sleep: no time".into()))?;
                tokio::time::sleep(Duration::from_nanos(ns)).await;
                Ok(reply(id, Value::Null))
            }
            _ => self.store(id, verb, &mut arguments)?,
        };
        arguments.end()?;
        let answer = answered.unwrap_or_else(|refusal| refused(id, &refusal));
        let held = self.held.hold(answer.len() as u64);
        Ok(Some(held.map_or_else(|full| refused(id, &full.into()), |()| answer)))
    }

    /// The bucket that a unit means by a name: for the empty one, the first of its grant. One without a grant is noted.
    fn open(&self, id: u64, name: &str) -> Vec<u8> {
        let granted = &self.function.grants.stores;
        let name = if name.is_empty() { granted.first().map_or("", String::as_str) } else { name };
        if granted.iter().any(|bucket| bucket == name) {
            return reply(id, Value::Str(name));
        }
        let why = unit::bucket_denied(name);
        self.output.note_denied(Denied::Bucket, &why);
        refused(id, &Refusal::Denied(why))
    }

    fn store(&self, id: u64, verb: &str, arguments: &mut Arguments<'_, '_>) -> Result<Answered, Nonsense> {
        let Some(verb) = verb.strip_prefix("store.") else {
            return Err(Nonsense(format!("there is no verb {verb:?}")));
        };
        let bucket = arguments.text()?;
        let key = arguments.text()?;
        let (host, done) = (&self.host, |()| reply(id, Value::Null));
        Ok(match verb {
            "get" => host.get(bucket, key).map(|value| reply(id, maybe(value.as_deref()))),
            "set" => host.set(bucket, key, arguments.bytes()?.to_vec()).map(done),
            "set-with-ttl" => {
                let (value, ttl) = (arguments.bytes()?.to_vec(), arguments.milliseconds()?);
                host.set_with_ttl(bucket, key, value, ttl).map(done)
            }
            "delete" => host.delete(bucket, key).map(done),
            "increment" => host.increment(bucket, key, arguments.integer()?).map(|sum| reply(id, Value::I64(sum))),
            "compare-and-set" => {
                let (expected, value) = (arguments.maybe_bytes()?, arguments.maybe_bytes()?);
                let did = host.compare_and_set(bucket, key, expected, value.map(<[u8]>::to_vec));
                did.map(|did| reply(id, Value::Bool(did)))
            }
            "list" => {
                let (after, limit) = (arguments.maybe_text()?, arguments.integer()?);
                let limit = u32::try_from(limit).map_err(|_| Nonsense(format!("store.list: a limit of {limit}")))?;
                host.list(bucket, key, after, limit).map(|page| {
                    let entries = page.entries.iter();
                    let entries = entries
                        .map(|entry| Value::List(vec![Value::Str(&entry.key), bytes_value(&entry.value)]))
                        .collect();
                    let next = page.next.as_deref().map_or(Value::Null, Value::Str);
                    reply(id, Value::Map(vec![("entries", Value::List(entries)), ("next", next)]))
                })
            }
            other => return Err(Nonsense(format!("there is no verb \"store.{other}\""))),
        })
    }

    fn queue(&self, id: u64, verb: &str, arguments: &mut Arguments<'_, '_>) -> Result<Answered, Nonsense> {
        let queue = arguments.text()?;
        if verb == "queue.pop" {
            let popped = self.host.pop(queue);
            return Ok(popped.map(|event| match &event {
                None => reply(id, Value::Null),
                Some(event) => frame::event_body(event)
                    .map_or_else(|error| refused(id, &Refusal::Invalid(error.to_string())), |body| reply(id, body)),
            }));
        }
        let events = match (verb, arguments.next()?) {
            ("queue.push-all", Value::List(events)) => events.as_slice(),
            (_, event) => std::slice::from_ref(event),
        };
        if let Err(refusal) = self.host.may_push(queue) {
            return Ok(Err(refusal));
        }
        // One after the other: a copy is made of an event when there is room for the one before it.
        for event in events {
            if let Err(refusal) = self.host.push(queue, outgoing(event)?) {
                return Ok(Err(refusal));
            }
        }
        Ok(Ok(reply(id, Value::Null)))
    }

    async fn send(&self, id: u64, arguments: &mut Arguments<'_, '_>) -> Result<Answered, Nonsense> {
        let request = arguments.next()?;
        let fields = Fields { map: request, what: "http.send" };
        let request = Outbound {
            method: fields.text("method")?,
            url: fields.text("url")?,
            headers: fields.pairs("headers")?,
            body: fields.bytes("body")?,
            timeout: fields.maybe_milliseconds("timeout-ms")?,
        };
        let response = self.host.send(request).await;
        Ok(response.map(|response| {
            let headers = response.headers.iter();
            let headers = headers.map(|(name, value)| Value::List(vec![Value::Str(name), Value::Str(value)])).collect();
            let status = ("status", Value::I64(response.status.into()));
            reply(
                id,
                Value::Map(vec![status, ("headers", Value::List(headers)), ("body", Value::Buffer(&response.body))]),
            )
        }))
    }
}

/// What a question carries is copied where it is kept. A buffer that is named a thousand times would be a thousand
/// copies, of which its sender has one; no writer of ours names one twice.
fn names_each_buffer_once(body: &Value<'_>) -> Result<(), Nonsense> {
    fn walk(value: &Value<'_>, seen: &mut HashSet<usize>) -> bool {
        let buffer = match value {
            Value::Buffer(bytes) => bytes,
            Value::Array(array) => &array.data,
            Value::Tagged(_, inner) => return walk(inner, seen),
            Value::List(items) => return items.iter().all(|item| walk(item, seen)),
            Value::Map(fields) => return fields.iter().all(|(_, value)| walk(value, seen)),
            _ => return true,
        };
        buffer.is_empty() || seen.insert(buffer.as_ptr().addr())
    }
    match walk(body, &mut HashSet::new()) {
        true => Ok(()),
        false => Err(Nonsense("the unit asked its host for something, and named a buffer twice".into())),
    }
}

fn level_of(word: &str) -> Result<Level, Nonsense> {
    let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error];
    levels
        .into_iter()
        .find(|level| level.as_str() == word)
        .ok_or_else(|| Nonsense(format!("log.write: there is no level {word:?}")))
}

fn outgoing(value: &Value<'_>) -> Result<Outgoing, Nonsense> {
    let fields = Fields { map: value, what: "queue.push" };
    Ok(Outgoing {
        kind: fields.text("type")?,
        subject: fields.maybe_text("subject")?,
        content_type: fields.maybe_text("content-type")?,
        attributes: fields.pairs("attributes")?,
        data: fields.bytes("data")?,
        delay: fields.maybe_milliseconds("delay-ms")?.unwrap_or_default(),
        ttl: fields.maybe_milliseconds("ttl-ms")?,
    })
}

/// Answers may be as large as what a store or a response may hold.
fn answer_limits() -> Limits {
    Limits { meta_bytes_max: 64 << 20, values_max: 1 << 20, ..Limits::default() }
}

fn reply(id: u64, body: Value<'_>) -> Vec<u8> {
    encode(Kind::Reply, id, body)
}

fn refused(id: u64, refusal: &Refusal) -> Vec<u8> {
    let (kind, message) = match refusal {
        Refusal::Denied(why) => ("denied", why),
        Refusal::Invalid(why) => ("invalid", why),
        Refusal::Unavailable(why) => ("unavailable", why),
    };
    encode(Kind::Failure, id, Value::Map(vec![("kind", Value::Str(kind)), ("message", Value::Str(message))]))
}

fn encode(kind: Kind, id: u64, body: Value<'_>) -> Vec<u8> {
    match (Frame { kind, id, body }).encode(Checksum::Front, &answer_limits()) {
        Ok(frame) => frame.to_vec(),
        // A page of a bucket, a response, an event: each has limits of its own far below those of a frame.
        Err(error) => refused(id, &Refusal::Unavailable(format!("the answer does not fit into a frame: {error}"))),
    }
}

fn maybe(bytes: Option<&[u8]>) -> Value<'_> {
    bytes.map_or(Value::Null, bytes_value)
}

/// Small bytes among the other values, large ones beside them.
fn bytes_value(bytes: &[u8]) -> Value<'_> {
    const SMALL: usize = 64 << 10;
    if bytes.len() <= SMALL { Value::Bytes(bytes) } else { Value::Buffer(bytes) }
}

/// Arguments of a verb, in the order of the contract.
struct Arguments<'v, 'a>(std::slice::Iter<'v, Value<'a>>);

impl<'v, 'a> Arguments<'v, 'a> {
    fn next(&mut self) -> Result<&'v Value<'a>, Nonsense> {
        self.0.next().ok_or_else(|| Nonsense("an argument is missing".into()))
    }

    fn end(&mut self) -> Result<(), Nonsense> {
        if self.0.next().is_some() { Err(Nonsense("there are arguments too many".into())) } else { Ok(()) }
    }

    fn text(&mut self) -> Result<&'a str, Nonsense> {
        self.maybe_text()?.ok_or_else(|| wrong("text"))
    }

    fn maybe_text(&mut self) -> Result<Option<&'a str>, Nonsense> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Str(text) => Ok(Some(text)),
            _ => Err(wrong("text")),
        }
    }

    fn bytes(&mut self) -> Result<&'a [u8], Nonsense> {
        self.maybe_bytes()?.ok_or_else(|| wrong("bytes"))
    }

    fn maybe_bytes(&mut self) -> Result<Option<&'a [u8]>, Nonsense> {
        match self.next()? {
            Value::Null => Ok(None),
            Value::Bytes(bytes) | Value::Buffer(bytes) => Ok(Some(bytes)),
            _ => Err(wrong("bytes")),
        }
    }

    fn integer(&mut self) -> Result<i64, Nonsense> {
        match self.next()? {
            Value::I64(number) => Ok(*number),
            _ => Err(wrong("a whole number")),
        }
    }

    fn milliseconds(&mut self) -> Result<Duration, Nonsense> {
        milliseconds(self.next()?)?.ok_or_else(|| wrong("milliseconds"))
    }
}

fn wrong(wanted: &str) -> Nonsense {
    Nonsense(format!("an argument is not {wanted}"))
}

fn milliseconds(value: &Value<'_>) -> Result<Option<Duration>, Nonsense> {
    match value {
        Value::Null => Ok(None),
        Value::I64(number) => {
            u64::try_from(*number).map(|ms| Some(Duration::from_millis(ms))).map_err(|_| wrong("milliseconds"))
        }
        _ => Err(wrong("milliseconds")),
    }
}

/// Named fields of one argument.
struct Fields<'v, 'a> {
    map: &'v Value<'a>,
    what: &'static str,
}

impl Fields<'_, '_> {
    fn wrong(&self, field: &str) -> Nonsense {
        Nonsense(format!("{}: the field {field:?} is missing or of another type", self.what))
    }

    fn text(&self, field: &str) -> Result<String, Nonsense> {
        self.maybe_text(field)?.ok_or_else(|| self.wrong(field))
    }

    fn maybe_text(&self, field: &str) -> Result<Option<String>, Nonsense> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Str(text)) => Ok(Some((*text).to_owned())),
            Some(_) => Err(self.wrong(field)),
        }
    }

    fn bytes(&self, field: &str) -> Result<Vec<u8>, Nonsense> {
        match self.map.get(field) {
            Some(Value::Bytes(bytes) | Value::Buffer(bytes)) => Ok(bytes.to_vec()),
            _ => Err(self.wrong(field)),
        }
    }

    fn pairs(&self, field: &str) -> Result<Vec<(String, String)>, Nonsense> {
        let Some(Value::List(pairs)) = self.map.get(field) else { return Err(self.wrong(field)) };
        let pair = |pair: &Value<'_>| match pair {
            Value::List(pair) => match pair.as_slice() {
                [Value::Str(name), Value::Str(value)] => Ok(((*name).to_owned(), (*value).to_owned())),
                _ => Err(self.wrong(field)),
            },
            _ => Err(self.wrong(field)),
        };
        pairs.iter().map(pair).collect()
    }

    fn maybe_milliseconds(&self, field: &str) -> Result<Option<Duration>, Nonsense> {
        self.map.get(field).map_or(Ok(None), milliseconds).map_err(|_| self.wrong(field))
    }
}

/// How a unit's work ended, as it says itself.
#[derive(Debug)]
pub enum Said {
    Reply {
        data: Bytes,
        stages: Option<Stages>,
        raised: bool,
    },
    /// The handler's own verdict on the event.
    Failed(Failure),
    /// It crashed: what with, in what words, and the functions that led there, the innermost first.
    Crashed {
        code: Code,
        why: String,
        frames: Vec<StackFrame>,
    },
}

/// A reply that was read, its data by where it stands in the frame.
#[derive(Debug)]
pub struct FoundReply {
    data: Range<usize>,
    stages: Option<Stages>,
    raised: bool,
}

impl FoundReply {
    /// The reply, of whose data no copy is made.
    pub fn said(self, frame: Bytes) -> Said {
        Said::Reply { data: frame.slice(self.data), stages: self.stages, raised: self.raised }
    }
}

impl Said {
    /// Reads the body of a frame of the kind `reply`, of which `frame` is all bytes.
    ///
    /// # Errors
    /// It is none.
    pub fn reply(body: &Value<'_>, frame: &[u8]) -> Result<FoundReply, Nonsense> {
        let data = |value: &Value<'_>| match value {
            Value::Buffer(data) | Value::Bytes(data) => {
                let start = data.as_ptr().addr() - frame.as_ptr().addr();
                Ok(start..start + data.len())
            }
            _ => Err(Nonsense("the data of a reply is no bytes".into())),
        };
        let Value::Map(_) = body else {
            return Ok(FoundReply { data: data(body)?, stages: None, raised: false });
        };
        let Some(found) = body.get("data") else { return Err(Nonsense("a reply without data".into())) };
        let stage = |name| match body.get("timing")?.get(name)? {
            // What a unit says of its times is shown and trusted by nobody; it only has to be a time.
            Value::F64(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            _ => None,
        };
        let stages = match (stage("decode"), stage("run"), stage("encode")) {
            (Some(decode), Some(run), Some(encode)) => Some(Stages { decode, run, encode }),
            _ => None,
        };
        let raised = body.get("raised") == Some(&Value::Bool(true));
        Ok(FoundReply { data: data(found)?, stages, raised })
    }

    /// Reads the body of a frame of the kind `failure`.
    ///
    /// # Errors
    /// It is none.
    pub fn failure(body: &Value<'_>) -> Result<Self, Nonsense> {
        let (Some(Value::Str(kind)), Some(Value::Str(message))) = (body.get("kind"), body.get("message")) else {
            return Err(Nonsense("a failure without kind or message".into()));
        };
        let message = (*message).to_owned();
        let crashed = |code, why| Self::Crashed { code, why, frames: stack(body.get("frames")) };
        Ok(match *kind {
            "invalid" => Self::Failed(Failure::Invalid(message)),
            "retry" => Self::Failed(Failure::Retry(message)),
            "fatal" => Self::Failed(Failure::Fatal(message)),
            "memory" => crashed(Code::MemoryExceeded, message),
            "stack" => crashed(Code::StackExceeded, message),
            "exited" => crashed(Code::UnitExited, message),
            "trapped" => crashed(Code::UnitTrapped, message),
            other => return Err(Nonsense(format!("a failure of the unknown kind {other:?}"))),
        })
    }
}

/// As far as they make sense: they are only shown.
fn stack(frames: Option<&Value<'_>>) -> Vec<StackFrame> {
    let Some(Value::List(frames)) = frames else { return Vec::new() };
    let told = |frame: &Value<'_>| match frame {
        Value::List(pair) => match pair.as_slice() {
            [Value::Str(function), Value::I64(offset)] => {
                Some(StackFrame { function: (*function).to_owned(), offset: u64::try_from(*offset).ok() })
            }
            _ => None,
        },
        _ => None,
    };
    frames.iter().filter_map(told).collect()
}
