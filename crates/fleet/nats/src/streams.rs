//! What the engine keeps: two buckets of facts and eight streams of mail, whatever the size of the fleet.
//!
//! Each stream with three copies is a Raft group, and each group costs processor time while it is idle. So there are
//! ten, and not one for each function or node.

use crate::api::{Ask, Objection, STREAM_MISSING, call, refused};
use crate::bucket::FactBucket;
use crate::link::{EngineLink, Servers};
use facts::NodeName;
use problem::{Code, Problem};
use serde_json::{Value, json};
use std::fmt;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// Bytes of what anchors agree on. It is one fact, of at most 60 KiB.
const ANCHORS_BYTES_MAX: u64 = 4 << 20;
const MAIL_STREAMS: u64 = 8;
/// Messages from one node to another that the engine keeps. The oldest goes: its sender still has it.
const MESSAGES_OF_PAIR_MAX: u64 = 128;
/// How long the engine keeps mail for a node that is away. Then only its sender has it.
const MAIL_AGE_MAX: Duration = Duration::from_secs(3 * 24 * 60 * 60);
/// A cluster that has just begun may need an election or two.
const MAKE_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// How much the engine keeps, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamBounds {
    /// Copies of everything: as many as there are anchors, 1 or 3.
    pub replicas: u64,
    /// Bytes of all facts. A fact beyond them is refused.
    pub facts_bytes_max: u64,
    /// Bytes of all mail that waits. A message beyond its share of them is refused.
    pub mail_bytes_max: u64,
}

impl StreamBounds {
    /// 64 MiB of facts and 1 GiB of mail.
    pub fn new(replicas: u64) -> Self {
        Self { replicas, facts_bytes_max: 64 << 20, mail_bytes_max: 1 << 30 }
    }

    /// Bytes that an engine with these bounds needs.
    pub fn bytes(&self) -> u64 {
        self.facts_bytes_max + self.mail_bytes_max + ANCHORS_BYTES_MAX
    }
}

/// Why streams could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotMade {
    /// No majority of anchors answers.
    Away,
    /// The engine says no; its words.
    Refused(String),
}

/// Which of the streams has the mail for a node. It stands in the subject too: a stream knows its subjects by their
/// words, and not by a hash of one.
fn share(to: &NodeName) -> u64 {
    // FNV-1a: the same everywhere, and for ever.
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    to.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, add) % MAIL_STREAMS
}

/// The stream that has the mail for a node.
pub fn mail_stream(to: &NodeName) -> String {
    format!("mail_{}", share(to))
}

/// The subject of mail to a node, from another one.
pub fn subject_of_mail(to: &NodeName, from: &NodeName) -> String {
    format!("mail.{}.{to}.{from}", share(to))
}

/// The subjects of all mail to a node.
pub fn subjects_of_mail(to: &NodeName) -> String {
    format!("mail.{}.{to}.>", share(to))
}

/// Who has sent what came under this subject; none if that is no mail to this node.
pub fn sender_of_mail(to: &NodeName, subject: &str) -> Option<NodeName> {
    let sender = subject.strip_prefix(subjects_of_mail(to).strip_suffix('>')?)?;
    (!sender.contains('.')).then(|| NodeName::new(sender)).flatten()
}

