//! Removes dead letters for good: named ones, or those that died for one reason.

use super::Queue;
use super::apply::Op;
use super::record::EventHead;
use super::replay::{Found, Letters, Step, died_of};
use crate::Ticket;
use problem::Problem;

/// Which dead letters go.
#[derive(Debug, Clone, Copy, Default)]
pub struct Discard<'a> {
    /// These; none: all.
    pub sequences: Option<&'a [u64]>,
    /// Only those that died for a reason with this text in it.
    pub reason: Option<&'a str>,
    /// Only looks.
    pub dry_run: bool,
}

impl Queue {
    /// Removes dead letters, in steps. Says how many. Durable when it returns; what dies meanwhile stays.
    ///
    /// # Errors
    /// The disk's; those before are gone already.
    pub async fn discard(&self, discard: Discard<'_>) -> Result<u64, Problem> {
        let mut discarded = 0;
        self.in_steps(discard.sequences, |wanted| self.discard_step(wanted, discard, &mut discarded)).await?;
        Ok(discarded)
    }

    fn discard_step(
        &self,
        wanted: &Letters<'_>,
        discard: Discard<'_>,
        discarded: &mut u64,
    ) -> Result<Option<Step>, Problem> {
        let _disk = self.shared.disk.lock();
        let (id, dead_head) = {
            let core = self.shared.core.lock();
            (core.numbers.id, core.numbers.dead_head)
        };
        let Found { letters: found, looked } = self.dead_letters(wanted, id, dead_head, 0)?;
        let Some((last, _)) = found.last() else { return Ok(None) };
        let next = last + 1;
        // Of a letter that cannot be read nobody knows why it died.
        let is_wanted = |value: &[u8]| match EventHead::split(value) {
            Some((head, _)) => died_of(&head, discard.reason),
            None => discard.reason.is_none(),
        };
        let letters: Vec<(u64, u64)> = found
            .iter()
            .filter(|(_, value)| is_wanted(value))
            .map(|(sequence, value)| (*sequence, value.len() as u64))
            .collect();
        *discarded += letters.len() as u64;
        let ticket = match discard.dry_run || letters.is_empty() {
            true => Ticket::NOTHING_WRITTEN,
            false => self.commit(vec![Op::Discard(letters)])?,
        };
        Ok(Some(Step { ticket, next, looked }))
    }
}
