//! What memory is held for: the words of `lighter_memory_bytes{for=…}`, and how much of the whole each may take.

use std::fmt;

/// What memory is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Purpose {
    /// Linear memory and tables of wasm units, memory of microvm units, scratch and memory of process units where the
    /// node pays for them.
    Units,
    /// What the node keeps for a unit outside of the unit's memory: handles, header fields, arguments of host calls.
    HostCalls,
    /// Request and reply bodies that are kept whole, and results on their way to the disk.
    Bodies,
    /// Heads of requests on their way, in HTTP/1 and in HTTP/2.
    Heads,
    /// Buffers of connections and of TLS.
    Connections,
    /// Sessions, queued messages and retained messages of the MQTT broker.
    Mqtt,
    /// Compilers that run for this node, and the code they have made.
    Compilers,
    /// Connections of the API, which strangers at the other gates must not use up.
    Administration,
}

impl Purpose {
    pub const ALL: [Purpose; 8] = [
        Purpose::Units,
        Purpose::HostCalls,
        Purpose::Bodies,
        Purpose::Heads,
        Purpose::Connections,
        Purpose::Mqtt,
        Purpose::Compilers,
        Purpose::Administration,
    ];

    /// The word in metrics and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Purpose::Units => "units",
            Purpose::HostCalls => "host_calls",
            Purpose::Bodies => "bodies",
            Purpose::Heads => "heads",
            Purpose::Connections => "connections",
            Purpose::Mqtt => "mqtt",
            Purpose::Compilers => "compilers",
            Purpose::Administration => "administration",
        }
    }

    /// The most of `bytes` that this purpose may take: in eighths, so that none can take what all others need.
    pub const fn part_of(self, bytes: u64) -> u64 {
        let eighths = match self {
            Purpose::Units | Purpose::Compilers => 6,
            Purpose::Bodies => 4,
            Purpose::HostCalls | Purpose::Heads | Purpose::Connections | Purpose::Mqtt => 2,
            Purpose::Administration => 1,
        };
        bytes / 8 * eighths
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
