//! The two traits, and what their answers mean.

use crate::{Key, NodeName, Prefix};
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// Bytes of a fact's value. A larger one is refused.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Bytes of one message between nodes: mail makes none that is larger. A larger one is refused.
pub const MESSAGE_BYTES_MAX: usize = 640 << 10;

/// What an implementation answers, perhaps later. Every wait for an engine ends, with an error if need be.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Which change of the facts this was. Each change has a higher one than all before it, whatever its key. That holds
/// over the loss of an engine too: a revision from before is never given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// Something the fleet has agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    pub key: Key,
    pub value: Vec<u8>,
    /// Of the change that gave it this value.
    pub revision: Revision,
}

/// The facts of a fleet, as one node may use them. Asked by the planner, by homes and by deployments; never by a call.
///
/// Dropping a future of [`Facts::set`] leaves open whether it was written; dropping others does nothing.
pub trait Facts: Send + Sync {
    /// The value that a key has, or had a moment ago: decide by [`Facts::set`], never by this.
    ///
    /// # Errors
    /// The engine does not answer.
    fn get<'a>(&'a self, key: &'a Key) -> Answer<'a, Result<Option<Fact>, Unavailable>>;

    /// All facts of a prefix, by their keys; as old as those of [`Facts::get`].
    ///
    /// # Errors
    /// The engine does not answer, or not to the end.
    fn list<'a>(&'a self, prefix: &'a Prefix) -> Answer<'a, Result<Vec<Fact>, Unavailable>>;

    /// Tells of the facts of a prefix and of every change of theirs. Begins when the engine is there, and goes on when
    /// it was away.
    fn watch(&self, prefix: &Prefix) -> Box<dyn Watch>;

    /// Writes `value`, or deletes the fact if there is none: only if its last change was `expected`, which may be its
    /// deletion, and for none only if there is no such fact. On disks of a majority of anchors once `Ok`.
    ///
    /// # Errors
    /// - [`NotSet::Unknown`]: it may be written, or be written in a moment. Who reads its own value later knows.
    /// - All others: nothing was written.
    fn set<'a>(
        &'a self,
        key: &'a Key,
        expected: Option<Revision>,
        value: Option<&'a [u8]>,
    ) -> Answer<'a, Result<Revision, NotSet>>;
}

/// Changes of facts as they come. What is not asked for is kept by the engine, and changes of one key in between may be
/// told as one.
pub trait Watch: Send {
    /// The next that there is to tell; waits for it, without an end. Dropping the future loses nothing.
    fn next(&mut self) -> Answer<'_, News>;
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// These are all facts of the prefix, by their keys: at the beginning, and when changes may have been missed.
    All(Vec<Fact>),
    Set(Fact),
    Deleted(Key, Revision),
}

/// Messages between nodes. Nobody believes it: what it takes may be lost, doubled, late or in another order. It tells
/// who sent a message, and it does not change one.
pub trait Post: Send + Sync {
    /// Gives a message to the engine, for a node that may be away. Dropping the future leaves open whether it was sent.
    ///
    /// # Errors
    /// It was not sent, or nobody knows.
    fn send<'a>(&'a self, to: &'a NodeName, bytes: &'a [u8]) -> Answer<'a, Result<(), NotSent>>;

    /// The next message for this node; waits for it, without an end. Dropping the future loses nothing.
    fn receive(&self) -> Answer<'_, Heard>;
}

/// What comes by post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    Message {
        /// Who sent it: proved by the engine, which lets nobody send as another.
        from: NodeName,
        bytes: Vec<u8>,
    },
    /// The engine is there again: what rests because nobody answered may be tried now.
    Back,
}

/// The engine does not answer now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unavailable;

/// Why a fact was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSet {
    /// Another change came first.
    Changed,
    /// The engine has not answered.
    Unknown,
    /// The engine is not there; nothing was asked.
    Away,
    /// This node has no right to the key.
    Refused,
    /// The value has more than [`VALUE_BYTES_MAX`].
    TooLarge(usize),
    /// The engine has no room for more facts.
    Full,
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// The engine is not there, or has not said that it took it.
    Away,
    /// The engine has no room for more mail.
    Full,
    /// It has more than [`MESSAGE_BYTES_MAX`].
    TooLarge(usize),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no anchor answers")
    }
}

impl std::error::Error for Unavailable {}

impl fmt::Display for NotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed => f.write_str("the fact was changed since it was read"),
            Self::Unknown => f.write_str("no anchor has said whether it was written"),
            Self::Away => f.write_str("no anchor answers, and nothing was asked"),
            Self::Refused => f.write_str("this node has no right to write the fact"),
            Self::TooLarge(bytes) => write!(f, "the value has {bytes} bytes, {VALUE_BYTES_MAX} are possible"),
            Self::Full => f.write_str("the anchors have no room for more facts"),
        }
    }
}

impl std::error::Error for NotSet {}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away => f.write_str("no anchor has taken the message"),
            Self::Full => f.write_str("the anchors have no room for more mail"),
            Self::TooLarge(bytes) => write!(f, "the message has {bytes} bytes, {MESSAGE_BYTES_MAX} are possible"),
        }
    }
}

impl std::error::Error for NotSent {}
