//! Checks of passwords, which are slow on purpose: one at a time, in turns among addresses, and few that wait.
//!
//! ```text
//!  CONNECT ─▶ right or wrong by a quick hash? ─no─▶ waits with its address ─▶ one job hashes, then the next ─▶ all who asked
//! ```
//! A user has one password. Once it was right, its quick hash tells every other password from it, so that wrong ones
//! cost nothing any more; a name without a user costs nothing at all. The remaining hashing is bounded by
//! [`WAITING_MAX`]. The permit to hash belongs to the job, which gives it back when it ends, even if its caller has
//! gone.

use crate::peers::Peer;
use crate::users::{Quick, Users};
use budget::{Budget, Purpose};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Passwords that wait to be hashed. Beyond it one of the address that has the most gives way, or the new one is
/// refused.
const WAITING_MAX: usize = 64;

/// The same for one address. The next one is refused.
const WAITING_PER_PEER_MAX: usize = 16;

/// Connections that wait for the same password. The next one is refused.
const ASKERS_MAX: usize = 1_024;

/// How long a connection waits for its turn; then it is refused.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Wrong passwords that are remembered. The oldest is forgotten, and hashed again if it comes again.
const WRONG_MAX: usize = 256;

/// What became of a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    Wrong,
    /// Too many wait, or there is no memory to hash it: the same may be tried later.
    Busy,
}

/// The checks of one gate.
pub(crate) struct Passwords {
    users: Arc<Users>,
    budget: Arc<Budget>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// In the order they came.
    jobs: VecDeque<Job>,
    /// Addresses that have jobs, the next one first.
    turns: VecDeque<Peer>,
    /// The one that is being hashed.
    current: Option<(Quick, Vec<oneshot::Sender<Verdict>>)>,
    wrong: VecDeque<Quick>,
    is_running: bool,
}

struct Job {
    quick: Quick,
    name: String,
    password: Vec<u8>,
    peer: Peer,
    askers: Vec<oneshot::Sender<Verdict>>,
}

impl Passwords {
    pub fn new(users: Arc<Users>, budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self { users, budget, waiting: Mutex::default() })
    }

    /// Whether this is the user's password. Cancelling it leaves a hash that has begun to its end, and starts no other.
    pub async fn check(self: &Arc<Self>, name: &str, password: &[u8], peer: Peer) -> Verdict {
        if let Some(is_right) = self.users.recall(name, password) {
            return if is_right { Verdict::Right } else { Verdict::Wrong };
        }
        let Some(verdict) = self.ask(name, password, peer) else { return Verdict::Busy };
        match tokio::time::timeout(WAIT_MAX, verdict).await {
            Ok(Ok(verdict)) => verdict,
            // Its place went to another address, or its turn did not come.
            Ok(Err(_)) | Err(_) => Verdict::Busy,
        }
    }

    fn ask(self: &Arc<Self>, name: &str, password: &[u8], peer: Peer) -> Option<oneshot::Receiver<Verdict>> {
        let quick = self.users.quick(name, password);
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.wrong.contains(&quick) {
            sender.send(Verdict::Wrong).expect("the receiver is here");
            return Some(receiver);
        }
        if let Some(askers) = waiting.askers_of(&quick) {
            // Devices that share a user come back together: one hash serves them all.
            askers.retain(|asker| !asker.is_closed());
            if askers.len() >= ASKERS_MAX {
                return None;
            }
            askers.push(sender);
            return Some(receiver);
        }
        waiting.make_room(peer)?;
        let (name, password) = (name.to_owned(), password.to_vec());
        waiting.push(Job { quick, name, password, peer, askers: vec![sender] });
        if !std::mem::replace(&mut waiting.is_running, true) {
            let this = self.clone();
            // One job of the pool for all of them, so that what waits for the disk there is not held up.
            tokio::task::spawn_blocking(move || this.run());
        }
        Some(receiver)
    }

    /// Hashes until nothing waits.
    fn run(&self) {
        loop {
            let job = {
                let mut waiting = self.waiting.lock();
                let Some(job) = waiting.next() else {
                    waiting.is_running = false;
                    return;
                };
                waiting.current = Some((job.quick, job.askers));
                (job.quick, job.name, job.password)
            };
            let (quick, name, password) = job;
            let verdict = self.hash(&name, &password);
            let mut waiting = self.waiting.lock();
            if verdict == Verdict::Wrong {
                waiting.wrong.truncate(WRONG_MAX - 1);
                waiting.wrong.push_front(quick);
            }
            let askers = waiting.current.take().map(|(_, askers)| askers).unwrap_or_default();
            drop(waiting);
            for asker in askers {
                // Who does not listen any more needs no answer.
                asker.send(verdict).ok();
            }
        }
    }

    fn hash(&self, name: &str, password: &[u8]) -> Verdict {
        // While it waited the right one may have come.
        if let Some(is_right) = self.users.recall(name, password) {
            return if is_right { Verdict::Right } else { Verdict::Wrong };
        }
        let Ok(_room) = self.budget.take(Purpose::Mqtt, self.users.hash_bytes()) else { return Verdict::Busy };
        if self.users.verify(name, password) { Verdict::Right } else { Verdict::Wrong }
    }
}

impl Waiting {
    fn askers_of(&mut self, quick: &Quick) -> Option<&mut Vec<oneshot::Sender<Verdict>>> {
        if let Some((current, askers)) = &mut self.current
            && *current == *quick
        {
            return Some(askers);
        }
        self.jobs.iter_mut().find(|job| job.quick == *quick).map(|job| &mut job.askers)
    }

