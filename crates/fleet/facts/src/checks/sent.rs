//! Messages arrive, and say who sent them.

use super::{Ground, name};
use crate::{Heard, MESSAGE_BYTES_MAX, NodeName, NotSent, Post};
use std::collections::BTreeSet;

pub async fn as_sent(on: &dyn Ground) {
    let (from, to) = (name("sender"), name("receiver"));
    let (sender, receiver) = (on.node(&from, false).await, on.node(&to, false).await);
    let messages =
        [0, 1, 1_000, MESSAGE_BYTES_MAX].map(|bytes| (0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    let mut missing = BTreeSet::new();
    for message in &messages {
        sender.send(&to, message).await.expect("the engine takes it");
        missing.insert(message);
    }
    while !missing.is_empty() {
        let (by, bytes) = heard(&*receiver).await;
        // Each may come twice, and in any order.
        assert!(by == from && messages.contains(&bytes), "{} bytes are not as they were sent", bytes.len());
        missing.remove(&bytes);
    }
    let large = vec![7; MESSAGE_BYTES_MAX + 1];
    assert_eq!(sender.send(&to, &large).await, Err(NotSent::TooLarge(large.len())));
}

pub async fn to_away(on: &dyn Ground) {
    let (from, to) = (name("sender"), name("away"));
    let sender = on.node(&from, false).await;
    for number in 0..20 {
        sender.send(&to, &[number]).await.expect("the engine takes it");
    }
    let receiver = on.node(&to, false).await;
    let mut missing: BTreeSet<u8> = (0..20).collect();
    while !missing.is_empty() {
        let (by, bytes) = heard(&*receiver).await;
        assert_eq!((by, bytes.len()), (from.clone(), 1));
        missing.remove(&bytes[0]);
    }
}

pub async fn from_many(on: &dyn Ground) {
    let to = name("many");
    let receiver = on.node(&to, false).await;
    let mut missing = BTreeSet::new();
    for sender in ["many-1", "many-2", "many-3"].map(name) {
        let node = on.node(&sender, false).await;
        for number in 0..50 {
            node.send(&to, &[number]).await.expect("the engine takes it");
            missing.insert((sender.clone(), vec![number]));
        }
    }
    while !missing.is_empty() {
        missing.remove(&heard(&*receiver).await);
    }
}

async fn heard(node: &(impl Post + ?Sized)) -> (NodeName, Vec<u8>) {
    loop {
        if let Heard::Message { from, bytes } = node.receive().await {
            return (from, bytes);
        }
    }
}
