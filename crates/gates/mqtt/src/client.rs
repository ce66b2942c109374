//! One client's connection, from the first byte to the last.

use crate::broker::ConnectRefusal;
use crate::codec::{self, Connect, Packet, Reason, Version};
use crate::gate::{ConnectionPermit, GateInner};
use crate::line::{Line, Wrote};
use crate::node::Node;
use crate::passwords::Verdict;
use crate::peers::Peer;
use crate::users::Identity;
use budget::{Purpose, Share};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Bytes that are read at once. One such buffer a thread, not one a connection.
const READ_BYTES: usize = 64 * 1_024;

/// Bytes that are asked for when the beginning of a packet is there already.
const READ_MORE_BYTES: usize = 16 * 1_024;

/// Bytes of a connection's read buffer that the budget does not count. A larger one has to find room there, or the
/// connection ends.
const BUFFER_BYTES_FREE: usize = 8 * 1_024;

/// How long a client that is turned away, or whose connection ends, may take to hear so.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// When a wrong name or password is called so: that long after it came, whether it was hashed or not, so that the time
/// tells nothing about names, and nobody tries many by one connection after the other.
const REFUSAL_DELAY: Duration = Duration::from_millis(500);

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Serves a connection to its end.
pub(crate) async fn run_client<N: Node>(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    shared: Arc<GateInner<N>>,
    permit: ConnectionPermit<N>,
) {
    let mut ended = shared.ended();
    let left = tokio::select! {
        left = async {
            match tls {
                None => Box::pin(run_plain(stream, peer, &shared)).await,
                Some(tls) => Box::pin(run_tls(stream, peer, tls, &shared)).await,
            }
        } => left,
        _ = ended.wait_for(|ended| *ended) => None,
    };
    shared.usher.shows_out((left, permit));
}

/// What is left of a connection that has ended, to be closed.
type Left = Option<Box<dyn Send>>;

async fn run_plain<N: Node>(mut stream: TcpStream, peer: SocketAddr, shared: &Arc<GateInner<N>>) -> Left {
    let hello = tokio::time::timeout(shared.limits.connect_timeout, hear(&mut stream, shared));
    let Hello { packet, rest, room } = match Box::pin(hello).await {
        Ok(Ok(heard)) => heard,
        Ok(Err(refused)) => return turn_away(stream, peer, refused).await,
        Err(_) => {
            tracing::debug!(%peer, "no CONNECT in time");
            return Some(Box::new(stream));
        }
    };
    let greeting = match Box::pin(prove(packet, peer, shared)).await {
        Ok(greeting) => greeting,
        Err(refused) => return turn_away(stream, peer, refused).await,
    };
    let socket = Arc::new(stream);
    let joined = join(shared, Some(socket.clone()), &greeting);
    drop((greeting, room));
    match joined {
        Ok(line) => {
            let _left = Leave { shared, line: &line };
            tokio::select! {
                () = read_plain(&socket, &line, shared, rest) => {}
                () = write_plain(&socket, &line, shared) => {}
            }
            Some(Box::new(socket))
        }
        Err(refusal) => turn_away(Arc::into_inner(socket)?, peer, Refused::No(refusal)).await,
    }
}

async fn run_tls<N: Node>(stream: TcpStream, peer: SocketAddr, tls: TlsAcceptor, shared: &Arc<GateInner<N>>) -> Left {
    let begin = async {
        let mut stream = tls.accept(stream).await.map_err(|_| Refused::Gone)?;
        match hear(&mut stream, shared).await {
            Ok(hello) => Ok((stream, hello)),
            Err(refused) => {
                turn_away(stream, peer, refused).await;
                Err(Refused::Gone)
            }
        }
    };
    let Ok(Ok((stream, hello))) = Box::pin(tokio::time::timeout(shared.limits.connect_timeout, begin)).await else {
        tracing::debug!(%peer, "no TLS handshake and CONNECT in time");
        return None;
    };
    let Hello { packet, rest, room } = hello;
    let greeting = match Box::pin(prove(packet, peer, shared)).await {
        Ok(greeting) => greeting,
        Err(refused) => return turn_away(stream, peer, refused).await,
    };
    let joined = join(shared, None, &greeting);
    drop((greeting, room));
    match joined {
        Ok(line) => {
            let _left = Leave { shared, line: &line };
            let (reader, writer) = tokio::io::split(stream);
            tokio::select! {
                () = read_tls(reader, &line, shared, rest) => {}
                () = write_tls(writer, &line, shared) => {}
            }
            None
        }
        Err(refusal) => turn_away(stream, peer, Refused::No(refusal)).await,
    }
}

