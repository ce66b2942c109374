//! The fleet's CA, and what it signs: certificates of nodes.
//!
//! ```text
//!   CN = node id · SAN ID.FLEET.lighter · for an anchor also anchor.FLEET.lighter · 30 days · both ways of TLS
//! ```
//! Without the anchor's name any member could answer to an invitation. The CA's own certificate does not end: a date
//! would end a fleet that nobody looks after. It is replaced when a person replaces the fleet.

use crate::dates::Dates;
use crate::id::{FleetId, check_name};
use crate::keys::{NodeKey, PublicKey, Seed, sha256};
use crate::token::Address;
use problem::{Code, Problem};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SerialNumber, SignatureAlgorithm,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

/// Bytes of a certificate that is read from a message. Ours have about 450.
pub const CERTIFICATE_BYTES_MAX: usize = 2_048;

/// Where the year 9999 ends: what RFC 5280 has for a certificate without an end.
const NO_END: i64 = 253_402_300_799;

/// Who says who is a member. It lives on anchors alone.
pub struct Authority {
    key: NodeKey,
    name: String,
    certificate: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

/// What a node has once it has joined, beside its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// What people call the fleet.
    pub fleet_name: String,
    /// The CA's certificate.
    pub ca: Vec<u8>,
    /// This node's.
    pub certificate: Vec<u8>,
    /// Where to renew it.
    pub anchors: Vec<Address>,
    /// Which life of this node this is: an anchor counts them.
    pub incarnation: u64,
}

/// What a certificate says its node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Member,
    Anchor,
}

impl Authority {
    /// A new fleet's.
    ///
    /// # Errors
    /// [`Code::Usage`]: the name is none.
    pub fn found(name: &str, seed: &Seed) -> Result<Self, Problem> {
        check_name(name)?;
        let key = NodeKey::from_seed(seed);
        let pair = pair_of(&key)?;
        let certificate = ca_params(name, &key.public()).self_signed(&pair).map_err(unsigned)?;
        Self::of(name, key, certificate.der().to_vec())
    }

    /// One that is there already.
    ///
    /// # Errors
    /// [`Code::DataUnusable`]: key and certificate do not belong together.
    pub fn open(name: &str, seed: &Seed, certificate: Vec<u8>) -> Result<Self, Problem> {
        let key = NodeKey::from_seed(seed);
        if crate::verify::key_of(&certificate) != Some(key.public()) {
            return Err(Problem::new(Code::DataUnusable, "the fleet's certificate is not that of its key"));
        }
        Self::of(name, key, certificate)
    }

    fn of(name: &str, key: NodeKey, certificate: Vec<u8>) -> Result<Self, Problem> {
        let issuer = Issuer::new(ca_params(name, &key.public()), pair_of(&key)?);
        Ok(Self { key, name: name.to_owned(), certificate, issuer })
    }

    pub fn fleet(&self) -> FleetId {
        FleetId::of(&self.ca_hash())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// What an invitation pins.
    pub fn ca_hash(&self) -> [u8; 32] {
        sha256(&[&self.certificate])
    }

    pub(crate) fn key(&self) -> &NodeKey {
        &self.key
    }

    /// What another anchor is given, sealed.
    pub(crate) fn seed(&self) -> &Seed {
        self.key.seed()
    }

    /// 32 secret bytes for one purpose, the same on every anchor. They tell nothing of the CA's key.
    pub fn secret_for(&self, purpose: &str) -> Seed {
        self.key.secret_for(purpose)
    }

    /// A certificate for a node's key. `number` is random.
    ///
    /// # Errors
    /// [`Code::Internal`]: a date that no certificate can have.
    pub fn issue(&self, key: &PublicKey, role: Role, dates: Dates, number: [u8; 16]) -> Result<Vec<u8>, Problem> {
        let id = crate::NodeId::of(key);
        let mut names = vec![node_name(&id.to_string(), self.fleet())];
        if role == Role::Anchor {
            names.push(anchor_name(self.fleet()));
        }
        let mut params = CertificateParams::new(names).map_err(unsigned)?;
        params.distinguished_name.remove(DnType::CommonName);
        params.distinguished_name.push(DnType::CommonName, id.to_string());
        params.serial_number = Some(serial(number));
        params.not_before = date(dates.begins)?;
        params.not_after = date(dates.ends)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate: Certificate = params.signed_by(&Subject(*key), &self.issuer).map_err(unsigned)?;
        Ok(certificate.der().to_vec())
    }
}

impl Membership {
    pub fn ca_hash(&self) -> [u8; 32] {
        sha256(&[&self.ca])
    }

