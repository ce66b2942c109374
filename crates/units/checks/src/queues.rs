//! What every class must do with queues: pushes, pops and acks are part of the handling, or did not happen.

use super::{LONG, Ready, Stage, Watcher, is, text};
use event::Event;
use handling::{Call, Caller, Ended, WholeReply, Work};
use manifest::{Function, Name};
use problem::{Code, Problem};
use state::{Leased, Part, Push, Queue, QueueConfig, State, Transaction};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The queue whose events are handled.
const IN: &str = "attack";
/// The queue that `attack` pushes to and pops from.
const OUT: &str = "attacked";
/// When events are pushed and leased, and when leases end.
const NOW_MS: u64 = 1_000;
const UNTIL_MS: u64 = u64::MAX / 2;

fn granted(function: &mut Function) {
    let out = || vec![Name::try_from(OUT.to_owned()).expect("a name")];
    function.grants.stores = vec!["attack".into()];
    (function.grants.push, function.grants.pop) = (out(), out());
}

fn queue(stage: &Stage<'_>, name: &str) -> Queue {
    stage.state.queue(name).expect("a queue")
}

async fn push(state: &State, queue: &str, data: &str) {
    let attributes = vec![("traceparent".to_owned(), "00-7-7-01".to_owned())];
    let event = Event { id: data.into(), source: "/check".into(), data: data.into(), attributes, ..Event::default() };
    let mut transaction = state.begin();
    transaction.push(queue, &Push { event, delay: Duration::ZERO, ttl: None }, NOW_MS).expect("there is room");
    state.durable(transaction.commit().expect("it commits")).await.expect("it is durable");
}

async fn lease(stage: &Stage<'_>, data: &str) -> Arc<Leased> {
    push(&stage.state, IN, data).await;
    Arc::new(queue(stage, IN).lease(NOW_MS, UNTIL_MS, 1).expect("it can be read").pop().expect("it is ready"))
}

/// What happens just before a handling is committed.
type Meanwhile = Box<dyn FnMut(&mut Transaction) + Send>;

struct Disturbed {
    ended: Watcher,
    meanwhile: Meanwhile,
}

impl Caller for Disturbed {
    fn commits(&mut self, transaction: &mut Transaction, _: &WholeReply) -> Result<(), Problem> {
        (self.meanwhile)(transaction);
        Ok(())
    }

    fn ended(self, ended: Ended) {
        self.ended.ended(ended);
    }
}

/// Handles what was leased. Says how it ended, and after how many reruns.
async fn handle(ready: &Ready, leased: &Arc<Leased>, meanwhile: Meanwhile) -> (Result<String, Problem>, u32) {
    let ended = Watcher::default();
    let call = Call {
        request_id: "check".into(),
        work: Work::Event(leased.event.clone()),
        deadline: Instant::now() + LONG,
        lease: Some(leased.clone()),
    };
    let result = ready.handle(call, Disturbed { ended: ended.clone(), meanwhile }).await.map(text);
    let ended = ended.0.lock().expect("not poisoned").take().expect("the caller hears of the end");
    assert_eq!(ended.result.is_ok(), result.is_ok(), "both ways of hearing of it say the same");
    (result, ended.reruns)
}

fn undisturbed() -> Meanwhile {
    Box::new(|_| {})
}

/// Data of the events that are ready in a queue, in their order.
fn ready(stage: &Stage<'_>, name: &str) -> Vec<String> {
    let listed = queue(stage, name).list(Part::Ready, None, 100).expect("it can be read");
    listed.into_iter().map(|listed| String::from_utf8(listed.event.data).expect("text")).collect()
}

fn stored(stage: &Stage<'_>, key: &str) -> Option<String> {
    let value = stage.state.begin().get("attack", key).expect("it can be read");
    value.map(|value| String::from_utf8(value).expect("text"))
}

pub async fn pushing_and_popping_need_a_grant(stage: &Stage<'_>) {
    let attack = stage.attack(|function| function.grants.stores = vec!["attack".into()]);
    for (word, grant) in [("push", "grants.push"), ("pop", "grants.pop")] {
        let problem = attack.call(word).await.unwrap_err();
        assert_eq!(problem.code, Code::UnitFatal);
        assert!(problem.detail.contains(grant) && problem.detail.contains(OUT), "{problem}");
    }
    assert_eq!(stored(stage, "key"), None, "what was written before the refusal is undone");
}