/// Takes the connection from the broker however it ends.
struct Leave<'a, N: Node> {
    shared: &'a Arc<GateInner<N>>,
    line: &'a Arc<Line>,
}

impl<N: Node> Drop for Leave<'_, N> {
    fn drop(&mut self) {
        self.shared.leave(self.line.key);
    }
}

/// A CONNECT whose sender has shown who it is.
struct Greeting {
    /// The packet; it was read once already.
    packet: Vec<u8>,
    identity: Arc<Identity>,
    assigned: String,
}

enum Refused {
    No(ConnectRefusal),
    /// Nothing to be said, or nobody to say it to.
    Gone,
}

impl Refused {
    fn from_fault(fault: codec::Fault, bytes: &[u8]) -> Self {
        match (words(bytes), fault.reason) {
            (version @ Version::V5, reason) | (version, reason @ (Reason::VERSION | Reason::CLIENT_ID)) => {
                Self::No(ConnectRefusal { version, reason })
            }
            _ => Self::Gone,
        }
    }
}

/// The version in whose words the sender of a CONNECT that cannot be taken is told so: 5 if it is that or later, else
/// 3.1.1.
fn words(connect: &[u8]) -> Version {
    let level = || {
        let header = 1 + connect.iter().skip(1).position(|byte| byte & 0x80 == 0)? + 1;
        let (name_bytes, body) = connect.get(header..)?.split_first_chunk()?;
        body.get(usize::from(u16::from_be_bytes(*name_bytes)))
    };
    match level() {
        // Bridges of mosquitto set the highest bit, and clear it once they are told that this is no version.
        Some(5..=0x7f) => Version::V5,
        _ => Version::V311,
    }
}

/// What a client says first.
struct Hello {
    /// Its CONNECT.
    packet: Vec<u8>,
    /// What came after it.
    rest: Vec<u8>,
    /// What both hold.
    room: Share,
}

/// Reads the CONNECT.
async fn hear<N: Node, S>(stream: &mut S, shared: &Arc<GateInner<N>>) -> Result<Hello, Refused>
where
    S: AsyncRead + Unpin,
{
    let mut bytes = Vec::with_capacity(512);
    let mut room = shared.budget.share(Purpose::Connections);
    let whole = loop {
        if !bytes.is_empty() && bytes[0] != 0x10 {
            return Err(Refused::Gone);
        }
        match codec::split(&bytes, None, shared.limits.packet_bytes_max) {
            Ok(Some(frame)) => break frame.bytes,
            Ok(None) => {}
            Err(fault) => return Err(Refused::from_fault(fault, &bytes)),
        }
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Err(Refused::Gone),
            Ok(_) if charge(&mut room, &bytes) => {}
            Ok(_) => return Err(Refused::Gone),
        }
    };
    let rest = bytes.split_off(whole);
    Ok(Hello { packet: bytes, rest, room })
}

/// Counts what a connection's buffer has grown to; not if there is no memory for it.
fn charge(room: &mut Share, buffer: &Vec<u8>) -> bool {
    let bytes = if buffer.capacity() > BUFFER_BYTES_FREE { buffer.capacity() as u64 } else { 0 };
    room.bytes() == bytes || room.hold(bytes).is_ok()
}

/// Checks name and password of a CONNECT. The wait for that is bounded by itself, so it is no part of the connect
/// timeout.
async fn prove<N: Node>(packet: Vec<u8>, peer: SocketAddr, shared: &Arc<GateInner<N>>) -> Result<Greeting, Refused> {
    let assigned = assigned_name();
    let identity = {
        let connect = read_connect(&packet, shared.limits.packet_bytes_max)
            .map_err(|fault| Refused::from_fault(fault, &packet))?;
        let client = if connect.client_id.is_empty() { assigned.as_str() } else { connect.client_id };
        check(shared, &connect, client, peer)
            .await
            .map_err(|reason| Refused::No(ConnectRefusal { version: connect.version, reason }))?
    };
    Ok(Greeting { packet, identity: Arc::new(identity), assigned })
}

