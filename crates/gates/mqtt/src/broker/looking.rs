//! What others learn about the broker: which topics its clients have subscribed to, and what is retained.

use super::Broker;
use super::message::Message;
use crate::node::Node;
use crate::topic::Filter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl<N: Node> Broker<N> {
    /// The topic filters of all sessions, those of groups among them; none if they are as they were at `known`. The
    /// number says when they were so.
    pub fn filters(&self, known: Option<u64>) -> Option<(u64, BTreeSet<String>)> {
        let changes = self.totals.changes;
        if known == Some(changes) {
            return None;
        }
        let texts = self.sessions.iter().flat_map(|(_, session)| session.subscriptions.filters());
        let filters = texts.filter_map(|text| Some(Filter::new(text, usize::MAX)?.topics.to_owned()));
        Some((changes, filters.collect()))
    }

    /// What is retained under any of these filters and has not expired, each once, by topic.
    pub fn retained(&self, filters: &BTreeSet<String>) -> Vec<Arc<Message>> {
        let mut found = Vec::new();
        for filter in filters {
            self.retained.matches(filter, &mut found);
        }
        found.retain(|message| !message.view().is_expired(self.now.unix_ms));
        let by_topic: BTreeMap<String, Arc<Message>> =
            found.into_iter().map(|message| (message.topic().to_owned(), message)).collect();
        by_topic.into_values().collect()
    }
}
