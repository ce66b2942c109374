//! The gate as the node holds it: started on its listeners, and drained when the node stops.

use crate::accept::accept;
use crate::config::Config;
use crate::crowd::Crowd;
use crate::id::Seed;
use crate::peers::{Entered, Peers};
use crate::room::Room;
use crate::service::Handler;
use gate_connections::{Certificates, Usher};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use problem::{Code, Problem};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// Connections that wait to be accepted. The kernel may allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 4_096;

/// Bytes beyond a full head that hyper may buffer of one connection.
const BUFFER_BYTES_SPARE: usize = 8 * 1024;

/// Bytes of one HTTP/2 stream, and of all streams of a connection, that may wait for the node.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Bytes of one HTTP/2 stream that may wait for the client.
const STREAM_SEND_BYTES: usize = 64 * 1024;

/// How long connections that were aborted have to notice.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a connection that waits for a place looks for one that gives way.
const GIVE_WAY_EVERY: Duration = Duration::from_millis(5);

/// So long a new connection may keep its place in any case: the time to ask something, however many others come.
const GRACE: Duration = Duration::from_millis(100);

/// How long a connection of the API waits for memory that others give back.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// The shortest [`Config::idle_timeout`] that takes effect.
const IDLE_TIMEOUT_MIN: Duration = Duration::from_millis(10);

const RUNNING: u8 = 0;
const DRAINING: u8 = 1;
const ABORTING: u8 = 2;

/// An address the gate listens on.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Arc<Certificates>>,
}

impl Listener {
    /// Listens; with certificates, for TLS only. Needs a tokio runtime.
    ///
    /// # Errors
    /// L9004: the address is in use, not this machine's, or not allowed.
    pub fn bind(address: SocketAddr, tls: Option<Arc<Certificates>>) -> Result<Self, Problem> {
        let listen = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            // A restarted node must not wait for the connections of the one before to fade.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let socket = socket.listen(BACKLOG)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, address, tls })
        };
        listen().map_err(|error: std::io::Error| {
            Problem::new(Code::ListenFailed, format!("cannot listen on {address}: {error}"))
        })
    }

    /// The address, with the port that the system chose if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running gate. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Gate {
    shared: Arc<GateInner>,
    accepting: Vec<JoinHandle<()>>,
    reloading: Vec<JoinHandle<()>>,
    ushering: JoinHandle<()>,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that had not finished in time and were cut.
    pub cut: u32,
}

