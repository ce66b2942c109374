//! The household of a node. All of a node is one, its home is that node, and no node has another one's id: so who may
//! speak for a household stands in its name.

use ::mail::{Home, Household};
use fleet_trust::NodeId;

/// A household that never moves has one home.
pub const EPOCH: u64 = 1;

const PREFIX: &str = "node-";

pub fn household(node: &NodeId) -> Household {
    Household::new(&format!("{PREFIX}{node}")).expect("a word and digits are a name")
}

/// The home of a household, if it is that of a node.
pub fn home_of(household: &Household) -> Option<Home<'_>> {
    let node = household.as_str().strip_prefix(PREFIX).filter(|id| NodeId::read(id).is_some())?;
    Some(Home { node, epoch: EPOCH })
}

pub fn node_of(household: &Household) -> Option<NodeId> {
    NodeId::read(household.as_str().strip_prefix(PREFIX)?)
}

/// The node that an event came from, by its source: `/mail/` and the household.
pub fn node_of_source(source: &str) -> Option<NodeId> {
    node_of(&Household::new(source.strip_prefix("/mail/")?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_household_says_which_node_speaks_for_it() {
        let node = NodeId([0xa7; 16]);
        let household = household(&node);
        assert_eq!(node_of(&household), Some(node));
        assert_eq!(home_of(&household), Some(Home { node: &node.to_string(), epoch: EPOCH }));
        let other = Household::new("orders").unwrap();
        assert_eq!((node_of(&other), home_of(&other)), (None, None));
    }
}
