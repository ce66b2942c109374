//! Reads the head of one HTTP/1 request, line by line as it arrives, and says how long its body is.

use super::Refused;
use crate::config::HEADERS_MAX;
use crate::host::split_authority;
use memchr::{memchr, memchr_iter};
use std::ops::Range;

/// Bytes of a method.
pub const METHOD_BYTES_MAX: usize = 32;

/// How long the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    Bytes(u64),
    Chunked,
}

/// What is known of a head so far.
#[derive(Debug, Default)]
pub struct Head {
    /// Bytes of whole lines read.
    seen: usize,
    request_line: bool,
    headers: usize,
    version_11: bool,
    /// Where an absolute target names its host.
    authority: Option<Range<usize>>,
    host: Option<Range<usize>>,
    length: Option<u64>,
    chunked: bool,
}

impl Head {
    /// Reads on. `bytes` begins where the head begins, at every call. Once the head is whole: its bytes, and its body.
    ///
    /// # Errors
    /// The head is refused; reading on makes no sense.
    pub fn read(&mut self, bytes: &[u8], bytes_max: usize) -> Result<Option<(usize, Length)>, Refused> {
        let from = self.seen;
        self.begins_well(bytes)?;
        for at in memchr_iter(b'\n', &bytes[from..]) {
            let end = from + at;
            if end >= bytes_max {
                return Err(Refused::HeadTooLarge);
            }
            let start = self.seen;
            if end == start || bytes[end - 1] != b'\r' {
                return Err(Refused::Malformed("a line does not end with CR LF"));
            }
            self.seen = end + 1;
            let line = start..end - 1;
            if line.is_empty() {
                if self.request_line {
                    return Ok(Some((self.seen, self.finish(bytes)?)));
                }
                // One empty line before a request is tolerated, as the standard asks. No client sends more, and a guest
                // who may send any number has a connection that is never idle.
                if start > 0 {
                    return Err(Refused::Malformed("the request begins with empty lines"));
                }
                self.begins_well(bytes)?;
            } else if self.request_line {
                self.field(bytes, line)?;
            } else {
                self.start(bytes, line)?;
            }
        }
        if bytes.len() >= bytes_max {
            return Err(Refused::HeadTooLarge);
        }
        Ok(None)
    }

    /// Whether the next line may be a request line. No method begins as a hello of TLS does, which would wait for the
    /// end of a line that never comes.
    fn begins_well(&self, bytes: &[u8]) -> Result<(), Refused> {
        match bytes.get(self.seen) {
            Some(&first) if !self.request_line && !TOKEN[usize::from(first)] && !matches!(first, b'\r' | b'\n') => {
                Err(Refused::Malformed("the request line is not METHOD TARGET HTTP/1.1"))
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, bytes: &[u8], line: Range<usize>) -> Result<(), Refused> {
        let bad = Refused::Malformed("the request line is not METHOD TARGET HTTP/1.1");
        self.request_line = true;
        let text = &bytes[line.clone()];
        let method_end = memchr(b' ', text).ok_or(bad)?;
        let target_bytes = memchr(b' ', &text[method_end + 1..]).ok_or(bad)?;
        let target_start = line.start + method_end + 1;
        let method = &text[..method_end];
        let target = &bytes[target_start..target_start + target_bytes];
        self.version_11 = match &bytes[target_start + target_bytes + 1..line.end] {
            b"HTTP/1.1" => true,
            b"HTTP/1.0" => false,
            _ => return Err(bad),
        };
        if method.is_empty() || method.len() > METHOD_BYTES_MAX || !is_token(method) {
            return Err(Refused::Malformed("the method is not a word of at most 32 bytes"));
        }
        if method == b"CONNECT" {
            return Err(Refused::Connect);
        }
        // Folded without an early exit so that it runs on many bytes at once.
        let plain =
            target.iter().fold(true, |good, &b| good & (b > b' ') & (b < 0x7f) & !matches!(b, b'#' | b'<' | b'>'));
        if !plain {
            return Err(Refused::Malformed("the request target has characters that must be percent-encoded"));
        }
        match target {
            [b'/', ..] => Ok(()),
            b"*" if method == b"OPTIONS" => Ok(()),
            _ => {
                self.authority = Some(absolute(target, target_start)?);
                Ok(())
            }
        }
    }

    fn field(&mut self, bytes: &[u8], line: Range<usize>) -> Result<(), Refused> {
        self.headers += 1;
        if self.headers > HEADERS_MAX {
            return Err(Refused::TooManyHeaders);
        }
        let text = &bytes[line.clone()];
        if matches!(text[0], b' ' | b'\t') {
            return Err(Refused::Malformed("a header field is folded over two lines"));
        }
        let colon = memchr(b':', text).ok_or(Refused::Malformed("a header field has no colon"))?;
        let name = &text[..colon];
        if name.is_empty() || !is_token(name) {
            return Err(Refused::Malformed("the name of a header field is not a word"));
        }
        let value = &text[colon + 1..];
        if !value.iter().fold(true, |good, &b| good & ((b >= b' ') | (b == b'\t')) & (b != 0x7f)) {
            return Err(Refused::Malformed("a header field has control characters"));
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                if self.host.is_some() {
                    return Err(Refused::Malformed("the request has two host fields"));
                }
                let value = trim(value);
                if std::str::from_utf8(value).ok().and_then(split_authority).is_none() {
                    return Err(Refused::Malformed("the host is not a name or an address"));
                }
                let start = line.end - text[colon + 1..].trim_ascii_start().len();
                self.host = Some(start..start + value.len());
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.length.is_some() {
                    return Err(Refused::Malformed("the request has two content-length fields"));
                }
                let value = trim(value);
                if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
                    return Err(Refused::Malformed("the content-length is not a number"));
                }
                self.length = Some(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')));
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !trim(value).eq_ignore_ascii_case(b"chunked") {
                    return Err(Refused::Malformed("the only transfer-encoding is chunked, once"));
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&self, bytes: &[u8]) -> Result<Length, Refused> {
        match (&self.host, &self.authority) {
            (None, _) if self.version_11 => return Err(Refused::Malformed("the request has no host field")),
            (Some(host), Some(authority)) if !bytes[host.clone()].eq_ignore_ascii_case(&bytes[authority.clone()]) => {
                return Err(Refused::Malformed("the request target and the host field name two hosts"));
            }
            _ => {}
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Refused::Malformed("the request has a content-length and a transfer-encoding")),
            (true, None) if !self.version_11 => Err(Refused::Malformed("HTTP/1.0 has no transfer-encoding")),
            (true, None) => Ok(Length::Chunked),
            (false, length) => Ok(Length::Bytes(length.unwrap_or(0))),
        }
    }
}

/// Where `http://host/path` names its host.
fn absolute(target: &[u8], at: usize) -> Result<Range<usize>, Refused> {
    let bad = Refused::Malformed("the request target is neither a path nor an http address");
    let scheme = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
        .ok_or(bad)?;
    let rest = &target[scheme.len()..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).ok().and_then(split_authority).ok_or(bad)?;
    Ok(at + scheme.len()..at + scheme.len() + end)
}

fn trim(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

fn is_token(text: &[u8]) -> bool {
    text.iter().all(|b| TOKEN[usize::from(*b)])
}

/// The characters of names and methods (RFC 9110, `tchar`).
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    table
};
