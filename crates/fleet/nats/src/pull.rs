//! Reads what a stream has, through a consumer that the engine forgets by itself.
//!
//! Such a consumer is kept by one server in memory: it is no Raft group. What is not asked for stays in the stream, so
//! a slow reader holds up nobody. A number that was left out, or a server that has died, ends it; the reader begins
//! another one where it was.

use crate::api::{Ask, call};
use crate::link::{Connection, EngineLink};
use async_nats::{Message, Subscriber};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Messages that are asked for at once: fewer than wait in the client.
const BATCH: u64 = 32;
/// The engine says that it is there this often, while there is nothing to tell.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A silence that is no pause any more.
const SILENCE_MAX: Duration = Duration::from_secs(12);
/// How long one request for messages stands.
const STANDS: Duration = Duration::from_secs(30);
/// How long the engine remembers a consumer that asks for nothing.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// How often, and after which time, a request that no server has heard is made again.
const UNHEARD_MAX: u32 = 40;
const UNHEARD_PAUSE: Duration = Duration::from_millis(50);

/// Where to begin.
#[derive(Debug, Clone, Copy)]
pub enum From {
    /// The newest message of each subject.
    Newest,
    /// This number of the stream, and all later ones.
    Number(u64),
}

/// What is wanted of a stream.
#[derive(Debug, Clone)]
pub struct Consumer {
    pub stream: String,
    /// Of the consumer.
    pub name: String,
    pub subjects: String,
    pub from: From,
    /// Ends once all that is there was read; else it waits for more.
    pub ends: bool,
}

/// A message of a stream.
pub struct Read {
    pub message: Message,
    /// Its number in the stream.
    pub number: u64,
    /// Messages behind it, at that time.
    pub pending: u64,
}

/// A consumer while it lasts.
pub struct Pull {
    connection: Connection,
    consumer: Consumer,
    inbox: String,
    answers: Subscriber,
    /// Messages that were there at its beginning.
    pub pending: u64,
    taken: u64,
    asked: u64,
    /// Requests that no server has heard.
    unheard: u32,
}

/// The stream cannot be read on this connection any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// Has the engine forget a consumer of this name, so that another one may have it. It would by itself, only later.
pub async fn forget(link: &EngineLink, consumer: &Consumer) {
    let Consumer { stream, name, .. } = consumer;
    let _ = call(link, &format!("CONSUMER.DELETE.{stream}.{name}"), &json!({})).await;
}

impl Pull {
    pub async fn begin(link: &EngineLink, consumer: Consumer) -> Result<Self, Ask> {
        let connection = link.connection().await;
        let Consumer { stream, name, subjects, from, .. } = &consumer;
        let policy = match from {
            From::Newest => json!({ "deliver_policy": "last_per_subject" }),
            From::Number(number) => json!({ "deliver_policy": "by_start_sequence", "opt_start_seq": number }),
        };
        let mut config = json!({
            "name": name, "ack_policy": "none", "replay_policy": "instant", "filter_subject": subjects,
            "inactive_threshold": nanos(FORGOTTEN_AFTER), "mem_storage": true, "num_replicas": 1,
        });
        let fields = config.as_object_mut().expect("it is an object");
        fields.extend(policy.as_object().expect("it is an object").clone());
        let body = json!({ "stream_name": stream, "config": config });
        let made = call(link, &format!("CONSUMER.CREATE.{stream}.{name}.{subjects}"), &body).await?;
        let pending = made["num_pending"].as_u64().ok_or(Ask::Silent)?;
        let inbox = connection.client.new_inbox();
        let answers = connection.client.subscribe(inbox.clone()).await.map_err(|_| Ask::Away)?;
        Ok(Self { connection, consumer, inbox, answers, pending, taken: 0, asked: 0, unheard: 0 })
    }

    /// The next message; none at the end, if there is one.
    pub async fn next(&mut self) -> Result<Option<Read>, Lost> {
        loop {
            if self.asked == 0 {
                self.ask().await?;
            }
            let message = timeout(SILENCE_MAX, self.answers.next()).await.map_err(|_| Lost)?.ok_or(Lost)?;
            match message.status.map(|status| status.as_u16()) {
                None => return self.read(message).map(Some),
                // A heartbeat.
                Some(100) => {}
                // Nothing is there, or nothing came.
                Some(404 | 408) if self.consumer.ends => return Ok(None),
                Some(404 | 408) => self.asked = 0,
                // A consumer that was just made is not known to all servers.
                Some(503) if self.taken == 0 && self.unheard < UNHEARD_MAX => {
                    self.unheard += 1;
                    self.asked = 0;
                    sleep(UNHEARD_PAUSE).await;
                }
                Some(_) => return Err(Lost),
            }
        }
    }

    async fn ask(&mut self) -> Result<(), Lost> {
        let Consumer { stream, name, ends, .. } = &self.consumer;
        let body = match ends {
            true => json!({ "batch": BATCH, "no_wait": true }),
            false => json!({ "batch": BATCH, "expires": nanos(STANDS), "idle_heartbeat": nanos(HEARTBEAT) }),
        };
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
        let asked = self.connection.client.publish_with_reply(subject, self.inbox.clone(), body.to_string().into());
        timeout(SILENCE_MAX, asked).await.map_err(|_| Lost)?.map_err(|_| Lost)?;
        self.asked = BATCH;
        Ok(())
    }

    fn read(&mut self, message: Message) -> Result<Read, Lost> {
        let position = message.reply.as_ref().and_then(|reply| Position::read(reply.as_str())).ok_or(Lost)?;
        if position.taken != self.taken + 1 {
            return Err(Lost);
        }
        self.taken = position.taken;
        self.asked -= 1;
        Ok(Read { message, number: position.number, pending: position.pending })
    }
}

/// What the subject of an acknowledgement says of its message.
#[derive(Debug, PartialEq, Eq)]
struct Position {
    number: u64,
    /// Its number among those of the consumer.
    taken: u64,
    pending: u64,
}

impl Position {
    /// `$JS.ACK.<stream>.<consumer>.<tries>.<number>.<taken>.<time>.<pending>`, or the same with domain and account
    /// before the stream and a word behind.
    fn read(reply: &str) -> Option<Self> {
        let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let first = match words.len() {
            7 => 3,
            8.. => 5,
            _ => return None,
        };
        let number = |at: usize| words.get(at)?.parse().ok();
        Some(Self { number: number(first)?, taken: number(first + 1)?, pending: number(first + 3)? })
    }
}

fn nanos(time: Duration) -> Value {
    json!(time.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_message_is_read_in_both_forms() {
        let expected = Some(Position { number: 7, taken: 3, pending: 12 });
        assert_eq!(Position::read("$JS.ACK.mail_1.pi-7.1.7.3.1700000000000000000.12"), expected);
        assert_eq!(Position::read("$JS.ACK._.hash.mail_1.pi-7.1.7.3.1700000000000000000.12.x"), expected);
        for wrong in ["", "$JS.ACK.a.b", "$JS.ACK.mail_1.pi-7.1.x.3.4.5", "mail.1.a.b"] {
            assert_eq!(Position::read(wrong), None, "{wrong}");
        }
    }
}
