//! With whom a node talks of deployments, and when.
//!
//! An anchor talks with all nodes as soon as it knows more, and hears of each every few seconds. A node talks with an
//! anchor, at once when it has come further; where no anchor answers, with some other nodes.

use super::{Deployments, bytes_of};
use bytes::Bytes;
use fleet_deploy::record::DOCUMENT_BYTES_MAX;
use fleet_deploy::talk::{TALK_BYTES_MAX, TalkReply};
use fleet_deploy::{Record, SignedRecord};
use fleet_link::whole;
use fleet_trust::NodeId;
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use manifest::Name;
use problem::{Code, Problem};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How often a node talks although nothing has changed; up to a quarter less, by chance.
const PERIOD: Duration = Duration::from_secs(5);
/// The first rest of a node that no anchor has heard yet, doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// What lies between two rounds at least: progress comes in bursts.
const PACE: Duration = Duration::from_millis(50);
/// Nodes that are talked with at once. The others wait.
const AT_ONCE_MAX: usize = 32;
/// Nodes that are talked with when no anchor answers.
const NEIGHBOURS: usize = 3;
/// How long a node may think.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one talk may take with all records in it. Then the round goes on without that node; what came is kept.
const TALK_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes of a problem that are logged. The rest is cut.
const LOGGED_BYTES_MAX: usize = 1_000;

impl Deployments {
    /// Talks with other nodes until it is dropped.
    pub(super) async fn keep_talking(self: Arc<Self>) {
        let (mut changes, mut pause) = (self.changes.subscribe(), PAUSE_MIN);
        loop {
            changes.mark_unchanged();
            let is_told = self.round().await;
            sleep(PACE).await;
            let mut chance = [0];
            // Without a random number all nodes talk as seldom.
            let _ = getrandom::fill(&mut chance);
            // A node that just joined is known to an anchor soon; one whose anchors are away does not hurry.
            pause = if is_told { PERIOD } else { (pause * 2).min(PERIOD) };
            let rest = pause - pause * u32::from(chance[0]) / 1_024;
            // It has changed, or nothing has for long enough.
            let _ = timeout(rest, changes.changed()).await;
        }
    }

    /// Says whether an anchor knows what this node has.
    async fn round(self: &Arc<Self>) -> bool {
        if self.leads() {
            let known = (self.records.lock().digest(), self.tokens.revision());
            let behind =
                |node: &NodeId| self.told.lock().get(node).is_none_or(|(told, _)| (told.digest, told.tokens) != known);
            let heard = self.directory.others().into_iter().filter(|row| row.heard.is_some());
            let nodes: Vec<NodeId> = heard.map(|row| row.node).filter(behind).collect();
            let talks = nodes.into_iter().map(|node| self.talk_with(node));
            stream::iter(talks).buffer_unordered(AT_ONCE_MAX).collect::<Vec<()>>().await;
            return true;
        }
        for anchor in self.anchors() {
            if self.tell(anchor.node).await.is_ok() {
                return true;
            }
        }
        let mut others: Vec<NodeId> = self.directory.others().into_iter().map(|row| row.node).collect();
        let me = self.trust.node();
        others.sort_by_key(|node| (*node < me, *node));
        let talks = others.into_iter().take(NEIGHBOURS).map(|node| self.talk_with(node));
        stream::iter(talks).buffer_unordered(NEIGHBOURS).collect::<Vec<()>>().await;
        false
    }

    async fn talk_with(self: &Arc<Self>, node: NodeId) {
        if let Err(problem) = self.tell(node).await {
            tracing::debug!(%node, %problem, "a node was not told of deployments");
        }
    }

    /// Tells a node how far this one is; both know the same records then.
    async fn tell(self: &Arc<Self>, node: NodeId) -> Result<(), Problem> {
        let seconds = TALK_TIME_MAX.as_secs();
        let late =
            |_| Problem::new(Code::MemberAway, format!("a talk with the node {node} took more than {seconds} s"));
        timeout(TALK_TIME_MAX, self.tell_all(node)).await.map_err(late)?
    }

    /// What one of them cannot take, tokens or a record, keeps nothing else back. The first problem is said at the end.
    async fn tell_all(self: &Arc<Self>, node: NodeId) -> Result<(), Problem> {
        let TalkReply { tokens, serials, .. } = self.say(node, self.told().write()).await?;
        let mut told = unless_over(self.share_tokens(node, tokens).await)?;
        let Some(theirs) = serials else { return told };
        let ours = self.records.lock().serials();
        for (name, serial) in theirs.iter().filter(|(name, theirs)| ours.get(*name).is_none_or(|ours| ours < *theirs)) {
            let fetched = self.fetch_record(node, name, *serial).await;
            // A node that does not have what it says is asked for no more.
            let is_lie = fetched.as_ref().is_err_and(|problem| problem.code == Code::FleetMessage);
            told = told.and(unless_over(fetched)?);
            if is_lie {
                break;
            }
        }
        for (name, serial) in ours.iter().filter(|(name, ours)| theirs.get(*name).is_none_or(|theirs| theirs < *ours)) {
            told = told.and(unless_over(self.pass_record(node, name, *serial).await)?);
        }
        told
    }

