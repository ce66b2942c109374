//! Three anchors and their log, in memory: answers get lost, the log is lost, anchors are away, and many ask at once.

use crate::world::{Hand, Kept, NOW, key};
use fleet_trust::agreed::{Agree, Put};
use fleet_trust::anchor::{ASKING_MAX, Invited};
use fleet_trust::invitations::InvitationId;
use fleet_trust::ledger::Ledger;
use fleet_trust::office::Estate;
use fleet_trust::{Address, Anchor, Authority, Token};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const CHANNEL: [u8; 32] = [3; 32];

/// What anchors write to, and how it is just now.
#[derive(Default)]
struct Log {
    head: Mutex<Option<(Vec<u8>, u64)>>,
    anchors: Mutex<Vec<Arc<Anchor>>>,
    /// Anchors that answer nobody.
    away: [AtomicBool; 3],
    /// So many writes are made, and not confirmed.
    unconfirmed: AtomicU32,
}

struct Way(Arc<Log>, usize);

impl Agree for Way {
    fn head(&self) -> Result<Option<(Vec<u8>, u64)>, Problem> {
        Ok(self.0.head.lock().clone())
    }

    fn put(&self, bytes: &[u8], expected: Option<u64>) -> Result<Put, Problem> {
        let mut head = self.0.head.lock();
        if head.as_ref().map(|(_, revision)| *revision) != expected {
            return Ok(Put::Late);
        }
        *head = Some((bytes.to_vec(), expected.unwrap_or(1_000) + 7));
        drop(head);
        let is_lost = self.0.unconfirmed.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).is_ok();
        if is_lost { Err(Problem::new(Code::AnchorsAway, "lost")) } else { Ok(Put::Done) }
    }

    fn others(&self) -> Vec<Ledger> {
        let anchors = self.0.anchors.lock().clone();
        let there = anchors.iter().enumerate().filter(|(at, _)| *at != self.1 && !self.0.away[*at].load(Relaxed));
        there.map(|(_, anchor)| anchor.ledger()).collect()
    }
}

fn address(number: u8) -> Address {
    Address::read(&format!("192.0.2.{number}:8702")).unwrap()
}

fn authority() -> Authority {
    Authority::found("campus", &[9; 32]).unwrap()
}

fn anchor(ledger: Ledger, number: u8) -> Arc<Anchor> {
    let anchor = Anchor::new(authority(), ledger, vec![address(number)], Hand::at(NOW).clock(), Kept);
    anchor.own(&key(number), &format!("server-{number}")).unwrap();
    Arc::new(anchor)
}

fn asks(anchor: &Anchor, token: &Token, number: u8) -> Result<(), Problem> {
    let (node, proof_key) = (key(number), token.proof_key());
    let (invitation, name) = (InvitationId::of(&proof_key.public()), format!("pi-{number}"));
    let proof = proof_key.sign("lighterage invitation proof 1", &[&CHANNEL, &node.public(), name.as_bytes()]);
    let signature = node.sign("lighterage join 1", &[&CHANNEL, &invitation.0, name.as_bytes()]);
    let invited = Invited { invitation, key: node.public(), name: &name, proof: &proof, signature: &signature };
    anchor.join(&invited, &CHANNEL).map(|_| ())
}

/// Three anchors that agree.
fn three() -> (Arc<Log>, [Arc<Anchor>; 3]) {
    let first = anchor(Ledger::default(), 1);
    let token = first.invite(2, 60).unwrap();
    [2, 3].iter().for_each(|number| asks(&first, &token, *number).unwrap());
    let new = [2, 3].map(|number| (key(number).id(), address(number)));
    first.appoint(&key(1).id(), &new, &Estate::default()).unwrap();
    let all = [first.clone(), anchor(first.ledger(), 2), anchor(first.ledger(), 3)];
    let log = Arc::new(Log::default());
    *log.anchors.lock() = all.to_vec();
    for (at, anchor) in all.iter().enumerate() {
        anchor.agree_by(Some(Arc::new(Way(log.clone(), at))));
    }
    (log, all)
}

fn all_have_the_same(anchors: &[Arc<Anchor>]) {
    anchors.iter().for_each(|anchor| anchor.follow().unwrap());
    let ledgers: Vec<Ledger> = anchors.iter().map(|anchor| anchor.ledger()).collect();
    assert!(ledgers.iter().all(|ledger| *ledger == ledgers[0]), "{ledgers:#?}");
}

