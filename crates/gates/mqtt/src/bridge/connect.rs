//! The way to the outside broker: TCP, with TLS where it is asked for.

use super::BridgeConfig;
use problem::{Code, Problem};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// For the name, the connection and the handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whom to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secure {
    /// Whoever browsers trust.
    PublicRoots,
    /// These certificates, in PEM.
    Roots(String),
}

pub struct Connector {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A stream of either kind.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Connector {
    pub fn new(config: &BridgeConfig) -> Result<Self, Problem> {
        let tls = config.secure.as_ref().map(|secure| {
            let invalid =
                |why: String| Problem::new(Code::ConfigInvalid, format!("the MQTT bridge cannot use TLS: {why}"));
            let mut roots = RootCertStore::empty();
            match secure {
                Secure::PublicRoots => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
                Secure::Roots(pem) => {
                    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                        let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
                        roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
                    }
                }
            }
            let config_tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| invalid(error.to_string()))?
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from(config.host.clone()).map_err(|error| invalid(error.to_string()))?;
            Ok::<_, Problem>((TlsConnector::from(Arc::new(config_tls)), name))
        });
        Ok(Self { host: config.host.clone(), port: config.port, tls: tls.transpose()? })
    }

    pub async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let connect = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            let stream: Box<dyn Stream> = match &self.tls {
                None => Box::new(stream),
                Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
            };
            Ok(stream)
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
