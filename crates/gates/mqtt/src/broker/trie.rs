//! Who has subscribed to what: a tree of topic levels.
//!
//! ```text
//!  (root) ── "a" ──┬── "b"   here: [s1]           a/b
//!                  ├── +     here: [s2]           a/+
//!                  └── #     below: [s3]          a/#
//! ```
//! A message walks at most two branches a level, so its cost depends on its levels and its receivers, not on how many
//! subscriptions there are.

use crate::codec::SubscriptionOptions;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names a session.
pub type SessionKey = u32;

/// One subscription of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber {
    pub session: SessionKey,
    pub options: SubscriptionOptions,
    /// The identifier the client gave it.
    pub id: Option<u32>,
    /// Whether some of what it matches is denied, so that each message has to be looked at.
    pub is_checked: bool,
}

/// Some of a shared subscription's group; each message goes to one of them.
#[derive(Debug)]
pub struct Group {
    name: Box<str>,
    members: Vec<Subscriber>,
    /// Whose turn it is.
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct Subscribers {
    /// Ordered by session.
    plain: Vec<Subscriber>,
    shared: Vec<Group>,
}

/// Most have little of it, and there is one for each level of each filter: what is not there takes 8 bytes.
#[derive(Debug, Default)]
struct Branch {
    children: Option<Box<HashMap<Box<str>, Box<Branch>>>>,
    plus: Option<Box<Branch>>,
    /// Of the filter that ends here.
    here: Option<Box<Subscribers>>,
    /// Of the filter that ends here with `/#`.
    below: Option<Box<Subscribers>>,
}

/// All subscriptions.
#[derive(Debug, Default)]
pub struct Trie {
    root: Branch,
}

impl Trie {
    /// Adds or replaces a subscription. Says whether it is new.
    pub fn insert(&mut self, topics: &str, group: Option<&str>, subscriber: Subscriber) -> bool {
        let mut node = &mut self.root;
        for level in topics.split('/') {
            node = match level {
                "#" => return node.below.get_or_insert_default().insert(group, subscriber),
                "+" => node.plus.get_or_insert_default(),
                name => {
                    let children = node.children.get_or_insert_default();
                    match children.contains_key(name) {
                        true => children.get_mut(name).expect("it was just found"),
                        false => children.entry(name.into()).or_default(),
                    }
                }
            };
        }
        node.here.get_or_insert_default().insert(group, subscriber)
    }

    /// Removes a subscription. Says whether there was one.
    pub fn remove(&mut self, topics: &str, group: Option<&str>, session: SessionKey) -> bool {
        self.root.remove(topics.split('/'), group, session)
    }

    /// Collects everyone who wants a message of this topic, a session perhaps more than once. Of each group
    /// `is_ready` may prefer some; else it goes around.
    pub fn matches(&self, topic: &str, is_ready: &dyn Fn(SessionKey) -> bool, into: &mut Vec<Subscriber>) {
        // Wildcards at the beginning do not match what begins with `$`.
        self.root.matches(topic.split('/'), topic.starts_with('$'), is_ready, into);
    }
}

/// Filters under numbers: which of them a topic matches.
#[derive(Debug, Default)]
pub struct Filters {
    trie: Trie,
}

impl Filters {
    /// A number may have several filters.
    pub fn new<'a>(filters: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let mut trie = Trie::default();
        for (filter, number) in filters {
            trie.insert(
                filter,
                None,
                Subscriber { session: number, options: SubscriptionOptions::default(), id: None, is_checked: false },
            );
        }
        Self { trie }
    }

