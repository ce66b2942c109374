//! TLS: both protocols, and certificates that change.

use crate::support::{Node, request, within};
use gate_http::{Certificates, Config, Gate, Listener};
use http::{Method, Version};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use problem::Code;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A folder with a certificate and its key.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// Writes a new pair; returns the certificate.
    fn write(&self) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(self.certificate(), made.cert.pem()).unwrap();
        std::fs::write(self.key(), made.signing_key.serialize_pem()).unwrap();
        made.cert.der().clone()
    }

    fn load(&self) -> Arc<Certificates> {
        Certificates::load(self.certificate(), self.key()).unwrap()
    }
}

fn start(certificates: Arc<Certificates>, config: Config) -> (Gate, SocketAddr) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Some(certificates)).unwrap();
    let address = listener.address();
    (Gate::start(vec![listener], config, Arc::new(Node::default())).unwrap(), address)
}

/// Trusts just this certificate.
async fn connect(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    alpn: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await?;
    within(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream)).await
}

#[tokio::test]
async fn both_protocols_are_chosen_in_the_handshake() {
    let files = Files::new();
    let certificate = files.write();
    let (_gate, address) = start(files.load(), Config::default());
    let mut stream = connect(address, &certificate, "http/1.1").await.unwrap();
    stream.write_all(b"GET /who HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    within(stream.read_to_string(&mut reply)).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("HTTP/1.1"), "{reply}");

    let stream = connect(address, &certificate, "h2").await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let reply = within(client.send_request(request(Method::GET, "/hello"))).await.unwrap();
    assert_eq!(reply.version(), Version::HTTP_2);
    assert_eq!(reply.collect().await.unwrap().to_bytes(), "hello");
}

#[tokio::test]
async fn a_new_certificate_is_used_and_a_bad_one_is_not() {
    let files = Files::new();
    let first = files.write();
    let certificates = files.load();
    let (_gate, address) = start(certificates.clone(), Config::default());
    connect(address, &first, "h2").await.unwrap();

    let second = files.write();
    certificates.reload().unwrap();
    connect(address, &second, "h2").await.unwrap();
    assert!(connect(address, &first, "h2").await.is_err(), "the old certificate is still shown");

    // A certificate without its key, a key without its certificate, and no certificate at all.
    let key = std::fs::read(files.key()).unwrap();
    files.write();
    std::fs::write(files.key(), &key).unwrap();
    assert_eq!(certificates.reload().unwrap_err().code, Code::ConfigInvalid);
    std::fs::write(files.certificate(), "not a certificate").unwrap();
    assert_eq!(certificates.reload().unwrap_err().code, Code::ConfigInvalid);
    std::fs::remove_file(files.certificate()).unwrap();
    assert_eq!(certificates.reload().unwrap_err().code, Code::ConfigInvalid);
    connect(address, &second, "h2").await.unwrap();
}

#[tokio::test]
async fn files_that_change_are_noticed_by_themselves() {
    let files = Files::new();
    files.write();
    let (_gate, address) = start(files.load(), Config::default());
    let second = files.write();
    let begin = Instant::now();
    while connect(address, &second, "h2").await.is_err() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the new certificate is not used");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_missing_file_is_a_problem_that_names_it() {
    let files = Files::new();
    files.write();
    std::fs::remove_file(files.key()).unwrap();
    let problem = Certificates::load(files.certificate(), files.key()).unwrap_err();
    assert_eq!(problem.code, Code::ConfigInvalid);
    assert!(problem.detail.contains("key.pem"), "{problem}");
}

#[tokio::test]
async fn a_handshake_has_to_end_in_time() {
    let files = Files::new();
    files.write();
    let config = Config { head_timeout: Duration::from_millis(100), ..Config::default() };
    let (gate, address) = start(files.load(), config);
    for said in [&b""[..], b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(said).await.unwrap();
        let mut reply = Vec::new();
        let _ = within(stream.read_to_end(&mut reply)).await;
        assert!(!reply.starts_with(b"HTTP"), "{reply:?}");
    }
    within(async {
        while gate.connections() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
