//! Units that somebody attaches to.

use super::{LogLine, UnitInfo};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What was seen of a unit that works.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SeenUnit {
    pub unit: UnitInfo,
    /// What the unit's log has of it: the way to where it is.
    pub log: Vec<LogLine>,
    /// More of it: registers, the number of its process.
    pub lines: Vec<String>,
    /// Bytes of the core file that follow this line.
    pub core_bytes: Option<u64>,
}
