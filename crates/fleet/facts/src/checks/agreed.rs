//! Facts are set by one at a time, whoever else tries.

use super::{Ground, anchor, key, name, prefix};
use crate::{Facts, Key, NotSet, Revision, VALUE_BYTES_MAX};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

pub async fn read_as_set(on: &dyn Ground) {
    let facts = anchor(on).await;
    let key = key("check.read");
    assert_eq!(facts.get(&key).await, Ok(None), "before it is set");
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut last = None;
    for value in [b"first".as_slice(), b"", &every_byte] {
        let revision = facts.set(&key, last, Some(value)).await.expect("nothing else writes it");
        assert!(Some(revision) > last, "{revision:?} comes after {last:?}");
        let fact = facts.get(&key).await.expect("the engine is there").expect("it is set");
        assert_eq!((fact.key, fact.value.as_slice(), fact.revision), (key.clone(), value, revision));
        last = Some(revision);
    }
}

pub async fn one_creates(on: &dyn Ground) {
    let (one, other) = (anchor(on).await, on.node(&name("other-anchor"), true).await);
    for round in 0..10 {
        let key = key(&format!("check.create.{round}"));
        let made = both(one.set(&key, None, Some(b"one")), other.set(&key, None, Some(b"other"))).await;
        let fact = one.get(&key).await.expect("the engine is there").expect("it is set");
        match made {
            (Ok(revision), Err(NotSet::Changed)) => assert_eq!((fact.value, fact.revision), (b"one".into(), revision)),
            (Err(NotSet::Changed), Ok(revision)) => {
                assert_eq!((fact.value, fact.revision), (b"other".into(), revision))
            }
            other => panic!("one creates it and one hears that it is there: {other:?}"),
        }
    }
}

pub async fn old_changes_nothing(on: &dyn Ground) {
    let facts = anchor(on).await;
    let key = key("check.old");
    let first = facts.set(&key, None, Some(b"1")).await.expect("it is new");
    let second = facts.set(&key, Some(first), Some(b"2")).await.expect("nothing else writes it");
    for old in [Some(first), None, Some(Revision(second.0 + 1))] {
        assert_eq!(facts.set(&key, old, Some(b"3")).await, Err(NotSet::Changed), "{old:?}");
        assert_eq!(facts.set(&key, old, None).await, Err(NotSet::Changed), "{old:?}");
    }
    let fact = facts.get(&key).await.expect("the engine is there").expect("it is set");
    assert_eq!((fact.value.as_slice(), fact.revision), (b"2".as_slice(), second));
}

pub async fn deleted_is_gone(on: &dyn Ground) {
    let facts = anchor(on).await;
    let key = key("check.deleted.one");
    let made = facts.set(&key, None, Some(b"1")).await.expect("it is new");
    let deleted = facts.set(&key, Some(made), None).await.expect("nothing else writes it");
    assert!(deleted > made);
    assert_eq!(facts.get(&key).await, Ok(None));
    assert_eq!(facts.list(&prefix("check.deleted")).await, Ok(Vec::new()));
    assert_eq!(facts.set(&key, Some(made), Some(b"2")).await, Err(NotSet::Changed), "it is gone");
    let again = facts.set(&key, None, Some(b"2")).await.expect("there is none");
    assert!(again > deleted);
    assert_eq!(facts.get(&key).await.expect("the engine is there").map(|fact| fact.value), Some(b"2".into()));
}

pub async fn listed_by_prefix(on: &dyn Ground) {
    let facts = anchor(on).await;
    for text in ["check.list.b", "check.list.a.x", "check.list.a", "check.lists", "check.list"] {
        facts.set(&key(text), None, Some(text.as_bytes())).await.expect("it is new");
    }
    let listed = facts.list(&prefix("check.list")).await.expect("the engine is there");
    let found: Vec<_> = listed.iter().map(|fact| (fact.key.as_str(), fact.value.as_slice())).collect();
    let expected = ["check.list.a", "check.list.a.x", "check.list.b"].map(|text| (text, text.as_bytes()));
    assert_eq!(found, expected);
    assert_eq!(facts.list(&prefix("check.nothing")).await, Ok(Vec::new()));
}

pub async fn counted_together(on: &dyn Ground) {
    const EACH: u64 = 20;
    let (one, other) = (anchor(on).await, on.node(&name("other-anchor"), true).await);
    let key = key("check.count");
    both(count(&*one, &key, EACH), count(&*other, &key, EACH)).await;
    let fact = one.get(&key).await.expect("the engine is there").expect("it is set");
    assert_eq!(fact.value, (2 * EACH).to_string().as_bytes());
}

/// Adds one, `times` times, whatever another one adds meanwhile.
async fn count(facts: &(impl Facts + ?Sized), key: &Key, times: u64) {
    let mut added = 0;
    while added < times {
        let fact = facts.get(key).await.expect("the engine is there");
        let before =
            fact.as_ref().map_or(0, |fact| String::from_utf8_lossy(&fact.value).parse::<u64>().expect("a count"));
        let value = (before + 1).to_string();
        match facts.set(key, fact.map(|fact| fact.revision), Some(value.as_bytes())).await {
            Ok(_) => added += 1,
            Err(NotSet::Changed) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

pub async fn own_record_only(on: &dyn Ground) {
    let (own, anchor) = (name("checked"), anchor(on).await);
    let node = on.node(&own, false).await;
    let revision = node.set(&key("node.checked"), None, Some(b"mine")).await.expect("it is its own");
    for text in ["node.another", "home.checked", "plan.checked"] {
        assert_eq!(node.set(&key(text), None, Some(b"not mine")).await, Err(NotSet::Refused), "{text}");
        assert_eq!(anchor.get(&key(text)).await, Ok(None), "{text}");
    }
    anchor.set(&key("node.checked"), Some(revision), None).await.expect("an anchor may");
}

pub async fn value_bounded(on: &dyn Ground) {
    let facts = anchor(on).await;
    let key = key("check.large");
    let large = vec![7; VALUE_BYTES_MAX + 1];
    assert_eq!(facts.set(&key, None, Some(&large)).await, Err(NotSet::TooLarge(large.len())));
    facts.set(&key, None, Some(&large[1..])).await.expect("it is within the bound");
    let fact = facts.get(&key).await.expect("the engine is there").expect("it is set");
    assert_eq!(fact.value, large[1..]);
}

/// Waits for two at once.
pub async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(|context| {
        poll_into(a.as_mut(), &mut of_a, context);
        poll_into(b.as_mut(), &mut of_b, context);
        if of_a.is_some() && of_b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (of_a.expect("it has ended"), of_b.expect("it has ended"))
}

fn poll_into<T>(future: Pin<&mut impl Future<Output = T>>, into: &mut Option<T>, context: &mut Context<'_>) {
    if into.is_none()
        && let Poll::Ready(value) = future.poll(context)
    {
        *into = Some(value);
    }
}
