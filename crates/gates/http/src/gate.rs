//! The gate as the node holds it: started on its listeners, and drained when the node stops.

use crate::accept::accept;
use crate::config::Config;
use crate::id::Seed;
use crate::service::Handler;
use crate::tls::Certificates;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use problem::{Code, Problem};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// Connections that wait to be accepted. The kernel may allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 4_096;

/// Bytes beyond a full head that hyper may buffer of one connection.
const BUFFER_BYTES_SPARE: usize = 8 * 1024;

/// Bytes of one HTTP/2 stream, and of all streams of a connection, that may wait for the node.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Bytes of one HTTP/2 stream that may wait for the client.
const STREAM_SEND_BYTES: usize = 64 * 1024;

/// How long connections that were aborted have to notice.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

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
    shared: Arc<Shared>,
    accepting: Vec<JoinHandle<()>>,
    reloading: Vec<JoinHandle<()>>,
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
        let shared = Arc::new(Shared::new(config, Seed::new(random)));
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
        if tokio::time::timeout(timeout, self.shared.places.acquire_many(all)).await.is_ok() {
            return Drained { cut: 0 };
        }
        let cut = self.connections();
        self.shared.enter(ABORTING);
        let _ = tokio::time::timeout(ABORT_TIMEOUT, self.shared.places.acquire_many(all)).await;
        Drained { cut }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        for task in self.accepting.iter().chain(&self.reloading) {
            task.abort();
        }
        self.shared.enter(ABORTING);
    }
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: Config,
    pub http1: http1::Builder,
    pub http2: http2::Builder<TokioExecutor>,
    pub seed: Seed,
    /// Told when the phase changes.
    pub changed: Notify,
    phase: AtomicU8,
    places: Arc<Semaphore>,
    /// Listeners that wait for a place.
    waiting: AtomicU32,
    open: AtomicU32,
    numbers: AtomicU64,
}

/// The right to one connection.
pub(crate) struct Place {
    shared: Arc<Shared>,
    counted: bool,
    _permit: OwnedSemaphorePermit,
}

impl Shared {
    fn new(mut config: Config, seed: Seed) -> Self {
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
            places: Arc::new(Semaphore::new(config.connections_max as usize)),
            waiting: AtomicU32::new(0),
            open: AtomicU32::new(0),
            numbers: AtomicU64::new(0),
            config,
        }
    }

    /// Waits for the right to one more connection.
    pub async fn place(shared: &Arc<Self>) -> Place {
        let permit = match shared.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                shared.waiting.fetch_add(1, Ordering::Relaxed);
                let permit = shared.places.clone().acquire_owned().await.expect("places are never closed");
                shared.waiting.fetch_sub(1, Ordering::Relaxed);
                permit
            }
        };
        Place { shared: shared.clone(), counted: false, _permit: permit }
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

impl Place {
    /// Counts the connection that took this place.
    pub fn taken(mut self) -> Self {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        self.counted = true;
        self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.counted {
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
