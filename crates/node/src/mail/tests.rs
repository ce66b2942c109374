//! Two nodes of a fleet, and a queue that has its home on one of them.

use crate::fleet::engine::{EngineStatus, EngineWay, ForEngine};
use crate::link::tests::town::TownNode;
use crate::mail::UNDELIVERABLE;
use crate::mail::names::household;
use ::mail::{Chain, Letter, Mark, Message, Parcel, Verdict};
use bytes::Bytes;
use event::Event;
use facts::{Answer, Facts, Memory, MemoryNode, NodeName, Post};
use fleet_trust::NodeId;
use problem::Code;
use state::{Listed, Part, Push};
use std::sync::Arc;
use std::time::Duration;

/// Both nodes deploy it.
const READINGS: &str = "[queue.readings]\nhome = \"two\"\n";

pub struct Pair {
    pub one: TownNode,
    pub two: TownNode,
}

impl Pair {
    /// Nodes that know each other, have handlers at work, and have nothing deployed.
    pub async fn new() -> Self {
        Self::with(|_| None).await
    }

    /// The same with an engine.
    async fn with(open: impl Fn(ForEngine) -> Option<Arc<dyn EngineWay>> + Clone + Send + Sync + 'static) -> Self {
        let (one, two) = (TownNode::start("one").await, TownNode::start("two").await);
        for node in [&one, &two] {
            crate::fleet::take_part(&node.node, open.clone());
            tokio::spawn(node.node.events.clone().run());
        }
        one.node.fleet.found("campus").await.unwrap();
        let invitation = one.node.fleet.invite(1, 3_600).await.unwrap();
        two.node.fleet.join(&invitation).await.unwrap();
        Self { one, two }
    }

    async fn deployed(text: &str) -> Self {
        let pair = Self::new().await;
        pair.two.deploy(text).await;
        pair.one.deploy(text).await;
        pair
    }

    fn id(&self) -> NodeId {
        self.one.node.fleet.status().unwrap().rows[0].node
    }

    /// Waits until so many events are in a queue of the second node.
    async fn until_there(&self, queue: &str, count: u64) {
        self.two.until(|| ready(&self.two, queue) >= count).await;
    }

    /// Waits until the first node has nothing to send any more.
    pub async fn until_sent(&self) {
        let is_sent = || {
            let mail = self.one.node.events.mail().unwrap();
            ready(&self.one, "readings") == 0 && mail.waiting_in_all().letters == 0
        };
        self.one.until(is_sent).await;
    }
}

fn push(id: &str, bytes: usize) -> Push {
    let event = Event {
        id: id.to_owned(),
        source: "/meter".to_owned(),
        kind: "reading".to_owned(),
        data: vec![7; bytes],
        ..Event::default()
    };
    Push { event, delay: Duration::ZERO, ttl: None }
}

async fn push_all(node: &TownNode, ids: std::ops::Range<usize>) {
    for id in ids {
        node.node.events.push("readings", vec![push(&id.to_string(), 10)], None).await.unwrap();
    }
}

pub fn ready(node: &TownNode, queue: &str) -> u64 {
    node.node.events.state().queue(queue).unwrap().counts().ready
}

fn listed(node: &TownNode, queue: &str, part: Part) -> Vec<Listed> {
    let queue = node.node.events.state().queue(queue).unwrap();
    queue.list(part, None, 1_000).unwrap()
}

