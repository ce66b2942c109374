//! An invitation as text: what a new node needs to find a fleet, to know it for sure, and to be let in.
//!
//! ```text
//!   lighter-join-1.  base64url( CA's hash 32 | secret 16 | count 1 | addresses | checksum 4 )
//!                    address: 4, IPv4 4, TCP port 2 · 6, IPv6 16, port 2 · n, length 1, name, port 2
//! ```
//! The checksum is the beginning of the SHA-256 of all before it, prefix included: a typing error is noticed at once
//! and not taken for a stranger's guess. The fleet's id is the beginning of the CA's hash.

use crate::id::FleetId;
use crate::keys::{NodeKey, sha256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Anchors that one invitation names. Any of them lets the node in; it learns of the others when it has joined.
pub const ADDRESSES_MAX: usize = 4;
/// Bytes of a DNS name. A longer one is no name.
pub const HOST_BYTES_MAX: usize = 253;
/// Characters of a text that is looked at: more than the longest token has.
pub const TOKEN_CHARS_MAX: usize = 2_048;

const PREFIX: &str = "lighter-join-";
const VERSION: &str = "1.";
const CHECKSUM_BYTES: usize = 4;

/// What `lighter-join-1.…` says. Its holder may join: it is as secret as a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// SHA-256 of the CA's certificate.
    pub ca_hash: [u8; 32],
    pub secret: [u8; 16],
    /// 1 to [`ADDRESSES_MAX`].
    pub anchors: Vec<Address>,
}

/// Where an anchor listens: TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Address {
    Ip(SocketAddr),
    Name { host: String, port: u16 },
}

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFault {
    /// It does not begin like one.
    NoToken,
    /// A newer program made it.
    Version,
    /// A character is missing, added or another one.
    Typing,
}

impl Token {
    /// Reads a token; spaces and line ends around it do not matter.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn read(text: &str) -> Result<Self, TokenFault> {
        let text = text.trim();
        let rest = text.strip_prefix(PREFIX).filter(|_| text.len() <= TOKEN_CHARS_MAX).ok_or(TokenFault::NoToken)?;
        let body = rest.strip_prefix(VERSION).ok_or_else(|| fault_of_version(rest))?;
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| TokenFault::Typing)?;
        let (said, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(TokenFault::Typing)?;
        if checksum(said) != *sum {
            return Err(TokenFault::Typing);
        }
        Self::fields(said).ok_or(TokenFault::Typing)
    }

    pub fn fleet(&self) -> FleetId {
        FleetId::of(&self.ca_hash)
    }

    /// The key that proves the secret. The anchor keeps its public half, which proves nothing.
    pub fn proof_key(&self) -> NodeKey {
        proof_key(&self.secret)
    }

    fn fields(mut said: &[u8]) -> Option<Self> {
        let (ca_hash, secret) = (take(&mut said)?, take(&mut said)?);
        let [count] = take(&mut said)?;
        if !(1..=ADDRESSES_MAX).contains(&usize::from(count)) {
            return None;
        }
        let anchors = (0..count).map(|_| Address::take(&mut said)).collect::<Option<Vec<_>>>()?;
        said.is_empty().then_some(Self { ca_hash, secret, anchors })
    }
}

/// See [`Token::proof_key`].
pub fn proof_key(secret: &[u8; 16]) -> NodeKey {
    NodeKey::from_seed(&sha256(&[b"lighterage invitation 1\0", secret]))
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = [&self.ca_hash[..], &self.secret, &[self.anchors.len() as u8]].concat();
        for anchor in &self.anchors {
            anchor.write(&mut said);
        }
        let sum = checksum(&said);
        said.extend_from_slice(&sum);
        write!(f, "{PREFIX}{VERSION}{}", URL_SAFE_NO_PAD.encode(said))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, secret, {:?})", self.fleet(), self.anchors)
    }
}

