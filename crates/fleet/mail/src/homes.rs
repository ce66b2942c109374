//! Who may speak for a household: its home, under its present epoch.
//!
//! The transport proves which node brought a message. Whether that node may speak for the household that the message
//! names is decided here, by what this node knows of homes.

/// Where a household lives, as far as this node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home<'a> {
    /// The id of the node.
    pub node: &'a str,
    /// Counts the homes of the household.
    pub epoch: u64,
}

/// Why a message is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The household has had another home since.
    Over,
    /// This node does not know that home yet. It may be true later.
    Unknown,
    /// A node that is not the household's home sent it.
    Forged,
}

impl Home<'_> {
    /// Whether the node `by` may speak under `epoch` for the household whose home is `known`.
    pub(crate) fn check(known: Option<Home<'_>>, by: &str, epoch: u64) -> Result<(), Doubt> {
        let known = known.ok_or(Doubt::Unknown)?;
        match epoch {
            _ if epoch < known.epoch => Err(Doubt::Over),
            _ if epoch > known.epoch => Err(Doubt::Unknown),
            _ if by != known.node => Err(Doubt::Forged),
            _ => Ok(()),
        }
    }
}
