//! What the link says beside the request and the reply of a function: five header fields, pure.
//!
//! ```text
//!   lighter-fleet-call: hello;hops=1;refusals=0;expected=0.012000;left=30000          with each call
//!   lighter-fleet-reply: ran;took=0.000900;run=0.000400  |  refused;why=busy          with each reply
//!   lighter-fleet-report: 1;backlog=-0.5;places=8;speed=1                             with each reply, and when asked
//!   lighter-fleet-offers: 1;revision=7;own=9                                          when asked
//!   lighter-fleet-mail: 1                                                             with a message beside calls
//! ```
//! A field is a word and parameters, in any order; parameters that are unknown are left out of account. Seconds have a
//! fraction, `left` is in milliseconds. What a caller sends under these names never leaves the node.

use choice::{Report, Truth};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

pub const CALL: HeaderName = HeaderName::from_static("lighter-fleet-call");
pub const REPLY: HeaderName = HeaderName::from_static("lighter-fleet-reply");
pub const REPORT: HeaderName = HeaderName::from_static("lighter-fleet-report");
pub const OFFERS: HeaderName = HeaderName::from_static("lighter-fleet-offers");
pub const MAIL: HeaderName = HeaderName::from_static("lighter-fleet-mail");

/// Shorter times are taken to be this long: a clock that shows the same twice says little.
pub(crate) const SECONDS_MIN: f64 = 1e-6;
/// Bytes of a function's name. A longer one is none.
const NAME_BYTES_MAX: usize = 255;
/// Bytes of a field. A longer one is not read.
const FIELD_BYTES_MAX: usize = 512;
/// The longest time that a call may have left: a week, in milliseconds.
const LEFT_MS_MAX: u64 = 7 * 24 * 3_600_000;

/// What the node where a call entered says of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallField {
    pub function: String,
    /// Nodes that the call has left: 1. A node refuses more.
    pub hops: u32,
    /// How often it was refused before.
    pub refusals: u32,
    /// The seconds of waiting with which the entry puts up here: those it expects, and the way there and back.
    pub bears: f64,
    /// The time that is left to it. It is a duration: the clocks of two nodes differ.
    pub left: Duration,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReplyField {
    Ran {
        /// Seconds from the head of the call to the head of its reply, at the far end.
        took: f64,
        /// The seconds of them in which the unit ran, where that is known.
        run: Option<f64>,
    },
    /// It did not begin, and will not.
    Refused(Why),
}

/// Why a call was refused. Nothing of it was done, and its body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The node is busier than the gate had expected.
    Busy,
    /// The node does not have the function.
    Absent,
    /// The door of the function does not let the caller in.
    Closed,
    /// A bound was met: memory, or calls of one member.
    Full,
    /// The call has been forwarded already.
    Looped,
    /// The node is ending.
    Draining,
    /// The fields make no sense.
    Garbled,
}

impl Why {
    pub const ALL: [Self; 7] =
        [Self::Busy, Self::Absent, Self::Closed, Self::Full, Self::Looped, Self::Draining, Self::Garbled];

    /// The word on the link and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Absent => "absent",
            Self::Closed => "closed",
            Self::Full => "full",
            Self::Looped => "looped",
            Self::Draining => "draining",
            Self::Garbled => "garbled",
        }
    }
}

impl CallField {
    /// # Errors
    /// The function's name cannot stand in a field.
    pub fn write(&self) -> Result<HeaderValue, ()> {
        if !is_name(&self.function) {
            return Err(());
        }
        let Self { function, hops, refusals, bears, left } = self;
        let left = left.as_millis();
        let text = format!("{function};hops={hops};refusals={refusals};expected={bears:.6};left={left}");
        HeaderValue::try_from(text).map_err(|_| ())
    }

    pub fn read(value: &HeaderValue) -> Option<Self> {
        let said = Said::read(value)?;
        let left = said.get("left")?.parse::<u64>().ok().filter(|left| *left <= LEFT_MS_MAX)?;
        Some(Self {
            function: Some(said.word).filter(|name| is_name(name))?.to_owned(),
            hops: said.get("hops")?.parse().ok()?,
            refusals: said.get("refusals")?.parse().ok()?,
            bears: said.seconds("expected")?,
            left: Duration::from_millis(left),
        })
    }
}

impl ReplyField {
    pub fn write(&self) -> HeaderValue {
        let text = match self {
            Self::Ran { took, run: None } => format!("ran;took={took:.6}"),
            Self::Ran { took, run: Some(run) } => format!("ran;took={took:.6};run={run:.6}"),
            Self::Refused(why) => format!("refused;why={}", why.word()),
        };
        HeaderValue::try_from(text).expect("words and digits make a field")
    }

    pub fn read(value: &HeaderValue) -> Option<Self> {
        let said = Said::read(value)?;
        match said.word {
            "ran" => Some(Self::Ran { took: said.seconds("took")?, run: said.seconds("run") }),
            "refused" => {
                let word = said.get("why")?;
                Why::ALL.into_iter().find(|why| why.word() == word).map(Self::Refused)
            }
            _ => None,
        }
    }
}

pub fn write_report(report: &Report) -> HeaderValue {
    let Report { truth, places, speed } = report;
    let text = format!("1;backlog={:.6};places={places};speed={speed}", truth.backlog);
    HeaderValue::try_from(text).expect("digits make a field")
}

