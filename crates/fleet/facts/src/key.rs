//! Names of facts and of nodes, and which node may write which fact.

use std::fmt;
use std::sync::Arc;

/// Bytes of a key; a longer one is none.
const KEY_BYTES_MAX: usize = 200;
/// Bytes of a node's name; a longer one is none.
const NODE_BYTES_MAX: usize = 63;

/// The name of a fact: words of `A-Z`, `a-z`, `0-9`, `-` and `_`, joined by dots, such as `home.orders`. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// Which facts: those whose keys begin with these words; without a word, all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prefix(Option<Key>);

/// The name of a node in its fleet: 1 to 63 bytes of `a-z`, `0-9` and `-`, not beginning or ending with `-`. Cheap to
/// clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

/// Who may write a fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Writer {
    /// The node that it tells of, and anchors.
    Node(NodeName),
    /// Anchors, after they have checked a signed request.
    Anchors,
}

impl Key {
    /// None for what is no key.
    pub fn new(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_plain);
        (text.len() <= KEY_BYTES_MAX && text.split('.').all(is_word)).then(|| Self(text.into()))
    }

    /// A node writes `node.ITS-NAME` and what is below it; all else is written by anchors.
    pub fn writer(&self) -> Writer {
        let mut words = self.0.split('.');
        let named = if words.next() == Some("node") { words.next().and_then(NodeName::new) } else { None };
        named.map_or(Writer::Anchors, Writer::Node)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Prefix {
    /// All facts.
    pub const ALL: Self = Self(None);

    /// Facts whose keys have these words first. None for what is no key.
    pub fn new(text: &str) -> Option<Self> {
        Key::new(text).map(|key| Self(Some(key)))
    }

    /// The first words; none for all facts.
    pub fn words(&self) -> Option<&str> {
        self.0.as_ref().map(Key::as_str)
    }

    /// `home` holds `home.orders` and not `homes.orders`, nor a key `home`.
    pub fn holds(&self, key: &Key) -> bool {
        self.words().is_none_or(|words| key.0.strip_prefix(words).is_some_and(|rest| rest.starts_with('.')))
    }
}

impl NodeName {
    /// None for what is no name.
    pub fn new(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_whole = !text.is_empty() && !text.starts_with('-') && !text.ends_with('-');
        (is_whole && text.len() <= NODE_BYTES_MAX && text.bytes().all(is_plain)).then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).expect("it is a key")
    }

    #[test]
    fn a_key_is_plain_words_joined_by_dots() {
        for text in ["node.pi-7", "fn.Plate_2", "a", &"a".repeat(KEY_BYTES_MAX)] {
            assert_eq!(key(text).as_str(), text);
        }
        for text in ["", ".", "a.", ".a", "a..b", "a.*", "a.>", "a b", "a/b", "é", &"a".repeat(KEY_BYTES_MAX + 1)] {
            assert!(Key::new(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_prefix_is_whole_words() {
        let homes = Prefix::new("home").expect("it is a prefix");
        let held = ["home.a", "home.a.b"].map(key);
        assert!(held.iter().all(|key| homes.holds(key) && Prefix::ALL.holds(key)));
        assert!(!["home", "homes.a", "fn.home.a"].map(key).iter().any(|key| homes.holds(key)));
    }

    #[test]
    fn a_node_writes_its_own_record_only() {
        let node = Writer::Node(NodeName::new("pi-7").expect("it is a name"));
        assert_eq!((key("node.pi-7").writer(), key("node.pi-7.report").writer()), (node.clone(), node));
        for text in ["home.orders", "node", "node.Pi", "fn.node.pi-7"] {
            assert_eq!(key(text).writer(), Writer::Anchors, "{text}");
        }
    }

    #[test]
    fn a_name_of_a_node_is_part_of_a_host_name() {
        for text in ["pi-7", "7", &"a".repeat(NODE_BYTES_MAX)] {
            assert_eq!(NodeName::new(text).expect("it is a name").as_str(), text);
        }
        for text in ["", "-a", "a-", "Pi", "a.b", "a*", ">", &"a".repeat(NODE_BYTES_MAX + 1)] {
            assert!(NodeName::new(text).is_none(), "{text:?}");
        }
    }
}
