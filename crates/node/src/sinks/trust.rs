//! Which certificates webhooks trust: those of the public authorities, and those of a file.

use problem::{Code, Problem};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::path::Path;
use std::sync::Arc;

/// Certificates to trust beside the public ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trust(Vec<CertificateDer<'static>>);

impl Trust {
    /// # Errors
    /// [`Code::ConfigInvalid`]: the file cannot be read, or holds no certificate that could sign others.
    pub fn new(file: Option<&Path>) -> Result<Self, Problem> {
        let Some(file) = file else { return Ok(Self::default()) };
        let invalid = |why: String| Problem::new(Code::ConfigInvalid, format!("webhook_ca {}: {why}", file.display()));
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = read.map_err(|error| invalid(error.to_string()))?;
        if certificates.is_empty() {
            return Err(invalid("there is no certificate in it".into()));
        }
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|error| invalid(error.to_string()))?;
        }
        Ok(Self(certificates))
    }

    pub fn tls(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for certificate in &self.0 {
            roots.add(certificate.clone()).expect("it was added before");
        }
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}
