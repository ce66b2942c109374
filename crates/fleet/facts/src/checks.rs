//! What every implementation of [`Facts`] and [`Post`] must do, on an engine without faults.
//!
//! Each check has keys and nodes of its own, so that all may run on one engine. A check panics with what is wrong; how
//! long it may take, its caller decides.

mod agreed;
mod sent;
mod watched;

use crate::{Answer, Facts, Key, NodeName, Post, Prefix};
use std::sync::Arc;

/// One node's way to the engine.
pub trait Way: Facts + Post {}

impl<T: Facts + Post> Way for T {}

/// Where checks run: an engine, and ways of nodes to it.
pub trait Ground: Sync {
    /// The way of the node `name`, and of one more life of it if it had one before.
    fn node<'a>(&'a self, name: &'a NodeName, is_anchor: bool) -> Answer<'a, Arc<dyn Way>>;
}

/// A name that says what is claimed, and what panics if it is not true.
pub type Check = (&'static str, fn(&dyn Ground) -> Answer<'_, ()>);

/// Every check.
pub const ALL: [Check; 13] = [
    ("a fact is read as it was set", |on| Box::pin(agreed::read_as_set(on))),
    ("of two who create a fact one does", |on| Box::pin(agreed::one_creates(on))),
    ("an old revision changes nothing", |on| Box::pin(agreed::old_changes_nothing(on))),
    ("a deleted fact is gone and can be made again", |on| Box::pin(agreed::deleted_is_gone(on))),
    ("a list has the facts of its prefix", |on| Box::pin(agreed::listed_by_prefix(on))),
    ("counting together loses no count", |on| Box::pin(agreed::counted_together(on))),
    ("a node writes its own record only", |on| Box::pin(agreed::own_record_only(on))),
    ("a value has its bound", |on| Box::pin(agreed::value_bounded(on))),
    ("a watch begins with all, and tells of changes in order", |on| Box::pin(watched::in_order(on))),
    ("a watch that is not asked misses no last change", |on| Box::pin(watched::slowly(on))),
    ("a message arrives as it was sent, with its sender", |on| Box::pin(sent::as_sent(on))),
    ("what is sent to a node that is away arrives later", |on| Box::pin(sent::to_away(on))),
    ("all messages of several nodes arrive", |on| Box::pin(sent::from_many(on))),
];

fn key(text: &str) -> Key {
    Key::new(text).expect("it is a key")
}

fn prefix(text: &str) -> Prefix {
    Prefix::new(text).expect("it is a prefix")
}

async fn anchor(on: &dyn Ground) -> Arc<dyn Way> {
    on.node(&name("anchor"), true).await
}

fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("it is a name")
}
