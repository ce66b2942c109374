//! Commits that are not durable yet, and what becomes true with each of them.

use std::collections::VecDeque;

/// A commit of an outbox or an inbox, in the order of the journal. Numbered from 1 by its owner in each of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commit(pub(crate) u64);

/// What waits for the disk. Bounded by what the state lets wait for its disk.
#[derive(Debug)]
pub struct Commits<T> {
    last: u64,
    waiting: VecDeque<(Commit, T)>,
}

impl<T> Default for Commits<T> {
    fn default() -> Self {
        Self { last: 0, waiting: VecDeque::new() }
    }
}

impl<T> Commits<T> {
    pub fn add(&mut self, facts: impl IntoIterator<Item = T>) -> Commit {
        self.last += 1;
        let commit = Commit(self.last);
        self.waiting.extend(facts.into_iter().map(|fact| (commit, fact)));
        commit
    }

    /// The next fact that is durable, since all commits up to `commit` are.
    pub fn next(&mut self, commit: Commit) -> Option<T> {
        self.waiting.pop_front_if(|(of, _)| *of <= commit).map(|(_, fact)| fact)
    }
}
