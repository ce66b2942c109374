//! On which nodes the groups of a deployment are.
//!
//! ```text
//!   keeps something       ─▶ one node, its home: the one that a queue of it names; it stays where it was
//!   `copies`              ─▶ so many nodes that fit: those that have it, the nearest, those that have least;
//!                            where the number follows load, as many as there are until load asks for others
//!   `within`              ─▶ all that fit and are near enough, as far as that is measured
//!   none of these         ─▶ wherever it fits: each node decides for itself, now and when it joins
//! ```
//! How far a node is, an anchor knows of it: so it names the nodes wherever that counts.

use crate::fit::{Miss, lacks_of, nothing_fits};
use crate::groups::{PartGroup, groups_of};
use crate::near::Nearness;
use crate::profile::Profile;
use crate::record::Placed;
use fleet_trust::NodeId;
use manifest::{Copies, Manifest, Name, Near};
use problem::{Code, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// A member of the fleet, as an anchor knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub node: NodeId,
    pub name: String,
    /// None: it has not said what it has since the anchor was started.
    pub profile: Option<Profile>,
    /// Whether it was heard of in the last seconds.
    pub is_there: bool,
    /// The way to others and back, as it has measured it.
    pub round_trips: BTreeMap<NodeId, Duration>,
}

/// Whether to leave copies where they are though their nodes are away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absent {
    /// They come back, and are to have the new form then.
    Stay,
    /// Others take their part until they come back.
    Replace,
}

/// Places all groups of a manifest, as a person asks for it. `before` are the places that hold until now.
///
/// # Errors
/// - [`Code::NothingFits`] names the nearest nodes and what they lack.
/// - [`Code::HomeHeld`]: what is kept would have to move.
/// - [`Code::ManifestConflict`]: several copies of what keeps something; nearness of what is on all nodes.
pub fn place(manifest: &Manifest, before: &[Placed], candidates: &[Candidate]) -> Result<Vec<Placed>, Problem> {
    Placing::new(manifest, before, candidates, Absent::Stay).place_all()
}

/// Places all groups anew, because nodes are away or have come. What cannot be placed now keeps its places.
pub fn replace(manifest: &Manifest, before: &[Placed], candidates: &[Candidate]) -> Vec<Placed> {
    Placing::new(manifest, before, candidates, Absent::Replace).place_what_can_be()
}

/// A number of copies that load asks for.
#[derive(Debug, Clone, Copy)]
pub struct Scaled<'a> {
    pub function: &'a Name,
    pub copies: usize,
    /// The node that loses its copy, where there are to be fewer.
    pub leaves: Option<NodeId>,
    /// What was seen, in words.
    pub why: &'a str,
}

/// The same, but for one function that is to have another number of copies.
pub fn scale(manifest: &Manifest, before: &[Placed], candidates: &[Candidate], scaled: &Scaled<'_>) -> Vec<Placed> {
    let scaled = Some(*scaled);
    Placing { scaled, ..Placing::new(manifest, before, candidates, Absent::Replace) }.place_what_can_be()
}

struct Placing<'a> {
    manifest: &'a Manifest,
    before: &'a [Placed],
    candidates: &'a [Candidate],
    absent: Absent,
    /// A function that is to have another number of copies.
    scaled: Option<Scaled<'a>>,
    /// What the group that is being placed is to be near to.
    nearness: Nearness,
    /// Groups that each node was given so far.
    loads: BTreeMap<NodeId, usize>,
}

impl<'a> Placing<'a> {
    fn new(manifest: &'a Manifest, before: &'a [Placed], candidates: &'a [Candidate], absent: Absent) -> Self {
        let (scaled, nearness, loads) = Default::default();
        Self { manifest, before, candidates, absent, scaled, nearness, loads }
    }

    fn place_all(mut self) -> Result<Vec<Placed>, Problem> {
        groups_of(self.manifest).into_iter().map(|group| self.place(group)).collect()
    }

    /// One group for which there is no place must not keep the others on nodes that are away.
    fn place_what_can_be(mut self) -> Vec<Placed> {
        let groups = groups_of(self.manifest).into_iter();
        groups.map(|group| self.place(group.clone()).unwrap_or_else(|_| self.as_before(group))).collect()
    }

