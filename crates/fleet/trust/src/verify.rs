//! Which certificates are believed: two verifiers for TLS 1.3, and nothing older.
//!
//! ```text
//!   between members   a leaf of this fleet's CA, for the name of its own key, in its dates, of nobody revoked
//!   towards an anchor the CA that was pinned, and a leaf of it with an anchor's name; dates do not matter
//! ```
//! Who joins or renews has perhaps no clock, and needs none: what it is given counts only if the CA has signed it, and
//! an anchor whose certificate has ended is one that has the CA all the same.

use crate::certificate::{anchor_name, node_name};
use crate::dates::{DateFault, Dates};
use crate::id::{FleetId, NodeId};
use crate::keys::{PublicKey, SPKI_HEAD, sha256};
use crate::trust::Standing;
use problem::{Code, Problem};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;
use std::time::Duration;

/// A fleet's CA, ready to check what it has signed.
#[derive(Debug)]
pub(crate) struct Ca {
    roots: RootCertStore,
    pub fleet: FleetId,
    pub key: PublicKey,
}

impl Ca {
    /// # Errors
    /// It is no certificate of an Ed25519 key.
    pub fn new(certificate: &[u8]) -> Result<Self, Error> {
        let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let key = key_of(certificate).ok_or_else(bad)?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(certificate))?;
        Ok(Self { roots, fleet: FleetId::of(&sha256(&[certificate])), key })
    }

    /// Checks a leaf against the CA and its own key's name, as of a time that `judge` names. Says whose it is.
    pub fn check(
        &self,
        leaf: &CertificateDer<'_>,
        judge: impl FnOnce(Dates) -> Result<u64, DateFault>,
    ) -> Result<NodeId, Error> {
        let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let dates = Dates::of(leaf).ok_or_else(bad)?;
        let time = judge(dates).map_err(|fault| {
            Error::InvalidCertificate(match fault {
                DateFault::Early => CertificateError::NotValidYet,
                DateFault::Ended => CertificateError::Expired,
            })
        })?;
        let parsed = ParsedCertificate::try_from(leaf)?;
        let algorithms = ring::default_provider().signature_verification_algorithms;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(time));
        // Certificates of a fleet hold for both ways, so one check does.
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, &[], time, algorithms.all)?;
        let id = NodeId::of(&key_of(leaf).ok_or_else(bad)?);
        self.has_name(leaf, &node_name(&id.to_string(), self.fleet))?;
        Ok(id)
    }

    /// Whether a leaf holds for a name.
    pub fn has_name(&self, leaf: &CertificateDer<'_>, name: &str) -> Result<(), Error> {
        verify_server_name(&ParsedCertificate::try_from(leaf)?, &server_name(name))
    }
}

/// The Ed25519 key in a certificate.
pub(crate) fn key_of(certificate: &[u8]) -> Option<PublicKey> {
    let certificate = CertificateDer::from(certificate);
    let parsed = ParsedCertificate::try_from(&certificate).ok()?;
    parsed.subject_public_key_info().strip_prefix(&SPKI_HEAD)?.try_into().ok()
}

/// Names of ours are hexadecimal digits and plain words.
pub(crate) fn server_name(name: &str) -> ServerName<'static> {
    ServerName::try_from(name.to_owned()).expect("names of ours are DNS names")
}

/// Accepts the present members of the fleet.
#[derive(Debug)]
pub(crate) struct Members(pub Arc<Standing>);

impl Members {
    fn check(&self, leaf: &CertificateDer<'_>) -> Result<NodeId, Error> {
        let (now, floor) = self.0.time();
        let id = self.0.ca.check(leaf, |dates| dates.judge(now, floor))?;
        if self.0.is_revoked(&id) {
            return Err(Error::InvalidCertificate(CertificateError::Revoked));
        }
        Ok(id)
    }
}

/// How the other side signs, whichever side it is: with Ed25519, in TLS 1.3 alone.
macro_rules! signed_with_ed25519 {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _leaf: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("members speak TLS 1.3 alone".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            leaf: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = ring::default_provider().signature_verification_algorithms;
            verify_tls13_signature(message, leaf, signature, &algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

impl ServerCertVerifier for Members {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(leaf)?;
        verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    signed_with_ed25519!();
}

impl ClientCertVerifier for Members {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(leaf)?;
        Ok(ClientCertVerified::assertion())
    }

    signed_with_ed25519!();
}

/// An anchor, as somebody sees it who is no member yet, or whose certificate has ended.
#[derive(Debug)]
pub(crate) struct AnchorOf {
    /// SHA-256 of the CA's certificate. `None`: any, and a person compares digits that depend on it.
    pub ca_hash: Option<[u8; 32]>,
}

impl ServerCertVerifier for AnchorOf {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let [ca] = others else { return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) };
        if self.ca_hash.is_some_and(|pinned| pinned != sha256(&[ca])) {
            return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        }
        let ca = Ca::new(ca)?;
        ca.check(leaf, |dates| Ok(dates.begins))?;
        ca.has_name(leaf, &anchor_name(ca.fleet))?;
        Ok(ServerCertVerified::assertion())
    }

    signed_with_ed25519!();
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What a failed handshake says to a person.
pub(crate) fn problem_of(error: &Error) -> Problem {
    let (code, detail) = match error {
        Error::InvalidCertificate(CertificateError::Revoked) => {
            (Code::NodeRevoked, "the other node was taken out of the fleet".to_owned())
        }
        Error::AlertReceived(AlertDescription::CertificateRevoked) => {
            (Code::NodeRevoked, "the other node says that this one was taken out of the fleet".to_owned())
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::NotValidYet) => {
            (Code::CertificateEnded, "the other node's certificate does not hold now".to_owned())
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => (
            Code::CertificateEnded,
            "the other node says that the certificate of this one does not hold now".to_owned(),
        ),
        Error::InvalidCertificate(_) => (Code::FleetUnknown, format!("the certificate is not of this fleet: {error}")),
        Error::AlertReceived(AlertDescription::UnknownCA | AlertDescription::BadCertificate) => {
            (Code::FleetUnknown, "the other node says that this one is of another fleet".to_owned())
        }
        _ => (Code::FleetMessage, format!("TLS failed: {error}")),
    };
    Problem::new(code, detail)
}
