//! The bounds of the link, and what happens there.

use std::time::Duration;

/// Connections that a node keeps to a member. The second one is opened when the first has [`STREAMS_SPREAD`] calls.
pub const CONNECTIONS_MAX: usize = 2;
/// Connections that a node serves of one member. For another, the oldest is closed: it is from before a restart.
pub const CONNECTIONS_SERVED_MAX: usize = 4;
/// Calls on one connection at once. Beyond them a call goes to another node, or is refused (L9120).
pub const STREAMS_MAX: usize = 512;
/// Calls on one connection from which a second one is worth its handshake.
pub const STREAMS_SPREAD: usize = 32;
/// Bytes of a body that may wait on one stream, for a slow reader. Its sender then waits.
pub const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The same for all streams of one connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of one body that wait to be written to the connection. The body is then not read on.
pub const STREAM_SEND_BYTES: usize = 64 << 10;
/// Bytes of the head of a call or a reply: what the gate lets in, and the link's own fields. A larger one is refused.
pub const HEAD_BYTES_MAX: u32 = 72 << 10;
/// Bytes in which a node says what it has. A node that has more offers nothing.
pub const OFFERS_BYTES_MAX: usize = 256 << 10;
/// Bytes of one message of mail: mail makes none that is larger. A larger one is refused.
pub const MAIL_BYTES_MAX: usize = 640 << 10;
/// Members whose reports a node asks for: those that come after it when the ids stand in a ring.
pub const CELL_MAX: usize = 32;

/// The time to connect, with TLS. Beyond it the member counts as away.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a connection without a call stays.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// After so long without a byte the other end is asked whether it is there, if calls are under way; and this often in
/// any case while they are.
pub const PING_AFTER: Duration = Duration::from_secs(1);
pub const PING_INTERVAL: Duration = Duration::from_secs(5);
/// After so long without a byte new calls go to another node, or fail at once (L9122).
pub const SUSPECT_AFTER: Duration = Duration::from_secs(2);
/// After so long without a byte the connection is closed, and the calls on it fail (L9121).
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(6);
/// The same for a caller that is served: then its calls are dropped.
pub const CALLER_SILENCE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long nothing of a body may come while somebody waits for it. Then the call fails.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a message of mail may take, its answer included. Then it counts as not sent.
pub const MAIL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer to a message of mail may be held back, so that its sender rests. A longer rest is this long.
pub const MAIL_REST_MAX: Duration = Duration::from_secs(1);
/// How often members are asked for their report; up to a quarter less, by chance.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Rounds in which a member is not asked that has asked this node meanwhile: it has said how it is. In the next one it
/// is asked, because only who asks measures the way.
pub const ROUNDS_UNASKED_MAX: u32 = 5;
/// Questions in a row that a member of the cell has not answered in time. Then it counts as away until it is heard.
pub const LATE_MAX: u32 = 3;
/// How long the caller waits beyond the time that a call has, so that the far end can say that it is over.
pub const GRACE: Duration = Duration::from_secs(1);
/// The rest after a member could not be reached: doubled each time, more by chance.
pub const REST_MIN: Duration = Duration::from_millis(200);
pub const REST_MAX: Duration = Duration::from_secs(30);
