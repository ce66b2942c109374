//! The nodes of a fleet as one of them knows them. Pure: what was heard comes in, rows go out.
//!
//! ```text
//!   a node, on its own link  ─▶ hear  ─▶ of itself, now
//!   an anchor                ─▶ learn ─▶ of any node, and how long ago the anchor heard of it
//!   the list of the revoked  ─▶ forget
//! ```
//! Of two words about a node the one that was heard later holds.

use fleet_trust::members::MEMBERS_MAX;
use fleet_trust::{Address, NodeId, check_name};
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::{Duration, Instant};

/// Bytes of a version. A longer one refuses the hello.
pub const VERSION_BYTES_MAX: usize = 32;
/// Bytes of the address of an API. A longer one refuses the hello.
pub const API_BYTES_MAX: usize = 280;
/// Nodes that one hello of an anchor tells of. The next hello tells of the next ones.
pub const TOLD_MAX: usize = 128;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    /// Where it listens for other nodes.
    pub address: Option<Address>,
    pub version: String,
    pub incarnation: u64,
    /// Where its API is for devices that reach the fleet, as `https://pi-7.example.org:8701`. None: for nobody beyond
    /// its machine, or its program is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
}

/// What an anchor says of another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldNode {
    pub node: NodeId,
    pub is_anchor: bool,
    pub record: Record,
    /// How long ago the anchor has heard of it. None: not since it was started.
    pub heard_ms: Option<u64>,
}

/// One line of the list that people see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub node: NodeId,
    pub record: Record,
    pub is_anchor: bool,
    pub is_this_node: bool,
    /// How long ago it was heard of. None: not since this node was started.
    pub heard: Option<Duration>,
}

/// See the top of this file.
#[derive(Debug)]
pub struct Table {
    own: NodeId,
    nodes: BTreeMap<NodeId, Known>,
    /// Counts the changes of what is said of nodes, but for when they were heard of.
    revision: u64,
}

#[derive(Debug, Clone)]
struct Known {
    record: Record,
    is_anchor: bool,
    heard: Option<Instant>,
    /// The table's revision when record or role last changed.
    changed: u64,
}

/// How far a link has told a table: one part with each hello, and from the beginning again after the last one.
#[derive(Debug, Default)]
pub struct Telling {
    /// The next part begins behind this node.
    after: Option<NodeId>,
    /// The table's revision when this round began.
    began: u64,
    /// What was last changed up to this revision has been told whole.
    whole_upto: u64,
}

/// What one hello tells of other nodes.
#[derive(Debug, Default)]
pub struct Part {
    pub known: Vec<ToldNode>,
    /// Of nodes of which all else was told before: how long ago they were heard of.
    pub heard_ms: BTreeMap<NodeId, u64>,
}

impl Record {
    /// # Errors
    /// [`Code::FleetMessage`]: a field is not as it should be. It would end up in logs and on screens.
    pub fn check(&self) -> Result<(), Problem> {
        let is_version =
            self.version.len() <= VERSION_BYTES_MAX && self.version.bytes().all(|byte| byte.is_ascii_graphic());
        if is_version && check_name(&self.name).is_ok() && self.api.as_deref().is_none_or(is_api) {
            return Ok(());
        }
        Err(Problem::new(Code::FleetMessage, "a node's name, version or API is not as it should be"))
    }
}

/// Whether this is the address of an API: a scheme, a host and a number, and nothing behind them.
fn is_api(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    url.len() <= API_BYTES_MAX && rest.is_some_and(|rest| Address::read(rest).is_some())
}

impl Table {
    pub fn new(own: NodeId) -> Self {
        Self { own, nodes: BTreeMap::new(), revision: 0 }
    }

    /// A node says this of itself. Says whether something new is to be kept on disk.
    ///
    /// # Errors
    /// [`Code::NodeDoubled`]: a later life of this node is known.
    pub fn hear(&mut self, node: NodeId, record: Record, is_anchor: bool, now: Instant) -> Result<bool, Problem> {
        let known = self.nodes.get(&node);
        if let Some(known) = known.filter(|known| known.record.incarnation > record.incarnation) {
            let detail = format!(
                "the node {node} is at incarnation {}, and this machine at {}",
                known.record.incarnation, record.incarnation
            );
            return Err(Problem::new(Code::NodeDoubled, detail));
        }
        Ok(self.put(node, (record, is_anchor), Some(now)))
    }

    /// What to call a node that says `said` of itself: what it was called before, because a node keeps its name for its
    /// life. A name that another node has is not believed; an anchor may say so later.
    pub fn name_of(&self, node: &NodeId, said: String) -> String {
        match self.nodes.get(node) {
            Some(known) => known.record.name.clone(),
            None if self.nodes.values().any(|other| other.record.name == said) => node.to_string(),
            None => said,
        }
    }