pub async fn what_is_pushed_says_where_it_comes_from(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    let leased = lease(stage, "push 2").await;
    handle(&attack, &leased, undisturbed()).await.0.unwrap();
    let pushed = queue(stage, OUT).list(Part::Ready, None, 10).unwrap();
    assert_eq!(pushed.len(), 2);
    assert_ne!(pushed[0].event.id, pushed[1].event.id);
    for Event { source, kind, subject, content_type, attributes, time_ms, .. } in
        pushed.iter().map(|listed| &listed.event)
    {
        assert_eq!((source.as_str(), kind.as_str()), ("/function/attack", "attack.pushed"));
        assert_eq!((subject.as_deref(), content_type.as_deref()), (Some("attack"), Some("text/plain")));
        assert!(*time_ms > 0);
        let attribute = |name: &str| attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!(attribute("partitionkey"), Some("a"));
        assert_eq!(attribute("traceparent"), Some("00-7-7-01"), "the trace goes on");
    }
}

pub async fn a_failure_undoes_pushes(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    is(attack.call("push-then-trap 3").await, Code::UnitTrapped);
    is(attack.call("push-then-retry 3").await, Code::UnitRetry);
    assert_eq!((ready(stage, OUT), stored(stage, "key")), (Vec::new(), None));
    assert_eq!(attack.call("push 3").await.unwrap(), "pushed");
    assert_eq!(ready(stage, OUT), ["1", "2", "3"]);
    // Last, as it is slow on a board, which says nothing meanwhile: an emulated one takes most of a minute. How long it
    // takes is not what this is about.
    let patient = stage.attack(|function| {
        granted(function);
        function.limits.time_ms = 600_000;
    });
    is(patient.send("push-big 9000000", 10 * LONG, Watcher::default()).await.map(text), Code::UnitFatal);
    assert_eq!(ready(stage, OUT), ["1", "2", "3"]);
}

pub async fn ack_writes_and_pushes_are_one(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    let leased = lease(stage, "push 2").await;
    let seen = Arc::new(Mutex::new(None));
    let before = {
        let (seen, state) = (seen.clone(), stage.state.clone());
        Box::new(move |transaction: &mut Transaction| {
            transaction.set("attack", "by the watch", b"too".to_vec()).unwrap();
            let counts = |name: &str| state.queue(name).unwrap().counts();
            let stored = state.begin().get("attack", "key").unwrap();
            *seen.lock().unwrap() = Some((stored, counts(OUT).ready, counts(IN).leased));
        })
    };
    assert_eq!(handle(&attack, &leased, before).await.0.unwrap(), "pushed");
    assert_eq!(*seen.lock().unwrap(), Some((None, 0, 1)), "before the commit nobody sees any of it");
    let counts = queue(stage, IN).counts();
    assert_eq!((counts.ready, counts.leased, counts.since_start.acked), (0, 0, 1));
    assert_eq!(ready(stage, OUT), ["1", "2"]);
    assert_eq!(
        (stored(stage, "key").as_deref(), stored(stage, "by the watch").as_deref()),
        (Some("pushed"), Some("too"))
    );
}

pub async fn a_handling_that_only_acks_commits(stage: &Stage<'_>) {
    let attack = stage.attack(|_| {});
    let leased = lease(stage, "remember").await;
    assert_eq!(handle(&attack, &leased, undisturbed()).await, (Ok("1".into()), 0));
    let counts = queue(stage, IN).counts();
    assert_eq!((counts.ready, counts.leased, counts.since_start.acked), (0, 0, 1));
}

pub async fn a_failed_handling_keeps_its_lease(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    for (data, code) in [
        ("push-then-trap", Code::UnitTrapped),
        ("push-then-retry", Code::UnitRetry),
        ("invalid", Code::UnitInvalid),
        ("fatal", Code::UnitFatal),
        ("memory", Code::MemoryExceeded),
    ] {
        let leased = lease(stage, data).await;
        is(handle(&attack, &leased, undisturbed()).await.0, code);
        let counts = queue(stage, IN).counts();
        assert_eq!((counts.leased, counts.since_start.acked), (1, 0), "{data}: the event is whoever leased it");
        let mut transaction = stage.state.begin();
        transaction.ack(&leased);
        stage.state.durable(transaction.commit().expect("the lease is still held")).await.expect("it is durable");
        // Its counters are since the start: each turn begins with a queue of its own.
        queue(stage, IN).remove().await.expect("it can be forgotten");
    }
    assert_eq!((ready(stage, OUT), stored(stage, "key")), (Vec::new(), None));
}

