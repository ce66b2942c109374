//! A watch tells what is true in the end, and in order.

use super::{Ground, anchor, key, prefix};
use crate::{Fact, News};
use std::collections::BTreeMap;

pub async fn in_order(on: &dyn Ground) {
    let facts = anchor(on).await;
    let (a, b, elsewhere) = (key("check.watch.a"), key("check.watch.b"), key("check.watched.a"));
    let old = facts.set(&a, None, Some(b"1")).await.expect("it is new");
    let mut watch = facts.watch(&prefix("check.watch"));
    let all = vec![Fact { key: a.clone(), value: b"1".into(), revision: old }];
    assert_eq!(watch.next().await, News::All(all));
    facts.set(&elsewhere, None, Some(b"not told")).await.expect("it is new");
    let new = facts.set(&b, None, Some(b"2")).await.expect("it is new");
    assert_eq!(watch.next().await, News::Set(Fact { key: b, value: b"2".into(), revision: new }));
    let deleted = facts.set(&a, Some(old), None).await.expect("nothing else writes it");
    assert_eq!(watch.next().await, News::Deleted(a.clone(), deleted));
    let again = facts.set(&a, None, Some(b"3")).await.expect("there is none");
    assert_eq!(watch.next().await, News::Set(Fact { key: a, value: b"3".into(), revision: again }));
}

pub async fn slowly(on: &dyn Ground) {
    const KEYS: u64 = 5;
    let facts = anchor(on).await;
    let mut watch = facts.watch(&prefix("check.slow"));
    assert_eq!(watch.next().await, News::All(Vec::new()));
    let mut last = BTreeMap::new();
    for change in 0..40 {
        let key = key(&format!("check.slow.{}", change % KEYS));
        let revision =
            facts.set(&key, last.get(&key).copied(), Some(change.to_string().as_bytes())).await.expect("nothing else");
        last.insert(key, revision);
    }
    let mut told = BTreeMap::new();
    let mut before = None;
    while told != last {
        let News::Set(fact) = watch.next().await else { panic!("nothing was deleted, and nothing was missed") };
        assert!(Some(fact.revision) > before, "{fact:?} comes after {before:?}");
        before = Some(fact.revision);
        told.insert(fact.key, fact.revision);
    }
}
