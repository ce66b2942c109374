//! The imports of `lighter:unit`: each becomes a numbered call, allowed by policy.

use crate::bindings::types::Error;
use crate::bindings::{Event, clock, config, http, log, queue, random, store, types};
use crate::convert::{self as c, Strange};
use crate::{Host, Lost};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use frame::Value;
use kernel_abi::{Policy, Verb};
use wasmtime::{Result, bail};

/// As `random.bytes` of the contract says.
pub const RANDOM_BYTES_MAX: u32 = 65_536;

/// What a running unit can reach.
pub struct Outside {
    pub host: Box<dyn Host>,
    pub policy: Policy,
    /// While it is linked nothing may be asked: what is made then is for every unit, and the host's answers are not.
    pub is_linking: bool,
    /// What the unit's handles stand for.
    #[cfg(feature = "wasi")]
    pub held: crate::wasi::Held,
}

/// The error by which a question while linking ends it.
#[derive(Debug)]
pub struct Asked;

impl core::fmt::Display for Asked {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a start function asks its host for something")
    }
}

impl core::error::Error for Asked {}

type Answer<T> = Result<core::result::Result<T, Error>>;

impl Outside {
    /// Whom it asks; nobody while it is linked.
    pub fn host(&mut self) -> Result<&mut dyn Host> {
        if self.is_linking {
            return Err(wasmtime::Error::new(Asked));
        }
        Ok(&mut *self.host)
    }

    pub fn ask<T>(
        &mut self,
        verb: Verb,
        arguments: Vec<Value<'_>>,
        read: impl FnOnce(&Value<'_>) -> core::result::Result<T, Strange>,
    ) -> Answer<T> {
        if !self.policy.allows(verb)
            && !self.is_linking
            && let Some(grant) = verb.grant()
        {
            let wanted = match arguments.first() {
                Some(Value::Str(name)) => format!("{} of {name:?}", verb.op()),
                _ => verb.op().to_owned(),
            };
            let why = format!("no grant covers {wanted}; add it to grants.{grant} of the function");
            return Ok(Err(Error::Denied(why)));
        }
        let Ok(question) = c::question(verb, arguments) else {
            return Ok(Err(Error::Invalid(format!("{}: more than fits into a frame", verb.op()))));
        };
        let answer = match self.host()?.call(verb, &question) {
            Ok(answer) => answer,
            Err(Lost) => bail!("{}: the host does not answer", verb.op()),
        };
        let strange = |Strange| wasmtime::format_err!("{}: the host's answer makes no sense", verb.op());
        match c::answer(&answer).map_err(strange)? {
            Ok(value) => Ok(Ok(read(&value).map_err(strange)?)),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Fresh bytes of the host, at most [`RANDOM_BYTES_MAX`].
    pub fn random_bytes(&mut self, count: u32) -> Result<Vec<u8>> {
        match self.ask(Verb::RandomBytes, vec![c::number(count.into())], c::read_bytes)? {
            Ok(bytes) if bytes.len() as u64 == u64::from(count) => Ok(bytes),
            _ => bail!("random.bytes: the host gives none"),
        }
    }
}

impl types::Host for Outside {}

impl store::Host for Outside {
    fn get(&mut self, bucket: String, key: String) -> Answer<Option<Vec<u8>>> {
        self.ask(Verb::StoreGet, vec![Value::Str(&bucket), Value::Str(&key)], c::read_maybe_bytes)
    }

    fn set(&mut self, bucket: String, key: String, value: Vec<u8>) -> Answer<()> {
        let arguments = vec![Value::Str(&bucket), Value::Str(&key), c::bytes(&value)];
        self.ask(Verb::StoreSet, arguments, c::read_nothing)
    }

    fn set_with_ttl(&mut self, bucket: String, key: String, value: Vec<u8>, ttl_ms: u64) -> Answer<()> {
        let arguments = vec![Value::Str(&bucket), Value::Str(&key), c::bytes(&value), c::number(ttl_ms)];
        self.ask(Verb::StoreSetWithTtl, arguments, c::read_nothing)
    }

    fn delete(&mut self, bucket: String, key: String) -> Answer<()> {
        self.ask(Verb::StoreDelete, vec![Value::Str(&bucket), Value::Str(&key)], c::read_nothing)
    }

    fn increment(&mut self, bucket: String, key: String, delta: i64) -> Answer<i64> {
        let arguments = vec![Value::Str(&bucket), Value::Str(&key), Value::I64(delta)];
        self.ask(Verb::StoreIncrement, arguments, c::read_integer)
    }

    fn compare_and_set(
        &mut self,
        bucket: String,
        key: String,
        expected: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
    ) -> Answer<bool> {
        let (expected, value) = (c::maybe_bytes(expected.as_ref()), c::maybe_bytes(value.as_ref()));
        let arguments = vec![Value::Str(&bucket), Value::Str(&key), expected, value];
        self.ask(Verb::StoreCompareAndSet, arguments, c::read_bool)
    }

    fn list(&mut self, bucket: String, prefix: String, after: Option<String>, limit: u32) -> Answer<store::Page> {
        let after = c::maybe_text(after.as_ref());
        let arguments = vec![Value::Str(&bucket), Value::Str(&prefix), after, c::number(limit.into())];
        self.ask(Verb::StoreList, arguments, c::read_page)
    }
}

impl queue::Host for Outside {
    fn push(&mut self, queue: String, event: queue::Outgoing) -> Answer<()> {
        self.ask(Verb::QueuePush, vec![Value::Str(&queue), c::outgoing(&event)], c::read_nothing)
    }

    fn push_all(&mut self, queue: String, events: Vec<queue::Outgoing>) -> Answer<()> {
        let events = Value::List(events.iter().map(c::outgoing).collect());
        self.ask(Verb::QueuePushAll, vec![Value::Str(&queue), events], c::read_nothing)
    }

    fn pop(&mut self, queue: String) -> Answer<Option<Event>> {
        self.ask(Verb::QueuePop, vec![Value::Str(&queue)], c::read_maybe_event)
    }
}

impl log::Host for Outside {
    fn write(&mut self, level: log::Level, message: String) -> Result<()> {
        let level = match level {
            log::Level::Trace => 0,
            log::Level::Debug => 1,
            log::Level::Info => 2,
            log::Level::Warn => 3,
            log::Level::Error => 4,
        };
        self.host()?.log(level, &message);
        Ok(())
    }
}

impl clock::Host for Outside {
    fn now_ms(&mut self) -> Result<u64> {
        Ok(self.host()?.unix_ns() / 1_000_000)
    }

    fn monotonic_ns(&mut self) -> Result<u64> {
        Ok(self.host()?.monotonic_ns())
    }
}

impl random::Host for Outside {
    fn bytes(&mut self, count: u32) -> Result<Vec<u8>> {
        if count > RANDOM_BYTES_MAX {
            bail!("random.bytes: {count} bytes asked for, a call gives at most {RANDOM_BYTES_MAX}");
        }
        self.random_bytes(count)
    }
}

impl config::Host for Outside {
    fn get(&mut self, name: String) -> Result<Option<String>> {
        match self.ask(Verb::ConfigGet, vec![Value::Str(&name)], c::read_maybe_text)? {
            Ok(value) => Ok(value),
            Err(_) => bail!("config.get: the host gives none"),
        }
    }
}

impl http::Host for Outside {
    fn send(&mut self, request: http::Request) -> Answer<http::Response> {
        self.ask(Verb::HttpSend, vec![c::request(&request)], c::read_response)
    }
}