    /// Takes a record that is newer there.
    async fn fetch_record(self: &Arc<Self>, node: NodeId, name: &Name, serial: u64) -> Result<(), Problem> {
        let record = self.ask(node, Method::GET, &path(name), Bytes::new(), DOCUMENT_BYTES_MAX).await?;
        let record = self.read_record(&record)?;
        check_said(record.record(), name, serial)?;
        let learned = self.learn(record).await;
        learned.map(drop).inspect_err(|problem| self.log_refused(self.trust.node(), name, serial, problem))
    }

    /// Gives a record that is newer here.
    async fn pass_record(&self, node: NodeId, name: &Name, serial: u64) -> Result<(), Problem> {
        let Some(record) = self.records.lock().get(name.as_str()).cloned() else { return Ok(()) };
        let passed = self.ask(node, Method::PUT, &path(name), bytes_of(&record), TALK_BYTES_MAX).await;
        passed.map(drop).inspect_err(|problem| self.log_refused(node, name, serial, problem))
    }

    fn log_refused(&self, node: NodeId, name: &Name, serial: u64, problem: &Problem) {
        let Problem { code, detail, .. } = problem;
        if !is_over(problem) && self.refusals.lock().is_news(node, name, serial, *code) {
            // The other node's words, perhaps.
            let detail = &detail[..detail.floor_char_boundary(LOGGED_BYTES_MAX)];
            tracing::warn!(deployment = %name, serial, %node, "a node has not taken the record: {code} {detail}");
        }
    }

    /// Says how this node is, or that it is as before.
    async fn say(&self, node: NodeId, told: Vec<u8>) -> Result<TalkReply, Problem> {
        let mut replied = self.exchange(node, self.brief.instead(&node, &told).unwrap_or_else(|| told.clone())).await;
        if replied.as_ref().is_ok_and(|reply| reply.whole) {
            replied = self.exchange(node, told.clone()).await;
        }
        self.brief.answered(&node, &told, replied.as_ref().ok().map(|reply| reply.keeps));
        replied
    }

    async fn exchange(&self, node: NodeId, words: Vec<u8>) -> Result<TalkReply, Problem> {
        TalkReply::read(&self.ask(node, Method::POST, "/deployments/talk", words.into(), TALK_BYTES_MAX).await?)
    }

    /// Takes a record that another node has passed on.
    pub(super) async fn take_record(self: &Arc<Self>, bytes: &[u8]) -> Result<bool, Problem> {
        self.learn(self.read_record(bytes)?).await
    }

    fn read_record(&self, bytes: &[u8]) -> Result<SignedRecord, Problem> {
        SignedRecord::read(bytes, &self.fleet(), &self.trust.ca_key())
    }

    pub(super) async fn ask(
        &self,
        node: NodeId,
        method: Method,
        path: &str,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<Bytes, Problem> {
        let request = Request::builder().method(method).uri(path).body(body);
        let request = request.map_err(|error| Problem::new(Code::Internal, format!("{path}: {error}")))?;
        let asked = async { whole(self.link()?.exchange(node, request, PATIENCE).await?, bytes_max).await };
        let late = |_| Problem::new(Code::MemberAway, format!("the node {node} has not answered whole"));
        timeout(PATIENCE * 3, asked).await.map_err(late)?
    }
}

/// Whether there is no point in going on with a talk: one of both is not there any more.
fn is_over(problem: &Problem) -> bool {
    matches!(problem.code, Code::MemberAway | Code::Draining)
}

/// What a part of a talk has come to, if the talk may go on after it.
fn unless_over(told: Result<(), Problem>) -> Result<Result<(), Problem>, Problem> {
    match told {
        Err(problem) if is_over(&problem) => Err(problem),
        told => Ok(told),
    }
}

/// Whether a record is the one that a node said it has, or the next one. If not, there is no point in asking for more.
pub(super) fn check_said(record: &Record, name: &Name, serial: u64) -> Result<(), Problem> {
    if record.name == *name && record.serial >= serial {
        return Ok(());
    }
    let detail = format!(
        "a node said that it has change {serial} of the deployment {:?}, and gave change {} of {:?}",
        name.as_str(),
        record.serial,
        record.name.as_str()
    );
    Err(Problem::new(Code::FleetMessage, detail))
}

fn path(name: &Name) -> String {
    format!("/deployments/records/{name}")
}
