//! Retained messages: the last one of each topic, in a tree of topic levels so that a wildcard finds its own.

use super::accounts::{AccountKey, LEVEL_BYTES};
use super::message::Message;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Default)]
struct Branch {
    children: HashMap<Box<str>, Branch>,
    message: Option<KeptMessage>,
}

/// A message, and whose it is; nobody's if a sink or the bridge published it, or an earlier release wrote it.
#[derive(Debug)]
pub(super) struct KeptMessage {
    pub message: Arc<Message>,
    pub account: Option<AccountKey>,
}

/// All retained messages.
#[derive(Debug, Default)]
pub struct Retained {
    root: Branch,
    count: usize,
    bytes: usize,
    /// Nodes of the tree.
    levels: usize,
}

impl Retained {
    pub fn count(&self) -> usize {
        self.count
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What they take in memory, with their tree, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.levels * LEVEL_BYTES
    }

    pub(super) fn get(&self, topic: &str) -> Option<&KeptMessage> {
        let mut node = &self.root;
        for level in topic.split('/') {
            node = node.children.get(level)?;
        }
        node.message.as_ref()
    }

    /// Returns the one it replaces.
    pub(super) fn set(&mut self, kept: KeptMessage) -> Option<KeptMessage> {
        let mut node = &mut self.root;
        for level in kept.message.topic().split('/') {
            node = match level {
                name if node.children.contains_key(name) => node.children.get_mut(name).expect("it was just found"),
                name => {
                    self.levels += 1;
                    node.children.entry(name.into()).or_default()
                }
            };
        }
        self.bytes += kept.message.bytes();
        self.count += 1;
        let before = node.message.replace(kept)?;
        self.bytes -= before.message.bytes();
        self.count -= 1;
        Some(before)
    }

    /// Returns what there was.
    pub(super) fn remove(&mut self, topic: &str) -> Option<KeptMessage> {
        let removed = self.root.remove(topic.split('/'), &mut self.levels)?;
        self.bytes -= removed.message.bytes();
        self.count -= 1;
        Some(removed)
    }

    /// What has expired by now.
    pub(super) fn expired(&self, unix_ms: u64) -> Vec<Arc<Message>> {
        let mut found = Vec::new();
        self.root.expired(unix_ms, &mut found);
        found
    }

    /// Collects what a new subscription to `filter` is sent first. Returns how many nodes of the tree it looked at.
    pub fn matches(&self, filter: &str, into: &mut Vec<Arc<Message>>) -> usize {
        self.root.matches(filter.split('/'), true, into)
    }
}

impl Branch {
    fn remove<'a>(&mut self, mut levels: impl Iterator<Item = &'a str>, count: &mut usize) -> Option<KeptMessage> {
        let Some(name) = levels.next() else { return self.message.take() };
        let child = self.children.get_mut(name)?;
        let removed = child.remove(levels, count);
        if child.message.is_none() && child.children.is_empty() {
            self.children.remove(name);
            *count -= 1;
        }
        removed
    }

    fn expired(&self, unix_ms: u64, into: &mut Vec<Arc<Message>>) {
        let kept = self.message.iter().filter(|kept| kept.message.is_expired(unix_ms));
        into.extend(kept.map(|kept| kept.message.clone()));
        self.children.values().for_each(|child| child.expired(unix_ms, into));
    }

    fn matches<'a>(
        &self,
        mut levels: impl Iterator<Item = &'a str> + Clone,
        is_first: bool,
        into: &mut Vec<Arc<Message>>,
    ) -> usize {
        // Wildcards at the beginning do not match what begins with `$`.
        let visible = |name: &str| !is_first || !name.starts_with('$');
        let seen = self.children.iter().filter(|(name, _)| visible(name));
        let below: usize = match levels.next() {
            None => {
                into.extend(self.message.as_ref().map(|kept| kept.message.clone()));
                0
            }
            Some("#") => {
                into.extend(self.message.as_ref().map(|kept| kept.message.clone()));
                seen.map(|(_, child)| child.matches(["#"].into_iter(), false, into)).sum()
            }
            Some("+") => seen.map(|(_, child)| child.matches(levels.clone(), false, into)).sum(),
            Some(name) => self.children.get(name).map_or(0, |child| child.matches(levels, false, into)),
        };
        1 + below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic;

    #[test]
    fn the_tree_finds_what_a_plain_search_finds() {
        let mut random = random::Random(3);
        let names = ["", "a", "b", "$c", "+", "#"];
        for _ in 0..200 {
            let (mut retained, mut list) = (Retained::default(), std::collections::BTreeMap::new());
            for _ in 0..30 {
                let levels: Vec<&str> = (0..=random.below(3)).map(|_| names[random.below(4) as usize]).collect();
                let name = levels.join("/");
                if random.below(4) == 0 {
                    assert_eq!(retained.remove(&name).is_some(), list.remove(&name).is_some());
                } else {
                    let message = Arc::new(Message::for_test(&name, &random.next().to_be_bytes()));
                    list.insert(name, message.clone());
                    retained.set(KeptMessage { message, account: None });
                }
                let levels: Vec<&str> = (0..=random.below(3)).map(|_| names[random.below(6) as usize]).collect();
                let filter = levels.join("/");
                if topic::is_filter(&filter, 8) {
                    let mut found = Vec::new();
                    retained.matches(&filter, &mut found);
                    let mut found: Vec<_> = found.iter().map(|message| message.topic().to_owned()).collect();
                    found.sort_unstable();
                    let expected: Vec<_> = list.keys().filter(|name| topic::matches(&filter, name)).cloned().collect();
                    assert_eq!(found, expected, "{filter}");
                }
                assert_eq!(retained.count(), list.len());
                let mut levels = std::collections::BTreeSet::new();
                for name in list.keys() {
                    let ends = name.match_indices('/').map(|(end, _)| end).chain([name.len()]);
                    levels.extend(ends.map(|end| format!("{}/", &name[..end])));
                }
                assert_eq!(retained.levels, levels.len());
                assert_eq!(retained.bytes(), list.values().map(|message| message.bytes()).sum::<usize>());
            }
        }
    }
}
