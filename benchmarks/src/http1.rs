//! Reads HTTP/1.1 replies: the part of a client that a load generator needs, and no more.
//!
//! Bytes in, a reply out, no I/O: the closed loop feeds it from an asynchronous socket, the open loop and single
//! requests from a blocking one. A reply that is not all there yet is `None`; the caller reads more and asks again.

use std::borrow::Cow;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest reply that is read, head and body.
pub const REPLY_BYTES_MAX: usize = 4 << 20;

/// One whole reply at the front of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    pub status: u16,
    pub body: Cow<'a, [u8]>,
    pub server_timing: Option<&'a str>,
    /// Bytes of the buffer that it took up.
    pub length: usize,
    /// The server will close the connection.
    pub close: bool,
}

/// What is wrong with a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    StatusLine,
    Header,
    /// Neither a length nor chunks: it would end with the connection, which no server here should do.
    Length,
    Chunk,
    TooLong,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StatusLine => "the status line is not HTTP/1.1",
            Self::Header => "a header is not NAME: VALUE in UTF-8",
            Self::Length => "the reply has neither content-length nor chunks",
            Self::Chunk => "the chunks are malformed",
            Self::TooLong => "the reply is longer than 4 MiB",
        })
    }
}

impl std::error::Error for Malformed {}

/// The reply at the front of `bytes`, or `None` while it is incomplete.
///
/// # Errors
/// The bytes can never become a reply.
pub fn parse(bytes: &[u8]) -> Result<Option<Reply<'_>>, Malformed> {
    let Some(head_length) = find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > REPLY_BYTES_MAX { Err(Malformed::TooLong) } else { Ok(None) };
    };
    let head = std::str::from_utf8(&bytes[..head_length]).map_err(|_| Malformed::Header)?;
    let rest = &bytes[head_length + 4..];
    let (status_line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status =
        status_line.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3)).and_then(|code| code.parse().ok());
    let status: u16 = status.ok_or(Malformed::StatusLine)?;

    let mut content_length = if status == 204 || status == 304 { Some(0) } else { None };
    let (mut chunked, mut close, mut server_timing) = (false, false, None);
    for line in headers.split("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Malformed::Header)?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            content_length = Some(value.parse::<usize>().map_err(|_| Malformed::Length)?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            close = value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("server-timing") {
            server_timing = Some(value);
        }
    }
    let (body, body_length) = if chunked {
        match unchunk(rest)? {
            Some((body, length)) => (Cow::Owned(body), length),
            None => return Ok(None),
        }
    } else {
        let length = content_length.ok_or(Malformed::Length)?;
        if length > REPLY_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        match rest.get(..length) {
            Some(body) => (Cow::Borrowed(body), length),
            None => return Ok(None),
        }
    };
    Ok(Some(Reply { status, body, server_timing, length: head_length + 4 + body_length, close }))
}

