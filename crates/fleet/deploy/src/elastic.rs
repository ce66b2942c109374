//! How many copies of a function there are where that follows load. Pure: what copies said and the time come in.
//!
//! ```text
//!   each copy says what it has done ─▶ how far it was used since ─┬─ busy for a while, or refusing ─▶ more
//!                                                                 ├─ one less would do, for `quiet` ─▶ one less
//!                                                                 └─ else, or not all is known ─────▶ as before
//! ```
//! What swings and what is not known moves nothing: more copies come when those that speak were busy over two of their
//! reports, twice as many at most, and then those are waited for. One goes when all have spoken and one less would have
//! been used by less than half, without a break for `quiet`. So a function has at most two moves in each such time.

use crate::talk::{FunctionLoad, Stage};
use fleet_trust::NodeId;
use manifest::Copies;
use std::collections::BTreeMap;
use std::time::Duration;

/// From how far the copies are used on the average there are to be more.
const BUSY: f64 = 0.7;
/// How far copies are used where there are just enough.
const ENOUGH: f64 = 0.5;
/// How far one copy less may have been used for it to go.
const CALM: f64 = 0.4;
/// How long copies have to be busy: longer than what lies between two reports of a node.
const BUSY_MS: u64 = 6_000;
/// How long new copies are waited for. Then those that speak are enough for more to come.
const SETTLE_MS: u64 = 30_000;
/// How long what a copy said is believed.
const FRESH_MS: u64 = 15_000;
/// Less time between two reports of a copy says nothing.
const SPAN_MS_MIN: u64 = 500;
/// How far a copy is believed to be used: so many times what it has room for.
const USED_MAX: f64 = 8.0;

/// A copy, as an anchor has heard of it.
#[derive(Debug, Clone, Copy)]
pub struct CopyHeard<'a> {
    pub node: NodeId,
    /// Whether its node was heard of in the last seconds.
    pub is_there: bool,
    /// How far its node is with the record that holds.
    pub stage: Option<Stage>,
    pub load: Option<&'a FunctionLoad>,
}

/// Another number of copies.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    pub copies: usize,
    /// Who loses it, where there is one less.
    pub leaves: Option<NodeId>,
    /// What was seen, in words.
    pub why: String,
}

/// What an anchor has seen of one function.
#[derive(Debug, Default)]
pub struct Elastic {
    copies: BTreeMap<NodeId, Seen>,
    /// How many there were to be, and since when.
    settled: Option<(usize, u64)>,
    busy_since: Option<u64>,
    quiet_since: Option<u64>,
}

/// What was seen of one copy.
#[derive(Debug)]
struct Seen {
    last: FunctionLoad,
    heard_ms: u64,
    /// Between its last two reports; none: there was one.
    span: Option<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    /// 1: as much as it has room for.
    used: f64,
    refused: u64,
}

/// All copies together.
struct Sum {
    known: usize,
    used: f64,
    refused: u64,
    /// Whether all have spoken, or cannot run at all.
    is_whole: bool,
}

