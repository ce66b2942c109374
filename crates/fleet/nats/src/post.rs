//! Takes a node's mail: at once while it is connected, and what lies for it after each break.
//!
//! ```text
//!  mail.SHARE.ME.FROM ─▶ subscription ────────────────────────────┐
//!          └─▶ stream mail_SHARE ─▶ pull, once for a connection ──┴─▶ a short line ─▶ receive
//! ```
//! No consumer is kept for a node. What came at once comes again after the next break, if it still lies there: mail
//! drops what it has. A node that takes its mail slowly loses what waits in its client, and reads it from the stream
//! again. What was taken is purged some time later: see `taken`.

use crate::api::Ask;
use crate::link::{Connection, EngineLink};
use crate::pull::{Consumer, From, Lost, Pull, forget};
use crate::streams::{mail_stream, sender_of_mail, subjects_of_mail};
use crate::taken;
use async_nats::Message;
use facts::{Heard, NodeName};
use futures_util::StreamExt as _;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Messages that wait for this node to take them. Others wait in the client, and then in the stream.
const WAITING_MAX: usize = 16;
/// Before what has failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);

pub struct Inbox {
    heard: Mutex<mpsc::Receiver<Heard>>,
    listening: JoinHandle<()>,
}

struct Listener {
    link: EngineLink,
    node: NodeName,
    tell: mpsc::Sender<Heard>,
    /// The last number of the stream that was read.
    read: u64,
    left: Left,
}

/// What was taken and still lies in the stream.
#[derive(Default)]
struct Left {
    /// When to see to it; none: nothing is left.
    at: Option<Instant>,
    /// The number up to which it is to be purged, once that is known.
    upto: Option<u64>,
    /// Something was taken since that is known: it may have a later number.
    is_more: bool,
}

pub fn listen(link: EngineLink, node: NodeName) -> Inbox {
    let (tell, heard) = mpsc::channel(WAITING_MAX);
    let listener = Listener { link, node, tell, read: 0, left: Left::default() };
    Inbox { heard: Mutex::new(heard), listening: tokio::spawn(listener.run()) }
}

impl Inbox {
    pub async fn next(&self) -> Heard {
        match self.heard.lock().await.recv().await {
            Some(heard) => heard,
            // The runtime ends.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Listener {
    async fn run(mut self) {
        let mut is_back = false;
        loop {
            let link = self.link.clone();
            let number = link.connection().await.number;
            if is_back && self.tell.send(Heard::Back).await.is_err() {
                return;
            }
            is_back = true;
            tokio::select! {
                () = self.connected() => {}
                () = link.lost(number) => {}
            }
            sleep(PAUSE).await;
        }
    }

    /// Takes mail on one connection.
    async fn connected(&mut self) {
        let Connection { client, dropped, .. } = self.link.connection().await;
        // Before the stream is read, so that nothing comes between the two.
        let Ok(mut live) = client.subscribe(subjects_of_mail(&self.node)).await else { return };
        loop {
            // What came while nobody listened may have any number.
            self.left.upto = None;
            while self.catch_up().await.is_err() {
                sleep(PAUSE).await;
            }
            loop {
                let clear_at = self.left.at;
                let clear = async {
                    match clear_at {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                let message = tokio::select! {
                    biased;
                    // They are in the stream.
                    () = dropped.notified() => break,
                    message = live.next() => message,
                    // Nothing waits in the client any more.
                    () = clear => {
                        self.clear().await;
                        continue;
                    }
                };
                let Some(message) = message else { return };
                self.take(message).await;
            }
        }
    }

    /// Reads what lies in the stream.
    async fn catch_up(&mut self) -> Result<(), Lost> {
        let consumer = Consumer {
            stream: mail_stream(&self.node),
            name: self.node.as_str().to_owned(),
            subjects: subjects_of_mail(&self.node),
            from: From::Number(self.read + 1),
            ends: true,
        };
        let mut pull = match Pull::begin(&self.link, consumer.clone()).await {
            // The engine remembers another one of this name: of this node's life before.
            Err(Ask::Refused(_)) => {
                forget(&self.link, &consumer).await;
                Pull::begin(&self.link, consumer.clone()).await.map_err(|_| Lost)?
            }
            begun => begun.map_err(|_| Lost)?,
        };
        while let Some(read) = pull.next().await? {
            self.take(read.message).await;
            self.read = read.number;
            if read.pending == 0 {
                break;
            }
        }
        forget(&self.link, &consumer).await;
        Ok(())
    }

    /// Has the engine delete what was taken: first it is asked how far the stream is, and later, when all up to there
    /// has been taken, that goes.
    async fn clear(&mut self) {
        let again = Some(Instant::now() + self.link.purge_rest());
        let Some(upto) = self.left.upto else {
            let upto = taken::last(&self.link, &self.node).await.ok();
            self.left = Left { at: again, upto, is_more: false };
            return;
        };
        let is_taken = self.tell.capacity() == WAITING_MAX;
        self.left.at = again;
        if is_taken && taken::delete(&self.link, &self.node, upto).await.is_ok() {
            self.left = Left { at: again.filter(|_| self.left.is_more), ..Left::default() };
        }
    }

    async fn take(&mut self, message: Message) {
        // The engine lets a node send mail under its own name only, and delivers it under the subject of the mail. What
        // somebody has delivered here as the answer to another question has another one.
        let Some(from) = sender_of_mail(&self.node, &message.subject) else { return };
        self.left.at.get_or_insert_with(|| Instant::now() + self.link.purge_rest());
        self.left.is_more = true;
        // An error: nobody takes mail any more, and this ends with its owner.
        let _ = self.tell.send(Heard::Message { from, bytes: message.payload.to_vec() }).await;
    }
}
