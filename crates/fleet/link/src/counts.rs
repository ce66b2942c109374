//! What became of calls that went to other nodes, and of those that came from them.

use crate::fields::Why;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Since the node's start.
#[derive(Debug, Default)]
pub struct Counts {
    sent: AtomicU64,
    refused: [AtomicU64; Why::ALL.len()],
    away: AtomicU64,
    lost: AtomicU64,
    taken: AtomicU64,
    refuses: [AtomicU64; Why::ALL.len()],
}

impl Counts {
    pub(crate) fn sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self, why: Why) {
        self.refused[why as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn away(&self) {
        self.away.fetch_add(1, Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    pub(crate) fn looped(&self) {
        self.refuses(Why::Looped);
    }

    pub(crate) fn taken(&self) {
        self.taken.fetch_add(1, Relaxed);
    }

    pub(crate) fn refuses(&self, why: Why) {
        self.refuses[why as usize].fetch_add(1, Relaxed);
    }

    /// What became of calls of this node's gates elsewhere, by a word: `ran`, `away`, `lost`, or why it was refused.
    pub fn outgoing(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let own = [("ran", &self.sent), ("away", &self.away), ("lost", &self.lost)];
        own.into_iter().chain(by_why(&self.refused)).map(|(word, count)| (word, count.load(Relaxed)))
    }

    /// What became of calls of other nodes here: `ran`, or why it was refused.
    pub fn incoming(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let own = [("ran", &self.taken)];
        own.into_iter().chain(by_why(&self.refuses)).map(|(word, count)| (word, count.load(Relaxed)))
    }
}

fn by_why(counts: &[AtomicU64]) -> impl Iterator<Item = (&'static str, &AtomicU64)> {
    Why::ALL.iter().map(|why| why.word()).zip(counts)
}
