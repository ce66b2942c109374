//! TLS from certificate files, read again when they change.
//!
//! A pair of files that cannot be used (half written, key and certificate that do not match) is logged and changes
//! nothing: the old certificate stays in use until there is a good pair. Running connections keep theirs.

use parking_lot::{Mutex, RwLock};
use problem::{Code, Problem};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Bytes of a certificate or key file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A certificate chain with its key, for TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2.
#[derive(Debug)]
pub struct Certificates {
    certificate_path: PathBuf,
    key_path: PathBuf,
    config: Arc<ServerConfig>,
    current: Arc<Current>,
    /// The files as they were when last read, well or badly.
    seen: Mutex<[Stamp; 2]>,
}

#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

/// Changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp(Option<(SystemTime, u64)>);

impl Certificates {
    /// Reads both files, in PEM.
    ///
    /// # Errors
    /// L9003: a file cannot be read, holds no certificate or key, or the two do not fit.
    pub fn load(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Arc<Self>, Problem> {
        let (certificate_path, key_path) = (certificate.into(), key.into());
        let seen = [Stamp::of(&certificate_path), Stamp::of(&key_path)];
        let current = Arc::new(Current(RwLock::new(read_pair(&certificate_path, &key_path)?)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Problem::new(Code::ConfigInvalid, format!("TLS cannot be set up: {error}")))?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(Self { certificate_path, key_path, config: Arc::new(config), current, seen: Mutex::new(seen) }))
    }

    /// Reads the files again, now. Blocks for the time of reading two small files.
    ///
    /// # Errors
    /// As [`Certificates::load`]; the certificate before stays in use.
    pub fn reload(&self) -> Result<(), Problem> {
        let mut seen = self.seen.lock();
        *seen = self.stamps();
        let pair = read_pair(&self.certificate_path, &self.key_path)?;
        *self.current.0.write() = pair;
        Ok(())
    }

    /// The same certificate, always the newest, for another protocol than HTTP: clients that name protocols must name
    /// one of these.
    pub fn config_for(&self, protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }

    /// For TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Reads the files again whenever they change. Runs until it is aborted.
    pub async fn keep_fresh(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let this = self.clone();
            // A panic in there was reported where it happened; the next look is a new attempt.
            let _ = tokio::task::spawn_blocking(move || this.look()).await;
        }
    }

    /// Reads the files again if they changed since they were read last.
    fn look(&self) {
        if *self.seen.lock() == self.stamps() {
            return;
        }
        let certificate = self.certificate_path.display();
        match self.reload() {
            Ok(()) => tracing::info!(%certificate, "the TLS certificate changed"),
            Err(problem) => {
                tracing::error!(%problem, "the TLS files changed and cannot be used; the old ones stay in use")
            }
        }
    }

    fn stamps(&self) -> [Stamp; 2] {
        [Stamp::of(&self.certificate_path), Stamp::of(&self.key_path)]
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl Stamp {
    fn of(path: &Path) -> Self {
        let metadata = std::fs::metadata(path).ok();
        Self(metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len()))))
    }
}

fn read_pair(certificate_path: &Path, key_path: &Path) -> Result<Arc<CertifiedKey>, Problem> {
    let bad = |path: &Path, what: &str| Problem::new(Code::ConfigInvalid, format!("{}: {what}", path.display()));
    let chain = CertificateDer::pem_slice_iter(&read(certificate_path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(certificate_path, &format!("not a PEM certificate: {error}")))?;
    if chain.is_empty() {
        return Err(bad(certificate_path, "holds no PEM certificate"));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(key_path)?)
        .map_err(|error| bad(key_path, &format!("holds no PEM private key: {error}")))?;
    let pair = CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| bad(certificate_path, &format!("does not fit the key {}: {error}", key_path.display())))?;
    Ok(Arc::new(pair))
}

fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let result = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    match result {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Problem::new(Code::ConfigInvalid, format!("cannot read {}: {error}", path.display()))),
    }
}