    fn place(&mut self, group: PartGroup) -> Result<Placed, Problem> {
        self.nearness = Nearness::of(&group, self.manifest, self.candidates);
        self.check_near(&group)?;
        let copies = self.copies(&group);
        let nodes = if group.has_home() {
            check_single(&group, copies)?;
            let home = match self.named_home(&group)?.or(self.home_before(&group)?) {
                Some(home) => home,
                // Only a person says that what was kept there is lost.
                None if self.absent == Absent::Replace => return Ok(self.as_before(group)),
                None => *self.best(&group, &BTreeSet::new(), 1)?.first().expect("one is found, or it is an error"),
            };
            Some(BTreeSet::from([home]))
        } else if let Some(copies) = copies {
            Some(self.spread(&group, self.count(&group, copies))?)
        } else if self.nearness.is_demanded() {
            Some(self.all_within(&group)?)
        } else {
            if self.absent == Absent::Stay {
                self.best(&group, &BTreeSet::new(), 1)?;
            }
            None
        };
        nodes.iter().flatten().for_each(|node| *self.loads.entry(*node).or_default() += 1);
        Ok(self.placed(group, nodes))
    }

    fn placed(&self, group: PartGroup, nodes: Option<BTreeSet<NodeId>>) -> Placed {
        let measured = |node: &NodeId| {
            let micros = self.nearness.round_trip(node)?.as_micros();
            Some((*node, u64::try_from(micros).unwrap_or(u64::MAX)))
        };
        let round_trips_us = nodes.iter().flatten().filter_map(measured).collect();
        let follows_load = self.copies(&group).is_some_and(|copies| copies.follow_load());
        let before = || self.places_before(&group).find_map(|placed| placed.scaled.clone()).filter(|_| follows_load);
        let scaled = self.scaled_of(&group).map(|scaled| scaled.why.to_owned()).or_else(before);
        Placed { group, nodes, round_trips_us, scaled }
    }

    /// How many copies there are to be. Where that follows load, as many as there are, until load asks for others.
    fn count(&self, group: &PartGroup, copies: Copies) -> usize {
        let asked = self.scaled_of(group).map(|scaled| scaled.copies);
        asked.unwrap_or_else(|| self.nodes_before(group).len()).clamp(copies.least as usize, copies.most as usize)
    }

