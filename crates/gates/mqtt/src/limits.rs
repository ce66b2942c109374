//! How much the gate takes on, and what happens beyond.

use std::time::Duration;

/// The largest [`Limits::packet_bytes_max`]: a message must fit into a record.
pub const PACKET_BYTES_CEILING: usize = 1_000_000;

/// Bytes of a topic or filter; a longer one is refused. It must fit into a record's key.
pub const TOPIC_BYTES_MAX: usize = 960;

/// Most sessions that outlive their connections: each may get a copy of one message, and the copies are one
/// transaction.
pub const SESSIONS_CEILING: usize = 8_000;

/// Bytes of what waits to be sent to one client that the budget does not count: each connection has them. Without room
/// for more, messages wait in the client's session, and those of QoS 0 are dropped.
pub(crate) const SEND_BYTES_FREE: usize = 8 * 1_024;

/// Bounds of one gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. The next one waits in the listen backlog.
    pub connections_max: usize,
    /// Connections of one address at once, of IPv6 of one /64. The next one is closed.
    pub connections_per_address_max: usize,
    /// Bytes of one packet. A larger one ends the connection (0x95).
    pub packet_bytes_max: usize,
    /// Levels of a topic or filter. More are refused (0x90, 0x8f).
    pub topic_levels_max: usize,
    /// Bytes of a client's name. A longer one is refused (0x85).
    pub client_id_bytes_max: usize,
    /// Subscriptions of one session. The next one is refused (0x97).
    pub subscriptions_max: usize,
    /// Sessions that outlive their connections. The next client that wants one is refused (0x97).
    pub sessions_max: usize,
    /// Bytes of all sessions themselves, with their subscriptions and wills. Beyond it a client, or its subscription,
    /// is refused (0x97).
    pub session_bytes_max: usize,
    /// What one user may have of `sessions_max`, `session_bytes_max`, `queued_bytes_total_max`, `retained_max` and
    /// `retained_bytes_max`; clients without a name are one user. Beyond it happens to that user what happens to all at
    /// the limit itself.
    pub user_share_percent: u8,
    /// Messages of QoS 1 and 2 on their way to one client. The next one waits in the session.
    pub inflight_max: u16,
    /// Messages of QoS 1 and 2 on their way from one client (0x93 in MQTT 5; in 3.1.1 the gate reads no further).
    pub receive_maximum: u16,
    /// Topic aliases one client may set (0x94).
    pub topic_alias_maximum: u16,
    /// Messages that wait in one session; see [`Limits::when_session_full`].
    pub queued_messages_max: usize,
    /// Bytes of messages that wait in one session, or are on their way from it.
    pub queued_bytes_max: usize,
    /// The same of all sessions together.
    pub queued_bytes_total_max: usize,
    pub when_session_full: WhenFull,
    /// Retained messages. The next one is refused (0x97).
    pub retained_max: usize,
    pub retained_bytes_max: usize,
    /// Bytes that wait for a client's socket before messages wait in its session, and those of QoS 0 are dropped.
    pub send_bytes_max: usize,
    /// From the connection to a whole CONNECT, TLS handshake included. Then it is closed.
    pub connect_timeout: Duration,
    /// The longest keep-alive a client may ask for. In MQTT 5 it is told.
    pub keep_alive_max: Duration,
    /// The longest a session outlives its connection.
    pub session_expiry_max: Duration,
    /// How long a message of MQTT 3.1.1 that cannot be accepted holds up its connection before it is closed.
    pub stall_timeout: Duration,
}

/// What happens to a message for a session that is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// This session does not get it; it is counted and logged.
    #[default]
    Drop,
    /// The message is refused: nobody gets it, and its publisher learns so.
    Refuse,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            connections_per_address_max: 5_000,
            packet_bytes_max: 256 * 1_024,
            topic_levels_max: 32,
            client_id_bytes_max: 256,
            subscriptions_max: 1_000,
            sessions_max: 5_000,
            session_bytes_max: 128 << 20,
            user_share_percent: 100,
            inflight_max: 100,
            receive_maximum: 1_024,
            topic_alias_maximum: 32,
            queued_messages_max: 10_000,
            queued_bytes_max: 16 << 20,
            queued_bytes_total_max: 128 << 20,
            when_session_full: WhenFull::Drop,
            retained_max: 10_000,
            retained_bytes_max: 32 << 20,
            send_bytes_max: 256 * 1_024,
            connect_timeout: Duration::from_secs(10),
            keep_alive_max: Duration::from_secs(3_600),
            session_expiry_max: Duration::from_secs(30 * 86_400),
            stall_timeout: Duration::from_secs(10),
        }
    }
}
