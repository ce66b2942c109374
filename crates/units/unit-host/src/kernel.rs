//! What the node and a unit in our kernel say to each other, in a microvm or on a board: grants as a set of numbers,
//! questions under a number, and the frame that ends the work.
//!
//! Nothing a unit says is believed. The caller gives the bound on its size, because it knows what was bounded before.

use crate::calls::{Answers, Nonsense, Said};
use budget::Purpose;
use bytes::Bytes;
use event::Event;
use frame::{Checksum, Frame, Kind, Limits, Value};
use kernel_abi::{Policy, Verb, ring};
use manifest::Grants;
use problem::{Code, Problem};
use unit::{Level, Output, Stream};

/// Id of the frame with the work; those of questions are the unit's own.
pub const WORK: u64 = 1;

/// The host calls a function may make: those that need no grant, and those of the grants it has.
pub fn policy(grants: &Grants) -> Policy {
    let is_granted = |grant: &str| match grant {
        "stores" => !grants.stores.is_empty(),
        "push" => !grants.push.is_empty(),
        "pop" => !grants.pop.is_empty(),
        "hosts" => !grants.hosts.is_empty(),
        _ => false,
    };
    let granted = Verb::ALL.into_iter().filter(|verb| verb.grant().is_some_and(is_granted));
    granted.fold(Policy::least(), Policy::with)
}

/// What a unit has logged or printed: a line of its level, or bytes of a stream.
pub fn write(output: &Output, number: u32, bytes: &[u8]) {
    match number {
        ring::STDOUT => output.write_bytes(Stream::Stdout, bytes),
        ring::STDERR => output.write_bytes(Stream::Stderr, bytes),
        _ => output.write(level(number), Stream::Log, &String::from_utf8_lossy(bytes)),
    }
}

/// The level of a line; one that is none counts as information.
pub fn level(number: u32) -> Level {
    let levels = [Level::Trace, Level::Debug, Level::Info, Level::Warn, Level::Error];
    levels.get(number as usize).copied().unwrap_or(Level::Info)
}

/// The frame with the work.
///
/// # Errors
/// The event does not fit `limits`.
pub fn work(event: &Event, limits: &Limits) -> Result<Vec<u8>, Problem> {
    let body = frame::event_body(event).map_err(|error| garbled(&error.to_string()))?;
    let frame = Frame { kind: Kind::Call, id: WORK, body }.encode(Checksum::Front, limits);
    Ok(frame.map_err(|error| garbled(&error.to_string()))?.to_vec())
}

/// The frame that answers a question. What it says must be of its number; whether it is granted is asked again there.
///
/// # Errors
/// The question makes no sense; [`Code::MemoryFull`].
pub async fn answer(answers: &mut Answers, verb: Verb, request: &[u8], limits: &Limits) -> Result<Vec<u8>, Problem> {
    let _read = answers.budget.take(Purpose::HostCalls, request.len() as u64)?;
    let frame = Frame::decode(request, limits).map_err(|error| garbled(&error.to_string()))?;
    if frame.kind != Kind::Call || frame.body.get("op") != Some(&Value::Str(verb.op())) {
        return Err(garbled("it asked for one thing under the number of another"));
    }
    match answers.answer(frame.id, &frame.body).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(garbled("it asked for what is not answered")),
        Err(nonsense) => Err(garbled(&nonsense.0)),
    }
}

/// What the frame that ends the work says.
///
/// # Errors
/// It makes no sense.
pub fn said(reply: Vec<u8>, limits: &Limits) -> Result<Said, Problem> {
    let nonsense = |nonsense: Nonsense| garbled(&nonsense.0);
    let found = {
        let frame = Frame::decode(&reply, limits).map_err(|error| garbled(&error.to_string()))?;
        match (frame.kind, frame.id) {
            (Kind::Reply, WORK) => Said::reply(&frame.body, &reply),
            (Kind::Failure, WORK) => return Said::failure(&frame.body).map_err(nonsense),
            (kind, id) => return Err(garbled(&format!("an unexpected {} with the id {id}", kind.name()))),
        }
    };
    Ok(found.map_err(nonsense)?.said(Bytes::from(reply)))
}

pub fn garbled(why: &str) -> Problem {
    Problem::new(Code::UnitGarbled, format!("what the unit says makes no sense: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_granted_is_allowed_beside_what_needs_no_grant() {
        let none = policy(&Grants::default());
        assert!(none == Policy::least() && none.allows(Verb::ConfigGet) && !none.allows(Verb::StoreGet));
        let push = policy(&Grants { push: vec!["q".parse().unwrap()], ..Grants::default() });
        assert!(push.allows(Verb::QueuePush) && push.allows(Verb::RandomBytes));
        assert!(!push.allows(Verb::QueuePop) && !push.allows(Verb::StoreGet) && !push.allows(Verb::HttpSend));
    }

    #[test]
    fn what_ends_the_work_is_a_reply_to_it_or_nonsense() {
        let limits = Limits::default();
        assert_eq!(said(b"no frame".to_vec(), &limits).err().unwrap().code, Code::UnitGarbled);
        // A question, though of the right number, ends nothing.
        let question =
            Frame { kind: Kind::Call, id: WORK, body: Value::Null }.encode(Checksum::Front, &limits).unwrap();
        assert_eq!(said(question.to_vec(), &limits).err().unwrap().code, Code::UnitGarbled);
    }
}