    /// What is known of another node.
    pub fn record(&self, node: &NodeId) -> Option<&Record> {
        self.nodes.get(node).map(|known| &known.record)
    }

    /// An anchor says this of a node. Says whether something new is to be kept on disk.
    pub fn learn(&mut self, told: ToldNode, now: Instant) -> bool {
        let ToldNode { node, is_anchor, record, heard_ms } = told;
        // The ledger has names, whatever the node has said of itself since.
        let is_renamed = self.rename(&node, &record.name) | self.appoint(&node, is_anchor);
        let heard = heard_ms.and_then(|ms| now.checked_sub(Duration::from_millis(ms)));
        let known = self.nodes.get(&node);
        let is_later = known.is_none_or(|known| heard > known.heard || known.heard.is_none());
        (node != self.own && is_later && self.put(node, (record, is_anchor), heard)) || is_renamed
    }

    /// An anchor has heard of a node so long ago. It has said all else of it before.
    pub fn hear_again(&mut self, node: &NodeId, heard_ms: u64, now: Instant) {
        let heard = now.checked_sub(Duration::from_millis(heard_ms));
        if let Some(known) = self.nodes.get_mut(node) {
            known.heard = known.heard.max(heard);
        }
    }

    /// The ledger has this node: an anchor knows of it before it has heard of it.
    pub fn admit(&mut self, node: NodeId, name: &str, is_anchor: bool) {
        if self.nodes.contains_key(&node) {
            self.rename(&node, name);
            self.appoint(&node, is_anchor);
        } else if node != self.own {
            let record =
                Record { name: name.to_owned(), address: None, version: String::new(), incarnation: 0, api: None };
            self.put(node, (record, is_anchor), None);
        }
    }

    /// Says whether it had another name.
    fn rename(&mut self, node: &NodeId, name: &str) -> bool {
        let Some(known) = self.nodes.get_mut(node).filter(|known| known.record.name != name) else { return false };
        self.revision += 1;
        known.changed = self.revision;
        name.clone_into(&mut known.record.name);
        true
    }

    /// Says whether it was another one: an anchor, or none.
    fn appoint(&mut self, node: &NodeId, is_anchor: bool) -> bool {
        let Some(known) = self.nodes.get_mut(node).filter(|known| known.is_anchor != is_anchor) else { return false };
        self.revision += 1;
        (known.changed, known.is_anchor) = (self.revision, is_anchor);
        true
    }

    /// Takes those out for whom this is so.
    pub fn forget(&mut self, is_gone: impl Fn(&NodeId) -> bool) {
        self.nodes.retain(|node, _| !is_gone(node));
    }

    /// The next part: up to [`TOLD_MAX`] nodes. `is_brief`: what was told whole before is not told whole again.
    pub fn tell(&self, telling: &mut Telling, is_brief: bool, now: Instant) -> Part {
        let from = telling.after.map_or(Bound::Unbounded, Bound::Excluded);
        if telling.after.is_none() {
            telling.began = self.revision;
        }
        let (mut part, mut count, mut last) = (Part::default(), 0, None);
        for (node, known) in self.nodes.range((from, Bound::Unbounded)).take(TOLD_MAX) {
            (count, last) = (count + 1, Some(*node));
            let heard_ms = known.heard.map(|at| now.saturating_duration_since(at).as_millis() as u64);
            if is_brief && known.changed <= telling.whole_upto {
                part.heard_ms.extend(heard_ms.map(|ms| (*node, ms)));
            } else {
                let (is_anchor, record) = (known.is_anchor, known.record.clone());
                part.known.push(ToldNode { node: *node, is_anchor, record, heard_ms });
            }
        }
        telling.after = last.filter(|_| count == TOLD_MAX);
        if telling.after.is_none() {
            telling.whole_upto = telling.began;
        }
        part
    }

    /// All nodes, this one first. `own` is what it says of itself.
    pub fn rows(&self, own: Record, is_anchor: bool, now: Instant) -> Vec<Row> {
        let first = Row { node: self.own, record: own, is_anchor, is_this_node: true, heard: Some(Duration::ZERO) };
        let others = self.nodes.iter().map(|(node, known)| Row {
            node: *node,
            record: known.record.clone(),
            is_anchor: known.is_anchor,
            is_this_node: false,
            heard: known.heard.map(|at| now.saturating_duration_since(at)),
        });
        std::iter::once(first).chain(others).collect()
    }

    /// Where anchors listen.
    pub fn anchors(&self) -> Vec<Address> {
        self.nodes.values().filter(|known| known.is_anchor).filter_map(|known| known.record.address.clone()).collect()
    }

