//! What a node lacks for a function, and the three nodes that lack the least.

use crate::groups::PartGroup;
use crate::places::Candidate;
use crate::profile::Profile;
use manifest::{Function, Manifest, Term, TermWanted, bytes_as_text};
use problem::{Code, Problem};
use std::collections::BTreeSet;

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

/// No node fits: says what the nearest ones lack.
pub fn nothing_fits(group: &PartGroup, manifest: &Manifest, candidates: &[Candidate]) -> Problem {
    let lacks = |candidate: &Candidate| match &candidate.profile {
        Some(profile) => lacks_of(group, manifest, profile),
        None => BTreeSet::from(["word of what it has (it has not been heard of)".to_owned()]),
    };
    let mut nearest: Vec<(&Candidate, BTreeSet<String>)> =
        candidates.iter().map(|candidate| (candidate, lacks(candidate))).collect();
    nearest.sort_by(|(one, lacks), (other, more)| {
        let order = |one: &Candidate, lacks: &BTreeSet<String>| (one.profile.is_none(), lacks.len());
        order(one, lacks).cmp(&order(other, more)).then_with(|| one.name.cmp(&other.name))
    });
    let said: Vec<String> = nearest
        .into_iter()
        .take(NEAREST)
        .map(|(candidate, lacks)| {
            format!("{} lacks {}", candidate.name, lacks.into_iter().collect::<Vec<_>>().join(" and "))
        })
        .collect();
    let detail =
        format!("{}: none of {} nodes fits; nearest: {}", group.described(), candidates.len(), said.join("; "));
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
