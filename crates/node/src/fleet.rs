//! The node's part in a fleet: what it is told at the start, and what it shows of it.

use crate::Node;
use crate::config::Config;
use crate::link::CallLink;
use api_types::{FleetInfo, FleetNode, FleetTrouble};
use fleet_agent::{Agent, Directory, ForCalls, Row, Settings, Status};
use fleet_link::Members;
use fleet_trust::{Address, Clock, NodeId, Token};
use problem::Problem;
use std::sync::Arc;

/// A day that is surely past, in seconds since 1970: 23 November 2026. Clocks that stand before it are wrong.
const PAST: u64 = 1_795_392_000;

/// The part of a node that has this configuration. It does nothing before it is opened.
pub(crate) fn agent(config: &Config) -> Agent {
    Agent::new(Settings {
        folder: config.data.join("fleet"),
        listen: config.fleet.listen,
        address: config.fleet.address.clone(),
        name: config.fleet.node_name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Clock::system(PAST),
    })
}

/// Has calls carried in each fleet that the node becomes a part of. Call this before that.
pub fn carry_calls(node: &Arc<Node>) {
    let weak = Arc::downgrade(node);
    node.fleet.on_calls(move |ForCalls { trust, directory, arrivals }| {
        let Some(node) = weak.upgrade() else { return };
        let link = CallLink::start(&node, trust, Arc::new(Listed(directory)), arrivals);
        node.set_link(Some(Arc::new(link)));
    });
}

/// The members, as the link asks for them.
struct Listed(Directory);

impl Listed {
    fn row(&self, node: &NodeId) -> Option<Row> {
        self.0.others().into_iter().find(|row| row.node == *node)
    }
}

impl Members for Listed {
    fn others(&self) -> Vec<NodeId> {
        self.0.others().into_iter().map(|row| row.node).collect()
    }

    fn address(&self, node: &NodeId) -> Option<Address> {
        self.row(node)?.record.address
    }

    fn name(&self, node: &NodeId) -> Option<String> {
        Some(self.row(node)?.record.name)
    }
}

/// Reads an invitation.
///
/// # Errors
/// [`problem::Code::InvitationGarbled`].
pub fn read_token(text: &str) -> Result<Token, Problem> {
    Ok(Token::read(text)?)
}

/// What the API says of a fleet.
pub fn describe(status: Status) -> FleetInfo {
    let Status { name, fleet, is_anchor, rows, trouble, is_doubled } = status;
    let trouble = trouble.map(|problem| FleetTrouble {
        code: problem.code.to_string(),
        detail: problem.detail.into_owned(),
        hint: problem.hint.into_owned(),
    });
    let nodes = rows.into_iter().map(node).collect();
    FleetInfo { name, id: fleet.to_string(), anchor: is_anchor, nodes, trouble, doubled: is_doubled }
}

fn node(row: Row) -> FleetNode {
    let Row { node, record, is_anchor, is_this_node, heard } = row;
    FleetNode {
        id: node.to_string(),
        name: record.name,
        address: record.address.map(|address| address.to_string()),
        anchor: is_anchor,
        this_node: is_this_node,
        version: Some(record.version).filter(|version| !version.is_empty()),
        heard_ms: heard.map(|heard| heard.as_millis() as u64),
    }
}
