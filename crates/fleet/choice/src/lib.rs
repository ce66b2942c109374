//! Where a call runs in a fleet of nodes, and where copies of stateless functions are.
//!
//! ```text
//!   a call at a gate ─▶ Choice ─▶ here, or one hop away ─▶ judge: runs it, or refuses with the truth ─▶ Choice again
//!                         ▲                                    │
//!                         └── reports, every 10 s ─────────────┴── what each answer says of its node
//! ```
//! All of it is pure: no clock, no I/O, no randomness. Times are seconds on any steady clock.
//!
//! A gate predicts what each node would take: round trip, transfer, wait and run. It knows the others by reports that
//! are seconds old, and all gates have the same reports, so all would choose the node that looks best. Two things
//! prevent that. **The receiver tells the truth**: a node that is busier than the gate assumed refuses before it reads
//! the body, and says how busy it is; after two refusals the call runs where it is. And every answer says how busy its
//! node is, so a gate knows the nodes it uses by their last answer, and adds its own calls that are on their way.
//!
//! Lineage: choosing by requests that wait and their predicted time is Prequal's (Wydrowski et al., NSDI 2024); the
//! model of a call is that of the Python client; covering callers within a bound on latency is Hona's (Ahmed et al.,
//! 2020).

mod choice;
mod curve;
mod guess;
mod level;
mod load;
mod plan;
mod run_times;
mod truth;

pub use choice::{Asked, Candidate, Choice, LastHeard, Pick};
pub use curve::Curve;
pub use guess::Guess;
pub use level::Level;
pub use load::Report;
pub use plan::{Copies, Demand, Planner, Step, Town};
pub use truth::{Judgement, REFUSALS_MAX, Truth, judge};

/// Names a node, in one fleet, as long as it belongs to it.
pub type NodeId = u32;
