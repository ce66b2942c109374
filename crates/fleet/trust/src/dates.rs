//! Whether a certificate's dates hold, on machines whose clock may be wrong.
//!
//! ```text
//!                begins            ends
//!   ──── 24 h ─────[════════════════]───── 24 h ────▶ by a clock that can be right
//!   ════════════════════════════════]───── 24 h ────▶ by one that stands before the floor: the floor is the time
//! ```
//! The floor is a time that is surely past: when this program was built, when this node's certificate was made, when
//! the list of revoked nodes was signed. A Pi without a battery starts in 1970; its clock then says nothing of when a
//! certificate begins, and one that ended before the floor has ended for sure. All else is let through, and the list of
//! revoked nodes holds as always. The floor is no ratchet: what an anchor signed with a clock far in the future is
//! forgotten with the next certificate and the next list.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use time::{Date, Month};

/// How long a node's certificate holds. Half of it must be left, or it is renewed.
pub const CERTIFICATE_SECONDS: u64 = 30 * DAY_SECONDS;
/// How far clocks of members may be apart, and how long after its end a certificate is still believed.
pub const GRACE_SECONDS: u64 = DAY_SECONDS;
const DAY_SECONDS: u64 = 24 * 3_600;

/// Where the time comes from, in seconds since 1970.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
    built: u64,
}

/// When a certificate holds, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dates {
    pub begins: u64,
    pub ends: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateFault {
    /// It begins later than clocks may be apart.
    Early,
    Ended,
}

impl Clock {
    /// The machine's own. `built`: when this program was made.
    pub fn system(built: u64) -> Self {
        let since = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self::new(since, built)
    }

    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static, built: u64) -> Self {
        Self { now: Arc::new(now), built }
    }

    /// As the machine says, right or wrong.
    pub fn now(&self) -> u64 {
        (self.now)()
    }

    /// The time, or when the program was built if the clock stands before that.
    pub fn likely(&self) -> u64 {
        self.now().max(self.built)
    }

    pub(crate) fn built(&self) -> u64 {
        self.built
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

impl Dates {
    /// Those of a node's certificate that is made now.
    pub fn from(begins: u64) -> Self {
        Self { begins, ends: begins.saturating_add(CERTIFICATE_SECONDS) }
    }

    /// Reads them from a certificate (RFC 5280, section 4.1). Nothing else of it is looked at.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let (mut certificate, _) = enter(certificate, SEQUENCE)?;
        let (mut signed, _) = enter(take(&mut certificate)?, SEQUENCE)?;
        if signed.first() == Some(&EXPLICIT_VERSION) {
            take(&mut signed)?;
        }
        // Number, algorithm, issuer.
        for _ in 0..3 {
            take(&mut signed)?;
        }
        let (mut validity, _) = enter(signed, SEQUENCE)?;
        let dates = Self { begins: time(take(&mut validity)?)?, ends: time(take(&mut validity)?)? };
        (validity.is_empty() && dates.begins <= dates.ends).then_some(dates)
    }

    /// Whether they hold. Says as what time the certificate is to be looked at.
    ///
    /// # Errors
    /// They do not.
    pub fn judge(self, now: u64, floor: u64) -> Result<u64, DateFault> {
        let time = now.max(floor);
        if self.ends.saturating_add(GRACE_SECONDS) < time {
            return Err(DateFault::Ended);
        }
        if now >= floor && self.begins > now.saturating_add(GRACE_SECONDS) {
            return Err(DateFault::Early);
        }
        Ok(time.clamp(self.begins, self.ends))
    }

    /// Whether half of the time is over, or it is not begun. A node with such a certificate asks for another one.
    pub fn want_renewal(self, now: u64) -> bool {
        now < self.begins || now - self.begins >= (self.ends - self.begins) / 2
    }
}

const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// What is inside of the first value, which has to have this tag, and what stands behind it.
fn enter(from: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, inside, rest) = value(from)?;
    (found == tag).then_some((inside, rest))
}

/// The first value, tag and all.
fn take<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (_, _, rest) = value(from)?;
    let (taken, _) = from.split_at(from.len() - rest.len());
    *from = rest;
    Some(taken)
}