    fn of(&self, peer: Peer) -> usize {
        self.jobs.iter().filter(|job| job.peer == peer).count()
    }

    /// Makes a place for one more of `peer`, if it is due one.
    fn make_room(&mut self, peer: Peer) -> Option<()> {
        self.forget_gone();
        let own = self.of(peer);
        if own >= WAITING_PER_PEER_MAX {
            return None;
        }
        if self.jobs.len() < WAITING_MAX {
            return Some(());
        }
        let (most, greediest) =
            self.turns.iter().map(|other| (self.of(*other), *other)).max_by_key(|(count, _)| *count)?;
        if most <= own + 1 {
            return None;
        }
        let last = self.jobs.iter().rposition(|job| job.peer == greediest)?;
        self.jobs.remove(last);
        Some(())
    }

    /// Whoever gave up, or is disconnected, is not waited for.
    fn forget_gone(&mut self) {
        self.jobs.retain_mut(|job| {
            job.askers.retain(|asker| !asker.is_closed());
            !job.askers.is_empty()
        });
        let Self { jobs, turns, .. } = self;
        turns.retain(|peer| jobs.iter().any(|job| job.peer == *peer));
    }

    fn push(&mut self, job: Job) {
        if !self.turns.contains(&job.peer) {
            self.turns.push_back(job.peer);
        }
        self.jobs.push_back(job);
    }

    /// The oldest of the address whose turn it is.
    fn next(&mut self) -> Option<Job> {
        self.forget_gone();
        let peer = self.turns.pop_front()?;
        let place = self.jobs.iter().position(|job| job.peer == peer)?;
        let job = self.jobs.remove(place)?;
        if self.of(peer) > 0 {
            self.turns.push_back(peer);
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::{User, hash_password};
    use std::net::IpAddr;

    fn job(peer: u8, number: u8) -> (Job, oneshot::Receiver<Verdict>) {
        let (sender, receiver) = oneshot::channel();
        let peer = peer_of(peer);
        (Job { quick: [number; 32], name: String::new(), password: Vec::new(), peer, askers: vec![sender] }, receiver)
    }

    fn peer_of(last: u8) -> Peer {
        Peer::of(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn addresses_take_turns_and_the_greediest_gives_way() {
        let (mut waiting, mut receivers) = (Waiting::default(), Vec::new());
        let mut add = |waiting: &mut Waiting, peer: u8, number: u8| {
            let made = waiting.make_room(peer_of(peer)).is_some();
            if made {
                let (job, receiver) = job(peer, number);
                receivers.push(receiver);
                waiting.push(job);
            }
            made
        };
        // Four addresses fill everything; each is held to its own bound.
        for number in 0..=WAITING_PER_PEER_MAX as u8 {
            for peer in 0..4 {
                assert_eq!(add(&mut waiting, peer, number), usize::from(number) < WAITING_PER_PEER_MAX);
            }
        }
        assert_eq!(waiting.jobs.len(), WAITING_MAX);
        // A fifth comes all the same, and is not the last to be served.
        assert!(add(&mut waiting, 9, 99));
        assert_eq!(waiting.jobs.len(), WAITING_MAX);
        let order: Vec<u8> = (0..5).map(|_| waiting.next().unwrap().quick[0]).collect();
        assert_eq!(order, [0, 0, 0, 0, 99]);
    }

    #[test]
    fn nobody_hashes_for_who_is_gone() {
        let mut waiting = Waiting::default();
        for number in 0..5 {
            let (job, receiver) = job(1, number);
            waiting.push(job);
            drop(receiver);
        }
        assert!(waiting.next().is_none());
    }

    fn users() -> Arc<Users> {
        let user = |password: &[u8]| User { password: hash_password(password).unwrap(), ..User::default() };
        let known = [("a".to_owned(), user(b"secret")), ("b".to_owned(), user(b"other"))];
        Arc::new(Users::new(known.into(), None).unwrap())
    }

    #[tokio::test]
    async fn what_is_known_of_a_user_needs_no_hash() {
        let budget = Budget::new(1 << 30);
        let passwords = Passwords::new(users(), budget);
        let peer = peer_of(1);
        assert_eq!(passwords.check("a", b"wrong", peer).await, Verdict::Wrong);
        assert_eq!(passwords.check("a", b"secret", peer).await, Verdict::Right);
        // From now on a room in which nothing can be hashed is enough, but for a user that was not seen yet.
        let without_room = Passwords::new(passwords.users.clone(), Budget::new(1));
        for number in 0..10_000_u32 {
            assert_eq!(without_room.check("a", &number.to_be_bytes(), peer).await, Verdict::Wrong);
            assert_eq!(without_room.check("nobody", &number.to_be_bytes(), peer).await, Verdict::Wrong);
        }
        assert_eq!(without_room.check("a", b"secret", peer).await, Verdict::Right);
        assert_eq!(without_room.check("b", b"other", peer).await, Verdict::Busy);
    }

    #[tokio::test]
    async fn who_asks_the_same_shares_one_hash() {
        let passwords = Passwords::new(users(), Budget::new(1 << 30));
        let asked: Vec<_> = (0..500).map(|_| passwords.ask("a", b"secret", peer_of(1)).unwrap()).collect();
        assert!(passwords.waiting.lock().jobs.len() <= 1);
        for verdict in asked {
            assert_eq!(verdict.await.unwrap(), Verdict::Right);
        }
    }
}
