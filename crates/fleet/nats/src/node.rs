//! One node's facts and post: the two traits over a link.

use crate::api::{Ask, Objection, answered, ask, call, refused};
use crate::link::{EngineLink, LinkConfig};
use crate::post::{Inbox, listen};
use crate::pull::{Consumer, From, Pull};
use crate::streams::{FACTS, subject_of_mail};
use crate::watch::{self, NatsWatch};
use async_nats::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use facts::{
    Answer, Fact, Facts, Heard, Key, MESSAGE_BYTES_MAX, NodeName, NotSent, NotSet, Post, Prefix, Revision, Unavailable,
    VALUE_BYTES_MAX, Watch, Writer,
};
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

/// How long a list may take, from its first fact to its last.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// What must have been the last change of a subject.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// What a change was, if it was no value.
pub const OPERATION: &str = "KV-Operation";

/// A node's way to the facts and the post of its fleet.
pub struct NatsNode {
    link: EngineLink,
    node: NodeName,
    is_anchor: bool,
    inbox: Inbox,
}

/// The last change of a key.
struct Last {
    revision: Revision,
    /// None: it was deleted.
    value: Option<Vec<u8>>,
}

impl NatsNode {
    /// Begins to connect, on the present runtime, and to take the node's mail.
    pub fn open(config: LinkConfig) -> Self {
        let (node, is_anchor) = (config.node.clone(), config.is_anchor);
        let link = EngineLink::open(config);
        let inbox = listen(link.clone(), node.clone());
        Self { link, node, is_anchor, inbox }
    }

    /// The connection, for what is neither facts nor post.
    pub fn link(&self) -> &EngineLink {
        &self.link
    }

    async fn last(&self, key: &Key) -> Result<Option<Last>, Ask> {
        let body = json!({ "last_by_subj": subject(key) });
        let answer = match call(&self.link, &format!("STREAM.MSG.GET.{FACTS}"), &body).await {
            Err(Ask::Refused(refusal)) if refused::has_no_message(&refusal) => return Ok(None),
            answer => answer?,
        };
        let message = &answer["message"];
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| Ask::Silent);
        let headers = decode(message["hdrs"].as_str().unwrap_or_default())?;
        let value = decode(message["data"].as_str().unwrap_or_default())?;
        let is_deleted = headers.windows(OPERATION.len()).any(|words| words == OPERATION.as_bytes());
        let revision = Revision(message["seq"].as_u64().ok_or(Ask::Silent)?);
        Ok(Some(Last { revision, value: (!is_deleted).then_some(value) }))
    }

    async fn list_all(&self, prefix: &Prefix) -> Result<Vec<Fact>, Unavailable> {
        let consumer = consumer(prefix, From::Newest, true);
        let mut pull = Pull::begin(&self.link, consumer).await.map_err(|_| Unavailable)?;
        let mut facts = Vec::new();
        while let Some(read) = pull.next().await.map_err(|_| Unavailable)? {
            facts.extend(watch::change(&read).and_then(watch::Change::into_fact));
            if read.pending == 0 {
                break;
            }
        }
        facts.sort_by(|a: &Fact, b| a.key.cmp(&b.key));
        Ok(facts)
    }

    async fn write(&self, key: &Key, expected: u64, value: Option<&[u8]>) -> Result<Revision, Ask> {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, expected.to_string());
        if value.is_none() {
            headers.insert(OPERATION, "DEL");
        }
        let payload = value.unwrap_or_default().to_vec().into();
        let answer = answered(ask(&self.link, subject(key), Some(headers), payload).await?)?;
        answer["seq"].as_u64().map(Revision).ok_or(Ask::Silent)
    }

    async fn set_expected(
        &self,
        key: &Key,
        expected: Option<Revision>,
        value: Option<&[u8]>,
    ) -> Result<Revision, NotSet> {
        let has_right = self.is_anchor || key.writer() == Writer::Node(self.node.clone());
        if !has_right {
            return Err(NotSet::Refused);
        }
        match value.map_or(0, <[u8]>::len) {
            bytes if bytes > VALUE_BYTES_MAX => return Err(NotSet::TooLarge(bytes)),
            _ => {}
        }
        let first = self.write(key, expected.map_or(0, |revision| revision.0), value).await;
        let refusal = match first {
            Err(Ask::Refused(refusal)) if expected.is_none() && refused::has_changed(&refusal) => refusal,
            other => return other.map_err(not_set),
        };
        // There is no such fact: but perhaps there was one, and its end is the last change.
        match self.last(key).await {
            Ok(Some(Last { revision, value: None })) => self.write(key, revision.0, value).await.map_err(not_set),
            Ok(_) => Err(not_set(Ask::Refused(refusal))),
            // Nothing was written by the first.
            Err(_) => Err(NotSet::Away),
        }
    }

    async fn send_to(&self, to: &NodeName, bytes: &[u8]) -> Result<(), NotSent> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(NotSent::TooLarge(bytes.len()));
        }
        let sent = ask(&self.link, subject_of_mail(to, &self.node), None, bytes.to_vec().into()).await;
        match sent.and_then(answered) {
            Ok(_) => Ok(()),
            Err(Ask::Refused(refusal)) if refused::is_full(&refusal) => Err(NotSent::Full),
            Err(_) => Err(NotSent::Away),
        }
    }
}

