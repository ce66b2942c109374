//! The limits of a gate, with their defaults and what happens beyond them.

use budget::Budget;
use std::sync::Arc;
use std::time::Duration;

/// Header fields of one request: hyper keeps this many without an allocation. More are refused with 431.
pub const HEADERS_MAX: usize = 100;

/// The largest [`Config::head_bytes_max`] that takes effect: hyper takes no longer request target.
const HEAD_BYTES_CEILING: usize = 64 * 1024;

/// The smallest [`Config::head_bytes_max`] that takes effect.
const HEAD_BYTES_FLOOR: usize = 1024;

/// The limits of a gate.
#[derive(Debug, Clone)]
pub struct Config {
    /// Connections served at once. For the next one a connection gives way that nothing is being done for: one that has
    /// asked nothing first, one that has shown a right last. Where there is none it waits, and quiet connections are
    /// closed four times sooner meanwhile.
    pub connections_max: u32,
    /// Connections of one peer: an IPv4 address, or a network of IPv6 (/64). The next one is closed at once. None: a
    /// quarter of `connections_max`, and no bound for this machine, where a proxy may stand before everybody.
    pub connections_per_peer_max: Option<u32>,
    /// Where connections and heads of requests are counted. Without room a connection is closed, a request answered
    /// with 503.
    pub budget: Arc<Budget>,
    /// They are counted as the administrator's, so that they find room when strangers have used up that of other gates.
    pub is_administration: bool,
    /// Bytes of a request line and its header fields. More are refused with 431.
    pub head_bytes_max: usize,
    /// From the first byte of a request to the end of its header fields, and for a TLS handshake. Then 408, or the
    /// connection closes.
    pub head_timeout: Duration,
    /// A connection for which the node does no work, and which brings no request and moves next to nothing in this
    /// time, is closed (up to a quarter later).
    pub idle_timeout: Duration,
    /// Between two parts of a request body that someone waits for. Then the body fails with
    /// [`BodyError::TimedOut`](crate::BodyError::TimedOut).
    pub body_timeout: Duration,
    /// Requests at once on one HTTP/2 connection. The client is told; more are refused, each for itself.
    pub streams_max: u32,
    /// Between keep-alive pings on an HTTP/2 connection.
    pub ping_interval: Duration,
    /// For the answer to a ping. Then the connection closes.
    pub ping_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_peer_max: None,
            budget: Budget::unbounded(),
            is_administration: false,
            head_bytes_max: HEAD_BYTES_CEILING,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            streams_max: 256,
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(20),
        }
    }
}

impl Config {
    /// Bytes of a request head, within what hyper can do.
    pub(crate) fn head_bytes(&self) -> usize {
        self.head_bytes_max.clamp(HEAD_BYTES_FLOOR, HEAD_BYTES_CEILING)
    }
}
