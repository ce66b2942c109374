//! Which connection gives way when all places are taken: an idle one, and first those with the least claim.
//!
//! ```text
//!   has asked nothing ▸ has asked, and shown no right ▸ has shown a right          of each the one that came first
//! ```
//! So a client that holds places without using them blocks nobody, and a client with a token keeps its connection as
//! long as there are others without one. A connection with a request in hand never gives way.

use crate::line::Line;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Connections that are looked at for one that gives way. In a larger crowd the next look goes on where this one ended.
const LOOKED_AT_MAX: usize = 512;

/// What a connection has shown so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    Silent,
    Asked,
    Trusted,
}

/// The connections of a gate, in the order they came.
#[derive(Debug, Default)]
pub struct Crowd {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    lines: BTreeMap<u64, (Arc<Line>, Option<AbortHandle>)>,
    /// Where the next look begins.
    next: u64,
}

/// A connection in the crowd, until this is dropped.
#[derive(Debug)]
pub struct Member {
    crowd: Arc<Crowd>,
    number: u64,
}

impl Crowd {
    pub fn enter(self: &Arc<Self>, line: &Arc<Line>) -> Member {
        self.inside.lock().lines.insert(line.number, (line.clone(), None));
        Member { crowd: self.clone(), number: line.number }
    }

    /// What ends this connection. One that has ended already is none of the crowd.
    pub fn runs(&self, number: u64, task: AbortHandle) {
        if let Some((_, end)) = self.inside.lock().lines.get_mut(&number) {
            *end = Some(task);
        }
    }

    /// Ends one connection, if there is one that may give way: none that is younger than `grace`.
    pub fn give_way(&self, grace: Duration) {
        let inside = &mut *self.inside.lock();
        let (lines, next) = (&inside.lines, inside.next);
        let mut last = next;
        let looked_at = lines.range(next..).chain(lines.range(..next)).take(LOOKED_AT_MAX);
        let found = looked_at.filter_map(|(number, (line, end))| {
            last = *number;
            let standing = line.standing().filter(|_| line.age() >= grace)?;
            Some((standing, *number, end.as_ref()?.clone()))
        });
        let found = found.min_by_key(|(standing, number, _)| (*standing, *number));
        inside.next = if lines.len() > LOOKED_AT_MAX { last + 1 } else { 0 };
        if let Some((_, number, end)) = found {
            inside.lines.remove(&number);
            end.abort();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crowd.inside.lock().lines.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::room::Room;
    use std::future::pending;

    fn line(number: u64) -> Line {
        Line::new(number, Room::take(&Config::default(), false).unwrap())
    }

    /// The numbers of those that gave way, in turn.
    async fn gives_way(crowd: &Arc<Crowd>, lines: &[Arc<Line>]) -> Vec<u64> {
        let tasks: Vec<_> = lines
            .iter()
            .map(|line| {
                let member = crowd.enter(line);
                let task = tokio::spawn(async move {
                    pending::<()>().await;
                    drop(member);
                });
                crowd.runs(line.number, task.abort_handle());
                task
            })
            .collect();
        let mut gone = Vec::new();
        loop {
            crowd.give_way(Duration::ZERO);
            tokio::task::yield_now().await;
            let new = tasks.iter().zip(lines).filter(|(task, line)| task.is_finished() && !gone.contains(&line.number));
            let new: Vec<u64> = new.map(|(_, line)| line.number).collect();
            if new.is_empty() {
                return gone;
            }
            gone.extend(new);
        }
    }

    #[tokio::test]
    async fn who_has_asked_least_goes_first_and_who_is_worked_for_never() {
        let lines: Vec<_> = (1..=6).map(|number| Arc::new(line(number))).collect();
        lines[0].request();
        lines[0].trust();
        lines[1].request();
        lines[2].request();
        lines[2].work_begins();
        lines[4].request();
        assert_eq!(gives_way(&Arc::default(), &lines).await, [4, 6, 2, 5, 1]);
    }

    #[tokio::test]
    async fn a_large_crowd_is_looked_through_in_turn() {
        let crowd = Arc::<Crowd>::default();
        let lines: Vec<_> = (1..=2_000).map(|number| Arc::new(line(number))).collect();
        lines[..1_999].iter().for_each(|line| line.work_begins());
        let task = tokio::spawn(pending::<()>());
        let _members: Vec<_> = lines.iter().map(|line| crowd.enter(line)).collect();
        lines.iter().for_each(|line| crowd.runs(line.number, task.abort_handle()));
        for look in 1..=4 {
            crowd.give_way(Duration::ZERO);
            tokio::task::yield_now().await;
            assert_eq!(task.is_finished(), look == 4, "look {look}");
        }
    }
}
