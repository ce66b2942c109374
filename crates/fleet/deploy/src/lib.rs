//! Deployments of a fleet: what should run on which nodes, who ordered it, and which node fits.
//!
//! ```text
//!   deployer                       anchor                                   every node
//!   manifest ─▶ Order, signed ──▶ known deployer? made from the newest?
//!               by the deployer    groups ─▶ fit ─▶ places ─▶ Record, ═════▶ Records: the highest serial holds
//!                                                   signed by the CA           └─ share: what is for this node
//! ```
//! - [`order`]: what a deployer wants · [`deployers`]: whose orders count · [`record`]: what the fleet is to run
//! - [`records`]: all of them, as a node keeps them · [`talk`]: what nodes tell each other of them
//! - [`profile`]: what a node has · [`fit`]: what it lacks · [`groups`]: what has to be together · [`places`]: where
//! - [`near`]: how far nodes are from the nodes that a function should be near
//! - [`decide`]: an anchor makes a record of an order · [`sealed`]: how a signed document is written and read
//! - [`elastic`]: how many copies there are, if their number follows load
//! - [`form`], [`rollout`]: a new form reaches its nodes in steps, and goes back if it fails
//!
//! All of it is pure: bytes, times and what is known of nodes come in, values go out. An anchor puts orders into one
//! sequence, and its signature is what others believe; so a record may come from any node, and a stolen one can neither
//! make nor change a record. What a node does with all of this is in `node::deployments`.
#![forbid(unsafe_code)]

pub mod decide;
pub mod deployers;
pub mod elastic;
pub mod fit;
pub mod form;
pub mod groups;
pub mod near;
pub mod order;
pub mod places;
pub mod profile;
pub mod record;
pub mod records;
pub mod rollout;
pub mod sealed;
pub mod talk;

pub use deployers::{DeployerKey, Deployers};
pub use form::{Form, Returned, Underway};
pub use order::{Order, SignedOrder, Wish};
pub use places::{Candidate, Scaled};
pub use profile::Profile;
pub use record::{Placed, Record, SignedRecord};
pub use records::Records;
