//! What became of events: the last handlings in memory, so that one event can be followed.
//!
//! Every handling of a queue is noted when it has ended. An event that a function pushed is found by its id, which is a
//! hash of who pushed it and where to: nothing is noted for that while functions run.

mod ring;
mod trail;

pub use ring::BYTES_MAX;

use crate::metrics::Times;
use api_types::HandlingInfo;
use manifest::Name;
use parking_lot::Mutex;
use ring::Ring;
use state::Leased;
use std::sync::Arc;
use std::time::Duration;

/// Characters of a reason that are kept; the rest is cut off.
const REASON_CHARACTERS_MAX: usize = 300;

/// The last handlings of all queues. A handling costs a lock and some copies, and no waiting.
#[derive(Default)]
pub struct Past(Mutex<Ring>);

/// What became of a handling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Became {
    #[default]
    Done,
    Retry {
        again_ms: u64,
        reason: Box<str>,
    },
    Dead {
        reason: Box<str>,
    },
    Postponed {
        reason: Box<str>,
    },
    Lost,
}

/// The function that had a try, and where its time went.
#[derive(Debug, Clone)]
pub struct Ran {
    pub function: Name,
    pub version: u32,
    pub times: Option<Times>,
}

/// A handling that is remembered.
#[derive(Debug, Clone, Default)]
struct Kept {
    id: Box<str>,
    source: Box<str>,
    /// Who gave the id, if that is not the source: see [`event::Event::id_giver`].
    giver: Option<Box<str>>,
    kind: Box<str>,
    queue: Arc<str>,
    sequence: u64,
    attempt: u32,
    pushed_ms: u64,
    began_ms: u64,
    took: Duration,
    ran: Option<Box<Ran>>,
    became: Became,
}

impl Past {
    /// Notes a handling that has ended. `began_ms` and `took`: when, and how long it was with its consumer.
    pub fn note(&self, leased: &Leased, ran: Option<Ran>, became: Became, (began_ms, took): (u64, Duration)) {
        let event = &leased.event;
        let giver = event.id_giver();
        let kept = Kept {
            id: event.id.as_str().into(),
            source: event.source.as_str().into(),
            giver: (giver != event.source).then(|| giver.as_ref().into()),
            kind: event.kind.as_str().into(),
            queue: leased.queue.clone(),
            sequence: leased.sequence,
            attempt: event.attempt,
            pushed_ms: leased.pushed_ms,
            began_ms,
            took,
            ran: ran.map(Box::new),
            became,
        };
        self.0.lock().push(kept);
    }

    /// What it holds in memory, about; at most [`BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        self.0.lock().bytes()
    }

    /// The newest handlings, the newest first: at most `count` of those that `wanted` takes.
    pub fn newest(&self, count: usize, wanted: impl Fn(&HandlingInfo) -> bool) -> Vec<HandlingInfo> {
        let mut all: Vec<HandlingInfo> = self.0.lock().iter().map(Kept::told).filter(|one| wanted(one)).collect();
        all.sort_by(|one, next| next.began_ms.cmp(&one.began_ms).then(next.sequence.cmp(&one.sequence)));
        all.truncate(count);
        all
    }
}

impl Became {
    pub fn reason(text: &str) -> Box<str> {
        match text.char_indices().nth(REASON_CHARACTERS_MAX) {
            None => text.into(),
            Some((end, _)) => format!("{}…", &text[..end]).into(),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry { .. } => "retry",
            Self::Dead { .. } => "dead",
            Self::Postponed { .. } => "postponed",
            Self::Lost => "lost",
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::Done | Self::Lost => None,
            Self::Retry { reason, .. } | Self::Dead { reason } | Self::Postponed { reason } => Some(reason),
        }
    }
}

impl Kept {
    fn has_failed(&self) -> bool {
        matches!(self.became, Became::Retry { .. } | Became::Dead { .. })
    }

    /// What it takes in memory, about.
    fn bytes(&self) -> usize {
        let texts = [Some(&*self.id), Some(&*self.source), self.giver.as_deref(), Some(&*self.kind), self.became.why()];
        let ran = self.ran.as_ref().map_or(0, |ran| size_of::<Ran>() + ran.function.as_str().len());
        size_of::<Self>() + ran + texts.into_iter().flatten().map(str::len).sum::<usize>()
    }

    fn told(&self) -> HandlingInfo {
        let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let times = self.ran.as_ref().and_then(|ran| ran.times);
        HandlingInfo {
            id: self.id.to_string(),
            source: self.source.to_string(),
            kind: self.kind.to_string(),
            queue: self.queue.to_string(),
            sequence: self.sequence,
            function: self.ran.as_ref().map(|ran| ran.function.to_string()),
            version: self.ran.as_ref().map(|ran| ran.version),
            attempt: self.attempt,
            pushed_ms: self.pushed_ms,
            began_ms: self.began_ms,
            total_us: us(self.took),
            queue_us: times.map(|times| us(times.queue)),
            start_us: times.map(|times| us(times.start)),
            run_us: times.map(|times| us(times.run)),
            outcome: self.became.word().to_owned(),
            reason: self.became.why().map(str::to_owned),
            again_ms: if let Became::Retry { again_ms, .. } = self.became { Some(again_ms) } else { None },
            pushed_by: None,
        }
    }
}