    fn scaled_of(&self, group: &PartGroup) -> Option<Scaled<'a>> {
        self.scaled.filter(|scaled| group.functions.contains(scaled.function))
    }

    /// What is to be near to somebody has a choice among nodes, and somebody to be near to.
    fn check_near(&self, group: &PartGroup) -> Result<(), Problem> {
        if self.nearness.is_empty() || self.absent == Absent::Replace {
            return Ok(());
        }
        if let Some(near) = self.nearness.nobody() {
            let what = match near {
                Near::Node(_) => "is called so",
                Near::Label { .. } => "has that label",
            };
            let detail = format!("{}: it is to be near {near}, and no node of the fleet {what}", group.described());
            return Err(Problem::new(Code::NothingFits, detail)
                .with_hint("`lighter fleet` lists the nodes; change place.near, or give a node that name or label"));
        }
        if group.has_home() || self.nearness.is_demanded() || self.copies(group).is_some() {
            return Ok(());
        }
        let detail = format!("{}: place.near chooses among nodes, and all that fit have it", group.described());
        Err(Problem::new(Code::ManifestConflict, detail)
            .with_hint("say how many (place.copies) or how far (place.within), or leave place.near out"))
    }

    /// All that fit, and those that have it and are not known to be too far.
    fn all_within(&self, group: &PartGroup) -> Result<BTreeSet<NodeId>, Problem> {
        let mut nodes: BTreeSet<NodeId> = self.had(group).into_iter().map(|candidate| candidate.node).collect();
        let fitting = self.candidates.iter().filter(|candidate| self.fits(group, candidate) == Some(true));
        nodes.extend(fitting.map(|candidate| candidate.node));
        match self.absent {
            Absent::Replace if nodes.is_empty() => Ok(self.nodes_before(group)),
            Absent::Stay if nodes.is_empty() => Err(self.nothing_fits(group)),
            _ => Ok(nodes),
        }
    }

    /// Nodes for so many copies: those that have one and stay, then others, then those that are away and had one.
    fn spread(&self, group: &PartGroup, copies: usize) -> Result<BTreeSet<NodeId>, Problem> {
        let leaves = self.scaled_of(group).and_then(|scaled| scaled.leaves);
        let mut had = self.had(group);
        had.sort_by_key(|candidate| Some(candidate.node) == leaves);
        let (there, away): (Vec<&Candidate>, Vec<&Candidate>) =
            had.into_iter().partition(|candidate| candidate.is_there || self.absent == Absent::Stay);
        let mut nodes: BTreeSet<NodeId> = there.into_iter().map(|candidate| candidate.node).take(copies).collect();
        match self.best(group, &nodes, copies - nodes.len()) {
            Ok(new) => nodes.extend(new),
            Err(problem) if nodes.is_empty() && away.is_empty() => return Err(problem),
            Err(_) => {}
        }
        let missing = copies - nodes.len();
        nodes.extend(away.into_iter().map(|candidate| candidate.node).take(missing));
        Ok(nodes)
    }

    fn as_before(&self, group: PartGroup) -> Placed {
        let is_named = self.places_before(&group).any(|placed| placed.nodes.is_some());
        let nodes = is_named.then(|| self.nodes_before(&group));
        self.placed(group, nodes)
    }

    fn copies(&self, group: &PartGroup) -> Option<Copies> {
        let functions = group.functions.iter().filter_map(|name| self.manifest.function.get(name));
        functions.filter_map(|function| function.place.as_ref()?.copies).max_by_key(|copies| copies.most)
    }

    /// The places of the groups before that this one goes on with.
    fn places_before<'b>(&'b self, group: &'b PartGroup) -> impl Iterator<Item = &'b Placed> {
        self.before.iter().filter(|placed| placed.group.overlaps(group))
    }

    fn nodes_before(&self, group: &PartGroup) -> BTreeSet<NodeId> {
        self.places_before(group).flat_map(|placed| placed.nodes.iter().flatten().copied()).collect()
    }

    /// The node that the queues of the group name as their home.
    fn named_home(&self, group: &PartGroup) -> Result<Option<NodeId>, Problem> {
        let queues = group.queues.iter().filter_map(|name| Some((name, self.manifest.queue.get(name)?.home.as_ref()?)));
        let mut homes = queues.map(|(queue, home)| (home.as_str(), queue));
        let Some((home, queue)) = homes.next() else { return Ok(None) };
        if let Some((other, more)) = homes.find(|(other, _)| *other != home) {
            let detail = format!(
                "{}: the queue {:?} has its home on {home}, and {:?} on {other}",
                group.described(),
                queue.as_str(),
                more.as_str()
            );
            let problem = Problem::new(Code::ManifestConflict, detail);
            return Err(
                problem.with_hint("give both one home, or have no function handle the one and pop from the other")
            );
        }
        let says = format!("{}: the queue {:?} has its home on {home}", group.described(), queue.as_str());
        let id = NodeId::read(home);
        let named = self.candidates.iter().find(|candidate| candidate.name == home || Some(candidate.node) == id);
        let nothing = |why: &str| Problem::new(Code::NothingFits, format!("{says}, {why}"));
        let named = named.ok_or_else(|| nothing("and no node of the fleet is called so"))?;
        let lacks = self.lacks(group, named).unwrap_or_default();
        if !lacks.is_empty() {
            return Err(nothing(&format!("which lacks {}", lacks.into_iter().collect::<Vec<_>>().join(" and "))));
        }
        match self.home_before(group)? {
            Some(before) if before != named.node => {
                let kept = self.candidate(&before).map_or_else(|| before.to_string(), |kept| kept.name.clone());
                Err(Problem::new(Code::HomeHeld, format!("{says}, and what it keeps is on {kept}")))
            }
            _ => Ok(Some(named.node)),
        }
    }

    /// Where what the group keeps is until now; if it kept none of that, where its functions had their home. A node
    /// that is no member any more is none.
    fn home_before(&self, group: &PartGroup) -> Result<Option<NodeId>, Problem> {
        let keeps = |placed: &Placed| !placed.group.keeps.is_disjoint(&group.keeps);
        let is_kept = self.places_before(group).any(keeps);
        let kept =
            self.places_before(group).filter(|placed| if is_kept { keeps(placed) } else { placed.group.has_home() });
        let homes: BTreeSet<NodeId> = kept.flat_map(|placed| placed.nodes.iter().flatten().copied()).collect();
        let homes: Vec<&Candidate> = homes.iter().filter_map(|home| self.candidate(home)).collect();
        let held = |what: String| Err(Problem::new(Code::HomeHeld, format!("{}: {what}", group.described())));
        match homes[..] {
            [] => Ok(None),
            [home] => match self.lacks(group, home) {
                Some(lacks) if !lacks.is_empty() => {
                    let lacks = lacks.into_iter().collect::<Vec<_>>().join(" and ");
                    held(format!("what it keeps is on {}, which lacks {lacks}", home.name))
                }
                _ => Ok(Some(home.node)),
            },
            [one, other, ..] => held(format!("what it keeps is in part on {} and in part on {}", one.name, other.name)),
        }
    }

    /// The nodes that had the group and may go on with it.
    fn had(&self, group: &PartGroup) -> Vec<&Candidate> {
        let nodes = self.nodes_before(group);
        let candidates = nodes.iter().filter_map(|node| self.candidate(node));
        candidates.filter(|candidate| self.fits(group, candidate).unwrap_or(true)).collect()
    }

    /// Up to `count` more nodes that fit: those that are there before those that are away, the nearest first, of equals
    /// those with the least to do. At least one.
    fn best(&self, group: &PartGroup, without: &BTreeSet<NodeId>, count: usize) -> Result<Vec<NodeId>, Problem> {
        let order = |candidate: &Candidate| {
            let load = self.loads.get(&candidate.node).copied().unwrap_or_default();
            let way = self.nearness.round_trip(&candidate.node).unwrap_or(Duration::MAX);
            (!candidate.is_there, way, load, chance(group, &candidate.node))
        };
        let is_free = |candidate: &Candidate| candidate.is_there || self.absent == Absent::Stay;
        let fits = |candidate: &&Candidate| {
            is_free(candidate) && !without.contains(&candidate.node) && self.fits(group, candidate) == Some(true)
        };
        let mut fitting: Vec<&Candidate> = self.candidates.iter().filter(fits).collect();
        if fitting.is_empty() {
            return Err(self.nothing_fits(group));
        }
        fitting.sort_by_key(|candidate| order(candidate));
        Ok(fitting.into_iter().take(count).map(|candidate| candidate.node).collect())
    }

    /// None: nobody knows.
    fn fits(&self, group: &PartGroup, candidate: &Candidate) -> Option<bool> {
        self.lacks(group, candidate).map(|lacks| lacks.is_empty())
    }

    /// None: nobody knows.
    fn lacks(&self, group: &PartGroup, candidate: &Candidate) -> Option<BTreeSet<String>> {
        let mut lacks = lacks_of(group, self.manifest, candidate.profile.as_ref()?);
        if self.nearness.is_demanded() {
            let had = |placed: &Placed| placed.nodes.as_ref().is_some_and(|nodes| nodes.contains(&candidate.node));
            let has_it = self.places_before(group).any(had);
            lacks.extend(self.nearness.lacks(&candidate.node, has_it));
        }
        Some(lacks)
    }

    fn nothing_fits(&self, group: &PartGroup) -> Problem {
        let misses = self.candidates.iter().map(|candidate| Miss {
            name: &candidate.name,
            lacks: self.lacks(group, candidate),
            way: self.nearness.round_trip(&candidate.node),
        });
        nothing_fits(group, misses.collect())
    }

    fn candidate(&self, node: &NodeId) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.node == *node)
    }
}

/// What keeps something has one home, so neither several copies nor a number that follows load.
fn check_single(group: &PartGroup, copies: Option<Copies>) -> Result<(), Problem> {
    let Some(copies) = copies.filter(|copies| copies.most > 1) else { return Ok(()) };
    let (described, keeps) = (group.described(), group.keeps.iter().cloned().collect::<Vec<_>>().join(", "));
    let detail =
        format!("{described}: it keeps something ({keeps}), so it is on one node, and place.copies is {copies}");
    Err(Problem::new(Code::ManifestConflict, detail)
        .with_hint("leave copies out, or take the stores and queues from its grants"))
}

/// Spreads groups over nodes that are otherwise as good as each other, always in the same way.
fn chance(group: &PartGroup, node: &NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (group.described(), node.0).hash(&mut hasher);
    hasher.finish()
}