    pub fn fleet(&self) -> FleetId {
        FleetId::of(&self.ca_hash())
    }

    /// The dates of this node's certificate. `None`: it is none.
    pub fn dates(&self) -> Option<Dates> {
        Dates::of(&self.certificate)
    }

    /// The CA and the node, as TLS sends them.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone().into(), self.ca.clone().into()]
    }
}

/// The name that a node's certificate holds for.
pub(crate) fn node_name(id: &str, fleet: FleetId) -> String {
    format!("{id}.{fleet}.lighter")
}

/// The name that only anchors' certificates hold for.
pub(crate) fn anchor_name(fleet: FleetId) -> String {
    node_name("anchor", fleet)
}

fn ca_params(name: &str, key: &PublicKey) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, format!("lighter fleet {name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let hash = sha256(&[key]);
    params.serial_number = Some(serial(std::array::from_fn(|at| hash[at])));
    params.not_before = OffsetDateTime::UNIX_EPOCH;
    params.not_after = OffsetDateTime::from_unix_timestamp(NO_END).expect("it is a date");
    params
}

/// Positive and without a leading zero, as RFC 5280 wants a number.
fn serial(mut number: [u8; 16]) -> SerialNumber {
    number[0] = number[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&number)
}

fn pair_of(key: &NodeKey) -> Result<KeyPair, Problem> {
    KeyPair::from_pkcs8_der_and_sign_algo(&key.pkcs8(), &PKCS_ED25519).map_err(unsigned)
}

fn date(seconds: u64) -> Result<OffsetDateTime, Problem> {
    let date = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    date.ok_or_else(|| Problem::new(Code::Internal, format!("the machine's clock shows {seconds} s after 1970")))
}

fn unsigned(error: rcgen::Error) -> Problem {
    Problem::new(Code::Internal, format!("a certificate cannot be made: {error}"))
}

/// A key whose secret half is on another machine.
struct Subject(PublicKey);

impl PublicKeyData for Subject {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dates::CERTIFICATE_SECONDS;

    #[test]
    fn a_certificate_says_whose_it_is_and_for_how_long() {
        let authority = Authority::found("campus", &[1; 32]).unwrap();
        let key = NodeKey::from_seed(&[2; 32]);
        for begins in [60, 1_795_425_300, 2_600_000_000] {
            let bytes = authority.issue(&key.public(), Role::Member, Dates::from(begins), [0xff; 16]).unwrap();
            assert!(bytes.len() <= CERTIFICATE_BYTES_MAX / 2, "{} bytes", bytes.len());
            assert_eq!(Dates::of(&bytes), Some(Dates { begins, ends: begins + CERTIFICATE_SECONDS }));
            assert_eq!(crate::verify::key_of(&bytes), Some(key.public()));
            for cut in 0..bytes.len() {
                let _ = Dates::of(&bytes[..cut]);
            }
        }
    }

    #[test]
    fn an_authority_is_found_again_and_not_mistaken() {
        let authority = Authority::found("campus", &[1; 32]).unwrap();
        let again = Authority::open("campus", &[1; 32], authority.certificate().to_vec()).unwrap();
        assert_eq!(again.fleet(), authority.fleet());
        assert_eq!(again.secret_for("a"), authority.secret_for("a"));
        assert_ne!(again.secret_for("a"), authority.secret_for("b"));
        let other = Authority::open("campus", &[2; 32], authority.certificate().to_vec());
        assert_eq!(other.err().unwrap().code, Code::DataUnusable);
    }
}