impl Gate {
    /// Serves the listeners. Needs a tokio runtime.
    pub fn start<H: Handler>(listeners: Vec<Listener>, config: Config, handler: Arc<H>) -> Result<Self, Problem> {
        let random = getrandom::u64()
            .map_err(|error| Problem::new(Code::Internal, format!("the system gives no random bytes: {error}")))?;
        let (usher, ushering) = Usher::new();
        let shared = Arc::new(GateInner::new(config, Seed::new(random), usher));
        let mut certificates: Vec<Arc<Certificates>> = Vec::new();
        for tls in listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            if !certificates.iter().any(|known| Arc::ptr_eq(known, tls)) {
                certificates.push(tls.clone());
            }
        }
        Ok(Self {
            accepting: listeners
                .into_iter()
                .map(|listener| tokio::spawn(accept(listener, shared.clone(), handler.clone())))
                .collect(),
            reloading: certificates.into_iter().map(|tls| tokio::spawn(tls.keep_fresh())).collect(),
            ushering: tokio::spawn(ushering),
            shared,
        })
    }

    /// Connections open now.
    pub fn connections(&self) -> u32 {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Stops accepting, lets running requests finish, then cuts what is left.
    ///
    /// Clients are told: `connection: close` in HTTP/1, GOAWAY in HTTP/2. Dropping the future cuts all at once.
    pub async fn drain(mut self, timeout: Duration) -> Drained {
        let accepting = std::mem::take(&mut self.accepting);
        for task in &accepting {
            task.abort();
        }
        for task in accepting {
            // Waits for the place it holds; it ended because it was aborted, which is no error.
            let _ = task.await;
        }
        self.shared.enter(DRAINING);
        let all = self.shared.config.connections_max;
        if tokio::time::timeout(timeout, self.shared.permits.acquire_many(all)).await.is_ok() {
            return Drained { cut: 0 };
        }
        let cut = self.connections();
        self.shared.enter(ABORTING);
        let _ = tokio::time::timeout(ABORT_TIMEOUT, self.shared.permits.acquire_many(all)).await;
        Drained { cut }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        for task in self.accepting.iter().chain(&self.reloading).chain([&self.ushering]) {
            task.abort();
        }
        self.shared.enter(ABORTING);
    }
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct GateInner {
    pub config: Config,
    pub http1: http1::Builder,
    pub http2: http2::Builder<TokioExecutor>,
    pub seed: Seed,
    /// Told when the phase changes.
    pub changed: Notify,
    phase: AtomicU8,
    permits: Arc<Semaphore>,
    pub crowd: Arc<Crowd>,
    pub usher: Usher,
    /// Connections that wait for a place, one a listener.
    waiting: AtomicU32,
    open: AtomicU32,
    numbers: AtomicU64,
    peers: Peers,
    /// Second of the gate's life in which a refused connection was last spoken of, plus one.
    spoke: AtomicU64,
    begin: Instant,
}

/// The right to one connection.
pub(crate) struct ConnectionPermit {
    shared: Arc<GateInner>,
    entered: Entered,
    /// Whether the connection is there and counted.
    is_open: bool,
    permit: Option<OwnedSemaphorePermit>,
}

impl GateInner {
    fn new(mut config: Config, seed: Seed, usher: Usher) -> Self {
        // Nothing works with none, and looking at connections all the time works badly.
        config.connections_max = config.connections_max.max(1);
        config.idle_timeout = config.idle_timeout.max(IDLE_TIMEOUT_MIN);
        let mut http1 = http1::Builder::new();
        // No timer: the gate watches slow heads itself, without one timer a request.
        http1.header_read_timeout(None).max_buf_size(config.head_bytes() + BUFFER_BYTES_SPARE);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(config.streams_max)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(STREAM_SEND_BYTES)
            .max_header_list_size(u32::try_from(config.head_bytes()).expect("at most 64 KiB"))
            .keep_alive_interval(config.ping_interval)
            .keep_alive_timeout(config.ping_timeout);
        Self {
            http1,
            http2,
            seed,
            changed: Notify::new(),
            phase: AtomicU8::new(RUNNING),
            permits: Arc::new(Semaphore::new(config.connections_max as usize)),
            crowd: Arc::default(),
            usher,
            waiting: AtomicU32::new(0),
            open: AtomicU32::new(0),
            numbers: AtomicU64::new(0),
            peers: Peers::new(config.connections_per_peer_max, config.connections_max),
            spoke: AtomicU64::new(0),
            begin: Instant::now(),
            config,
        }
    }

    /// Counts one more connection of a peer. None: it has as many as it may.
    pub fn comes(&self, peer: SocketAddr) -> Option<Entered> {
        let entered = self.peers.enter(peer.ip());
        if entered.is_none() {
            self.speak_of(peer, "its peer has as many as it may, see --connections-per-peer");
        }
        entered
    }

    /// Waits for the right to one more connection. Where there is none left, another connection gives way.
    pub async fn permit(shared: &Arc<Self>, entered: Entered) -> ConnectionPermit {
        // It is left again, whatever ends the wait.
        let mut held = ConnectionPermit { shared: shared.clone(), entered, is_open: false, permit: None };
        let permit = match shared.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                shared.waiting.fetch_add(1, Ordering::Relaxed);
                let permit = loop {
                    shared.crowd.give_way(GRACE);
                    let acquired = shared.permits.clone().acquire_owned();
                    if let Ok(permit) = tokio::time::timeout(GIVE_WAY_EVERY, acquired).await {
                        break permit.expect("permits are never closed");
                    }
                };
                shared.waiting.fetch_sub(1, Ordering::Relaxed);
                permit
            }
        };
        held.permit = Some(permit);
        held
    }

    /// Says why a connection was refused, or cut off: once a second, since there may be thousands.
    pub fn speak_of(&self, peer: SocketAddr, why: &str) {
        let second = self.begin.elapsed().as_secs() + 1;
        if self.spoke.swap(second, Ordering::Relaxed) != second {
            tracing::warn!(%peer, "closed a connection: {why}");
        }
    }

    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub fn is_draining(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= DRAINING
    }

    pub fn is_aborting(&self) -> bool {
        self.phase.load(Ordering::Acquire) == ABORTING
    }

    fn enter(&self, phase: u8) {
        self.phase.store(phase, Ordering::Release);
        self.changed.notify_waiters();
    }
}

impl ConnectionPermit {
    /// Counts the connection that took this place. None: the node has no memory left for it; the place is free again.
    /// At the API other connections give way for it first, as they do for a place.
    pub async fn taken(mut self, peer: SocketAddr, tls: bool) -> Option<(Self, Room)> {
        self.is_open = true;
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.clone();
        let until = Instant::now() + ROOM_TIMEOUT;
        loop {
            match Room::take(&shared.config, tls) {
                Ok(room) => return Some((self, room)),
                Err(_) if shared.config.is_administration && Instant::now() < until => {
                    shared.crowd.give_way(GRACE);
                    tokio::time::sleep(GIVE_WAY_EVERY).await;
                }
                Err(full) => {
                    shared.speak_of(peer, &Problem::from(full).detail);
                    return None;
                }
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.shared.peers.leave(&self.entered);
        if self.is_open {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
