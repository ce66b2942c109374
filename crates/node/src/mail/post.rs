//! Mail that comes by the engine: sent while the link to this node, or from it, did not carry it.

use crate::Node;
use facts::{Heard, NodeName, Post};
use fleet_trust::NodeId;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::sleep;

/// What a node is called in the engine: its id.
pub fn name_of(node: &NodeId) -> NodeName {
    NodeName::new(&node.to_string()).expect("digits are a name")
}

/// Takes what comes, until it is dropped or the node is gone.
pub async fn listen(node: Weak<Node>, post: Arc<dyn Post>) {
    loop {
        let heard = post.receive().await;
        let Some(node) = node.upgrade() else { return };
        let Some(mail) = node.events.mail() else { continue };
        let rest = match heard {
            Heard::Message { from, bytes } => match NodeId::read(from.as_str()) {
                Some(from) => mail.hear_by_post(&node, from, bytes.into()).await,
                None => Duration::ZERO,
            },
            Heard::Back => {
                mail.try_all_again();
                Duration::ZERO
            }
        };
        if !rest.is_zero() {
            drop((mail, node));
            sleep(rest).await;
        }
        // The engine may have kept much.
        tokio::task::consume_budget().await;
    }
}
