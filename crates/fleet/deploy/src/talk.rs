//! What two nodes tell each other of deployments: how far each is, and whether one knows more.
//!
//! ```text
//!   one ── NodeTold: what I have, how far I am, the digest of what I know ──▶ other     or ToldAgain: as before
//!       ◀── TalkReply: its digest; where that differs, its serials ─────────
//!       ── fetches the records that are newer there, sends those that are newer here
//! ```

use crate::profile::Profile;
use crate::records::DEPLOYMENTS_MAX;
use fleet_trust::NodeId;
use manifest::Name;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of either message. A longer one is refused before it is read.
pub const TALK_BYTES_MAX: usize = 256 << 10;
/// Nodes to which one says how far it is: those that it measures, and those that it has calls for beside. Of more, the
/// nearest.
pub const ROUND_TRIPS_MAX: usize = 64;
/// Functions of which a node says how busy they are. Of more, those that come first by name; of the others the number
/// of copies stays as it is.
pub const LOADS_MAX: usize = 256;
/// Bytes of a problem's text. What is beyond is cut.
const TEXT_BYTES_MAX: usize = 1_000;
/// The same where many problems would not go into one message. Without texts all do.
const SHORTER_BYTES: [usize; 3] = [300, 60, 0];

/// What a node says first. Unknown fields are left out of account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeTold {
    pub profile: Profile,
    pub digest: u64,
    /// Revision of the fleet's tokens that it has; 0: none.
    #[serde(default)]
    pub tokens: u64,
    pub progress: BTreeMap<Name, Progress>,
    /// The way to other nodes and back, as it measured it on its links; at most [`ROUND_TRIPS_MAX`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub round_trips_us: BTreeMap<NodeId, u64>,
    /// Of functions here whose number of copies follows load, at most [`LOADS_MAX`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub loads: BTreeMap<Name, FunctionLoad>,
}

/// What a function has done on a node since the node was started. All but the room are sums, so that a report may be
/// late or lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionLoad {
    /// When this was so, by the node's own clock from its start.
    pub at_ms: u64,
    /// The milliseconds of all calls in which they ran or waited for their turn.
    pub busy_ms: u64,
    /// The milliseconds of a core that calls have used.
    pub cpu_ms: u64,
    /// Calls that were refused for want of a place.
    pub refused: u64,
    /// Calls that run at once.
    pub places: u32,
    pub cores: u32,
}

/// How far a node is with one deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Of the record that this is about.
    pub serial: u64,
    pub stage: Stage,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// What became of calls and events of its functions. Said while a form is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<Runs>,
}

/// What became of the runs of one deployment's functions at a node, since the node was started. Runs that ended before
/// they had a unit are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// The form that runs there.
    pub revision: u64,
    /// Of this form.
    pub now: RunCounts,
    /// Of the form before it.
    pub before: RunCounts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCounts {
    /// All that have ended, those that failed too.
    pub ended: u64,
    /// Those that failed by the function's own fault.
    pub failed: u64,
}

/// A problem, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// As `L2006`.
    pub code: String,
    pub detail: String,
    pub hint: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Nothing of it is for this node.
    Elsewhere,
    /// It fetches images, compiles, starts.
    Working,
    /// Calls are taken.
    Ready,
    /// It could not, and tries again later.
    Failed,
}

/// What a node says first where nothing has changed since it said all of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldAgain {
    /// A hash of the bytes of what it said.
    pub again: u64,
}

/// What it is answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TalkReply {
    pub digest: u64,
    /// Revision of the fleet's tokens that it has; 0: none.
    #[serde(default)]
    pub tokens: u64,
    /// Where the digests differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serials: Option<BTreeMap<Name, u64>>,
    /// What was said is kept: the next time it is enough to say that it is as before.
    #[serde(default)]
    pub keeps: bool,
    /// What was as before is not known here: all of it is to be said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

impl From<&Problem> for Trouble {
    fn from(problem: &Problem) -> Self {
        let (detail, hint) = (problem.detail.clone().into_owned(), problem.hint.clone().into_owned());
        let mut trouble = Self { code: problem.code.to_string(), detail, hint };
        trouble.cut(TEXT_BYTES_MAX);
        trouble
    }
}

impl Trouble {
    fn cut(&mut self, bytes_max: usize) {
        for text in [&mut self.detail, &mut self.hint] {
            text.truncate(text.floor_char_boundary(bytes_max));
        }
    }
}

impl NodeTold {
    /// As it is sent: at most [`TALK_BYTES_MAX`]. For that, loads and ways go, and counts of runs where a problem says
    /// more; then texts of problems are cut, and then all counts go.
    pub fn write(mut self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(&self).expect("it is plain data");
        if bytes.len() > TALK_BYTES_MAX {
            let failed = self.progress.values_mut().filter(|progress| progress.trouble.is_some());
            failed.for_each(|progress| progress.runs = None);
            (self.loads, self.round_trips_us) = Default::default();
            bytes = serde_json::to_vec(&self).expect("it is plain data");
        }
        for text_bytes_max in SHORTER_BYTES {
            if bytes.len() <= TALK_BYTES_MAX {
                break;
            }
            let troubles = self.progress.values_mut().filter_map(|progress| progress.trouble.as_mut());
            troubles.for_each(|trouble| trouble.cut(text_bytes_max));
            bytes = serde_json::to_vec(&self).expect("it is plain data");
        }
        if bytes.len() > TALK_BYTES_MAX {
            self.progress.values_mut().for_each(|progress| progress.runs = None);
            bytes = serde_json::to_vec(&self).expect("it is plain data");
        }
        bytes
    }

    /// # Errors
    /// [`Code::FleetMessage`].
    pub fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let told: Self = read(bytes)?;
        told.profile.check()?;
        let texts = told.progress.values().filter_map(|progress| progress.trouble.as_ref());
        if texts.flat_map(|one| [&one.code, &one.detail, &one.hint]).any(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(garbled(format!("a text of more than {TEXT_BYTES_MAX} bytes")));
        }
        if told.round_trips_us.len() > ROUND_TRIPS_MAX {
            return Err(garbled(format!("ways to {} nodes, {ROUND_TRIPS_MAX} at most", told.round_trips_us.len())));
        }
        if told.loads.len() > LOADS_MAX {
            return Err(garbled(format!("loads of {} functions, {LOADS_MAX} at most", told.loads.len())));
        }
        match told.progress.len() {
            count if count > DEPLOYMENTS_MAX => Err(garbled(format!("{count} deployments, {DEPLOYMENTS_MAX} at most"))),
            _ => Ok(told),
        }
    }
}

impl ToldAgain {
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is plain data")
    }

    /// None: it is something else.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl TalkReply {
    /// # Errors
    /// [`Code::FleetMessage`].
    pub fn read(bytes: &[u8]) -> Result<Self, Problem> {
        let answer: Self = read(bytes)?;
        match answer.serials.as_ref().map_or(0, BTreeMap::len) {
            count if count > DEPLOYMENTS_MAX => Err(garbled(format!("{count} deployments, {DEPLOYMENTS_MAX} at most"))),
            _ => Ok(answer),
        }
    }
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    if bytes.len() > TALK_BYTES_MAX {
        return Err(garbled(format!("{} bytes, {TALK_BYTES_MAX} at most", bytes.len())));
    }
    serde_json::from_slice(bytes).map_err(|error| garbled(error.to_string()))
}

fn garbled(what: String) -> Problem {
    Problem::new(Code::FleetMessage, format!("what a node says of deployments cannot be read: {what}"))
}