    /// Nodes that were heard of within `most`, with where they listen.
    pub fn present(&self, most: Duration, now: Instant) -> Vec<(NodeId, Address)> {
        let is_present = |known: &Known| known.heard.is_some_and(|at| now.saturating_duration_since(at) <= most);
        let present = self.nodes.iter().filter(|(_, known)| is_present(known));
        present.filter_map(|(node, known)| Some((*node, known.record.address.clone()?))).collect()
    }

    /// Other nodes that were not heard of for so long, with their addresses: those longest ago first.
    pub fn silent(&self, least: Duration, now: Instant) -> Vec<(NodeId, Address)> {
        let is_silent = |known: &Known| known.heard.is_none_or(|at| now.saturating_duration_since(at) >= least);
        let mut silent: Vec<(&NodeId, &Known)> = self.nodes.iter().filter(|(_, known)| is_silent(known)).collect();
        silent.sort_by_key(|(_, known)| known.heard);
        silent.into_iter().filter_map(|(node, known)| Some((*node, known.record.address.clone()?))).collect()
    }

    fn put(&mut self, node: NodeId, (record, is_anchor): (Record, bool), heard: Option<Instant>) -> bool {
        if self.nodes.len() >= MEMBERS_MAX && !self.nodes.contains_key(&node) {
            return false;
        }
        let before = self.nodes.get(&node);
        let is_new = before.is_none_or(|known| known.record != record);
        let unchanged = before.filter(|known| !is_new && known.is_anchor == is_anchor).map(|known| known.changed);
        let changed = unchanged.unwrap_or_else(|| {
            self.revision += 1;
            self.revision
        });
        self.nodes.insert(node, Known { record, is_anchor, heard, changed });
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u8) -> NodeId {
        NodeId([number; 16])
    }

    fn record(name: &str, incarnation: u64) -> Record {
        Record {
            name: name.to_owned(),
            address: Address::read("192.0.2.7:8702"),
            version: "0.1.0".to_owned(),
            incarnation,
            api: Some("https://192.0.2.7:8701".to_owned()),
        }
    }

    fn told(number: u8, name: &str, heard_ms: Option<u64>) -> ToldNode {
        ToldNode { node: node(number), is_anchor: false, record: record(name, 1), heard_ms }
    }

    fn name(table: &Table, number: u8) -> String {
        let rows = table.rows(record("own", 1), true, Instant::now());
        rows.into_iter().find(|row| row.node == node(number)).map_or_else(String::new, |row| row.record.name)
    }

    #[test]
    fn a_name_is_not_taken_by_saying_it() {
        let now = Instant::now();
        let mut table = Table::new(node(0));
        table.hear(node(9), record("server-1", 1), true, now).unwrap();
        // A node that is not known yet, and one that is, say that they are the server.
        let said = table.name_of(&node(3), "server-1".to_owned());
        table.hear(node(3), record(&said, 1), false, now).unwrap();
        assert_eq!(name(&table, 3), node(3).to_string());
        let told = |said: &str| ToldNode { node: node(3), is_anchor: false, record: record(said, 1), heard_ms: None };
        assert!(table.learn(told("pi-3"), now));
        assert_eq!(table.name_of(&node(3), "server-1".to_owned()), "pi-3");
        assert_eq!((name(&table, 3), name(&table, 9)), ("pi-3".to_owned(), "server-1".to_owned()));
        assert_eq!(table.name_of(&node(4), "pi-4".to_owned()), "pi-4");
    }

    #[test]
    fn the_later_word_about_a_node_holds() {
        let now = Instant::now() + Duration::from_secs(100);
        let mut table = Table::new(node(1));
        let said = |version: &str| Record { version: version.to_owned(), ..record("b", 1) };
        let told = |version: &str, heard_ms| ToldNode { record: said(version), ..told(2, "b", heard_ms) };
        let version = |table: &Table| table.rows(record("own", 1), true, now)[1].record.version.clone();
        assert!(table.learn(told("from-an-anchor", Some(50_000)), now));
        assert!(table.hear(node(2), said("itself"), false, now - Duration::from_secs(30)).unwrap());
        assert!(!table.learn(told("older", Some(40_000)), now));
        assert!(!table.learn(told("never-heard", None), now));
        assert_eq!(version(&table), "itself");
        assert!(table.learn(told("newer", Some(1_000)), now));
        assert_eq!(version(&table), "newer");
    }

    #[test]
    fn an_earlier_life_is_refused_and_the_same_is_not() {
        let mut table = Table::new(node(1));
        let now = Instant::now();
        table.hear(node(2), record("b", 3), false, now).unwrap();
        table.hear(node(2), record("b", 3), false, now).unwrap();
        assert_eq!(table.hear(node(2), record("b", 2), false, now).unwrap_err().code, Code::NodeDoubled);
    }

