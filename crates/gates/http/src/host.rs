//! The host a request is addressed to.

use http::{Request, Version, header};

/// Bytes of a host name.
pub const HOST_BYTES_MAX: usize = 253;

/// Splits `host[:port]`. `None` if it is neither a name, an IPv4 nor a bracketed IPv6 address.
pub fn split_authority(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']')?;
            let inside = &rest[..end];
            if inside.is_empty() || !inside.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.') {
                return None;
            }
            (&authority[..end + 2], &rest[end + 1..])
        }
        None => {
            let end = authority.bytes().position(|b| b == b':').unwrap_or(authority.len());
            let host = &authority[..end];
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
            if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(plain) {
                return None;
            }
            (host, &authority[end..])
        }
    };
    let port_good = match port.strip_prefix(':') {
        Some(digits) => digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit()),
        None => port.is_empty(),
    };
    port_good.then_some(host)
}

/// The host of a request that the gate has let through, without port, as it was written.
pub fn request_host<B>(request: &Request<B>) -> Option<&str> {
    match request.uri().authority() {
        Some(authority) => split_authority(authority.as_str()),
        None => split_authority(request.headers().get(header::HOST)?.to_str().ok()?),
    }
}

/// Checks what the head reader of HTTP/1 has checked there already: exactly one sound host.
pub(crate) fn check_http2<B>(request: &Request<B>) -> Result<(), &'static str> {
    debug_assert_eq!(request.version(), Version::HTTP_2);
    let mut fields = request.headers().get_all(header::HOST).iter();
    let field = fields.next();
    if fields.next().is_some() {
        return Err("the request names two hosts");
    }
    match (request.uri().authority(), field) {
        (None, None) => return Err("the request names no host"),
        (Some(authority), Some(field)) if !authority.as_str().as_bytes().eq_ignore_ascii_case(field.as_bytes()) => {
            return Err("the request names two hosts");
        }
        _ => {}
    }
    match request_host(request) {
        Some(_) => Ok(()),
        None => Err("the host is not a name or an address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_split_off() {
        for (authority, host) in [
            ("a", "a"),
            ("example.org:80", "example.org"),
            ("127.0.0.1:8080", "127.0.0.1"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("a:", "a"),
            ("A_b-c.d.", "A_b-c.d."),
        ] {
            assert_eq!(split_authority(authority), Some(host), "{authority}");
        }
    }

    #[test]
    fn what_is_not_a_host_is_none() {
        for authority in [
            "", ":80", "a b", "user@a", "a:b", "a:80:80", "a:123456", "[::1", "[]", "[::1]x", "[a@b]", "a/b", "ä",
            "a,b",
        ] {
            assert_eq!(split_authority(authority), None, "{authority}");
        }
        assert_eq!(split_authority(&"a".repeat(254)), None);
    }
}