#[test]
fn an_invitation_for_one_lets_in_one_of_those_who_ask_three_anchors_at_once() {
    let (_, anchors) = three();
    let token = anchors[1].invite(1, 60).unwrap();
    assert_eq!(token.anchors.len(), 3, "it names all anchors");
    let let_in: Vec<Result<(), Problem>> = thread::scope(|scope| {
        let asking: Vec<_> = (0..9_u8)
            .map(|number| {
                scope.spawn({
                    let (anchor, token) = (&anchors[usize::from(number % 3)], &token);
                    move || asks(anchor, token, 20 + number)
                })
            })
            .collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(let_in.iter().filter(|one| one.is_ok()).count(), 1, "{let_in:?}");
    assert!(let_in.iter().flat_map(|one| one.as_ref().err()).all(|one| one.code == Code::InvitationUsed));
    all_have_the_same(&anchors);
    assert_eq!(anchors[2].ledger().members().count(), 4);
}

#[test]
fn a_write_that_nobody_confirmed_counts_once() {
    let (log, anchors) = three();
    let token = anchors[0].invite(1, 60).unwrap();
    log.unconfirmed.store(1, Relaxed);
    asks(&anchors[0], &token, 20).unwrap();
    assert_eq!(asks(&anchors[1], &token, 21).unwrap_err().code, Code::InvitationUsed);
    all_have_the_same(&anchors);
}

#[test]
fn an_anchor_that_was_away_for_long_has_the_ledger_of_another_one() {
    let (log, anchors) = three();
    for number in 0..300 {
        anchors[0].change_note(&format!("note-{}", number % 10), |_| Ok(format!("{number:0500}"))).unwrap();
    }
    log.away.iter().for_each(|one| one.store(true, Relaxed));
    assert_eq!(anchors[2].follow().unwrap_err().code, Code::AnchorsAway, "nobody gives it the ledger");
    log.away.iter().for_each(|one| one.store(false, Relaxed));
    all_have_the_same(&anchors);
    // And it goes on from there.
    anchors[2].invite(1, 60).unwrap();
    all_have_the_same(&anchors);
}

#[test]
fn a_log_that_is_lost_begins_again_with_what_a_majority_has() {
    let (log, anchors) = three();
    let token = anchors[0].invite(1, 60).unwrap();
    asks(&anchors[0], &token, 20).unwrap();
    anchors[1].follow().unwrap();
    for lost in [None, Some((b"garbage".to_vec(), 5))] {
        *log.head.lock() = lost;
        // The third knows nothing of all this, and alone it decides nothing.
        log.away[0].store(true, Relaxed);
        log.away[1].store(true, Relaxed);
        assert_eq!(anchors[2].follow().unwrap_err().code, Code::AnchorsAway);
        log.away[1].store(false, Relaxed);
        assert_eq!(asks(&anchors[2], &token, 21).unwrap_err().code, Code::InvitationUsed);
        log.away[0].store(false, Relaxed);
        all_have_the_same(&anchors);
    }
}

#[test]
fn who_is_dismissed_changes_nothing_any_more_and_another_one_may_come() {
    let (_, anchors) = three();
    let set = anchors[0].set().0;
    anchors[0].dismiss(&key(3).id()).unwrap();
    anchors[2].follow().unwrap();
    assert_eq!(anchors[2].invite(1, 60).unwrap_err().code, Code::NotAnchor);
    assert_eq!((anchors[1].follow(), anchors[1].set().0, anchors[1].set().1.len()), (Ok(()), set + 1, 2));
    let token = anchors[1].invite(1, 60).unwrap();
    asks(&anchors[1], &token, 4).unwrap();
    let new = |number: u8| (key(number).id(), address(number));
    anchors[1].appoint(&key(2).id(), &[new(4)], &Estate::default()).unwrap();
    assert_eq!((anchors[1].set().0, anchors[1].set().1.len()), (set + 2, 3));
    let token = anchors[1].invite(1, 60).unwrap();
    asks(&anchors[1], &token, 5).unwrap();
    let refused = anchors[1].appoint(&key(2).id(), &[new(5)], &Estate::default()).unwrap_err();
    assert!(refused.code == Code::Usage && refused.detail.contains("at most 3"), "{refused:?}");
    // A node that is revoked is no anchor either.
    anchors[1].revoke(&key(4).id()).unwrap();
    assert_eq!((anchors[1].set().0, anchors[1].set().1.len()), (set + 3, 2));
}

#[test]
fn two_anchors_are_refused_where_there_was_one() {
    let first = anchor(Ledger::default(), 1);
    let token = first.invite(1, 60).unwrap();
    asks(&first, &token, 2).unwrap();
    let before = first.ledger();
    let refused = first.appoint(&key(1).id(), &[(key(2).id(), address(2))], &Estate::default()).unwrap_err();
    assert!(refused.code == Code::Usage && refused.hint.contains("two nodes"), "{refused:?}");
    assert_eq!(first.ledger(), before);
    assert_eq!(first.dismiss(&key(1).id()).unwrap_err().code, Code::Usage);
    assert_eq!(first.claim("a", 3), Ok(None), "an anchor that is alone counts by itself");
}

#[test]
fn a_number_is_given_once_and_who_lacks_what_was_confirmed_gets_none() {
    let (_, anchors) = three();
    assert_eq!(anchors[0].claim("record.app", 4), Ok(Some(5)));
    // It went away with it: the number is given to nobody again.
    assert_eq!(anchors[1].claim("record.app", 4), Ok(Some(6)));
    assert_eq!(anchors[0].confirm("record.app", 5).unwrap_err().code, Code::DeploymentChanged);
    anchors[1].confirm("record.app", 6).unwrap();
    assert_eq!(anchors[2].claim("record.app", 5).unwrap_err().code, Code::DeploymentChanged);
    assert_eq!(anchors[2].claim("record.app", 6), Ok(Some(7)));
    assert_eq!(anchors[2].claim("record.other", 0), Ok(Some(1)));
}

/// Who was let in stays in, and an invitation for one has let in one.
#[test]
fn whatever_is_lost_in_between_who_was_let_in_is_in_and_nobody_twice() {
    for seed in 0..200_u32 {
        let (log, anchors) = three();
        let mut chance = seed.wrapping_mul(2_654_435_761) | 1;
        let mut draw = |most: u32| {
            chance ^= chance << 13;
            chance ^= chance >> 17;
            chance ^= chance << 5;
            chance % most
        };
        let (mut tokens, mut let_in): (Vec<Token>, BTreeMap<usize, u8>) = (Vec::new(), BTreeMap::new());
        for step in 0..20_u8 {
            let anchor = &anchors[draw(3) as usize];
            match draw(8) {
                0 => log.unconfirmed.store(1, Relaxed),
                // Anchors that are there know what was answered: only then may all of the log go.
                1 => {
                    log.unconfirmed.store(0, Relaxed);
                    all_have_the_same(&anchors);
                    *log.head.lock() = None;
                }
                2 | 3 => tokens.extend(anchor.invite(1, 600)),
                _ if !tokens.is_empty() => {
                    let which = draw(tokens.len() as u32) as usize;
                    if asks(anchor, &tokens[which], 50 + step).is_ok() {
                        assert_eq!(let_in.insert(which, 50 + step), None, "seed {seed}: a second one was let in");
                    }
                }
                _ => {}
            }
        }
        log.unconfirmed.store(0, Relaxed);
        all_have_the_same(&anchors);
        let ledger = anchors[draw(3) as usize].ledger();
        assert!(let_in.values().all(|number| ledger.member(&key(*number).id()).is_ok()), "seed {seed}");
    }
}

#[test]
fn who_missed_that_there_is_another_set_has_the_ledger_of_one_of_those() {
    let (log, anchors) = three();
    anchors[0].dismiss(&key(3).id()).unwrap();
    let known = anchors[1].set();
    // The servers of the set before are gone, and with them the log that says so.
    anchors[1].agree_by(Some(Arc::new(Gone(log))));
    assert_eq!(anchors[1].set(), known);
    anchors[1].follow().unwrap();
    assert_eq!(anchors[1].ledger(), anchors[0].ledger());
    assert!(anchors[1].follow().is_err(), "there is no later one");
}

/// A log that does not answer.
struct Gone(Arc<Log>);

impl Agree for Gone {
    fn head(&self) -> Result<Option<(Vec<u8>, u64)>, Problem> {
        Err(Problem::new(Code::AnchorsAway, "no majority"))
    }

    fn put(&self, _: &[u8], _: Option<u64>) -> Result<Put, Problem> {
        Err(Problem::new(Code::AnchorsAway, "no majority"))
    }

    fn others(&self) -> Vec<Ledger> {
        Way(self.0.clone(), 1).others()
    }
}

/// A log that answers when it is let.
struct Slow(Arc<Log>, Mutex<()>, AtomicU32);

impl Agree for Slow {
    fn head(&self) -> Result<Option<(Vec<u8>, u64)>, Problem> {
        self.2.fetch_add(1, Relaxed);
        drop(self.1.lock());
        Way(self.0.clone(), 1).head()
    }

    fn put(&self, bytes: &[u8], expected: Option<u64>) -> Result<Put, Problem> {
        Way(self.0.clone(), 1).put(bytes, expected)
    }

    fn others(&self) -> Vec<Ledger> {
        Way(self.0.clone(), 1).others()
    }
}

#[test]
fn strangers_wait_for_the_other_anchors_in_a_bounded_number_of_threads() {
    let (log, anchors) = three();
    let token = anchors[0].invite(1, 60).unwrap();
    let slow = Arc::new(Slow(log, Mutex::default(), AtomicU32::new(0)));
    anchors[1].agree_by(Some(slow.clone()));
    let guess = Token { secret: [7; 16], ..token.clone() };
    let silence = slow.1.lock();
    let codes: Vec<Code> = thread::scope(|scope| {
        let ask = |number: u8| asks(&anchors[1], &guess, number).unwrap_err().code;
        let waiting: Vec<_> = (10..).take(ASKING_MAX).map(|number| scope.spawn(move || ask(number))).collect();
        // One of them asks the log; the others wait for their turn.
        while slow.2.load(Relaxed) == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(500));
        let refused = ask(99);
        drop(silence);
        waiting.into_iter().map(|one| one.join().unwrap()).chain([refused]).collect()
    });
    assert_eq!(codes.iter().filter(|code| **code == Code::InvitationUnknown).count(), ASKING_MAX);
    // Who has an invitation comes in.
    asks(&anchors[1], &token, 5).unwrap();
}
