//! A bucket of facts, which is a stream that keeps the newest message of each subject, and the facts in it over a
//! link.

use crate::api::{Ask, Objection, answered, ask, call, refused};
use crate::link::EngineLink;
use crate::pull::{Consumer, From, Pull};
use crate::watch::{self, NatsWatch};
use async_nats::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use facts::{Answer, Fact, Facts, Key, NotSet, Prefix, Revision, Unavailable, VALUE_BYTES_MAX, Watch, Writer};
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;
use tokio::time::timeout;

/// How long a list may take, from its first fact to its last.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// What must have been the last change of a subject. Each change has it. A member who asks the engine something can
/// have its answer published under the subject of a fact: that has none, and is read as the end of the fact.
pub const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// What a change was, if it was no value.
pub const OPERATION: &str = "KV-Operation";

/// Where facts are kept.
#[derive(Clone)]
pub struct FactBucket {
    pub stream: &'static str,
    /// What the subjects of its facts begin with.
    root: String,
}

/// The facts of a bucket, as one node reads and writes them.
pub struct NatsFacts {
    link: EngineLink,
    bucket: FactBucket,
    /// Whose facts it may write; all, if it is an anchor.
    writer: Option<Writer>,
}

/// The last change of a key.
struct Last {
    revision: Revision,
    /// None: it was deleted.
    value: Option<Vec<u8>>,
}

impl FactBucket {
    /// What all nodes may read.
    pub fn of_all() -> Self {
        Self { stream: "KV_facts", root: "$KV.facts.".to_owned() }
    }

    /// What anchors alone read and write. Its subjects are as secret as `secret`: the engine publishes an answer
    /// under any subject that the question names, without a look at the member's rights. A member who knew a subject
    /// could so write over what anchors have agreed on.
    pub fn of_anchors(secret: &[u8; 32]) -> Self {
        let word = secret.iter().fold(String::new(), |mut word, byte| {
            let _ = write!(word, "{byte:02x}");
            word
        });
        Self { stream: "anchors", root: format!("anchors.{word}.") }
    }

    /// The subjects of all its facts.
    pub fn subjects(&self) -> String {
        format!("{}>", self.root)
    }

    fn subject(&self, key: &Key) -> String {
        format!("{}{key}", self.root)
    }

    /// The key of the fact with this subject; none if it is no fact of this bucket.
    pub fn key(&self, subject: &str) -> Option<Key> {
        Key::new(subject.strip_prefix(&self.root)?)
    }

    /// Facts of a prefix, by a consumer of a name that no other has.
    pub fn consumer(&self, prefix: &Prefix, from: From, ends: bool) -> Consumer {
        let subjects = prefix.words().map_or_else(|| self.subjects(), |words| format!("{}{words}.>", self.root));
        let mut name = [0; 16];
        // Without randomness the name may be another's, and one of the two begins again.
        let _ = getrandom::fill(&mut name);
        let name = u128::from_le_bytes(name).to_string();
        Consumer { stream: self.stream.to_owned(), name, subjects, from, ends }
    }
}

impl NatsFacts {
    /// `writer`: whose facts it may write; all, if it is an anchor.
    pub fn new(link: EngineLink, bucket: FactBucket, writer: Option<Writer>) -> Self {
        Self { link, bucket, writer }
    }

    async fn last(&self, key: &Key) -> Result<Option<Last>, Ask> {
        let body = json!({ "last_by_subj": self.bucket.subject(key) });
        let answer = match call(&self.link, &format!("STREAM.MSG.GET.{}", self.bucket.stream), &body).await {
            Err(Ask::Refused(refusal)) if refused::has_no_message(&refusal) => return Ok(None),
            answer => answer?,
        };
        let message = &answer["message"];
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| Ask::Silent);
        let headers = decode(message["hdrs"].as_str().unwrap_or_default())?;
        let value = decode(message["data"].as_str().unwrap_or_default())?;
        let has = |header: &str| headers.windows(header.len()).any(|words| words == header.as_bytes());
        let is_deleted = has(OPERATION) || !has(EXPECTED);
        let revision = Revision(message["seq"].as_u64().ok_or(Ask::Silent)?);
        Ok(Some(Last { revision, value: (!is_deleted).then_some(value) }))
    }

    async fn list_all(&self, prefix: &Prefix) -> Result<Vec<Fact>, Unavailable> {
        let consumer = self.bucket.consumer(prefix, From::Newest, true);
        let mut pull = Pull::begin(&self.link, consumer).await.map_err(|_| Unavailable)?;
        let mut facts = Vec::new();
        while let Some(read) = pull.next().await.map_err(|_| Unavailable)? {
            facts.extend(watch::change(&self.bucket, &read).and_then(watch::Change::into_fact));
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
        let answer = answered(ask(&self.link, self.bucket.subject(key), Some(headers), payload).await?)?;
        answer["seq"].as_u64().map(Revision).ok_or(Ask::Silent)
    }

    async fn set_expected(
        &self,
        key: &Key,
        expected: Option<Revision>,
        value: Option<&[u8]>,
    ) -> Result<Revision, NotSet> {
        if self.writer.as_ref().is_some_and(|writer| *writer != key.writer()) {
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
}

impl Facts for NatsFacts {
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
        Box::new(NatsWatch::begin(self.link.clone(), self.bucket.clone(), prefix.clone()))
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