fn read_connect(bytes: &[u8], bytes_max: usize) -> Result<Connect<'_>, codec::Fault> {
    let frame = codec::split(bytes, None, bytes_max)?.expect("the packet is whole");
    match codec::decode(frame, Version::V5)? {
        Packet::Connect(connect) => Ok(*connect),
        _ => Err(codec::Fault::protocol("the first packet is no CONNECT")),
    }
}

async fn check<N: Node>(
    shared: &Arc<GateInner<N>>,
    connect: &Connect<'_>,
    client: &str,
    peer: SocketAddr,
) -> Result<Identity, Reason> {
    let Some(name) = connect.user.filter(|_| !shared.users.is_open()) else {
        let identity = shared.users.unasked(connect.user, client)?;
        return if shared.users.may_be(None, client) { Ok(identity) } else { Err(Reason::CLIENT_ID) };
    };
    let said_at = tokio::time::Instant::now() + REFUSAL_DELAY;
    match shared.passwords.check(name, connect.password.unwrap_or_default(), Peer::of(peer.ip())).await {
        Verdict::Right if !shared.users.may_be(Some(name), client) => Err(Reason::CLIENT_ID),
        Verdict::Right => shared.users.identity(Some(name), client).ok_or(Reason::BAD_USER),
        Verdict::Busy => Err(Reason::UNAVAILABLE),
        Verdict::Wrong => {
            shared.failed_login(peer.ip(), name);
            tokio::time::sleep_until(said_at).await;
            Err(Reason::BAD_USER)
        }
    }
}

fn join<N: Node>(
    shared: &Arc<GateInner<N>>,
    socket: Option<Arc<TcpStream>>,
    greeting: &Greeting,
) -> Result<Arc<Line>, ConnectRefusal> {
    let connect = read_connect(&greeting.packet, usize::MAX).expect("it was read before");
    shared.join(socket, |broker, now| broker.connect(now, &connect, greeting.identity.clone(), &greeting.assigned))
}

/// A name for a client that has none.
fn assigned_name() -> String {
    // Not being able to get random numbers is no reason to turn a client away; two of the same name would be.
    let random = getrandom::u64().unwrap_or_else(|_| {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    });
    format!("auto-{random:016x}")
}

async fn turn_away<S>(mut stream: S, peer: SocketAddr, refused: Refused) -> Left
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Refused::No(refusal) = refused else { return Some(Box::new(stream)) };
    tracing::debug!(%peer, reason = %refusal.reason, "an MQTT client is turned away");
    let say = async {
        stream.write_all(&refusal.packet()).await?;
        stream.shutdown().await?;
        // Closing at once could take back what was just said.
        let mut rest = [0; 256];
        while stream.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(LAST_WORDS, say).await;
    Some(Box::new(stream))
}

/// What of `bytes` is left after the broker had them.
fn feed<'a, N: Node>(shared: &Arc<GateInner<N>>, line: &Line, bytes: &'a [u8]) -> (&'a [u8], bool) {
    let (fed, may_read) = shared.with_line(line, |broker, now| {
        let fed = broker.feed(now, line.key, bytes);
        let may_read = broker.may_read(line.key);
        // Said while nobody else can change it, or the word to go on could come before.
        line.is_held_up.store(!may_read, Ordering::Relaxed);
        (fed, may_read)
    });
    (&bytes[fed.consumed..], may_read)
}

/// Goes on with what was left until the broker takes more.
async fn hold_up<N: Node>(shared: &Arc<GateInner<N>>, line: &Line, kept: &mut Vec<u8>, mut may_read: bool) {
    while !may_read {
        line.to_read.notified().await;
        let (rest, may) = feed(shared, line, kept);
        let done = kept.len() - rest.len();
        kept.drain(..done);
        may_read = may;
    }
    if kept.is_empty() {
        *kept = Vec::new();
    }
}