pub async fn a_lost_lease_undoes_everything(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    let leased = lease(stage, "push 2").await;
    let (state, id) = (stage.state.clone(), leased.lease);
    let ends = Box::new(move |_: &mut Transaction| state.queue(IN).unwrap().release(id));
    is(handle(&attack, &leased, ends).await.0, Code::LeaseLost);
    assert_eq!((ready(stage, OUT), stored(stage, "key")), (Vec::new(), None));
    assert_eq!(ready(stage, IN), ["push 2"], "the event waits for its next handling");
}

/// Counts too, in a transaction of its own.
fn counts_too(state: State) -> impl FnMut() {
    move || {
        let mut other = state.begin();
        other.increment("attack", "count", 1).unwrap();
        let _never_waited_for = other.commit().expect("it was first");
    }
}

pub async fn a_conflict_runs_a_leased_event_again(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    let leased = lease(stage, "count").await;
    let (mut other, mut turn) = (counts_too(stage.state.clone()), 0);
    let meanwhile = Box::new(move |_: &mut Transaction| {
        turn += 1;
        if turn <= 2 {
            other();
        }
    });
    assert_eq!(handle(&attack, &leased, meanwhile).await, (Ok("3".into()), 2));
    assert_eq!(stored(stage, "count").as_deref(), Some("3"));
    assert_eq!(queue(stage, IN).counts().since_start.acked, 1);
}

pub async fn reruns_are_bounded(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    let leased = lease(stage, "count").await;
    let mut other = counts_too(stage.state.clone());
    let (result, reruns) = handle(&attack, &leased, Box::new(move |_| other())).await;
    is(result, Code::Conflict);
    assert!(reruns > 0);
    assert_eq!(stored(stage, "count"), Some((reruns + 1).to_string()), "only the others counted");
    assert_eq!(queue(stage, IN).counts().leased, 1, "it can be tried again later");
}

pub async fn what_was_popped_comes_back_on_failure(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    assert_eq!(attack.call("pop").await.unwrap(), "nothing");
    push(&stage.state, OUT, "one").await;
    is(attack.call("pop-then-trap").await, Code::UnitTrapped);
    assert_eq!(ready(stage, OUT), ["one"]);
    assert_eq!(attack.call("pop").await.unwrap(), "one");
    assert_eq!(attack.call("pop").await.unwrap(), "nothing");
}

pub async fn a_full_queue_refuses(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    queue(stage, OUT).configure(QueueConfig { events_max: 2, ..QueueConfig::default() });
    assert_eq!(attack.call("push 2").await.unwrap(), "pushed");
    let problem = attack.call("push 1").await.unwrap_err();
    assert_eq!(problem.code, Code::UnitRetry, "the handler was told, and asks to be tried again: {problem}");
    // What one handling alone would push too much is found when it commits.
    queue(stage, OUT).configure(QueueConfig { events_max: 4, ..QueueConfig::default() });
    is(attack.call("push 3").await, Code::QueueFull);
    assert_eq!(queue(stage, OUT).counts().ready, 2, "all or nothing");
}

pub async fn events_at_once_are_each_handled_once(stage: &Stage<'_>) {
    let attack = stage.attack(granted);
    for _ in 0..20 {
        push(&stage.state, IN, "count").await;
    }
    while queue(stage, IN).counts().ready > 0 {
        let leased = queue(stage, IN).lease(NOW_MS, UNTIL_MS, 20).unwrap();
        let handlings = leased.into_iter().map(|leased| {
            let (attack, queue, leased) = (attack.clone(), queue(stage, IN), Arc::new(leased));
            tokio::spawn(async move {
                if handle(&attack, &leased, undisturbed()).await.0.is_err() {
                    queue.release(leased.lease);
                }
            })
        });
        for handling in handlings.collect::<Vec<_>>() {
            handling.await.expect("it ran");
        }
    }
    assert_eq!(stored(stage, "count").as_deref(), Some("20"));
    assert_eq!(queue(stage, IN).counts().since_start.acked, 20);
}