/// The body that chunks make and the bytes they took up, trailers included; `None` while incomplete.
fn unchunk(mut bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Malformed> {
    let (mut body, mut taken) = (Vec::new(), 0);
    loop {
        let Some(line_length) = find(bytes, b"\r\n") else { return Ok(None) };
        let line = std::str::from_utf8(&bytes[..line_length]).map_err(|_| Malformed::Chunk)?;
        let digits = line.split(';').next().unwrap_or("").trim();
        let size = usize::from_str_radix(digits, 16).map_err(|_| Malformed::Chunk)?;
        if size == 0 {
            // The trailers: lines up to and with an empty one, which may follow at once.
            let trailers = &bytes[line_length..];
            return Ok(find(trailers, b"\r\n\r\n").map(|end| (body, taken + line_length + end + 4)));
        }
        if body.len() + size > REPLY_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        let start = line_length + 2;
        let Some(chunk) = bytes.get(start..start + size + 2) else { return Ok(None) };
        if !chunk.ends_with(b"\r\n") {
            return Err(Malformed::Chunk);
        }
        body.extend_from_slice(&chunk[..size]);
        taken += start + size + 2;
        bytes = &bytes[start + size + 2..];
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

/// The bytes of one request.
pub fn request(method: &str, host: &str, path: &str, body: &[u8]) -> Vec<u8> {
    request_with(method, host, path, &[], body)
}

/// The same with more headers, each `NAME: VALUE`.
pub fn request_with(method: &str, host: &str, path: &str, headers: &[String], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    for header in headers {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    if !body.is_empty() || !matches!(method, "GET" | "HEAD") {
        bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// What a single request was answered with.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    pub server_timing: Option<String>,
}

impl Answer {
    /// How long the server says it spent on `stage`, from its `Server-Timing`.
    pub fn stage(&self, stage: &str) -> Option<Duration> {
        stage_duration(self.server_timing.as_deref()?, stage)
    }
}

/// Sends one request on a connection of its own and waits for the whole reply.
///
/// # Errors
/// Connecting, writing or reading failed or took longer than `timeout`, or the reply is malformed.
pub fn once(to: SocketAddr, method: &str, path: &str, body: &[u8], timeout: Duration) -> std::io::Result<Answer> {
    once_with(to, method, path, &[], body, timeout)
}

/// The same with more headers, each `NAME: VALUE`.
///
/// # Errors
/// As of [`once`].
pub fn once_with(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[String],
    body: &[u8],
    timeout: Duration,
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&to, timeout)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(&request_with(method, &to.to_string(), path, headers, body))?;
    let mut buffer = Vec::new();
    let reply = read_reply(&mut stream, &mut buffer)?;
    let server_timing = reply.server_timing.map(str::to_owned);
    Ok(Answer { status: reply.status, server_timing, body: reply.body.into_owned() })
}

/// A connection that is kept for many requests, one after the other.
pub struct Connection {
    stream: TcpStream,
    host: String,
    buffer: Vec<u8>,
}

impl Connection {
    /// # Errors
    /// There is nobody to connect to.
    pub fn open(to: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self { stream, host: to.to_string(), buffer: Vec::new() })
    }

    /// # Errors
    /// Writing or reading failed or took too long, or the reply is malformed.
    pub fn send(&mut self, method: &str, path: &str, body: &[u8]) -> std::io::Result<Answer> {
        self.stream.write_all(&request(method, &self.host, path, body))?;
        self.buffer.clear();
        let reply = read_reply(&mut self.stream, &mut self.buffer)?;
        let server_timing = reply.server_timing.map(str::to_owned);
        Ok(Answer { status: reply.status, server_timing, body: reply.body.into_owned() })
    }
}

/// Reads from `stream` until `buffer` begins with a whole reply.
///
/// # Errors
/// Reading failed, the connection ended early, or the reply is malformed.
pub fn read_reply<'b>(stream: &mut TcpStream, buffer: &'b mut Vec<u8>) -> std::io::Result<Reply<'b>> {
    use std::io::{Error, ErrorKind};
    let mut chunk = [0; 16 << 10];
    loop {
        if parse(buffer).map_err(|why| Error::new(ErrorKind::InvalidData, why))?.is_some() {
            break;
        }
        match stream.read(&mut chunk)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            n => buffer.extend_from_slice(&chunk[..n]),
        }
    }
    // Parsed once more because a borrow may not leave the loop that goes on filling the buffer.
    parse(buffer).map_err(|why| Error::new(ErrorKind::InvalidData, why))?.ok_or(ErrorKind::UnexpectedEof.into())
}

/// The duration of `stage` in a `Server-Timing` value such as `queue;dur=0.003, start;dur=0.012`.
pub fn stage_duration(server_timing: &str, stage: &str) -> Option<Duration> {
    server_timing.split(',').find_map(|metric| {
        let (name, parameters) = metric.trim().split_once(';')?;
        let milliseconds: f64 = parameters.split(';').find_map(|p| p.trim().strip_prefix("dur="))?.parse().ok()?;
        (name == stage && (0.0..1e9).contains(&milliseconds)).then(|| Duration::from_secs_f64(milliseconds / 1e3))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_whole_or_not_at_all() {
        for bytes in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nserver-timing: start;dur=0.5\r\n\r\nhello"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nserver-timing: start;dur=0.5\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nserver-timing: start;dur=0.5\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
        ] {
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]), Ok(None), "cut at {end}");
            }
            let mut two = bytes.to_vec();
            two.extend_from_slice(b"HTTP/1.1 404");
            let reply = parse(&two).unwrap().unwrap();
            assert_eq!((reply.status, &*reply.body, reply.length, reply.close), (200, &b"hello"[..], bytes.len(), false));
            assert_eq!(reply.server_timing, Some("start;dur=0.5"));
        }
    }

    #[test]
    fn a_reply_that_cannot_be_read_says_why() {
        for (bytes, why) in [
            ("HTTP/1.0 200 OK\r\n\r\n", Malformed::StatusLine),
            ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Malformed::Header),
            ("HTTP/1.1 200 OK\r\n\r\n", Malformed::Length),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", Malformed::Length),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n", Malformed::TooLong),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", Malformed::Chunk),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", Malformed::Chunk),
        ] {
            assert_eq!(parse(bytes.as_bytes()), Err(why), "{bytes:?}");
        }
        let no_content = parse(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap().unwrap();
        assert_eq!((no_content.status, no_content.close, no_content.body.len()), (204, true, 0));
    }

    #[test]
    fn a_stage_is_found_in_server_timing() {
        let header = "queue;dur=0.003, start;dur=0.0125;desc=\"fresh\", run;desc=x;dur=2";
        assert_eq!(stage_duration(header, "start"), Some(Duration::from_nanos(12_500)));
        assert_eq!(stage_duration(header, "run"), Some(Duration::from_millis(2)));
        assert_eq!(stage_duration(header, "encode"), None);
        assert_eq!(stage_duration("start;dur=-1, start", "start"), None);
    }
}