/// The ids of the events that wait, in their order.
fn ids(node: &TownNode) -> Vec<usize> {
    listed(node, "readings", Part::Ready).iter().map(|one| one.event.id.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_pushed_here_is_in_its_queue_at_home_once_and_in_order() {
    let pair = Pair::deployed(READINGS).await;
    push_all(&pair.one, 0..300).await;
    pair.until_there("readings", 300).await;
    assert_eq!(ids(&pair.two), (0..300).collect::<Vec<_>>());
    pair.until_sent().await;
    let first = &listed(&pair.two, "readings", Part::Ready)[0].event;
    assert_eq!((first.source.as_str(), first.data.len()), ("/meter", 10));
    let info = pair.one.node.describe_queue("readings").unwrap();
    let handler = info.handler.unwrap();
    assert_eq!((handler.kind.as_str(), handler.name.as_str()), ("node", "two"));
    let page = crate::metrics::page(&pair.one.node);
    assert!(page.contains(r#"lighter_mail_letters_total{way="out"} 300"#), "{page}");
    // At home it is a queue like any other.
    push_all(&pair.two, 300..301).await;
    assert_eq!(ready(&pair.two, "readings"), 301);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_wait_for_a_node_that_is_away_and_go_on_when_it_is_back() {
    let pair = Pair::deployed(READINGS).await;
    let link = pair.two.node.link();
    let mail = pair.two.node.events.mail();
    pair.two.node.events.set_mail(None);
    push_all(&pair.one, 0..20).await;
    let waiting = || pair.one.node.events.mail().unwrap().waiting_in_all().letters;
    pair.one.until(|| waiting() == 20).await;
    assert_eq!(ready(&pair.two, "readings"), 0);
    let fleet = crate::fleet::describe(&pair.one.node, pair.one.node.fleet.status().unwrap());
    assert_eq!(fleet.nodes.iter().map(|node| node.mail_waiting).collect::<Vec<_>>(), [0, 20]);
    pair.two.node.events.set_mail(mail);
    pair.until_there("readings", 20).await;
    pair.until_sent().await;
    drop(link);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_wait_until_their_queue_is_deployed_at_home() {
    let pair = Pair::new().await;
    pair.one.deploy(READINGS).await;
    push_all(&pair.one, 0..3).await;
    let mail = pair.one.node.events.mail().unwrap();
    pair.one.until(|| mail.waiting_in_all().letters == 3).await;
    // One that is only here, or has its home elsewhere, is not opened to others by its name.
    pair.two.deploy("[queue.readings]\nhome = \"one\"\n").await;
    assert_eq!(ready(&pair.two, "readings"), 0);
    pair.two.deploy(READINGS).await;
    pair.until_there("readings", 3).await;
    assert_eq!(ids(&pair.two), [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_at_home_holds_events_back_up_to_the_producer() {
    let pair = Pair::new().await;
    pair.two.deploy(&format!("{READINGS}events_max = 3\n")).await;
    pair.one.deploy(READINGS).await;
    push_all(&pair.one, 0..8).await;
    pair.until_there("readings", 3).await;
    assert_eq!(ids(&pair.two), [0, 1, 2]);
    let mail = pair.one.node.events.mail().unwrap();
    pair.one.until(|| mail.waiting_in_all().letters == 5).await;
    let home = pair.two.node.events.state().queue("readings").unwrap();
    // What comes while a queue is purged may go with it.
    let purged = home.purge(&[Part::Ready]).await.unwrap() as usize;
    assert!((3..=8).contains(&purged), "{purged}");
    let next: Vec<usize> = (purged..8).take(3).collect();
    pair.until_there("readings", next.len() as u64).await;
    assert_eq!(ids(&pair.two), next);
    // While nothing can leave, the queue here fills, and refuses like any other.
    pair.one.node.events.pause(true, &["readings".to_owned()]).await.unwrap();
    pair.one.deploy(&format!("{READINGS}events_max = 2\n")).await;
    push_all(&pair.one, 8..10).await;
    let refused = pair.one.node.events.push("readings", vec![push("10", 10)], None).await;
    assert_eq!(refused.unwrap_err().code, Code::QueueFull);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_too_large_for_a_letter_is_a_dead_letter_here() {
    let pair = Pair::deployed(READINGS).await;
    for (id, bytes) in [("large", 600 << 10), ("small", 10)] {
        pair.one.node.events.push("readings", vec![push(id, bytes)], None).await.unwrap();
    }
    pair.until_there("readings", 1).await;
    let dead = listed(&pair.one, "readings", Part::Dead);
    assert_eq!(dead.len(), 1);
    assert!(dead[0].event.id == "large" && dead[0].reason.as_ref().unwrap().starts_with("L9302"), "{dead:?}");
}

/// A parcel with these letters as the first that one node sends to another.
fn parcel(from: NodeId, to: NodeId, letters: &[&[u8]]) -> Vec<u8> {
    let base = Mark { number: 0, chain: Chain::begin(&[1; 16]) };
    let mut before = base;
    let marked = letters.iter().map(|letter| {
        before = before.then(letter).unwrap();
        (*letter, before)
    });
    let letters = marked.collect();
    let (from, to) = (household(&from), household(&to));
    Parcel { from, to, epoch: 1, incarnation: 1, begun: 0, serial: 1, base, before: base, letters }.write()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_event_is_kept_apart_and_holds_up_nothing() {
    let pair = Pair::deployed(READINGS).await;
    let (one, two) = (pair.id(), pair.two.node.fleet.status().unwrap().rows[0].node);
    let mail = pair.two.node.events.mail().unwrap();
    let nameless = Event { id: "7".to_owned(), ..Event::default() };
    let letter = |event: Event| {
        let letter = Letter { queue: "readings".to_owned(), delay: Duration::ZERO, life: None, event };
        letter.write().unwrap()
    };
    let letters = [b"no letter".to_vec(), letter(nameless), letter(push("8", 1).event)];
    let message = parcel(one, two, &letters.each_ref().map(Vec::as_slice));
    mail.hear(&pair.two.node, one, message.clone().into()).await;
    assert_eq!((ready(&pair.two, UNDELIVERABLE), ids(&pair.two)), (2, vec![8]));
    let kept = &listed(&pair.two, UNDELIVERABLE, Part::Ready)[0].event;
    assert_eq!(kept.data, b"no letter");
    assert!(kept.attribute("deadreason").is_some());
    // The same again, and what is no mail at all, change nothing.
    for message in [&message[..], b"", b"\x8cLML nonsense"] {
        mail.hear(&pair.two.node, one, Bytes::copy_from_slice(message)).await;
    }
    assert_eq!((ready(&pair.two, UNDELIVERABLE), ids(&pair.two)), (2, vec![8]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cannot_send_or_confirm_in_the_name_of_another() {
    let pair = Pair::deployed(READINGS).await;
    let (one, two) = (pair.id(), pair.two.node.fleet.status().unwrap().rows[0].node);
    let thief = NodeId([9; 16]);
    let event =
        Letter { queue: "readings".to_owned(), delay: Duration::ZERO, life: None, event: push("stolen", 1).event };
    let forged = parcel(one, two, &[&event.write().unwrap()]);
    pair.two.node.events.mail().unwrap().hear(&pair.two.node, thief, forged.into()).await;
    assert_eq!(ready(&pair.two, "readings"), 0);

    // A letter waits for the second node; somebody else says that it has arrived.
    let mail = pair.two.node.events.mail();
    pair.two.node.events.set_mail(None);
    push_all(&pair.one, 0..1).await;
    let sender = pair.one.node.events.mail().unwrap();
    pair.one.until(|| sender.waiting_in_all().letters == 1).await;
    let mark = Mark { number: 1, chain: Chain([0; 16]) };
    let receipt = ::mail::Receipt {
        from: household(&two),
        to: household(&one),
        epoch: 1,
        epoch_answered: 1,
        incarnation: 1,
        answers: 1,
        durable: mark,
        expects: 2,
        verdict: Verdict::Taken,
    };
    assert!(matches!(Message::read(&receipt.write()), Ok(Message::Receipt(_))));
    sender.hear(&pair.one.node, thief, receipt.write().into()).await;
    assert_eq!(sender.waiting_in_all().letters, 1);
    pair.two.node.events.set_mail(mail);
    pair.until_there("readings", 1).await;
}

/// An engine in memory, which keeps mail for nodes that are away.
struct Kept(NodeName, MemoryNode);

impl EngineWay for Kept {
    fn name(&self) -> &NodeName {
        &self.0
    }

    fn facts(&self) -> Arc<dyn Facts> {
        Arc::new(self.1.clone())
    }

    fn post(&self) -> Arc<dyn Post> {
        Arc::new(self.1.clone())
    }

    fn status(&self) -> EngineStatus {
        EngineStatus { is_connected: true, process: None, trouble: None }
    }

    fn settle(&self) -> Answer<'_, ()> {
        Box::pin(async {})
    }

    fn end(&self) -> Answer<'_, ()> {
        Box::pin(async {})
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_link_leads_mail_goes_by_the_engine_and_its_losses_lose_nothing() {
    let engine = Memory::default();
    let kept = engine.clone();
    let open = move |part: ForEngine| {
        let name = super::post::name_of(&part.trust.node());
        let way = kept.node(name.clone(), part.anchor.is_some());
        Some(Arc::new(Kept(name, way)) as Arc<dyn EngineWay>)
    };
    let pair = Pair::with(open).await;
    pair.two.deploy(READINGS).await;
    pair.one.deploy(READINGS).await;
    for node in [&pair.one, &pair.two] {
        node.node.set_link(None);
    }
    push_all(&pair.one, 0..50).await;
    pair.until_there("readings", 50).await;
    pair.until_sent().await;

    // What comes now is not taken, and what the engine keeps is lost: twice the same, and nothing is missing.
    let mail = pair.two.node.events.mail();
    pair.two.node.events.set_mail(None);
    push_all(&pair.one, 50..100).await;
    pair.one.until(|| pair.one.node.events.mail().unwrap().waiting_in_all().letters == 50).await;
    engine.wipe();
    pair.two.node.events.set_mail(mail);
    pair.until_there("readings", 100).await;
    pair.until_sent().await;
    assert_eq!(ids(&pair.two), (0..100).collect::<Vec<_>>());
}
