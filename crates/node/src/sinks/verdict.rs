//! What the reply of a receiver means for the event it was sent. Pure: the time is a parameter.

use super::super::events::Outcome;
use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use problem::{Code, Problem};
use std::time::Duration;

/// The longest pause a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// The receiver has answered with this status and these headers.
pub fn of_reply(status: StatusCode, headers: &HeaderMap, now_ms: u64) -> Outcome {
    let problem =
        |what: &str| Problem::new(Code::SinkFailed, format!("the receiver answered {}{what}", status.as_u16()));
    match status.as_u16() {
        200..=299 => Outcome::Done,
        408 | 425 | 429 | 500..=599 => Outcome::Retry { problem: problem(""), after: retry_after(headers, now_ms) },
        300..=399 => Outcome::Dead(problem("; redirects are not followed")),
        _ => Outcome::Dead(problem("")),
    }
}

/// There was no answer.
pub fn of_failure(why: &str) -> Outcome {
    Outcome::Retry { problem: Problem::new(Code::SinkFailed, why.to_owned()), after: None }
}

/// Seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let after = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text).ok()?;
            let at_ms = u64::try_from(date.timestamp().as_millisecond()).ok()?;
            Duration::from_millis(at_ms.saturating_sub(now_ms))
        }
    };
    Some(after.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(status: u16, after: Option<&str>) -> Outcome {
        let mut headers = HeaderMap::new();
        if let Some(after) = after {
            headers.insert(RETRY_AFTER, after.parse().unwrap());
        }
        // 1994-11-06 08:49:27 UTC.
        of_reply(StatusCode::from_u16(status).unwrap(), &headers, 784_111_767_000)
    }

    #[test]
    fn a_status_means_what_the_manual_says() {
        for (status, word) in [
            (200, "done"),
            (202, "done"),
            (204, "done"),
            (301, "dead"),
            (400, "dead"),
            (401, "dead"),
            (404, "dead"),
            (408, "retry"),
            (410, "dead"),
            (425, "retry"),
            (429, "retry"),
            (500, "retry"),
            (503, "retry"),
            (599, "retry"),
        ] {
            let said = match outcome(status, None) {
                Outcome::Done => "done",
                Outcome::Retry { after: None, .. } => "retry",
                Outcome::Dead(_) => "dead",
                other => panic!("{other:?}"),
            };
            assert_eq!(said, word, "{status}");
        }
    }

    #[test]
    fn a_receiver_may_say_when_to_try_again() {
        for (text, seconds) in [
            ("7", Some(7)),
            ("0", Some(0)),
            ("99999999999", Some(86_400)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let Outcome::Retry { after, .. } = outcome(503, Some(text)) else { panic!("{text}") };
            assert_eq!(after, seconds.map(Duration::from_secs), "{text}");
        }
    }
}
