//! A will: the message a broker publishes for a client that is lost.

use super::message::Message;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct StoredWill {
    pub message: Arc<Message>,
    pub retain: bool,
    pub delay_s: u32,
    /// Seconds the message lives from the moment it is published.
    pub expiry_s: Option<u32>,
}
