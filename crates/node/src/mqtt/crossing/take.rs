//! Takes what has come from other nodes, one after the other: messages into the broker, and what others want.

use super::far::Arrived;
use super::leaving;
use super::letter::{Crossed, Published, QUEUE, read};
use super::wanted::Wanted;
use crate::mail::{Mail, node_of_source};
use crate::{Node, clock};
use fleet_trust::NodeId;
use gate_mqtt::broker::View;
use gate_mqtt::{Changes, Delivery, Node as _, Refused};
use problem::{Code, Problem};
use state::{Failed, Leased, Queue, Transaction};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long one may take.
const LEASE_MS: u64 = 60_000;
/// How long all rest when one is refused.
const REST: Duration = Duration::from_millis(100);
/// How often is looked for what was put back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Tries after which a message that is refused is not retained any more: there may be no room for it ever.
const RETAIN_TRIES_MAX: u32 = 100;

/// What became of the next one.
enum Took {
    One,
    Nothing,
    /// It is refused, and tried again.
    NotNow(Problem),
}

pub async fn keep_taking(node: Weak<Node>) {
    let opened = node.upgrade().map(|node| node.events.state().queue(QUEUE));
    let queue = match opened {
        Some(Ok(queue)) => queue,
        Some(Err(problem)) => return tracing::error!(%problem, "nothing of MQTT comes from other nodes"),
        None => return,
    };
    let (mut news, mut tries) = (queue.watch(), 0);
    loop {
        news.borrow_and_update();
        let took = {
            let Some(node) = node.upgrade() else { return };
            take_next(&node, &queue, tries)
        };
        match took {
            Took::One => {
                tries = 0;
                tokio::task::consume_budget().await;
            }
            Took::Nothing => {
                // What was put back becomes due without news.
                let wait = if queue.counts().delayed > 0 { LOOK_AGAIN } else { Duration::MAX };
                if matches!(timeout(wait, news.changed()).await, Ok(Err(_))) {
                    return;
                }
            }
            Took::NotNow(problem) => {
                tracing::debug!(%problem, "MQTT of other nodes waits");
                tries += 1;
                sleep(REST).await;
            }
        }
    }
}

fn take_next(node: &Node, queue: &Queue, tries: u32) -> Took {
    let now_ms = clock::now_ms();
    let leased = match queue.lease(now_ms, now_ms + LEASE_MS, 1) {
        Ok(leased) => leased.into_iter().next(),
        Err(problem) => return Took::NotNow(problem),
    };
    let Some(leased) = leased else { return Took::Nothing };
    let taken = match (read(&leased.event), node_of_source(&leased.event.source)) {
        (Some(Crossed::Message(message)), Some(_)) => take_message(node, &leased, &message, tries),
        (Some(Crossed::Wanted(wanted)), Some(from)) => learn(node, &leased, from, wanted),
        _ => die(node, &leased, &Problem::new(Code::FleetMessage, "it is nothing that MQTT can use")),
    };
    match taken {
        Ok(()) => Took::One,
        Err(problem) if matches!(problem.code, Code::EventInvalid | Code::EventTooLarge) => {
            die(node, &leased, &problem).map_or_else(Took::NotNow, |()| Took::One)
        }
        Err(problem) => {
            queue.release(leased.lease);
            Took::NotNow(problem)
        }
    }
}

/// It can never be taken.
fn die(node: &Node, leased: &Leased, why: &Problem) -> Result<(), Problem> {
    let reason = format!("{} {}", why.code, why.detail);
    end(node, |transaction| {
        transaction.fail(leased, Failed::Dead { reason });
        Ok(())
    })
}

/// One transaction; nobody waits for the disk: what is undone by a power cut is done again.
fn end(node: &Node, work: impl FnOnce(&mut Transaction) -> Result<(), Problem>) -> Result<(), Problem> {
    let mut transaction = node.events.state().begin();
    work(&mut transaction)?;
    let _ticket = transaction.commit()?;
    Ok(())
}

