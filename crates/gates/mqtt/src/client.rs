//! One client's connection, from the first byte to the last.
//!
//! Most connections are idle most of the time, so what one has to keep meanwhile is small: what it takes to let a
//! client in, and its last words, are in boxes of their own that are there only then.

use crate::bell::Ring;
use crate::broker::ConnectRefusal;
use crate::codec::{self, Connect, Packet, Reason, Version};
use crate::gate::{ConnectionPermit, GateInner};
use crate::line::{Line, Wrote};
use crate::node::Node;
use crate::passwords::Verdict;
use crate::peers::Peer;
use crate::secured::serve_tls;
use crate::users::Identity;
use budget::{Purpose, Share};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

/// Bytes that are read at once. One such buffer a thread, not one a connection.
const READ_BYTES: usize = 64 * 1_024;

/// Bytes that are read at once when the beginning of a packet is there already.
const READ_MORE_BYTES: usize = 16 * 1_024;

/// Bytes of a connection's read buffer that the budget does not count. A larger one has to find room there, or the
/// connection ends.
const BUFFER_BYTES_FREE: usize = 8 * 1_024;

/// How long a client that is turned away, or whose connection ends, may take to hear so.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(2);

/// When a wrong name or password is called so: that long after it came, whether it was hashed or not, so that the time
/// tells nothing about names, and nobody tries many by one connection after the other.
const REFUSAL_DELAY: Duration = Duration::from_millis(500);

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Serves a connection to its end.
pub(crate) fn serve<N: Node>(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    shared: Arc<GateInner<N>>,
    permit: ConnectionPermit<N>,
) -> impl Future<Output = ()> + Send {
    // Boxed here and not in the task, which would have room for it to its end.
    let begin = Box::pin(begin(stream, peer, tls, shared.clone()));
    async move {
        let left = match begin.await {
            Begun::Ended(left) => left,
            Begun::Plain(mut plain) => {
                if let End::Over = (&mut plain).await {
                    // The client is to read our last words before it sees the end.
                    Box::pin(linger(plain.reader.as_ref())).await;
                }
                plain.leaves()
            }
            Begun::Tls(task) => {
                task.await;
                None
            }
        };
        shared.usher.shows_out((left, permit));
    }
}

/// What is left of a connection that has ended, to be closed.
type Left = Option<Box<dyn Send>>;

