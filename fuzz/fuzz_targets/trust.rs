//! Any bytes are an invitation, a message, a list of revoked nodes, a certificate's dates, a datagram of the beacon, or
//! a fault; what is read is written as it was.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet_trust::beacon::{HERE_BYTES_MAX, Here, ask, read_ask};
use fleet_trust::dates::Dates;
use fleet_trust::digits::Digits;
use fleet_trust::message::{HEAD_BYTES, MessageHead, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Reply, Request};
use fleet_trust::revoked::ListFault;
use fleet_trust::{Address, Authority, FleetId, NodeKey, PublicKey, Revoked, Token};
use lighter_fuzz::fuzz_target;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = str::from_utf8(data) {
        token(text);
        let _ = Digits::read(text);
        if let Some(address) = Address::read(text) {
            assert_eq!(Address::read(&address.to_string()), Some(address));
        }
    }
    // As what stands in a token: chance alone never gets past its checksum.
    let begun = [b"lighter-join-1.", data].concat();
    let sum = &Sha256::digest(&begun)[..4];
    token(&format!("lighter-join-1.{}", URL_SAFE_NO_PAD.encode([data, sum].concat())));
    message(data);
    // A certificate's dates are read before its signature is checked.
    let _ = Dates::of(data);
    list(data);
    beacon(data);
});

/// An answer counts if it has what was asked with: here that is whatever it has.
fn beacon(data: &[u8]) {
    if let Some(echo) = read_ask(data) {
        assert_eq!(read_ask(&ask(&echo)), Some(echo));
    }
    let Some(echo) = data.get(6..22).and_then(|echo| echo.try_into().ok()) else { return };
    if let Some(here) = Here::read(data, &echo) {
        assert_eq!(here.write(&echo), data);
        assert!(data.len() <= HERE_BYTES_MAX);
    }
}

fn token(text: &str) {
    if let Ok(token) = Token::read(text) {
        assert_eq!(Token::read(&token.to_string()), Ok(token));
    }
}

fn message(data: &[u8]) {
    let Some((head, body)) = data.split_first_chunk::<HEAD_BYTES>() else { return };
    if let Ok(request) = MessageHead::read(*head, REQUEST_BYTES_MAX).and_then(|head| Request::read(head, body)) {
        let (head, body) = written(&request.write());
        assert_eq!(Request::read(head, &body), Ok(request));
    }
    if let Ok(reply) = MessageHead::read(*head, REPLY_BYTES_MAX).and_then(|head| Reply::read(head, body)) {
        let (head, body) = written(&reply.write());
        assert_eq!(Reply::read(head, &body), Ok(reply));
    }
}

fn written(bytes: &[u8]) -> (MessageHead, Vec<u8>) {
    let (head, body) = bytes.split_first_chunk().expect("a message has a head");
    (MessageHead::read(*head, REPLY_BYTES_MAX).expect("it is one of ours"), body.to_vec())
}

/// The fleet whose lists the seeds are.
static FLEET: LazyLock<(FleetId, PublicKey)> = LazyLock::new(|| {
    let authority = Authority::found("campus", &[1; 32]).expect("it is a name");
    (authority.fleet(), NodeKey::from_seed(&[1; 32]).public())
});

/// Fields are read first and the signature last. So a signature is no obstacle here, and never right.
fn list(data: &[u8]) {
    let (fleet, key) = &*FLEET;
    match Revoked::read(data, *fleet, key) {
        Ok(list) => {
            // A seed: it was signed with this very key.
            assert_eq!(Revoked::read(list.bytes(), *fleet, key), Ok(list));
        }
        Err(ListFault::OtherFleet(FleetId(other))) => assert_eq!(other, data[5..13]),
        Err(_) => {}
    }
}
