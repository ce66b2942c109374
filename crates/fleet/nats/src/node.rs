//! One node's facts and post: the two traits over a link.

use crate::api::{Ask, answered, ask, refused};
use crate::bucket::{FactBucket, NatsFacts};
use crate::link::{EngineLink, LinkConfig};
use crate::post::{Inbox, listen};
use crate::streams::subject_of_mail;
use facts::{
    Answer, Fact, Facts, Heard, Key, MESSAGE_BYTES_MAX, NodeName, NotSent, NotSet, Post, Prefix, Revision, Unavailable,
    Watch, Writer,
};

/// A node's way to the facts and the post of its fleet.
pub struct NatsNode {
    link: EngineLink,
    node: NodeName,
    facts: NatsFacts,
    inbox: Inbox,
}

impl NatsNode {
    /// Begins to connect, on the present runtime, and to take the node's mail.
    pub fn open(config: LinkConfig) -> Self {
        let node = config.node.clone();
        let writer = (!config.is_anchor).then(|| Writer::Node(node.clone()));
        let link = EngineLink::open(config);
        let inbox = listen(link.clone(), node.clone());
        Self { facts: NatsFacts::new(link.clone(), FactBucket::of_all(), writer), link, node, inbox }
    }

    /// The connection, for what is neither facts nor post.
    pub fn link(&self) -> &EngineLink {
        &self.link
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
        self.facts.get(key)
    }

    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Result<Vec<Fact>, Unavailable>> {
        self.facts.list(prefix)
    }

    fn watch(&self, prefix: &Prefix) -> Box<dyn Watch> {
        self.facts.watch(prefix)
    }

    fn set<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<Revision>,
        value: Option<&'a [u8]>,
    ) -> Answer<'a, Result<Revision, NotSet>> {
        self.facts.set(key, expected, value)
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
