//! Every few seconds: how are the others, what do they have, and how far away are they?
//!
//! A question says how the asker is, and which revision of what it has. So of two nodes one asks and both know; who was
//! asked meanwhile, and knows that revision, asks only now and then, to measure the way.

use crate::fields::{self, OFFERS, REPORT};
use crate::limits::{CELL_MAX, CONNECT_TIMEOUT, LATE_MAX, OFFERS_BYTES_MAX, REPORT_INTERVAL, ROUNDS_UNASKED_MAX};
use crate::link::Link;
use crate::local::{Local, Offers};
use crate::reply::{CallHold, FarReply};
use budget::Purpose;
use fleet_trust::NodeId;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Limited};
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::{sleep, timeout};

/// A member has asked this node how it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedBy {
    pub at: Instant,
    /// The revision of what it has, if it has said that.
    pub revision: Option<u64>,
}

/// What is known of what a member has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Learned {
    revision: u64,
    /// Rounds since it was asked.
    unasked: u32,
}

impl Learned {
    /// Whether a member need not be asked in this round: it has asked meanwhile, and has what is known.
    fn is_enough(&self, asked: Option<&AskedBy>, now: Instant) -> bool {
        asked.is_some_and(|asked| {
            let is_fresh = now.saturating_duration_since(asked.at) <= REPORT_INTERVAL;
            is_fresh && asked.revision == Some(self.revision) && self.unasked < ROUNDS_UNASKED_MAX
        })
    }
}

/// What a question to a member came to.
struct Heard {
    node: NodeId,
    /// It is of the cell: what it has is learned.
    is_near: bool,
    /// What it has, if that is not what was known. None: it has not answered in time.
    said: Option<Result<Option<Offers>, Problem>>,
}

/// What one round leaves to the next ones.
#[derive(Default)]
struct Rounds {
    turn: usize,
    /// What others have.
    known: BTreeMap<NodeId, Learned>,
    /// Who has not answered yet, and is not asked again until then.
    asked: BTreeSet<NodeId>,
    /// Who has not answered in time, and how often in a row.
    late: BTreeMap<NodeId, u32>,
}

impl<L: Local> Link<L> {
    /// Asks the members near this one for their reports until it is dropped. They hear this node's with the question.
    /// What one says counts as soon as it is there: another one may take its time.
    pub async fn keep_hearing(self: Arc<Self>) {
        let (mut rounds, mut asking) = (Rounds::default(), FuturesUnordered::new());
        loop {
            for (node, is_near) in self.round(&mut rounds) {
                let known = rounds.known.get(&node).map(|learned| learned.revision);
                rounds.asked.insert(node);
                asking.push(self.hear(node, is_near, known));
            }
            let mut chance = [0];
            // Without a random number all nodes ask as seldom.
            let _ = getrandom::fill(&mut chance);
            let mut rest = pin!(sleep(REPORT_INTERVAL - REPORT_INTERVAL * u32::from(chance[0]) / 1_024));
            loop {
                tokio::select! {
                    () = &mut rest => break,
                    Some(heard) = asking.next() => self.heard(heard, &mut rounds),
                }
            }
        }
    }

    /// Whom to ask in a round, and whether each of them is of the cell. Of those beyond, it is the one whose turn it
    /// is: that measures the way.
    fn round(&self, rounds: &mut Rounds) -> Vec<(NodeId, bool)> {
        let others = self.dialer.members.others();
        self.pools.lock().retain(|node, pool| {
            let stays = others.contains(node);
            if !stays {
                pool.close();
                self.known.forget(node);
            }
            stays
        });
        self.local.forget_others(&others);
        self.asked_by.lock().retain(|node, _| others.contains(node));
        let Ring { mut cell, beyond } = ring(self.dialer.trust.node(), others);
        rounds.known.retain(|node, _| cell.contains(node));
        rounds.late.retain(|node, _| cell.contains(node));
        let far = beyond.get(rounds.turn % beyond.len().max(1)).copied();
        rounds.turn = rounds.turn.wrapping_add(1);
        cell.retain(|node| !rounds.asked.contains(node));
        self.leave_out(&mut cell, &mut rounds.known);
        let near = cell.into_iter().map(|node| (node, true));
        near.chain(far.filter(|node| !rounds.asked.contains(node)).map(|node| (node, false))).collect()
    }

    /// A member has answered, or has not.
    fn heard(&self, Heard { node, is_near, said }: Heard, rounds: &mut Rounds) {
        rounds.asked.remove(&node);
        match said {
            Some(Ok(offers)) => {
                rounds.late.remove(&node);
                self.local.reached(node);
                match offers {
                    Some(offers) if is_near => {
                        rounds.known.insert(node, Learned { revision: offers.revision, unasked: 0 });
                        self.local.learn(node, offers);
                    }
                    _ => _ = rounds.known.get_mut(&node).map(|learned| learned.unasked = 0),
                }
            }
            Some(Err(problem)) => {
                tracing::debug!(%node, %problem, "no report of a node");
                rounds.late.remove(&node);
                self.known.forget(&node);
            }
            None => {
                let times = rounds.late.get(&node).map_or(1, |times| times + 1);
                rounds.late.insert(node, times);
                tracing::debug!(%node, times, "a node has not said in time how it is");
                if !is_near || times >= LATE_MAX {
                    self.known.forget(&node);
                }
            }
        }
    }

    /// Leaves out those of which enough is known.
    fn leave_out(&self, cell: &mut Vec<NodeId>, known: &mut BTreeMap<NodeId, Learned>) {
        let (asked_by, now) = (self.asked_by.lock(), Instant::now());
        cell.retain(|node| {
            let Some(learned) = known.get_mut(node) else { return true };
            let is_enough = learned.is_enough(asked_by.get(node), now);
            learned.unasked += u32::from(is_enough);
            !is_enough
        });
    }

