//! Mail: events on their way from one household to another, exactly once and in order.
//!
//! Pure: no clock, no disk, no socket and no randomness. Time, records, bytes that arrived and a nonce come in; records
//! to write and bytes to send come out, so that a simulation can replay any failure from its seed.
//!
//! ```text
//!  sending household                                           receiving household
//!  ┌ one transaction ──────────┐                               ┌ one transaction ──────────┐
//!  │ the effects of a handling │   Outbox::poll ─▶ parcel ═══▶ │ events into their queues  │
//!  │ letters in the outbox     │      over a direct link,      │ the mark of the inbox     │
//!  └─────────────┬─────────────┘      the engine, or both      └─────────────┬─────────────┘
//!             durable                                                     durable
//!                │                                                           │
//!  letters are deleted ◀─ Outbox::receive ◀═══ receipt "durable up to" ◀─────┘
//! ```
//! A letter stays in the outbox until the disk of its receiver has it, so nothing between the two needs to be believed.
//! `contracts/fleet.md` has the bytes and the promises of each side, `docs/decisions/mail.md` the reasons.
#![forbid(unsafe_code)]

mod bytes;
mod commits;
mod homes;
mod inbox;
mod letter;
mod mark;
mod name;
mod outbox;
mod pacing;
mod patience;
mod records;
mod wire;

pub use commits::Commit;
pub use homes::{Doubt, Home};
pub use inbox::{Arrival, Inbox, Lost, NotTaken, SENDERS_MAX, Step};
pub use letter::{LETTER_BYTES_MAX, Letter, LetterError, QUEUE_BYTES_MAX};
pub use mark::{Chain, Mark};
pub use name::{Household, NAME_BYTES_MAX};
pub use outbox::{Bounds, Config, Counts, Notice, Outbox, PushError, RECEIVERS_MAX, Received, Sent, Staged, TakenBack};
pub use pacing::{BREATH_MAX, Rate, Rests};
pub use patience::{REST_MAX, reconnect_after};
pub use records::{INBOX_KEYS, OUTBOX_KEYS, Records, Unreadable, Write, is_inbox, is_outbox};
#[cfg(fuzzing)]
pub use wire::sealed_anew;
pub use wire::{LETTERS_MAX, MESSAGE_BYTES_MAX, Message, Parcel, Receipt, Verdict, WireError};
