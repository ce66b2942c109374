//! Fleets for tests: anchors and members that listen, clocks that can be set, and a client that believes everything.

use fleet_trust::anchor::{Channel, Keep};
use fleet_trust::ledger::Ledger;
use fleet_trust::link::{self, Joined};
use fleet_trust::message::{HEAD_BYTES, MessageHead, REPLY_BYTES_MAX, Reply};
use fleet_trust::serve::{MemberArrival, serve};
use fleet_trust::{Address, Anchor, Authority, Clock, Membership, NodeId, NodeKey, Trust};
use problem::{Code, Problem};
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::version::TLS13;
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub const BUILT: u64 = 1_790_000_000;
pub const NOW: u64 = BUILT + 60 * DAY;
pub const DAY: u64 = 24 * 3_600;

/// A clock that a test sets.
#[derive(Clone)]
pub struct Hand(Arc<AtomicU64>);

impl Hand {
    pub fn at(seconds: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seconds)))
    }

    pub fn set(&self, seconds: u64) {
        self.0.store(seconds, Relaxed);
    }

    pub fn clock(&self) -> Clock {
        let hand = self.0.clone();
        Clock::new(move || hand.load(Relaxed), BUILT)
    }
}

/// A disk that keeps everything.
pub struct Kept;

impl Keep for Kept {
    fn keep(&self, _ledger: &Ledger) -> Result<(), Problem> {
        Ok(())
    }
}

/// A disk that is full from some moment on.
pub struct Full(pub Arc<AtomicBool>);

impl Keep for Full {
    fn keep(&self, _ledger: &Ledger) -> Result<(), Problem> {
        match self.0.load(Relaxed) {
            true => Err(Problem::new(Code::DataUnusable, "the disk is full")),
            false => Ok(()),
        }
    }
}

