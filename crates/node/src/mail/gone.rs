//! Nodes that were taken out of the fleet: what waited for one comes back from the outbox, and becomes dead letters.
//!
//! ```text
//!   outbox ─▶ back into the queue it came from ─▶ MailConsumer: no node has the home's name any more ─▶ dead letter
//!                                                              └─▶ another one has it: a letter to that one
//! ```
//! A node that was taken out never comes back under its id. If another one joins under its name, that is the home from
//! then on, and `lighter queue replay` sends it the dead letters.

use super::desk::Desk;
use super::names::node_of;
use super::{Book, UNDELIVERABLE};
use crate::Node;
use crate::events::{PushError, Pushes};
use crate::mqtt::MQTT_QUEUE;
use ::mail::{Household, Letter};
use event::Event;
use fleet_trust::NodeId;
use problem::{Code, Problem};
use state::{Push, Pushed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// How often it is looked whether letters wait for a node that is out.
const PERIOD: Duration = Duration::from_secs(2);
/// Letters that come back in one transaction: each is a push and two writes.
const AT_ONCE_MAX: usize = 200;

/// Looks until it is dropped, or the node is gone.
pub async fn return_letters(node: Weak<Node>, desk: Arc<Desk>, book: Arc<dyn Book>) {
    loop {
        sleep(PERIOD).await;
        let Some(node) = node.upgrade() else { return };
        for to in desk.receivers() {
            if let Some(id) = node_of(&to).filter(|id| book.is_out(id)) {
                return_all(&node, &desk, &to, id).await;
            }
        }
    }
}

async fn return_all(node: &Node, desk: &Desk, to: &Household, id: NodeId) {
    let mut returned = 0;
    loop {
        match desk.return_some(node, to) {
            Ok(0) => break,
            Ok(count) => returned += count,
            // It is tried again: there may be room later.
            Err(problem) => {
                tracing::warn!(node = %id, %problem, "letters for a node that is out of the fleet stay in the outbox");
                break;
            }
        }
        tokio::task::yield_now().await;
    }
    if returned > 0 {
        let code = Code::HomeGone;
        tracing::warn!(node = %id, "{code} {returned} events for a node that is out of the fleet are back in their queues");
    }
}

impl Desk {
    /// Moves some letters back into their queues: how many.
    fn return_some(&self, node: &Node, to: &Household) -> Result<usize, Problem> {
        let sides = &mut *self.sides.lock();
        self.write_owed(sides)?;
        let Some(back) = sides.outbox.take_back(to, AT_ONCE_MAX, &self.kept) else { return Ok(0) };
        // Nobody waits for the disk: until it has this, the letters are in the outbox as before.
        let ((), _ticket) = node.events.commit(|pushes| {
            back.letters.iter().try_for_each(|letter| push_back(pushes, letter, to))?;
            Ok::<_, Problem>(self.kept.write(pushes.transaction(), &back.writes)?)
        })?;
        let count = back.letters.len();
        sides.outbox.taken_back(back);
        Ok(count)
    }
}

fn push_back(pushes: &mut Pushes<'_>, letter: &[u8], to: &Household) -> Result<(), PushError> {
    let refused = |detail: String| PushError::Refused(Problem::new(Code::StateCorrupt, detail));
    let Letter { queue, event, .. } =
        Letter::reread(letter).map_err(|error| refused(format!("a letter for {to}: {error}")))?;
    if queue == MQTT_QUEUE {
        // Clients and triggers at that node are gone with it.
        return Ok(());
    }
    let mut push = Push { event, delay: Duration::ZERO, ttl: None };
    if pushes.push(&queue.as_str().into(), &mut push, None)? == Pushed::Duplicate {
        // The queue knows it: it came from there.
        apart(&mut push.event, &queue, to);
        pushes.push(&UNDELIVERABLE.into(), &mut push, None)?;
    }
    Ok(())
}

/// Says on an event that is kept apart where it comes from, and why it is there.
fn apart(event: &mut Event, queue: &str, to: &Household) {
    let reason = format!("{} {to}, which is out of the fleet, was the home of the queue {queue}", Code::HomeGone);
    event.attributes.retain(|(name, _)| name != super::REASON);
    event.attributes.push((super::REASON.to_owned(), reason));
}
