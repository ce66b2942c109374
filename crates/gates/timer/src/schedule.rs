//! The times of a trigger, whole milliseconds since 1970-01-01 UTC: the next one and the one before.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use problem::{Code, Problem};
use std::time::Duration;

/// Bytes of a cron schedule.
const SCHEDULE_BYTES_MAX: usize = 256;

/// Bytes of the name of a time zone.
const ZONE_BYTES_MAX: usize = 64;

/// A clock that goes back by less than this is waited for: what has fired does not fire again.
const CRON_WAIT: Duration = Duration::from_secs(3_600);
const EVERY_WAIT: Duration = Duration::from_secs(60);

/// The smallest part of time a calendar knows.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Where the search begins that a schedule must pass when it is read: 1970.
const FIRST_MS: u64 = 0;

#[derive(Debug, Clone)]
pub enum Schedule {
    /// All multiples of the period, so that nothing but the period decides them.
    Every {
        period_ms: u64,
    },
    Cron {
        cron: Box<Cron>,
        zone: TimeZone,
    },
}

impl Schedule {
    pub fn every(period_ms: u64) -> Self {
        Self::Every { period_ms: period_ms.max(1) }
    }

    /// # Errors
    /// `ManifestValue` says what cannot be read, or that no day ever meets the schedule.
    pub fn cron(text: &str, zone: &str) -> Result<Self, Problem> {
        let bad = |why: String| {
            let hint = "write minute hour day month weekday, or six fields with seconds first: \"0 7 * * mon-fri\"";
            Problem::new(Code::ManifestValue, format!("cron.schedule is {text:?}: {why}")).with_hint(hint)
        };
        if text.len() > SCHEDULE_BYTES_MAX {
            return Err(bad(format!("it has {} bytes, the limit is {SCHEDULE_BYTES_MAX}", text.len())));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(text).map_err(|error| bad(error.to_string().trim_end_matches('.').to_owned()))?;
        let schedule = Self::Cron { cron: Box::new(cron), zone: find_zone(zone)? };
        match schedule.next(FIRST_MS) {
            Some(_) => Ok(schedule),
            None => Err(bad("no day ever meets it".to_owned())),
        }
    }

    /// The first time after this one. None where the calendar ends.
    pub fn next(&self, after_ms: u64) -> Option<u64> {
        match self {
            Self::Every { period_ms } => (after_ms / period_ms).checked_add(1)?.checked_mul(*period_ms),
            Self::Cron { cron, zone } => {
                let after = zoned(after_ms, zone)?;
                let found = cron.find_next_occurrence(&after, false).ok();
                // The search gives up before a day that a zone left out (Samoa, 2011-12-30), and goes on behind it.
                to_ms(&found.or_else(|| {
                    let jump = zone.following(after.timestamp()).next()?.timestamp();
                    cron.find_next_occurrence(&jump.to_zoned(zone.clone()), true).ok()
                })?)
            }
        }
    }

    /// The last time that is not after this one.
    pub fn latest(&self, at_ms: u64) -> Option<u64> {
        match self {
            Self::Every { period_ms } => Some(at_ms - at_ms % period_ms),
            Self::Cron { cron, zone } => {
                let at = zoned(at_ms, zone)?;
                let found = cron.find_previous_occurrence(&at, true).ok();
                to_ms(&found.or_else(|| {
                    let jump = zone.preceding(at.timestamp().checked_add(SECOND).ok()?).next()?.timestamp();
                    cron.find_previous_occurrence(&jump.checked_sub(SECOND).ok()?.to_zoned(zone.clone()), true).ok()
                })?)
            }
        }
    }

    /// How far the clock may go back and still be waited for.
    pub fn wait_ms(&self) -> u64 {
        match self {
            Self::Every { period_ms } => (EVERY_WAIT.as_millis() as u64).max(*period_ms),
            Self::Cron { .. } => CRON_WAIT.as_millis() as u64,
        }
    }
}

fn find_zone(name: &str) -> Result<TimeZone, Problem> {
    let unknown = || {
        let detail = format!("cron.zone is {name:?}, which is not a time zone of the IANA database");
        Problem::new(Code::ManifestValue, detail).with_hint("write a name like \"Europe/Berlin\" or \"UTC\"")
    };
    if name.len() > ZONE_BYTES_MAX {
        return Err(unknown());
    }
    TimeZone::get(name).map_err(|_| unknown())
}

/// The whole second at or before this time.
fn zoned(ms: u64, zone: &TimeZone) -> Option<Zoned> {
    let seconds = i64::try_from(ms / 1_000).ok()?;
    Some(Timestamp::from_second(seconds).ok()?.to_zoned(zone.clone()))
}

fn to_ms(time: &Zoned) -> Option<u64> {
    u64::try_from(time.timestamp().as_millisecond()).ok()
}
