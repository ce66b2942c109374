//! Who belongs to a fleet of nodes: keys, certificates, invitations and joining.
//!
//! ```text
//!   anchor                                                     new node
//!   Authority: the fleet's CA                                  NodeKey: made here, never leaves
//!   Ledger: members, invitations        invitation, as text
//!     └─ Anchor ──────────────────────── Token ──────────────▶ join ─▶ Membership: certificate, CA, anchors
//!          ▲  TLS 1.3, pinned to the CA: proofs, then a certificate ◀──┘            │
//!          │                                                                        ▼
//!          └── hello, renew, revoked nodes ◀──────────────────── Trust: mutual TLS 1.3 with members alone
//! ```
//! A node is named by its key. The fleet's CA signs for 30 days that this key is a member; a signed list says which
//! nodes are members no more. An invitation names the CA by its hash, so a new node believes no stranger, not even the
//! first time.
//!
//! Without an invitation a new node finds the anchors around it by the [`beacon`], and a person compares [`digits`].
//!
//! The files from [`token`] to [`ledger`] are pure: bytes, times and random numbers come in, values go out. Sockets are
//! in [`link`] and [`serve`], files in [`folder`]. What a node does with all of this is in `fleet-agent`.
#![forbid(unsafe_code)]

pub mod agreed;
pub mod anchor;
pub mod beacon;
mod bytes;
mod certificate;
pub mod changes;
pub mod dates;
pub mod digits;
pub mod door;
pub mod folder;
mod id;
pub mod invitations;
mod keys;
pub mod ledger;
pub mod link;
pub mod members;
pub mod message;
pub mod office;
pub mod picture;
pub mod revoked;
mod seal;
pub mod serve;
pub mod token;
mod trust;
mod verify;

pub use anchor::Anchor;
pub use certificate::{Authority, Membership, Role};
pub use dates::Clock;
pub use id::{FleetId, NAME_BYTES_MAX, NodeId, check_name};
pub use keys::{NodeKey, PublicKey, Seed, Signature, is_signed, random};
pub use revoked::Revoked;
pub use token::{Address, Token};
pub use trust::{LinkEnd, Peer, Trust};
