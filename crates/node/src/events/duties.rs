//! Who handles the events of each queue on this node: the function or sink that is deployed for it, or mail, if the
//! queue's home is another node.

use super::sources::HandledAt;
use crate::functions::{Handler, Table};
use crate::mail::Mail;
use manifest::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is done here with the events of a queue.
#[derive(Clone)]
pub enum Duty {
    /// They are handled.
    Handle(Handler),
    /// They go to the node that is the queue's home, as the manifest names it.
    Send(Arc<Mail>, String),
}

/// Each queue that has one. The events of a queue with a home wait in a node that belongs to no fleet.
pub fn all(table: &Table, mail: Option<&Arc<Mail>>) -> BTreeMap<Name, Duty> {
    let parts = table.parts().queues.iter().filter(|(_, part)| part.what.home.is_some()).map(|(name, _)| name);
    let queues: BTreeSet<&Name> = table.handlers().keys().chain(parts).collect();
    queues.into_iter().filter_map(|queue| Some((queue.clone(), of(table, queue, mail)?))).collect()
}

pub fn of(table: &Table, queue: &Name, mail: Option<&Arc<Mail>>) -> Option<Duty> {
    match (home(table, queue), mail) {
        (Some(home), Some(mail)) if !mail.is_own(home) => Some(Duty::Send(mail.clone(), home.to_owned())),
        (Some(_), None) => None,
        _ => table.handlers().get(queue).cloned().map(Duty::Handle),
    }
}

/// Where the events of a queue are handled, if anything is deployed for it.
pub fn handled_at(table: &Table, queue: &Name, mail: Option<&Mail>) -> HandledAt {
    match (home(table, queue), mail) {
        (Some(_), None) => HandledAt::Unknown,
        (Some(home), Some(mail)) if !mail.is_own(home) => HandledAt::Elsewhere,
        _ => HandledAt::Here,
    }
}

fn home<'a>(table: &'a Table, queue: &Name) -> Option<&'a str> {
    table.parts().queues.get(queue)?.what.home.as_deref()
}
