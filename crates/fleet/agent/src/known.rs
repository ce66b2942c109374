//! What a node keeps of the other nodes, so that after a start it finds them although no anchor is up.

use crate::table::{Row, ToldNode};
use fleet_trust::folder::Folder;
use problem::Problem;
use serde::{Deserialize, Serialize};

/// The file `nodes.json` in the folder of the fleet.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The name that this node has in the fleet.
    pub name: String,
    pub nodes: Vec<ToldNode>,
}

impl Kept {
    pub fn new(rows: Vec<Row>) -> Self {
        let (own, others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.is_this_node);
        let told = |row: Row| ToldNode { node: row.node, is_anchor: row.is_anchor, record: row.record, heard_ms: None };
        let name = own.into_iter().next().map(|row| row.record.name).unwrap_or_default();
        Self { name, nodes: others.into_iter().map(told).collect() }
    }

    /// What was kept; nothing where that is damaged, because the anchors know it all.
    ///
    /// # Errors
    /// [`problem::Code::DataUnusable`]: it cannot be read.
    pub fn read(folder: &Folder) -> Result<Self, Problem> {
        Ok(folder.known()?.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
    }

    /// # Errors
    /// [`problem::Code::DataUnusable`]: what was kept before is there still.
    pub fn write(&self, folder: &Folder) -> Result<(), Problem> {
        folder.keep_known(&serde_json::to_vec(self).expect("it is plain data"))
    }
}