    /// Numbers with a filter that matches, each once, in order.
    pub fn matches(&self, topic: &str) -> Vec<u32> {
        let mut found = Vec::new();
        self.trie.matches(topic, &|_| true, &mut found);
        let mut numbers: Vec<u32> = found.iter().map(|subscriber| subscriber.session).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

impl Branch {
    fn remove<'a>(
        &mut self,
        mut levels: impl Iterator<Item = &'a str>,
        group: Option<&str>,
        session: SessionKey,
    ) -> bool {
        match levels.next() {
            None => Subscribers::remove_from(&mut self.here, group, session),
            Some("#") => Subscribers::remove_from(&mut self.below, group, session),
            Some("+") => {
                let Some(plus) = &mut self.plus else { return false };
                let removed = plus.remove(levels, group, session);
                if plus.is_empty() {
                    self.plus = None;
                }
                removed
            }
            Some(name) => {
                let Some(children) = &mut self.children else { return false };
                let Some(child) = children.get_mut(name) else { return false };
                let removed = child.remove(levels, group, session);
                if child.is_empty() {
                    children.remove(name);
                    // A map keeps room for what was once there.
                    if children.is_empty() {
                        self.children = None;
                    }
                }
                removed
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.children.is_none() && self.plus.is_none() && self.here.is_none() && self.below.is_none()
    }

    fn matches<'a>(
        &self,
        mut levels: impl Iterator<Item = &'a str> + Clone,
        no_wildcards: bool,
        is_ready: &dyn Fn(SessionKey) -> bool,
        into: &mut Vec<Subscriber>,
    ) {
        if let Some(below) = self.below.as_ref().filter(|_| !no_wildcards) {
            below.collect(is_ready, into);
        }
        let Some(name) = levels.next() else {
            if let Some(here) = &self.here {
                here.collect(is_ready, into);
            }
            return;
        };
        if let Some(child) = self.children.as_ref().and_then(|children| children.get(name)) {
            child.matches(levels.clone(), false, is_ready, into);
        }
        if let Some(plus) = self.plus.as_ref().filter(|_| !no_wildcards) {
            plus.matches(levels, false, is_ready, into);
        }
    }
}

impl Subscribers {
    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.shared.is_empty()
    }

    fn insert(&mut self, group: Option<&str>, subscriber: Subscriber) -> bool {
        let Some(name) = group else { return insert(&mut self.plain, subscriber) };
        match self.shared.iter_mut().find(|group| &*group.name == name) {
            Some(group) => insert(&mut group.members, subscriber),
            None => {
                self.shared.push(Group { name: name.into(), members: vec![subscriber], next: AtomicUsize::new(0) });
                true
            }
        }
    }

    fn remove_from(place: &mut Option<Box<Self>>, group: Option<&str>, session: SessionKey) -> bool {
        let Some(subscribers) = place else { return false };
        let removed = subscribers.remove(group, session);
        if subscribers.is_empty() {
            *place = None;
        }
        removed
    }

    fn remove(&mut self, group: Option<&str>, session: SessionKey) -> bool {
        let Some(name) = group else { return remove(&mut self.plain, session) };
        let Some(place) = self.shared.iter().position(|group| &*group.name == name) else { return false };
        let removed = remove(&mut self.shared[place].members, session);
        if self.shared[place].members.is_empty() {
            self.shared.swap_remove(place);
        }
        removed
    }

    fn collect(&self, is_ready: &dyn Fn(SessionKey) -> bool, into: &mut Vec<Subscriber>) {
        into.extend_from_slice(&self.plain);
        for group in &self.shared {
            into.push(group.choose(is_ready));
        }
    }
}

impl Group {
    fn choose(&self, is_ready: &dyn Fn(SessionKey) -> bool) -> Subscriber {
        let (count, next) = (self.members.len(), self.next.load(Ordering::Relaxed));
        let place = (0..count)
            .map(|step| (next + step) % count)
            .find(|place| is_ready(self.members[*place].session))
            .unwrap_or(next % count);
        self.next.store((place + 1) % count, Ordering::Relaxed);
        self.members[place]
    }
}

fn insert(into: &mut Vec<Subscriber>, subscriber: Subscriber) -> bool {
    match into.binary_search_by_key(&subscriber.session, |known| known.session) {
        Ok(place) => {
            into[place] = subscriber;
            false
        }
        Err(place) => {
            if into.is_empty() {
                // Mostly it stays the only one.
                into.reserve_exact(1);
            }
            into.insert(place, subscriber);
            true
        }
    }
}

fn remove(from: &mut Vec<Subscriber>, session: SessionKey) -> bool {
    match from.binary_search_by_key(&session, |known| known.session) {
        Ok(place) => {
            from.remove(place);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic;
    use std::collections::BTreeMap;

    fn subscriber(session: SessionKey) -> Subscriber {
        Subscriber { session, options: SubscriptionOptions::default(), id: None, is_checked: false }
    }

    fn found(trie: &mut Trie, topic: &str) -> Vec<SessionKey> {
        let mut found = Vec::new();
        trie.matches(topic, &|_| true, &mut found);
        let mut sessions: Vec<_> = found.iter().map(|subscriber| subscriber.session).collect();
        sessions.sort_unstable();
        sessions
    }

    /// Compares the tree with a list that is searched from end to end, over random subscriptions and topics.
    #[test]
    fn the_tree_finds_whom_a_plain_search_finds() {
        let mut random = random::Random(7);
        let names = ["", "a", "b", "$c", "+", "#"];
        for _ in 0..300 {
            let (mut trie, mut list) = (Trie::default(), BTreeMap::new());
            for _ in 0..60 {
                let levels: Vec<&str> = (0..=random.below(3)).map(|_| names[random.below(6) as usize]).collect();
                let (filter, session) = (levels.join("/"), random.below(4) as SessionKey);
                if !topic::is_filter(&filter, 8) {
                    continue;
                }
                if random.below(3) == 0 {
                    assert_eq!(trie.remove(&filter, None, session), list.remove(&(filter, session)).is_some());
                } else {
                    let is_new = list.insert((filter.clone(), session), ()).is_none();
                    assert_eq!(trie.insert(&filter, None, subscriber(session)), is_new);
                }
                let levels: Vec<&str> = (0..=random.below(3)).map(|_| names[random.below(4) as usize]).collect();
                let name = levels.join("/");
                let expected: Vec<_> = list
                    .keys()
                    .filter(|(filter, _)| topic::matches(filter, &name))
                    .map(|(_, session)| *session)
                    .collect();
                let mut expected = expected;
                expected.sort_unstable();
                assert_eq!(found(&mut trie, &name), expected, "{name} in {:?}", list.keys());
            }
            for (filter, session) in list.keys() {
                assert!(trie.remove(filter, None, *session));
            }
            assert!(trie.root.is_empty());
        }
    }

    #[test]
    fn a_group_takes_turns_and_passes_over_those_who_are_not_ready() {
        let mut trie = Trie::default();
        for session in [1, 2, 3] {
            assert!(trie.insert("a/#", Some("g"), subscriber(session)));
        }
        trie.insert("a/b", Some("g"), subscriber(9));
        let turns = |ready: &dyn Fn(SessionKey) -> bool| {
            let mut found = Vec::new();
            trie.matches("a/b", ready, &mut found);
            assert_eq!(found.len(), 2);
            found[0].session
        };
        assert_eq!([turns(&|_| true), turns(&|_| true), turns(&|_| true), turns(&|_| true)], [1, 2, 3, 1]);
        assert_eq!([turns(&|session| session == 3), turns(&|session| session == 3)], [3, 3]);
        assert_eq!([turns(&|_| false), turns(&|_| false)], [1, 2]);
        assert!(trie.remove("a/#", Some("g"), 2) && !trie.remove("a/#", Some("g"), 2) && !trie.remove("a/#", None, 1));
    }
}