/// What became of a connection that began.
enum Begun<N: Node> {
    /// It was not let in.
    Ended(Left),
    Plain(Plain<N>),
    /// It goes on with TLS.
    Tls(Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Hears who it is, and lets it in.
async fn begin<N: Node>(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    shared: Arc<GateInner<N>>,
) -> Begun<N> {
    let mut ended = shared.ended();
    tokio::select! {
        begun = async {
            match tls {
                None => Box::pin(begin_plain(stream, peer, &shared)).await,
                Some(tls) => Box::pin(begin_tls(stream, peer, tls, &shared)).await,
            }
        } => begun,
        _ = ended.wait_for(|ended| *ended) => Begun::Ended(None),
    }
}

async fn begin_plain<N: Node>(mut stream: TcpStream, peer: SocketAddr, shared: &Arc<GateInner<N>>) -> Begun<N> {
    let hello = tokio::time::timeout(shared.limits.connect_timeout, hear(&mut stream, shared));
    let Hello { packet, rest, room } = match hello.await {
        Ok(Ok(heard)) => heard,
        Ok(Err(refused)) => return Begun::Ended(turn_away(stream, peer, refused).await),
        Err(_) => {
            tracing::debug!(%peer, "no CONNECT in time");
            return Begun::Ended(Some(Box::new(stream)));
        }
    };
    let greeting = match prove(packet, peer, shared).await {
        Ok(greeting) => greeting,
        Err(refused) => return Begun::Ended(turn_away(stream, peer, refused).await),
    };
    let (reader, writer) = stream.into_split();
    let joined = join(shared, Some(writer), &greeting);
    drop((greeting, room));
    match joined {
        Ok(line) => Begun::Plain(Plain::new(shared, reader, line, rest)),
        Err((refusal, writer)) => {
            let stream = writer.and_then(|writer| reader.reunite(writer).ok()).expect("both are of one socket");
            Begun::Ended(turn_away(stream, peer, Refused::No(refusal)).await)
        }
    }
}

async fn begin_tls<N: Node>(
    stream: TcpStream,
    peer: SocketAddr,
    tls: TlsAcceptor,
    shared: &Arc<GateInner<N>>,
) -> Begun<N> {
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
    let Ok(Ok((stream, hello))) = tokio::time::timeout(shared.limits.connect_timeout, begin).await else {
        tracing::debug!(%peer, "no TLS handshake and CONNECT in time");
        return Begun::Ended(None);
    };
    let Hello { packet, rest, room } = hello;
    let greeting = match prove(packet, peer, shared).await {
        Ok(greeting) => greeting,
        Err(refused) => return Begun::Ended(turn_away(stream, peer, refused).await),
    };
    let joined = join(shared, None, &greeting);
    drop((greeting, room));
    match joined {
        Ok(line) => Begun::Tls(Box::pin(serve_tls(shared.clone(), stream, line, rest))),
        Err((refusal, _)) => Begun::Ended(turn_away(stream, peer, Refused::No(refusal)).await),
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
pub(crate) fn charge(room: &mut Share, buffer: &Vec<u8>) -> bool {
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
    socket: Option<OwnedWriteHalf>,
    greeting: &Greeting,
) -> Result<Arc<Line>, (ConnectRefusal, Option<OwnedWriteHalf>)> {
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
pub(crate) fn feed<'a, N: Node>(shared: &Arc<GateInner<N>>, line: &Line, bytes: &'a [u8]) -> (&'a [u8], bool) {
    let (fed, may_read) = shared.with_line(line, |broker, now| {
        let fed = broker.feed(now, line.key, bytes);
        let may_read = broker.may_read(line.key);
        // Said while nobody else can change it, or the word to go on could come before.
        line.is_held_up.store(!may_read, Ordering::Relaxed);
        (fed, may_read)
    });
    (&bytes[fed.consumed..], may_read)
}

/// How a connection without TLS ends.
enum End {
    /// All is said.
    Over,
    /// There is nobody any more, or is to be nobody.
    Gone,
}

/// A connection without TLS whose client was let in. As a future it is ready when it has ended.
///
/// It is one task, written as what it does when it is woken: as two that wait for each other's events it would take ten
/// times as much memory, all the time.
struct Plain<N: Node> {
    shared: Arc<GateInner<N>>,
    line: Arc<Line>,
    reader: OwnedReadHalf,
    /// The beginning of a packet, or what the broker does not take yet.
    kept: Vec<u8>,
    room: Share,
    /// Nothing is read until the broker takes what is kept.
    is_held_up: bool,
    /// The socket takes no more now, and there is more.
    is_full: bool,
    /// When the client has had time enough for our last words.
    last_words: Option<Pin<Box<Sleep>>>,
    has_left: bool,
}

impl<N: Node> Plain<N> {
    /// `rest` is what came after the CONNECT.
    fn new(shared: &Arc<GateInner<N>>, reader: OwnedReadHalf, line: Arc<Line>, rest: Vec<u8>) -> Self {
        let mut plain = Self {
            shared: shared.clone(),
            line,
            reader,
            kept: rest,
            room: shared.budget.share(Purpose::Connections),
            is_held_up: false,
            is_full: false,
            last_words: None,
            has_left: false,
        };
        if !plain.kept.is_empty() {
            plain.feed_kept();
        }
        if shared.has_ended() {
            // It joined after the others were cut.
            plain.line.bell.ring(Ring::Cut);
        }
        plain
    }

    /// Takes it from the broker, and gives what is to be closed.
    fn leaves(mut self) -> Left {
        self.leave();
        // The socket closes with the last of those who send to it.
        Some(Box::new(self.line.clone()))
    }

    fn leave(&mut self) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.shared.leave(self.line.key);
        }
    }

    fn feed_kept(&mut self) {
        let (rest, may_read) = feed(&self.shared, &self.line, &self.kept);
        let done = self.kept.len() - rest.len();
        self.kept.drain(..done);
        self.is_held_up = !may_read;
        if self.kept.is_empty() {
            self.kept = Vec::new();
        }
    }

    /// Writes what others could not. Ready when the connection is to end.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if !self.line.bell.heard(Ring::Write) && !self.is_full {
            return Poll::Pending;
        }
        loop {
            match self.shared.write(&self.line) {
                Wrote::Gone => return Poll::Ready(End::Gone),
                Wrote::All if self.line.is_over() => return Poll::Ready(End::Over),
                Wrote::All => {
                    self.is_full = false;
                    self.last_words = None;
                    return Poll::Pending;
                }
                Wrote::Some => {}
            }
            self.is_full = true;
            match self.reader.as_ref().poll_write_ready(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(_)) => return Poll::Ready(End::Gone),
                Poll::Pending if !self.line.is_closing() => return Poll::Pending,
                Poll::Pending => {}
            }
            let last_words = self.last_words.get_or_insert_with(|| Box::pin(tokio::time::sleep(LAST_WORDS)));
            return last_words.as_mut().poll(cx).map(|()| End::Gone);
        }
    }

    /// Reads what came, unless the broker is to take more first. Ready when the client has gone.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            while self.is_held_up {
                if !self.line.bell.heard(Ring::Read) {
                    return Poll::Pending;
                }
                self.feed_kept();
            }
            if !charge(&mut self.room, &self.kept) {
                tracing::debug!("no memory is left for a packet that is not whole");
                return Poll::Ready(End::Gone);
            }
            let is_there = SCRATCH.with_borrow_mut(|scratch| {
                let bytes_max = if self.kept.is_empty() { READ_BYTES } else { READ_MORE_BYTES };
                let mut read = ReadBuf::new(&mut scratch[..bytes_max]);
                ready!(Pin::new(&mut self.reader).poll_read(cx, &mut read))?;
                let bytes = read.filled();
                if bytes.is_empty() {
                    return Poll::Ready(Ok(false));
                }
                if self.kept.is_empty() {
                    let (rest, may_read) = feed(&self.shared, &self.line, bytes);
                    self.kept.extend_from_slice(rest);
                    self.is_held_up = !may_read;
                } else {
                    self.kept.extend_from_slice(bytes);
                    self.feed_kept();
                }
                Poll::Ready(io::Result::Ok(true))
            });
            match ready!(is_there) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Poll::Ready(End::Gone),
            }
        }
    }
}

impl<N: Node> Future for Plain<N> {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<End> {
        self.line.bell.listen(cx);
        if self.line.bell.heard(Ring::Cut) {
            return Poll::Ready(End::Gone);
        }
        match self.poll_write(cx) {
            Poll::Ready(end) => Poll::Ready(end),
            Poll::Pending => self.poll_read(cx),
        }
    }
}

impl<N: Node> Drop for Plain<N> {
    fn drop(&mut self) {
        self.leave();
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