impl Elastic {
    /// Looks at what the copies have said by now, all that there are to be. `now_ms` may begin anywhere and never goes
    /// back. None: as many as before. What is returned is looked at again the next time, if nothing came of it.
    pub fn look(&mut self, wanted: &Copies, quiet: Duration, heard: &[CopyHeard<'_>], now_ms: u64) -> Option<Move> {
        self.copies.retain(|node, _| heard.iter().any(|one| one.node == *node));
        heard.iter().for_each(|one| self.note(one, now_ms));
        let count = heard.len();
        let since = match self.settled {
            Some((before, since)) if before == count => since,
            _ => {
                self.settled = Some((count, now_ms));
                (self.busy_since, self.quiet_since) = (None, None);
                now_ms
            }
        };
        let sum = self.sum(heard, now_ms);
        let is_settled = sum.is_whole || now_ms.saturating_sub(since) >= SETTLE_MS;
        let more = self.more(&sum, wanted, count, now_ms).filter(|_| is_settled);
        more.or_else(|| self.less(&sum, wanted, quiet, heard, now_ms))
    }

    fn note(&mut self, one: &CopyHeard<'_>, now_ms: u64) {
        let Some(load) = one.load.filter(|_| one.stage == Some(Stage::Ready)) else { return };
        let new = |span| Seen { last: *load, heard_ms: now_ms, span };
        let Some(seen) = self.copies.get_mut(&one.node) else {
            self.copies.insert(one.node, new(None));
            return;
        };
        if load.at_ms < seen.last.at_ms || load.busy_ms < seen.last.busy_ms {
            // It was started anew, and counts from there.
            *seen = new(None);
        } else if load.at_ms - seen.last.at_ms >= SPAN_MS_MIN {
            *seen = new(Some(Span::between(&seen.last, load)));
        }
    }

    fn sum(&self, heard: &[CopyHeard<'_>], now_ms: u64) -> Sum {
        let span = |one: &CopyHeard<'_>| {
            let seen = self.copies.get(&one.node).filter(|_| one.is_there && one.stage == Some(Stage::Ready))?;
            seen.span.filter(|_| now_ms.saturating_sub(seen.heard_ms) < FRESH_MS)
        };
        let mut sum = Sum { known: 0, used: 0.0, refused: 0, is_whole: true };
        for one in heard {
            match span(one) {
                Some(span) => {
                    sum.known += 1;
                    sum.used += span.used;
                    // What a member says may be any number.
                    sum.refused = sum.refused.saturating_add(span.refused);
                }
                None => sum.is_whole &= one.is_there && one.stage == Some(Stage::Failed),
            }
        }
        sum
    }

    fn more(&mut self, sum: &Sum, wanted: &Copies, count: usize, now_ms: u64) -> Option<Move> {
        let mean = sum.used / sum.known.max(1) as f64;
        let is_refusing = sum.refused > 0 && mean >= CALM;
        if sum.known == 0 || !(mean >= BUSY || is_refusing) {
            self.busy_since = None;
            return None;
        }
        let since = *self.busy_since.get_or_insert(now_ms);
        let is_long = is_refusing || now_ms.saturating_sub(since) >= BUSY_MS;
        // Copies that do not speak serve nobody, as far as is known.
        let enough = (sum.used / ENOUGH).ceil() as usize + (count - sum.known);
        let copies = enough.clamp(count + 1, count * 2).min(wanted.most as usize);
        (is_long && copies > count).then(|| Move { copies, leaves: None, why: sum.in_words() })
    }

    fn less(
        &mut self,
        sum: &Sum,
        wanted: &Copies,
        quiet: Duration,
        heard: &[CopyHeard<'_>],
        now_ms: u64,
    ) -> Option<Move> {
        let count = heard.len();
        let is_calm = count > 1 && sum.used / (count - 1) as f64 <= CALM && sum.known > 0;
        if !sum.is_whole || !is_calm || sum.refused > 0 || count <= wanted.least as usize {
            self.quiet_since = None;
            return None;
        }
        let since = *self.quiet_since.get_or_insert(now_ms);
        if u128::from(now_ms.saturating_sub(since)) < quiet.as_millis() {
            return None;
        }
        // One that cannot run it, then the one with the least to do.
        let used = |node: &NodeId| self.copies.get(node).and_then(|seen| seen.span).map_or(-1.0, |span| span.used);
        let order = |one: &&CopyHeard<'_>| (one.stage == Some(Stage::Ready), used(&one.node));
        let leaves = heard.iter().min_by(|one, other| {
            let ((ready, used), (is_ready, uses)) = (order(one), order(other));
            ready.cmp(&is_ready).then(used.total_cmp(&uses))
        });
        let why = format!("{} for {}", sum.in_words(), manifest::Span::from_ms(quiet.as_millis() as u64));
        Some(Move { copies: count - 1, leaves: leaves.map(|one| one.node), why })
    }
}

impl Span {
    fn between(before: &FunctionLoad, now: &FunctionLoad) -> Self {
        let span_ms = (now.at_ms - before.at_ms) as f64;
        let share = |done: u64, room: u32| done as f64 / (span_ms * f64::from(room.max(1)));
        let calls = share(now.busy_ms - before.busy_ms, now.places);
        let cpu = share(now.cpu_ms.saturating_sub(before.cpu_ms), now.cores);
        Self { used: calls.max(cpu).min(USED_MAX), refused: now.refused.saturating_sub(before.refused) }
    }
}

impl Sum {
    fn in_words(&self) -> String {
        let percent = (self.used / self.known.max(1) as f64 * 100.0).round();
        let copies = if self.known == 1 { "1 was".to_owned() } else { format!("{} were", self.known) };
        let refused = match self.refused {
            0 => String::new(),
            calls => format!(", and refused {calls} calls"),
        };
        format!("{copies} used to {percent} %{refused}")
    }
}
