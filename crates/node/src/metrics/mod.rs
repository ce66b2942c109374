//! Numbers about the node and its functions: counted where things happen, read by `/metrics` and `/v1/stats`.

mod counters;
mod histogram;
mod page;
mod process;
mod queues;
mod text;

pub use counters::{Counters, Times};
pub use histogram::Histogram;
pub use page::page;
pub use process::{rss_bytes, usage};
pub use text::MEDIA_TYPE;
