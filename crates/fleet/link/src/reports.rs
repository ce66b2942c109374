//! Every few seconds: how are the others, what do they have, and how far away are they?

use crate::fields::{self, OFFERS, REPORT};
use crate::limits::{CELL_MAX, CONNECT_TIMEOUT, OFFERS_BYTES_MAX, REPORT_INTERVAL};
use crate::link::Link;
use crate::local::{Local, Offers};
use crate::reply::{CallHold, FarReply};
use budget::Purpose;
use fleet_trust::NodeId;
use futures_util::future::join_all;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Limited};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::{sleep, timeout};

impl<L: Local> Link<L> {
    /// Asks the members near this one for their reports until it is dropped. They hear this node's with the question.
    pub async fn keep_hearing(self: Arc<Self>) {
        let mut known = BTreeMap::new();
        loop {
            self.hear_all(&mut known).await;
            let mut chance = [0];
            // Without a random number all nodes ask as seldom.
            let _ = getrandom::fill(&mut chance);
            sleep(REPORT_INTERVAL - REPORT_INTERVAL * u32::from(chance[0]) / 1_024).await;
        }
    }

    /// One round. `known` are the revisions of what others have.
    async fn hear_all(&self, known: &mut BTreeMap<NodeId, u64>) {
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
        let cell = cell(self.dialer.trust.node(), others);
        known.retain(|node, _| cell.contains(node));
        let asked = join_all(cell.iter().map(|node| self.hear(*node, known.get(node).copied()))).await;
        for (node, heard) in cell.into_iter().zip(asked) {
            if heard.is_ok() {
                self.local.reached(node);
            }
            match heard {
                Ok(Some(offers)) => {
                    known.insert(node, offers.revision);
                    self.local.learn(node, offers);
                }
                Ok(None) => {}
                Err(problem) => {
                    tracing::debug!(%node, %problem, "no report of a node");
                    self.known.forget(&node);
                }
            }
        }
    }

    /// Asks one node how it is. Says what it has, if that is not what was known.
    async fn hear(&self, node: NodeId, known: Option<u64>) -> Result<Option<Offers>, Problem> {
        let late = |_| Problem::new(Code::MemberAway, format!("the node {node} has not answered"));
        timeout(CONNECT_TIMEOUT * 2, self.ask(node, known)).await.map_err(late)?
    }

    async fn ask(&self, node: NodeId, known: Option<u64>) -> Result<Option<Offers>, Problem> {
        let lane = self.pool(node).lane(&self.dialer).await?;
        let lost = |what: String| Problem::new(Code::MemberAway, format!("the node {node}: {what}"));
        let mut request = Request::new(());
        *request.uri_mut() = http::Uri::from_static("http://fleet.invalid/");
        let headers = request.headers_mut();
        headers.insert(REPORT, fields::write_report(&self.local.report()));
        known.inspect(|revision| _ = headers.insert(OFFERS, fields::write_revision(*revision)));
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

/// Those that come after a node when all stand in a ring: each is asked by as many.
fn cell(me: NodeId, mut others: Vec<NodeId>) -> Vec<NodeId> {
    others.retain(|node| *node != me);
    others.sort_unstable();
    others.dedup();
    let after = others.partition_point(|node| *node < me);
    others.rotate_left(after);
    others.truncate(CELL_MAX);
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_of_a_large_fleet_is_asked_by_as_many() {
        let all: Vec<NodeId> = (0..=255).map(|number| NodeId([number; 16])).collect();
        let mut asked: BTreeMap<NodeId, usize> = BTreeMap::new();
        for me in &all {
            let cell = cell(*me, all.clone());
            assert!(!cell.contains(me));
            cell.into_iter().for_each(|node| *asked.entry(node).or_default() += 1);
        }
        assert!(asked.len() == all.len() && asked.values().all(|count| *count == CELL_MAX));
        assert_eq!(cell(all[3], all[..4].to_vec()), all[..3]);
    }
}