fn take_message(node: &Node, leased: &Leased, message: &Published, tries: u32) -> Result<(), Problem> {
    if node.config.mqtt.is_some() && node.mqtt.get().is_none() {
        return Err(Problem::new(Code::MailWaits, "the MQTT gate has not started"));
    }
    if message.head.is_old && message.head.put_back == 0 && is_outdated(node, message) {
        return end(node, |transaction| {
            transaction.ack(leased);
            Ok(())
        });
    }
    let Published { head, qos, lasting, payload } = message;
    let retain = head.retain && tries < RETAIN_TRIES_MAX;
    if retain != head.retain && tries == RETAIN_TRIES_MAX {
        tracing::warn!(topic = head.topic, "a message of another node finds no room to be retained");
    }
    let expires_ms = head.left_ms.map(|left| clock::now_ms().saturating_add(left));
    let view = View { topic: &head.topic, payload, lasting, qos: *qos, expires_ms };
    let user: Option<Arc<str>> = head.user.as_deref().map(Into::into);
    let arrived = Arrived {
        token: "$fleet".into(),
        client: head.client.clone(),
        user: user.clone(),
        queues: head.queues.clone(),
        put_back: head.put_back,
        leased: leased.clone(),
    };
    // Its clients have had what was put back.
    let gate = node.mqtt.get().and_then(|mqtt| mqtt.gate()).filter(|_| head.put_back == 0);
    let published = node.gate_node.far.while_arriving(arrived, |token| match gate {
        Some(gate) => gate.publish_soon(view, retain, token),
        None => {
            let delivery =
                Delivery { message: Arc::new(view.to_message()), client: token.clone(), user, retain: false };
            node.gate_node.commit(&Changes { records: Vec::new(), events: vec![delivery] })
        }
    });
    published.map(drop).map_err(|refused| match refused {
        Refused::QueueFull(problem) | Refused::Unavailable(problem) => problem,
    })
}

/// Whether what was retained elsewhere before it was wanted here is nothing new. What was published here stays.
fn is_outdated(node: &Node, message: &Published) -> bool {
    let Some(gate) = node.mqtt.get().and_then(|mqtt| mqtt.gate()) else { return true };
    let topic = &message.head.topic;
    let known = gate.with_retained(&BTreeSet::from([topic.clone()]), |found| found.into_iter().next());
    known.is_some_and(|known| known.payload() == message.payload || !node.gate_node.far.is_copy(topic))
}

/// A node wants other topics than before: what is retained here under new ones goes there first.
fn learn(node: &Node, leased: &Leased, from: NodeId, wanted: Wanted) -> Result<(), Problem> {
    let far = &node.gate_node.far;
    let Some(mail) = node.events.mail() else { return Err(Problem::new(Code::NoFleet, "there is no mail")) };
    let before = far.wanted(&from);
    far.set_wanted(from, wanted.clone());
    let new: BTreeSet<String> = wanted.filters.difference(&before.filters).cloned().collect();
    let done = send_retained(node, &mail, from, &new).and_then(|()| {
        end(node, |transaction| {
            far.keep(transaction, from, &wanted)?;
            transaction.ack(leased);
            Ok(())
        })
    });
    done.inspect_err(|_| far.set_wanted(from, before))
}

fn send_retained(node: &Node, mail: &Mail, to: NodeId, filters: &BTreeSet<String>) -> Result<(), Problem> {
    let gate = node.mqtt.get().and_then(|mqtt| mqtt.gate());
    let Some(gate) = gate.filter(|_| !filters.is_empty()) else { return Ok(()) };
    let far = &node.gate_node.far;
    // No later message of a topic may overtake the retained one.
    gate.with_retained(filters, |messages| {
        let own = messages.iter().filter(|message| !message.topic().starts_with('$') && !far.is_copy(message.topic()));
        let letters: Vec<_> =
            own.filter_map(|message| leaving::retained(message, &to, &node.gate_node.next_id())).collect();
        letters.chunks(leaving::AT_ONCE_MAX).try_for_each(|some| {
            let posted = mail.post_with(some, |more| {
                let mut transaction = node.events.state().begin();
                more(&mut transaction)?;
                Ok::<_, Problem>(transaction.commit()?)
            });
            let full = |error: ::mail::PushError| Problem::new(Code::MailWaits, error.to_string());
            posted.map_err(full)?.map(drop)
        })
    })
}
