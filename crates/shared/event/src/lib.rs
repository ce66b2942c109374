//! What happened: the record every handler receives (a CloudEvents 1.0 event), and why a handler failed.
//!
//! No I/O and no clock: ids and times are given by whoever makes the event, so that one seed replays a failure.
//! The same record in WIT stands in `contracts/wit/unit.wit`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod origin;

pub use origin::{Forged, GATE, Gate, Origin, is_of_gates};

use alloc::string::String;
use alloc::vec::Vec;

/// Attributes one event may carry; a gate refuses more.
pub const ATTRIBUTES_MAX: usize = 128;

/// Something that happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// Unique together with `source`.
    pub id: String,
    /// Where it happened, as a URI reference.
    pub source: String,
    /// What kind of thing happened, for instance `http.request`. CloudEvents calls it `type`.
    pub kind: String,
    pub subject: Option<String>,
    /// Milliseconds since 1970-01-01 UTC.
    pub time_ms: u64,
    /// Media type of `data`. CloudEvents calls it `datacontenttype`.
    pub content_type: Option<String>,
    /// Extension attributes in the order they arrived.
    pub attributes: Vec<(String, String)>,
    /// 1 for the first try, more after a retry or a rerun.
    pub attempt: u32,
    pub data: Vec<u8>,
    /// How it came into the node. No sender can write it.
    pub origin: Origin,
}

impl Event {
    /// The value of an extension attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Why a handler did not do its work. Everything it wrote in this handling is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The event can never be handled.
    Invalid(String),
    /// It may work later.
    Retry(String),
    /// It failed and trying again is no use.
    Fatal(String),
}