    /// Asks one node how it is.
    async fn hear(&self, node: NodeId, is_near: bool, known: Option<u64>) -> Heard {
        Heard { node, is_near, said: timeout(CONNECT_TIMEOUT * 2, self.ask(node, known)).await.ok() }
    }

    async fn ask(&self, node: NodeId, known: Option<u64>) -> Result<Option<Offers>, Problem> {
        let lane = self.pool(node).lane(&self.dialer).await?;
        let lost = |what: String| Problem::new(Code::MemberAway, format!("the node {node}: {what}"));
        let mut request = Request::new(());
        *request.uri_mut() = http::Uri::from_static("http://fleet.invalid/");
        let headers = request.headers_mut();
        headers.insert(REPORT, fields::write_report(&self.local.report()));
        headers.insert(OFFERS, fields::write_revisions(known, self.local.offers().revision));
        let began = Instant::now();
        let ended = |error: h2::Error| lost(error.to_string());
        let mut sender = lane.wire.sender.clone().ready().await.map_err(ended)?;
        let (response, _) = sender.send_request(request, true).map_err(ended)?;
        let response = response.await.map_err(ended)?;
        let round_trip = began.elapsed().as_secs_f64();
        let garbled = || Problem::new(Code::FleetMessage, format!("the node {node} does not say how it is"));
        let report = fields::read_report(response.headers()).ok_or_else(garbled)?;
        let revision = fields::read_revision(response.headers()).ok_or_else(garbled)?;
        self.known.hear(node, report, Some(round_trip.max(fields::SECONDS_MIN)));
        if known == Some(revision) {
            return Ok(None);
        }
        let mut share = self.dialer.budget.share(Purpose::Bodies);
        share.grow(OFFERS_BYTES_MAX as u64)?;
        let room = lane.wire.room.call(&HeaderMap::new(), true)?;
        let held = CallHold { _permit: lane.permit, _room: room, _pumping: None };
        let whole = Limited::new(FarReply::of(response, held).into_body(), OFFERS_BYTES_MAX).collect().await;
        let bytes = whole.map_err(|error| lost(error.to_string()))?.to_bytes();
        Ok(Some(Offers { revision, bytes }))
    }
}

/// Members as they come after a node when all stand in a ring, up to half of it. To the others it comes after them.
struct Ring {
    /// Those that are asked all the time: each node is asked by as many.
    cell: Vec<NodeId>,
    /// Those that are asked in turn.
    beyond: Vec<NodeId>,
}

fn ring(me: NodeId, mut others: Vec<NodeId>) -> Ring {
    others.retain(|node| *node != me);
    others.sort_unstable();
    others.dedup();
    let after = others.partition_point(|node| *node < me);
    others.rotate_left(after);
    let half = others.len().div_ceil(2);
    let beyond = others.get(CELL_MAX..half).unwrap_or_default().to_vec();
    others.truncate(CELL_MAX);
    Ring { cell: others, beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_nodes_one_asks_and_the_other_only_now_and_then() {
        let begin = Instant::now();
        let asked = |revision| AskedBy { at: begin, revision };
        let learned = Learned { revision: 7, unasked: 0 };
        assert!(!learned.is_enough(None, begin));
        assert!(learned.is_enough(Some(&asked(Some(7))), begin + REPORT_INTERVAL));
        let late = REPORT_INTERVAL + std::time::Duration::from_millis(1);
        assert!(!learned.is_enough(Some(&asked(Some(7))), begin + late), "it has fallen silent");
        assert!(!learned.is_enough(Some(&asked(Some(8))), begin), "it has something new");
        assert!(!learned.is_enough(Some(&asked(None)), begin), "nobody knows what it has");
        let unasked = Learned { unasked: ROUNDS_UNASKED_MAX, ..learned };
        assert!(!unasked.is_enough(Some(&asked(Some(7))), begin), "the way is to be measured");
    }

    #[test]
    fn each_node_of_a_large_fleet_is_asked_by_as_many() {
        let all: Vec<NodeId> = (0..=255).map(|number| NodeId([number; 16])).collect();
        let mut asked: BTreeMap<NodeId, usize> = BTreeMap::new();
        for me in &all {
            let Ring { cell, beyond } = ring(*me, all.clone());
            assert!(!cell.contains(me) && beyond.len() == 128 - CELL_MAX);
            cell.into_iter().for_each(|node| *asked.entry(node).or_default() += 1);
        }
        assert!(asked.len() == all.len() && asked.values().all(|count| *count == CELL_MAX));
        assert_eq!(ring(all[3], all[..4].to_vec()).cell, all[..3]);
    }

    #[test]
    fn each_pair_is_measured_from_one_end_at_least() {
        for count in [2, 33, 34, 64, 65, 66, 100, 255] {
            let all: Vec<NodeId> = (0..count).map(|number| NodeId([number; 16])).collect();
            let of = |me: &NodeId| {
                let Ring { cell, beyond } = ring(*me, all.clone());
                assert!(beyond.is_empty() || cell.len() == CELL_MAX);
                assert_eq!(beyond.is_empty(), usize::from(count) <= 2 * CELL_MAX + 1, "{count}");
                BTreeSet::from_iter(cell.into_iter().chain(beyond))
            };
            let asked: Vec<BTreeSet<NodeId>> = all.iter().map(of).collect();
            for (one, other) in (0..all.len()).flat_map(|one| (0..one).map(move |other| (one, other))) {
                assert!(
                    asked[one].contains(&all[other]) || asked[other].contains(&all[one]),
                    "{one} {other} of {count}"
                );
            }
        }
    }
}
