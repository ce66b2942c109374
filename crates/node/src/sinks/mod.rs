//! Sinks: where events of a queue leave the node. Leasing, tries and dead letters are the queue's; a sink delivers.

mod request;
mod trust;
mod verdict;
mod webhook;

pub use trust::Trust;
pub use webhook::Webhooks;