async fn read_plain<N: Node>(socket: &TcpStream, line: &Line, shared: &Arc<GateInner<N>>, mut kept: Vec<u8>) {
    if !kept.is_empty() {
        let (rest, may_read) = feed(shared, line, &kept);
        let done = kept.len() - rest.len();
        kept.drain(..done);
        hold_up(shared, line, &mut kept, may_read).await;
    }
    let mut room = shared.budget.share(Purpose::Connections);
    loop {
        if !charge(&mut room, &kept) {
            return tracing::debug!("no memory is left for a packet that is not whole");
        }
        if socket.readable().await.is_err() {
            return;
        }
        let fed = if kept.is_empty() {
            SCRATCH.with_borrow_mut(|scratch| {
                let bytes = socket.try_read(scratch)?;
                let (rest, may_read) = feed(shared, line, &scratch[..bytes]);
                kept.extend_from_slice(rest);
                io::Result::Ok((bytes, may_read))
            })
        } else {
            kept.reserve(READ_MORE_BYTES);
            socket.try_read_buf(&mut kept).map(|bytes| {
                let (rest, may_read) = feed(shared, line, &kept);
                let done = kept.len() - rest.len();
                kept.drain(..done);
                (bytes, may_read)
            })
        };
        match fed {
            Ok((0, _)) => return,
            Ok((_, may_read)) => hold_up(shared, line, &mut kept, may_read).await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Writes what others could not, and ends when the connection is to end.
async fn write_plain<N: Node>(socket: &TcpStream, line: &Arc<Line>, shared: &Arc<GateInner<N>>) {
    loop {
        line.to_write.notified().await;
        loop {
            match shared.flush(line) {
                Wrote::Gone => return,
                Wrote::All if line.is_over() => {
                    // The client is to read our last words before it sees the end.
                    return linger(socket).await;
                }
                Wrote::All => break,
                Wrote::Some => {
                    let deadline = async {
                        while !line.is_closing() {
                            line.to_write.notified().await;
                        }
                        tokio::time::sleep(LAST_WORDS).await;
                    };
                    let mut deadline = pin!(deadline);
                    tokio::select! {
                        ready = socket.writable() => if ready.is_err() { return },
                        () = &mut deadline => return,
                    }
                }
            }
        }
    }
}

/// Says that nothing more comes, and lets the client finish.
async fn linger(socket: &TcpStream) {
    if rustix_shutdown(socket).is_err() {
        return;
    }
    let discard = async {
        let mut rest = [0; 256];
        while socket.readable().await.is_ok() {
            match socket.try_read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    let _ = tokio::time::timeout(LAST_WORDS, discard).await;
}

fn rustix_shutdown(socket: &TcpStream) -> io::Result<()> {
    rustix::net::shutdown(socket, rustix::net::Shutdown::Write).map_err(io::Error::from)
}

async fn read_tls<N: Node>(
    mut reader: ReadHalf<TlsStream<TcpStream>>,
    line: &Line,
    shared: &Arc<GateInner<N>>,
    mut kept: Vec<u8>,
) {
    let mut room = shared.budget.share(Purpose::Connections);
    loop {
        if !charge(&mut room, &kept) {
            return tracing::debug!("no memory is left for a packet that is not whole");
        }
        let (rest, may_read) = feed(shared, line, &kept);
        let done = kept.len() - rest.len();
        kept.drain(..done);
        hold_up(shared, line, &mut kept, may_read).await;
        kept.reserve(4_096);
        match reader.read_buf(&mut kept).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

async fn write_tls<N: Node>(mut writer: WriteHalf<TlsStream<TcpStream>>, line: &Arc<Line>, shared: &Arc<GateInner<N>>) {
    loop {
        let bytes = line.take();
        if !bytes.is_empty() {
            let deadline = async {
                while !line.is_closing() {
                    line.to_write.notified().await;
                }
                tokio::time::sleep(LAST_WORDS).await;
            };
            let send = async {
                writer.write_all(&bytes).await?;
                writer.flush().await
            };
            tokio::select! {
                sent = send => if sent.is_err() { return },
                () = deadline => return,
            }
        }
        drop(bytes);
        line.sent();
        if line.has_more() && shared.refill(line) {
            continue;
        }
        if line.is_over() {
            let _ = tokio::time::timeout(LAST_WORDS, writer.shutdown()).await;
            return;
        }
        line.to_write.notified().await;
    }
}