impl Facts for NatsNode {
    fn get<'a>(&'a self, key: &'a Key) -> Answer<'a, Result<Option<Fact>, Unavailable>> {
        Box::pin(async move {
            let last = self.last(key).await.map_err(|_| Unavailable)?;
            let fact = |last: Last| Some(Fact { key: key.clone(), value: last.value?, revision: last.revision });
            Ok(last.and_then(fact))
        })
    }

    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Result<Vec<Fact>, Unavailable>> {
        Box::pin(async move { timeout(LIST_TIMEOUT, self.list_all(prefix)).await.unwrap_or(Err(Unavailable)) })
    }

    fn watch(&self, prefix: &Prefix) -> Box<dyn Watch> {
        Box::new(NatsWatch::begin(self.link.clone(), prefix.clone()))
    }

    fn set<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<Revision>,
        value: Option<&'a [u8]>,
    ) -> Answer<'a, Result<Revision, NotSet>> {
        Box::pin(self.set_expected(key, expected, value))
    }
}

impl Post for NatsNode {
    fn send<'a>(&'a self, to: &'a NodeName, bytes: &'a [u8]) -> Answer<'a, Result<(), NotSent>> {
        Box::pin(self.send_to(to, bytes))
    }

    fn receive(&self) -> Answer<'_, Heard> {
        Box::pin(self.inbox.next())
    }
}

fn not_set(error: Ask) -> NotSet {
    match error {
        Ask::Away => NotSet::Away,
        Ask::Refused(Objection { code, .. }) if code == 0 => NotSet::Unknown,
        Ask::Refused(refusal) if refused::has_changed(&refusal) => NotSet::Changed,
        Ask::Refused(refusal) if refused::is_full(&refusal) => NotSet::Full,
        // Of other refusals it is not known whether they came before or after the write.
        Ask::Refused(_) | Ask::Silent => NotSet::Unknown,
    }
}

fn subject(key: &Key) -> String {
    format!("$KV.facts.{key}")
}

/// Facts of a prefix, by a consumer of a name that no other has.
pub fn consumer(prefix: &Prefix, from: From, ends: bool) -> Consumer {
    let subjects = prefix.words().map_or_else(|| "$KV.facts.>".to_owned(), |words| format!("$KV.facts.{words}.>"));
    let mut name = [0; 16];
    // Without randomness the name may be another's, and one of the two begins again.
    let _ = getrandom::fill(&mut name);
    Consumer { stream: FACTS.to_owned(), name: u128::from_le_bytes(name).to_string(), subjects, from, ends }
}