/// Numbers that no node can mean are made into those that it may mean.
pub fn read_report(headers: &HeaderMap) -> Option<Report> {
    let said = Said::read(headers.get(REPORT)?)?;
    let number = |key| said.get(key)?.parse::<f64>().ok();
    let report = Report {
        truth: Truth { backlog: number("backlog")? },
        places: said.get("places")?.parse().ok()?,
        speed: number("speed")?,
    };
    Some(report.believed())
}

pub fn write_revision(revision: u64) -> HeaderValue {
    HeaderValue::try_from(format!("1;revision={revision}")).expect("digits make a field")
}

pub fn read_revision(headers: &HeaderMap) -> Option<u64> {
    Said::read(headers.get(OFFERS)?)?.get("revision")?.parse().ok()
}

/// In a question: the revision that is known of the node that is asked, and the asker's own.
pub fn write_revisions(known: Option<u64>, own: u64) -> HeaderValue {
    let known = known.map(|known| format!(";revision={known}")).unwrap_or_default();
    HeaderValue::try_from(format!("1{known};own={own}")).expect("digits make a field")
}

/// The asker's own revision. None: its program is older.
pub fn read_own_revision(headers: &HeaderMap) -> Option<u64> {
    Said::read(headers.get(OFFERS)?)?.get("own")?.parse().ok()
}

/// Takes away what only the link may say.
pub fn strip(headers: &mut HeaderMap) {
    for name in [CALL, REPLY, REPORT, OFFERS, MAIL] {
        headers.remove(name);
    }
}

/// A field, taken apart.
struct Said<'a> {
    word: &'a str,
    rest: &'a str,
}

impl<'a> Said<'a> {
    fn read(value: &'a HeaderValue) -> Option<Self> {
        let text = value.to_str().ok().filter(|text| text.len() <= FIELD_BYTES_MAX)?;
        let (word, rest) = text.split_once(';').unwrap_or((text, ""));
        Some(Self { word, rest })
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        let mut all = self.rest.split(';').filter_map(|part| part.split_once('='));
        all.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    fn seconds(&self, key: &str) -> Option<f64> {
        self.get(key)?.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> CallField {
        let left = Duration::from_millis(30_000);
        CallField { function: "hello".into(), hops: 1, refusals: 2, bears: 0.012, left }
    }

    #[test]
    fn what_is_written_reads_back() {
        assert_eq!(CallField::read(&call().write().unwrap()), Some(call()));
        let replies = [ReplyField::Ran { took: 0.25, run: None }, ReplyField::Ran { took: 0.25, run: Some(0.125) }];
        let replies = replies.into_iter().chain(Why::ALL.map(ReplyField::Refused));
        replies.for_each(|reply| assert_eq!(ReplyField::read(&reply.write()), Some(reply)));
        let report = Report { truth: Truth { backlog: -0.5 }, places: 8, speed: 1.5 };
        let mut headers = HeaderMap::from_iter([(REPORT, write_report(&report)), (OFFERS, write_revision(7))]);
        assert_eq!((read_report(&headers), read_revision(&headers)), (Some(report), Some(7)));
        assert_eq!(read_own_revision(&headers), None);
        for known in [None, Some(7)] {
            headers.insert(OFFERS, write_revisions(known, 9));
            assert_eq!((read_revision(&headers), read_own_revision(&headers)), (known, Some(9)));
        }
        strip(&mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_not_read() {
        let read = |text: &'static str| CallField::read(&HeaderValue::from_static(text));
        for text in [
            "",
            "hello",
            "hello;hops=1",
            ";hops=1;refusals=0;expected=0;left=1",
            "hello;hops=-1;refusals=0;expected=0;left=1",
            "hello;hops=1;refusals=0;expected=-1;left=1",
            "hello;hops=1;refusals=0;expected=NaN;left=1",
            "hello;hops=1;refusals=0;expected=inf;left=1",
            "hello;hops=1;refusals=0;expected=0;left=99999999999999999999",
            "hello;hops=1;refusals=0;expected=0;left=604800001",
            "hel lo;hops=1;refusals=0;expected=0;left=1",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(read("hello;new=7;left=5;expected=0;refusals=0;hops=9").is_some_and(|call| call.hops == 9));
        let long = HeaderValue::try_from(format!("hello;hops=1;refusals=0;expected=0;left=1;x={}", "y".repeat(600)));
        assert_eq!(CallField::read(&long.unwrap()), None);
        for text in ["ran", "ran;took=x", "refused", "refused;why=because", "walked;took=1"] {
            assert_eq!(ReplyField::read(&HeaderValue::from_static(text)), None, "{text}");
        }
    }

    #[test]
    fn a_name_that_would_say_more_than_a_name_is_not_written() {
        for name in ["", "a;hops=0", "a b", "é", &"x".repeat(256)] {
            assert!(CallField { function: name.into(), ..call() }.write().is_err(), "{name}");
        }
    }

    #[test]
    fn a_report_that_lies_is_made_one_that_can_be_counted_with() {
        let said = HeaderValue::from_static("1;backlog=0.1;places=0;speed=NaN");
        let report = read_report(&HeaderMap::from_iter([(REPORT, said)])).unwrap();
        assert!(report.speed > 0.0);
    }
}
