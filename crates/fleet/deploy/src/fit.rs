//! What a node lacks for a function, and the three nodes that lack the least.

use crate::groups::PartGroup;
use crate::profile::Profile;
use manifest::{Function, Manifest, Term, TermWanted, bytes_as_text};
use problem::{Code, Problem};
use std::collections::BTreeSet;
use std::time::Duration;

/// Nodes that are named when none fits.
const NEAREST: usize = 3;

/// What a node lacks for a function, each in words: `microvm`, `site=harbour (it is bridge)`. Empty: it fits.
pub fn lacks(function: &Function, profile: &Profile) -> Vec<String> {
    let class = function.isolation.as_str();
    let mut lacks = Vec::new();
    if !profile.words.contains(class) {
        lacks.push(class.to_owned());
    }
    let needed_bytes = function.limits.memory_bytes;
    if profile.memory_bytes < needed_bytes {
        lacks.push(format!("limits.memory_bytes of {needed_bytes} (it may hold {})", profile.memory_bytes));
    }
    let terms = function.place.iter().flat_map(|place| &place.terms);
    lacks.extend(terms.filter(|term| !holds(term, profile)).map(|term| in_words(term, profile)));
    lacks
}

/// What a node lacks for all functions of a group, each thing once.
pub fn lacks_of(group: &PartGroup, manifest: &Manifest, profile: &Profile) -> BTreeSet<String> {
    let functions = group.functions.iter().filter_map(|name| manifest.function.get(name));
    functions.flat_map(|function| lacks(function, profile)).collect()
}

/// A node that does not fit.
pub struct Miss<'a> {
    pub name: &'a str,
    /// None: nobody knows what it has.
    pub lacks: Option<BTreeSet<String>>,
    /// How far it is from what the group is to be near to, where that counts and is known.
    pub way: Option<Duration>,
}

/// No node fits: says what the nearest ones lack.
pub fn nothing_fits(group: &PartGroup, mut misses: Vec<Miss<'_>>) -> Problem {
    misses.sort_by_key(|miss| {
        let count = miss.lacks.as_ref().map_or(usize::MAX, BTreeSet::len);
        (count, miss.way.unwrap_or(Duration::MAX), miss.name.to_owned())
    });
    let said = misses.iter().take(NEAREST).map(|Miss { name, lacks, .. }| match lacks {
        Some(lacks) => format!("{name} lacks {}", lacks.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")),
        None => format!("{name} lacks word of what it has (it has not been heard of)"),
    });
    let said: Vec<String> = said.collect();
    let detail = format!("{}: none of {} nodes fits; nearest: {}", group.described(), misses.len(), said.join("; "));
    Problem::new(Code::NothingFits, detail)
}

fn holds(term: &Term, profile: &Profile) -> bool {
    let is_so = match &term.wanted {
        TermWanted::Word(word) => profile.words.contains(word) || profile.labels.contains_key(word),
        TermWanted::Label { key, values } => profile.labels.get(key).is_some_and(|value| values.contains(value)),
        TermWanted::Memory { least_bytes } => profile.memory_bytes >= *least_bytes,
    };
    is_so != term.is_negated
}

fn in_words(term: &Term, profile: &Profile) -> String {
    match &term.wanted {
        TermWanted::Label { key, .. } => match profile.labels.get(key) {
            Some(value) => format!("{term} ({key} is {value})"),
            None => format!("{term} (it has no label {key})"),
        },
        TermWanted::Memory { .. } => format!("{term} (it has {})", bytes_as_text(profile.memory_bytes)),
        TermWanted::Word(_) => term.to_string(),
    }
}
