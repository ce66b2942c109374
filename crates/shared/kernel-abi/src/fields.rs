//! Header fields of HTTP: what a unit may not have. The kernel refuses it, and the node ends a kernel that lets it pass.

/// Bytes of one set of fields, as in the class `wasm`: twice what a request's head may have. More end the unit.
pub const BYTES_MAX: usize = 128 << 10;

/// Fields that are the connection's, not a unit's, in lower case.
pub const FORBIDDEN: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "host",
    "http2-settings",
];