/// Tag, content and what follows. Lengths of DER in at most three bytes: a certificate is small.
fn value(from: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (length, rest) = match *from.get(1..)? {
        [short @ 0..=0x7f, ref rest @ ..] => (usize::from(short), rest),
        [0x81, length, ref rest @ ..] => (usize::from(length), rest),
        [0x82, high, low, ref rest @ ..] => (usize::from(u16::from_be_bytes([high, low])), rest),
        _ => return None,
    };
    let (inside, rest) = rest.split_at_checked(length)?;
    Some((from[0], inside, rest))
}

/// RFC 5280, section 4.1.2.5: always with seconds, always UTC.
fn time(value: &[u8]) -> Option<u64> {
    let (digits, year_digits) = match *value {
        [UTC_TIME, 13, ref digits @ ..] => (digits, 2),
        [GENERALIZED_TIME, 15, ref digits @ ..] => (digits, 4),
        _ => return None,
    };
    let (b'Z', digits) = digits.split_last()? else { return None };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + i32::from(digit - b'0'));
    let (year, rest) = digits.split_at(year_digits);
    let year = match number(year) {
        short if year_digits == 2 => short + if short < 50 { 2_000 } else { 1_900 },
        year => year,
    };
    let two = |at: usize| u8::try_from(number(&rest[at..at + 2])).ok();
    let day = Date::from_calendar_date(year, Month::try_from(two(0)?).ok()?, two(2)?).ok()?;
    let time = day.with_hms(two(4)?, two(6)?, two(8)?).ok()?;
    // What is before 1970 has surely begun, and surely ended.
    Some(u64::try_from(time.assume_utc().unix_timestamp()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: u64 = 1_790_000_000;

    #[test]
    fn a_clock_that_can_be_right_is_believed_within_a_day() {
        let dates = Dates::from(BUILT + 100 * DAY_SECONDS);
        let judged = |now: u64| dates.judge(now, BUILT);
        assert_eq!(judged(dates.begins - GRACE_SECONDS), Ok(dates.begins));
        assert_eq!(judged(dates.begins - GRACE_SECONDS - 1), Err(DateFault::Early));
        assert_eq!(judged(dates.begins + 5), Ok(dates.begins + 5));
        assert_eq!(judged(dates.ends + GRACE_SECONDS), Ok(dates.ends));
        assert_eq!(judged(dates.ends + GRACE_SECONDS + 1), Err(DateFault::Ended));
    }

    #[test]
    fn a_clock_in_1970_refuses_what_has_surely_ended_and_nothing_else() {
        let of = |begins: u64| Dates::from(begins).judge(60, BUILT);
        assert_eq!(of(BUILT + 900 * DAY_SECONDS), Ok(BUILT + 900 * DAY_SECONDS));
        assert_eq!(of(BUILT - CERTIFICATE_SECONDS - GRACE_SECONDS), Ok(BUILT - GRACE_SECONDS));
        assert_eq!(of(BUILT - CERTIFICATE_SECONDS - GRACE_SECONDS - 1), Err(DateFault::Ended));
    }

    #[test]
    fn renewal_is_wanted_at_half() {
        let dates = Dates::from(BUILT);
        assert!(!dates.want_renewal(BUILT + 15 * DAY_SECONDS - 1));
        assert!(dates.want_renewal(BUILT + 15 * DAY_SECONDS));
        assert!(dates.want_renewal(BUILT - 1));
    }

    #[test]
    fn times_are_read_as_they_are_written() {
        let utc = [&[UTC_TIME, 13][..], b"700101000001Z"].concat();
        let general = [&[GENERALIZED_TIME, 15][..], b"20261123091500Z"].concat();
        assert_eq!(time(&utc), Some(1));
        assert_eq!(time(&general), Some(1_795_425_300));
        for wrong in ["20261323091500Z", "20261123091500+", "2026112309150 Z", "20261123096000Z"] {
            assert_eq!(time(&[&[GENERALIZED_TIME, 15][..], wrong.as_bytes()].concat()), None, "{wrong}");
        }
    }
}
