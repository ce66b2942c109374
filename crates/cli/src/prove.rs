//! Asks the listener to prove that it is the node of the data folder, on each new connection, before anything else.
//!
//! It stands between the connection (TLS included) and the requests, so there is no moment in which one process proves
//! and another gets the token.

use api_types::identity::{Identity, NONCE_BYTES};
use serde::Deserialize;
use std::fmt;
use std::io::{Error as IoError, ErrorKind::UnexpectedEof};
use ureq::Error;
use ureq::unversioned::transport::{ConnectionDetails, Connector, Transport};

/// Bytes of the answer, head and all; what is longer proves nothing.
const ANSWER_BYTES_MAX: usize = 8 << 10;

/// The last link of a chain of connectors.
#[derive(Debug)]
pub struct Prove(pub Identity);

/// The other end is not the node it should be.
#[derive(Debug)]
pub struct NotProven;

impl fmt::Display for NotProven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other end cannot prove that it is the node of the data folder")
    }
}

impl std::error::Error for NotProven {}

impl<In: Transport> Connector<In> for Prove {
    type Out = In;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<In>, Error> {
        let Some(mut transport) = chained else { return Ok(None) };
        ask(&mut transport, details, &self.0)?;
        Ok(Some(transport))
    }
}

fn ask(transport: &mut impl Transport, details: &ConnectionDetails<'_>, identity: &Identity) -> Result<(), Error> {
    let mut random = [0; NONCE_BYTES];
    getrandom::fill(&mut random).map_err(|error| IoError::other(error.to_string()))?;
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let host = details.uri.authority().map_or("", |authority| authority.as_str());
    let request = format!("GET /v1/identity?nonce={nonce} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    transport.buffers().output()[..request.len()].copy_from_slice(request.as_bytes());
    transport.transmit_output(request.len(), details.timeout)?;
    loop {
        if !transport.await_input(details.timeout)? {
            return Err(IoError::from(UnexpectedEof).into());
        }
        let Some((proof, length)) = answer(transport.buffers().input())? else { continue };
        transport.buffers().input_consume(length);
        return match identity.is_proven(&nonce, &proof) {
            true => Ok(()),
            false => Err(not_proven()),
        };
    }
}

fn not_proven() -> Error {
    Error::Other(Box::new(NotProven))
}

/// The proof in an answer and the bytes of the whole of it; none while more has to come.
fn answer(bytes: &[u8]) -> Result<Option<(String, usize)>, Error> {
    #[derive(Deserialize)]
    struct Proof {
        proof: String,
    }
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() < ANSWER_BYTES_MAX { Ok(None) } else { Err(not_proven()) };
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| not_proven())?;
    let (status, fields) = head.split_once("\r\n").ok_or_else(not_proven)?;
    let fields = fields.split("\r\n").filter_map(|line| line.split_once(':'));
    let length = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, value)| value.trim());
    let length: usize = length.last().and_then(|length| length.parse().ok()).ok_or_else(not_proven)?;
    if !status.starts_with("HTTP/1.1 200") || length > ANSWER_BYTES_MAX {
        return Err(not_proven());
    }
    let whole = end + 4 + length;
    let Some(body) = bytes.get(end + 4..whole) else { return Ok(None) };
    let proof: Proof = serde_json::from_slice(body).map_err(|_| not_proven())?;
    Ok(Some((proof.proof, whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_it_is_whole() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"proof\":\"ab\"}GET";
        for cut in 0..text.len() - 3 {
            assert_eq!(answer(&text[..cut]).unwrap(), None, "{cut}");
        }
        assert_eq!(answer(text).unwrap(), Some(("ab".to_owned(), text.len() - 3)));
    }

    #[test]
    fn anything_else_proves_nothing() {
        for text in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n{\"proof\":\"ab\"}",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            &"x".repeat(ANSWER_BYTES_MAX),
        ] {
            assert!(answer(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