/// A node that listens. Members that connect are answered with what they send, until they have to end.
pub struct Listening {
    pub trust: Arc<Trust>,
    pub address: Address,
    /// Whose connections arrived, and whose had to end.
    pub arrived: mpsc::UnboundedReceiver<NodeId>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

pub async fn listen(listener: TcpListener, trust: Arc<Trust>, anchor: Option<Arc<Anchor>>) -> Listening {
    let address = Address::Ip(listener.local_addr().unwrap());
    let (sender, arrivals) = mpsc::channel(16);
    let (tell, arrived) = mpsc::unbounded_channel();
    let tasks = [tokio::spawn(serve(listener, trust.clone(), anchor, sender)), tokio::spawn(echo(arrivals, tell))];
    Listening { trust, address, arrived, tasks }
}

async fn echo(mut arrivals: mpsc::Receiver<MemberArrival>, tell: mpsc::UnboundedSender<NodeId>) {
    while let Some(MemberArrival { mut peer, mut stream }) = arrivals.recv().await {
        let _ = tell.send(peer.node);
        tokio::spawn(async move {
            let mut bytes = [0; 64];
            loop {
                let read = tokio::select! {
                    read = stream.read(&mut bytes) => read,
                    _ = peer.ended() => return,
                };
                let Ok(count @ 1..) = read else { return };
                if stream.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A fleet with one anchor.
pub struct Fleet {
    pub anchor: Arc<Anchor>,
    pub listening: Listening,
    /// The anchor's clock.
    pub hand: Hand,
}

pub async fn fleet(seed: u8) -> Fleet {
    fleet_on(seed, Kept).await
}

pub async fn fleet_on(seed: u8, keep: impl Keep) -> Fleet {
    let hand = Hand::at(NOW);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = Address::Ip(listener.local_addr().unwrap());
    let authority = Authority::found("campus", &[seed; 32]).unwrap();
    let anchor = Arc::new(Anchor::new(authority, Ledger::default(), vec![address], hand.clock(), keep));
    let key = key(seed.wrapping_add(100));
    let membership = anchor.own(&key, "server-1").unwrap();
    let trust = Arc::new(Trust::new(key, membership, None, hand.clock()).unwrap());
    let listening = listen(listener, trust, Some(anchor.clone())).await;
    Fleet { anchor, listening, hand }
}

pub fn key(seed: u8) -> NodeKey {
    NodeKey::from_seed(&[seed; 32])
}

impl Fleet {
    pub fn address(&self) -> &Address {
        &self.listening.address
    }

    /// A node that has joined by an invitation.
    pub async fn joined(&self, seed: u8) -> (Joined, Trust) {
        let token = self.anchor.invite(1, 3_600).unwrap();
        let joined = link::join(&token, &key(seed), &format!("pi-{seed}")).await.unwrap();
        let trust =
            Trust::new(key(seed), joined.membership.clone(), joined.revoked.clone(), self.hand.clock()).unwrap();
        (joined, trust)
    }

    /// A member that listens, too.
    pub async fn member(&self, seed: u8) -> Listening {
        let (_, trust) = self.joined(seed).await;
        listen(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap(), Arc::new(trust), None).await
    }
}

/// Connects, sends a byte and reads it back.
pub async fn meet(trust: &Trust, other: &Listening) -> Result<Open, Problem> {
    let (peer, stream) = link::connect(trust, &other.address, &other.trust.node()).await?;
    let mut open = Open { peer, stream };
    open.echo().await.map(|()| open)
}

pub struct Open {
    pub peer: fleet_trust::Peer,
    pub stream: TlsStream<TcpStream>,
}

impl Open {
    pub async fn echo(&mut self) -> Result<(), Problem> {
        let mut byte = [0];
        self.stream.write_all(&[7]).await.map_err(|error| link::why(&error))?;
        self.stream.read_exact(&mut byte).await.map_err(|error| link::why(&error))?;
        assert_eq!(byte, [7]);
        Ok(())
    }
}

/// Waits, with turns for others, until something is so.
pub async fn until(is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.expect("it comes to be so");
}

/// A connection that believes every certificate, from one of this machine's own addresses.
pub async fn raw(
    to: &Address,
    from: u8,
    protocol: &[u8],
    versions: &[&'static SupportedProtocolVersion],
) -> io::Result<TlsStream<TcpStream>> {
    let config = believing(versions).with_no_client_auth();
    open(config, plain(to, from).await?, protocol).await
}

/// The same with a member's certificate.
pub async fn raw_as(
    to: &Address,
    protocol: &[u8],
    membership: &Membership,
    seed: u8,
) -> io::Result<TlsStream<TcpStream>> {
    let chain = vec![membership.certificate.clone().into(), membership.ca.clone().into()];
    let config = believing(&[&TLS13]).with_client_auth_cert(chain, PrivateKeyDer::Pkcs8(pkcs8(seed).into())).unwrap();
    open(config, plain(to, 1).await?, protocol).await
}

fn believing(versions: &[&'static SupportedProtocolVersion]) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believing))
}

async fn open(mut config: ClientConfig, stream: TcpStream, protocol: &[u8]) -> io::Result<TlsStream<TcpStream>> {
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config)).connect("anchor.lighter".try_into().unwrap(), stream).await
}

/// The key of [`key`] in RFC 8410's form.
pub fn pkcs8(seed: u8) -> Vec<u8> {
    [&[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20][..], &[seed; 32]].concat()
}

pub async fn plain(to: &Address, from: u8) -> io::Result<TcpStream> {
    let Address::Ip(to) = to else { panic!("tests have addresses") };
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 1, from], 0)))?;
    socket.connect(*to).await
}

pub fn channel(stream: &TlsStream<TcpStream>) -> Channel {
    stream.get_ref().1.export_keying_material([0; 32], b"EXPORTER-lighterage-join-1", None).unwrap()
}

pub async fn reply(stream: &mut TlsStream<TcpStream>) -> io::Result<Reply> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let head = MessageHead::read(head, REPLY_BYTES_MAX).unwrap();
    let mut body = vec![0; head.length()];
    stream.read_exact(&mut body).await?;
    Ok(Reply::read(head, &body).unwrap())
}

#[derive(Debug)]
struct Believing;

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
