//! Payloads: truncated, changed, unsigned, for another target.

use crate::world::node_keys;
use board_link::{Keys, PayloadFault, open_payload, seal_payload};

const FORMATS: [&str; 2] = ["aarch64-unknown-none/48", "pulley64/48"];

fn open(payload: &[u8]) -> Result<(&[u8], usize), PayloadFault> {
    open_payload(payload, &FORMATS, &[[0; 32], node_keys().id().0])
}

#[test]
fn a_payload_opens_for_its_format_and_signer() {
    let payload = seal_payload(b"code", FORMATS[1], &node_keys());
    assert_eq!(open(&payload), Ok((&b"code"[..], 1)));
    assert_eq!(payload.len() - b"code".len(), 137 + FORMATS[1].len() + 1);
}

#[test]
fn no_byte_of_a_payload_can_be_changed_or_left_out() {
    let payload = seal_payload(b"code", FORMATS[0], &node_keys());
    for at in 0..payload.len() {
        let mut changed = payload.clone();
        changed[at] ^= 1;
        assert!(open(&changed).is_err(), "byte {at}");
        assert!(open(&payload[..at]).is_err(), "{at} bytes");
    }
    let found = payload.len() - (payload.len() - 5);
    assert_eq!(open(&[&payload[..], b"!"].concat()), Err(PayloadFault::Length { said: 4, found }));
}

#[test]
fn strangers_and_other_targets_are_refused_before_the_code_is_looked_at() {
    let stranger = Keys::from_seed(&[66; 32]);
    let payload = seal_payload(b"code", FORMATS[0], &stranger);
    assert_eq!(open(&payload), Err(PayloadFault::SignerUnknown(stranger.id().0)));
    // A key of zeros is no way around a signature.
    let mut forged = seal_payload(b"code", FORMATS[0], &stranger);
    let signer = 4 + 1 + 1 + FORMATS[0].len() + 4 + 32;
    forged[signer..signer + 32].fill(0);
    assert_eq!(open(&forged), Err(PayloadFault::Signature));
    let payload = seal_payload(b"code", "x86_64-unknown-none/48", &node_keys());
    assert_eq!(open(&payload), Err(PayloadFault::Format));
}
