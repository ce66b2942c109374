//! A tick as an event.

use crate::Timer;
use event::{Event, Gate};
use jiff::Timestamp;

/// One firing of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick {
    pub scheduled_ms: u64,
    /// Times that passed and have no tick of their own: this one stands for them. At most
    /// [`MISSED_MAX`](crate::MISSED_MAX).
    pub missed: usize,
}

impl Tick {
    /// The event for it. Its id is made of timer and time alone: the same tick is always the same event.
    pub fn event(&self, function: &str, timer: &Timer) -> Event {
        let scheduled = rfc3339(self.scheduled_ms);
        let mut event = Event {
            id: format!("{} {scheduled}", timer.name()),
            source: format!("/timer/{function}"),
            kind: "timer.tick".to_owned(),
            subject: Some(timer.name().to_owned()),
            time_ms: self.scheduled_ms,
            content_type: None,
            attributes: vec![("scheduledtime".to_owned(), scheduled), ("missed".to_owned(), self.missed.to_string())],
            attempt: 1,
            data: Vec::new(),
            ..Event::default()
        };
        event.came_by(Gate::Timer, "");
        event
    }
}

/// `2026-03-29T01:00:00Z`; with milliseconds where there are some.
fn rfc3339(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| ms.to_string(), |time| time.to_string())
}