    #[test]
    fn a_node_learns_nothing_of_itself_and_forgets_the_revoked() {
        let mut table = Table::new(node(1));
        let now = Instant::now();
        assert!(!table.learn(told(1, "somebody-else", Some(0)), now));
        table.learn(told(2, "b", Some(0)), now);
        assert_eq!((table.record(&node(1)), table.record(&node(2))), (None, Some(&record("b", 1))));
        table.forget(|one| *one == node(2));
        assert_eq!(table.rows(record("own", 1), true, now).len(), 1);
    }

    #[test]
    fn a_large_fleet_is_told_part_by_part() {
        let mut table = Table::new(node(0));
        let now = Instant::now();
        for number in 0..300_u16 {
            let [low, high] = number.to_le_bytes();
            let id = NodeId(std::array::from_fn(|at| [high, low, 1][at.min(2)]));
            table.hear(id, record("x", 1), false, now).unwrap();
        }
        let (mut telling, mut sizes) = (Telling::default(), Vec::new());
        while sizes.is_empty() || telling.after.is_some() {
            sizes.push(table.tell(&mut telling, false, now).known.len());
        }
        assert_eq!(sizes, [128, 128, 44]);
        let again: Vec<_> = (0..3).map(|_| table.tell(&mut telling, true, now).heard_ms.len()).collect();
        assert_eq!(again, sizes);
    }

    #[test]
    fn what_was_told_whole_is_told_whole_again_only_when_it_has_changed() {
        let (mut table, mut other) = (Table::new(node(0)), Table::new(node(9)));
        let begin = Instant::now() + Duration::from_secs(100);
        let (mut telling, mut told) = (Telling::default(), Vec::new());
        let steps: [&dyn Fn(&mut Table); 5] = [
            &|table| _ = table.hear(node(1), record("a", 1), false, begin),
            // Nothing but time.
            &|table| _ = table.hear(node(1), record("a", 1), false, begin + Duration::from_secs(2)),
            &|table| _ = table.hear(node(1), record("a", 2), false, begin + Duration::from_secs(3)),
            &|table| table.admit(node(1), "renamed", false),
            &|table| table.admit(node(2), "new", false),
        ];
        for step in steps {
            step(&mut table);
            let now = begin + Duration::from_secs(5);
            let part = table.tell(&mut telling, true, now);
            told.push((part.known.len(), part.heard_ms.len()));
            part.known.into_iter().for_each(|told| _ = other.learn(told, now));
            part.heard_ms.iter().for_each(|(node, ms)| other.hear_again(node, *ms, now));
            let rows = |table: &Table| table.rows(record("own", 1), true, now)[1..].to_vec();
            assert_eq!(rows(&other), rows(&table), "both know the same");
        }
        // The last one was never heard of: there is nothing to say of it but that it is there.
        assert_eq!(told, [(1, 0), (0, 1), (1, 0), (1, 0), (1, 1)]);
        let part = table.tell(&mut telling, true, begin);
        assert_eq!((part.known.len(), part.heard_ms.len()), (0, 1));
        assert_eq!(table.tell(&mut telling, false, begin).known.len(), 2, "a node of an older version is told all");
    }

    #[test]
    fn those_that_were_silent_for_longest_are_dialed_first() {
        let mut table = Table::new(node(0));
        let now = Instant::now() + Duration::from_secs(100);
        table.hear(node(1), record("a", 1), false, now).unwrap();
        table.hear(node(2), record("b", 1), false, now - Duration::from_secs(20)).unwrap();
        table.learn(told(3, "c", None), now);
        let silent: Vec<NodeId> =
            table.silent(Duration::from_secs(10), now).into_iter().map(|(node, _)| node).collect();
        assert_eq!(silent, [node(3), node(2)]);
    }

    #[test]
    fn what_would_spoil_a_screen_is_refused() {
        record("pi-7", 1).check().unwrap();
        let long = "1".repeat(VERSION_BYTES_MAX + 1);
        for (name, version) in [("Pi 7", "1"), ("", "1"), ("pi", "1 \u{1b}[2J"), ("pi", &long)] {
            let record = Record { version: version.to_owned(), ..record(name, 1) };
            assert_eq!(record.check().unwrap_err().code, Code::FleetMessage, "{name} {version}");
        }
        let long = format!("https://{}:1", "a".repeat(API_BYTES_MAX));
        for api in
            ["", "https://", "ftp://a:1", "https://a", "https://a:1/x", "https://a:1\r\nx: y", "https://x@a:1", &long]
        {
            let record = Record { api: Some(api.to_owned()), ..record("pi-7", 1) };
            assert_eq!(record.check().unwrap_err().code, Code::FleetMessage, "{api}");
        }
    }
}
