//! What one of several anchors decides: its number is given once, and two anchors have it before anybody is told.
//!
//! ```text
//!   record ─▶ claim its serial, in the ledger of all anchors ─▶ give it to another anchor ─▶ confirm ─▶ learn it here
//! ```
//! An anchor that is alone counts by itself. Of several, the one with the least id that is there watches copies and
//! steps, and nodes talk with it; that two may think it is them does no harm, because each number is given once.

use super::desk::DEPLOYERS_NOTE;
use super::leading::BEAT;
use super::{AWAY_AFTER, Deployments};
use crate::blocking;
use bytes::Bytes;
use fleet_deploy::Record;
use fleet_deploy::talk::TALK_BYTES_MAX;
use fleet_trust::Anchor;
use fleet_trust::office::Estate;
use http::Method;
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// What the list of tokens is counted under.
const TOKENS: &str = "tokens";

impl Deployments {
    /// Has a record hold, durably: here, and at another anchor if there are several. Says which one it has become.
    ///
    /// # Errors
    /// [`Code::NotAnchor`]; [`Code::DeploymentChanged`]: another anchor came first. [`Code::AnchorsAway`]: no other
    /// one is there. [`Code::DataUnusable`].
    pub(super) async fn settle(self: &Arc<Self>, mut record: Record) -> Result<Record, Problem> {
        let desk = self.desk()?;
        let (counted, known) = (format!("record.{}", record.name), record.serial.saturating_sub(1));
        let Some(serial) = claim(desk.anchor(), counted.clone(), known).await? else {
            self.learn(desk.sign(record.clone())?).await?;
            return Ok(record);
        };
        record.serial = serial;
        let path = format!("/deployments/records/{}", record.name);
        let signed = desk.sign(record.clone())?;
        self.give_anchor(&path, Bytes::copy_from_slice(signed.bytes())).await?;
        confirm(desk.anchor(), counted, serial).await?;
        self.learn(signed).await?;
        Ok(record)
    }

    /// The number of the next list of tokens; none if this anchor counts by itself.
    pub(super) async fn claim_tokens(&self) -> Result<Option<u64>, Problem> {
        claim(self.desk()?.anchor(), TOKENS.to_owned(), self.tokens.revision()).await
    }

    /// The list with this number is known to another anchor.
    pub(super) async fn settle_tokens(&self, number: u64, list: Bytes) -> Result<(), Problem> {
        self.give_anchor("/deployments/tokens", list).await?;
        confirm(self.desk()?.anchor(), TOKENS.to_owned(), number).await
    }

    /// What anchors are to have in common from now on, as this one has it.
    pub fn estate(&self) -> Result<Estate, Problem> {
        let records = self.records.lock().serials();
        let mut numbers: BTreeMap<String, u64> =
            records.into_iter().map(|(name, serial)| (format!("record.{name}"), serial)).collect();
        numbers.insert(TOKENS.to_owned(), self.tokens.revision());
        let deployers = self.desk()?.deployers_note()?;
        Ok(Estate { notes: BTreeMap::from([(DEPLOYERS_NOTE.to_owned(), deployers)]), numbers })
    }

    /// For how long this anchor has been the one that watches; none if it is not.
    pub(super) fn leads_for(&self) -> Option<Duration> {
        let me = self.trust.node();
        let is_there = |heard: Option<Duration>| heard.is_some_and(|heard| heard < AWAY_AFTER);
        let others = self.directory.others();
        let leads =
            self.desk.is_some() && !others.iter().any(|row| row.is_anchor && row.node < me && is_there(row.heard));
        self.leading.lock().look(leads, Instant::now())
    }

    /// Whether this anchor watches copies and steps: it leads, and all nodes had time to be heard of.
    pub(super) fn watches(&self) -> bool {
        self.leads_for().is_some_and(|time| time >= AWAY_AFTER * 2)
    }

    /// Lets an anchor notice that it stood still, until it is dropped.
    pub(super) async fn keep_beating(self: Arc<Self>) {
        while self.desk.is_some() {
            self.leading.lock().beat(Instant::now());
            sleep(BEAT).await;
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.leads_for().is_some()
    }

    /// Gives something to another anchor, durably.
    async fn give_anchor(&self, path: &str, bytes: Bytes) -> Result<(), Problem> {
        let mut why = "none is known".to_owned();
        for anchor in self.anchors() {
            match self.ask(anchor.node, Method::PUT, path, bytes.clone(), TALK_BYTES_MAX).await {
                Ok(_) => return Ok(()),
                Err(problem) => why = problem.detail.into_owned(),
            }
        }
        Err(Problem::new(Code::AnchorsAway, format!("another anchor has to know it first: {why}")))
    }
}

async fn claim(anchor: Arc<Anchor>, name: String, known: u64) -> Result<Option<u64>, Problem> {
    blocking(move || anchor.claim(&name, known)).await
}

async fn confirm(anchor: Arc<Anchor>, name: String, number: u64) -> Result<(), Problem> {
    blocking(move || anchor.confirm(&name, number)).await
}