/// Makes the streams that are not there, and gives those that are the number of copies that is wanted. Anchors may do
/// it at once, and again. Only `servers` are asked: those of another set of anchors keep another number of copies.
/// `of_anchors` is the bucket that anchors have for themselves.
///
/// # Errors
/// Not all are there. It is safe to try again.
pub async fn make_streams(
    link: &EngineLink,
    servers: &Servers,
    bounds: StreamBounds,
    of_anchors: &FactBucket,
    now: SystemTime,
) -> Result<(), NotMade> {
    let deadline = tokio::time::Instant::now() + MAKE_TIMEOUT;
    // Revisions go on when an engine has lost everything: they begin at the time in microseconds, and no fleet makes a
    // million changes a second.
    let first = now.duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64).max(1);
    for mut config in configs(bounds, of_anchors) {
        loop {
            match make(link, servers, &mut config, first).await {
                Ok(()) => break,
                Err(NotMade::Refused(words)) => return Err(NotMade::Refused(words)),
                Err(NotMade::Away) if tokio::time::Instant::now() >= deadline => return Err(NotMade::Away),
                Err(NotMade::Away) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
    Ok(())
}

async fn make(link: &EngineLink, servers: &Servers, config: &mut Value, first: u64) -> Result<(), NotMade> {
    let name = config["name"].as_str().unwrap_or_default().to_owned();
    let there = match call_one(link, servers, &format!("STREAM.INFO.{name}"), &json!({})).await {
        Ok(info) => Some(info["config"].clone()),
        Err(Ask::Refused(Objection { code: STREAM_MISSING, .. })) => None,
        Err(error) => return Err(not_made(error)),
    };
    let verb = match &there {
        Some(there) if there["num_replicas"] == config["num_replicas"] => return Ok(()),
        Some(there) => {
            config["first_seq"] = there["first_seq"].clone();
            "UPDATE"
        }
        None => {
            config["first_seq"] = json!(first);
            "CREATE"
        }
    };
    match call_one(link, servers, &format!("STREAM.{verb}.{name}"), config).await {
        Ok(_) => Ok(()),
        // Another anchor was first, with another first revision.
        Err(Ask::Refused(refusal)) if refused::name_is_taken(&refusal) => Ok(()),
        Err(error) => Err(not_made(error)),
    }
}

/// Asks one of `servers`, and no other.
async fn call_one(link: &EngineLink, servers: &Servers, path: &str, body: &Value) -> Result<Value, Ask> {
    let connection = timeout(link.answer_timeout(), link.connection()).await.map_err(|_| Ask::Away)?;
    match connection.leads_to(servers) {
        true => call(link, path, body).await,
        false => Err(Ask::Away),
    }
}

fn not_made(error: Ask) -> NotMade {
    match error {
        Ask::Refused(refusal) if !refused::is_temporary(&refusal) => NotMade::Refused(refusal.words),
        Ask::Refused(_) | Ask::Away | Ask::Silent => NotMade::Away,
    }
}

fn configs(bounds: StreamBounds, of_anchors: &FactBucket) -> Vec<Value> {
    let common = json!({
        "retention": "limits", "storage": "file", "discard": "new", "num_replicas": bounds.replicas,
        "max_msg_size": 1 << 20, "max_consumers": -1, "duplicate_window": 100_000_000, "deny_delete": true,
    });
    let with = |own: Value| {
        let mut config = common.clone();
        let fields = config.as_object_mut().expect("it is an object");
        fields.extend(own.as_object().expect("it is an object").clone());
        config
    };
    let facts = |bucket: &FactBucket, bytes_max: u64| {
        with(json!({
            "name": bucket.stream, "subjects": [bucket.subjects()], "max_bytes": bytes_max, "max_msgs_per_subject": 1,
            // Answers of servers that are not the leader may be old.
            "allow_direct": false, "deny_purge": true,
        }))
    };
    let buckets = [facts(&FactBucket::of_all(), bounds.facts_bytes_max), facts(of_anchors, ANCHORS_BYTES_MAX)];
    let mail = (0..MAIL_STREAMS).map(|number| {
        with(json!({
            "name": format!("mail_{number}"), "subjects": [format!("mail.{number}.>")],
            "max_bytes": bounds.mail_bytes_max / MAIL_STREAMS, "max_msgs_per_subject": MESSAGES_OF_PAIR_MAX,
            "max_age": MAIL_AGE_MAX.as_nanos() as u64,
        }))
    });
    buckets.into_iter().chain(mail).collect()
}

impl fmt::Display for NotMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away => f.write_str("no majority of anchors answers"),
            Self::Refused(words) => write!(f, "the engine refuses to keep the fleet's streams: {words}"),
        }
    }
}

impl std::error::Error for NotMade {}

impl From<NotMade> for Problem {
    fn from(error: NotMade) -> Self {
        let code = match error {
            NotMade::Away => Code::AnchorsAway,
            NotMade::Refused(_) => Code::EngineUnsound,
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn mail_is_spread_over_its_streams_and_stays_where_it_is() {
        let name = |text: &str| NodeName::new(text).expect("it is a name");
        assert_eq!(mail_stream(&name("pi-7")), mail_stream(&name("pi-7")));
        let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..8_000 {
            *nodes.entry(mail_stream(&name(&format!("node-{number}")))).or_default() += 1;
        }
        assert!(
            nodes.len() as u64 == MAIL_STREAMS && nodes.values().all(|count| (700..1_300).contains(count)),
            "{nodes:?}"
        );
    }
}