impl Address {
    /// Reads `host:port`, an IPv6 address in brackets.
    pub fn read(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            let is_plain = !matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0 || v6.flowinfo() != 0);
            return (is_plain && address.port() != 0).then_some(Self::Ip(address));
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        is_host(host.as_bytes()).then(|| Self::Name { host: host.to_owned(), port })
    }

    /// Whether nobody beyond this machine can have it.
    pub fn is_loopback(&self) -> bool {
        matches!(self, Self::Ip(address) if address.ip().is_loopback())
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let [kind] = take(from)?;
        let ip = match kind {
            b'4' => IpAddr::from(take::<4>(from)?),
            b'6' => IpAddr::from(take::<16>(from)?),
            b'n' => {
                let [length] = take(from)?;
                let (host, rest) = from.split_at_checked(length.into())?;
                *from = rest;
                let port = take(from).map(u16::from_be_bytes).filter(|port| *port != 0)?;
                let host = String::from_utf8(host.to_vec()).ok().filter(|host| is_host(host.as_bytes()))?;
                return Some(Self::Name { host, port });
            }
            _ => return None,
        };
        let port = take(from).map(u16::from_be_bytes).filter(|port| *port != 0)?;
        Some(Self::Ip(SocketAddr::new(ip, port)))
    }

    fn write(&self, to: &mut Vec<u8>) {
        let port = match self {
            Self::Ip(address) => {
                match address.ip() {
                    IpAddr::V4(ip) => to.extend([&b"4"[..], &ip.octets()].concat()),
                    IpAddr::V6(ip) => to.extend([&b"6"[..], &ip.octets()].concat()),
                }
                address.port()
            }
            Self::Name { host, port } => {
                // A name has at most HOST_BYTES_MAX.
                to.extend([b'n', host.len() as u8]);
                to.extend_from_slice(host.as_bytes());
                *port
            }
        };
        to.extend_from_slice(&port.to_be_bytes());
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => write!(f, "{address}"),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::read(&text).ok_or("an address is HOST:PORT")
    }
}

impl From<TokenFault> for Problem {
    fn from(fault: TokenFault) -> Self {
        let detail = match fault {
            TokenFault::NoToken => "the text does not begin with lighter-join-1.",
            TokenFault::Version => "the invitation is of a newer version than this program knows, which is 1",
            TokenFault::Typing => "a character of the invitation is missing, added or another one",
        };
        Problem::new(Code::InvitationGarbled, detail)
    }
}

fn is_host(host: &[u8]) -> bool {
    let is_plain = host.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    // What is digits and dots is an address, and written as one.
    let has_letter = host.iter().any(u8::is_ascii_alphabetic);
    is_plain && has_letter && host.len() <= HOST_BYTES_MAX
}

fn fault_of_version(rest: &str) -> TokenFault {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match rest.split_once('.') {
        Some((version, _)) if is_number(version) => TokenFault::Version,
        _ => TokenFault::Typing,
    }
}

fn checksum(said: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let hash = sha256(&[PREFIX.as_bytes(), VERSION.as_bytes(), said]);
    std::array::from_fn(|at| hash[at])
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        let anchors = ["192.0.2.7:8702", "[2001:db8::7]:8702", "anchor.example.org:8702"];
        let anchors = anchors.map(|text| Address::read(text).unwrap()).to_vec();
        Token { ca_hash: [3; 32], secret: [4; 16], anchors }
    }

    #[test]
    fn a_token_reads_back() {
        let text = token().to_string();
        assert!(text.starts_with("lighter-join-1."));
        assert_eq!(Token::read(&format!(" {text}\n")), Ok(token()));
    }

    #[test]
    fn a_token_of_one_address_is_short_enough_to_be_read_out() {
        let token = Token { anchors: vec![Address::read("192.0.2.7:8702").unwrap()], ..token() };
        assert_eq!(token.to_string().len(), 95);
    }

    #[test]
    fn every_typing_error_is_noticed() {
        let text = token().to_string();
        let body = "lighter-join-1.".len();
        for at in body..text.len() {
            let mut swapped = text.clone().into_bytes();
            swapped[at] = if swapped[at] == b'A' { b'B' } else { b'A' };
            let mut missing = text.clone();
            missing.remove(at);
            let mut twice = text.clone();
            twice.insert(at, 'x');
            let mut other_case = text.clone().into_bytes();
            other_case[at] ^= 0x20;
            for wrong in [String::from_utf8(swapped).unwrap(), missing, twice, String::from_utf8(other_case).unwrap()] {
                assert_eq!(Token::read(&wrong), Err(TokenFault::Typing), "{wrong}");
            }
        }
    }

    #[test]
    fn what_is_no_token_is_told_apart_from_one_that_is_newer() {
        assert_eq!(Token::read("campus"), Err(TokenFault::NoToken));
        assert_eq!(Token::read("lighter-join-2.AAAA"), Err(TokenFault::Version));
        assert_eq!(Token::read("lighter-join-1"), Err(TokenFault::Typing));
        assert_eq!(Token::read(&format!("lighter-join-1.{}", "A".repeat(TOKEN_CHARS_MAX))), Err(TokenFault::NoToken));
    }

    #[test]
    fn a_token_is_not_printed_by_accident() {
        assert!(!format!("{:?}", token()).contains("4, 4"), "{:?}", token());
    }

    #[test]
    fn addresses_are_hosts_with_a_port() {
        for text in ["", "anchor", "anchor:0", ":8702", "an chor:1", "[fe80::1%1]:8702", "10.1:8702", "a/b:1"] {
            assert_eq!(Address::read(text), None, "{text}");
        }
    }
}
