//! The connections to one member: opened when a call wants one, kept, and opened again after a rest.
//!
//! ```text
//!   call ─▶ Pool ─▶ the connection with the fewest calls ─▶ Lane
//!             │ none? one connects, the others wait for it · resting, or silent? away, at once
//! ```
//! Where the last attempt failed, no call waits for the next one: that is made beside it, and when the node is heard.

use crate::limits::{
    CONNECT_TIMEOUT, CONNECTION_WINDOW_BYTES, CONNECTIONS_MAX, HEAD_BYTES_MAX, IDLE_TIMEOUT, STREAM_SEND_BYTES,
    STREAM_WINDOW_BYTES, STREAMS_MAX, STREAMS_SPREAD, SUSPECT_AFTER,
};
use crate::rest::Rest;
use crate::room::WireRoom;
use crate::silence::{Asking, LOOK_INTERVAL, LastByte, Listened, Silence};
use budget::Budget;
use bytes::Bytes;
use fleet_trust::{Address, NodeId, Peer, Trust};
use h2::PingPong;
use h2::client::{Builder, Connection, SendRequest};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Who is in the fleet, as this node knows it now. Asked for each round of reports, and where a connection is opened.
pub trait Members: Send + Sync + 'static {
    /// All other members.
    fn others(&self) -> Vec<NodeId>;

    /// Where a member listens. None: nobody knows, or it is a member no more.
    fn address(&self, node: &NodeId) -> Option<Address>;

    /// What people call it: words of a-z, 0-9 and -.
    fn name(&self, node: &NodeId) -> Option<String>;
}

/// How connections are made.
pub(crate) struct Dialer {
    pub trust: Arc<Trust>,
    pub members: Arc<dyn Members>,
    pub budget: Arc<Budget>,
}

/// See the top of this file.
pub(crate) struct Pool {
    node: NodeId,
    open: Mutex<Vec<Arc<Wire>>>,
    /// Held by the one that connects.
    connecting: Arc<tokio::sync::Mutex<()>>,
    /// Where it was tried last.
    tried: Mutex<Option<Address>>,
    rest: Mutex<Rest>,
}

/// One connection.
pub(crate) struct Wire {
    pub sender: SendRequest<Bytes>,
    pub room: Arc<WireRoom>,
    streams: Arc<Semaphore>,
    /// Calls so far: a connection whose number stays the same is idle.
    used: AtomicU64,
    has_ended: AtomicBool,
    heard: Arc<LastByte>,
    /// A call is on a connection that had none.
    busy: Notify,
    /// Nothing was heard for some time though calls are under way. No new one is sent on it.
    is_suspect: AtomicBool,
}

/// The right to one call on a connection, until it is dropped.
pub(crate) struct Lane {
    pub wire: Arc<Wire>,
    pub permit: OwnedSemaphorePermit,
}

impl Pool {
    pub fn new(node: NodeId) -> Arc<Self> {
        let (open, connecting, tried, rest) = Default::default();
        Arc::new(Self { node, open, connecting, tried, rest })
    }

    /// For a call, which does not wait for a node that could not be reached when it was tried last.
    ///
    /// # Errors
    /// As [`Pool::lane`].
    pub async fn lane_for_call(self: &Arc<Self>, dialer: &Arc<Dialer>) -> Result<Lane, Problem> {
        if self.is_away() {
            self.probe(dialer, || {});
            return Err(self.away("it could not be reached a moment ago"));
        }
        self.lane(dialer).await
    }

    /// # Errors
    /// [`Code::MemberAway`], [`Code::CallsRefused`], [`Code::MemoryFull`], or what TLS says: nothing was sent.
    pub async fn lane(self: &Arc<Self>, dialer: &Arc<Dialer>) -> Result<Lane, Problem> {
        if let Some(lane) = self.take() {
            self.spread(dialer, &lane);
            return Ok(lane);
        }
        if self.is_silent() {
            return Err(self.away("it says nothing"));
        }
        // Who could not be reached before may not be there for longer: only one call finds out.
        let has_failed = self.rest.lock().has_failed();
        let _one = match has_failed {
            true => self.connecting.try_lock().map_err(|_| self.away("it is tried again just now"))?,
            false => self.connecting.lock().await,
        };
        if let Some(lane) = self.take() {
            return Ok(lane);
        }
        if self.open.lock().len() >= CONNECTIONS_MAX {
            let detail = format!("the node {} has {} calls of this node already", self.node, self.calls());
            return Err(Problem::new(Code::CallsRefused, detail));
        }
        self.connect(dialer).await?;
        self.take().ok_or_else(|| self.away("the connection has ended"))
    }

    /// The node has just been heard of. Says whether it can be reached, as far as is known. If not, whatever kept
    /// this one from connecting may be over: it is tried, and `reached` is called if it was.
    pub fn heard_of(self: &Arc<Self>, dialer: &Arc<Dialer>, reached: impl FnOnce() + Send + 'static) -> bool {
        if !self.is_away() {
            self.rest.lock().reached();
            return true;
        }
        let elsewhere = *self.tried.lock() != dialer.members.address(&self.node);
        self.rest.lock().heard(Instant::now(), elsewhere);
        self.probe(dialer, reached);
        false
    }

    /// Whether it could not be reached when it was tried last, and nothing is open to it.
    fn is_away(&self) -> bool {
        let has_failed = self.rest.lock().has_failed();
        has_failed && self.open.lock().iter().all(|wire| wire.has_ended.load(Relaxed))
    }

    /// Connects beside everything else to a node that is away, unless it rests or somebody does so already.
    fn probe(self: &Arc<Self>, dialer: &Arc<Dialer>, reached: impl FnOnce() + Send + 'static) {
        let Ok(one) = self.connecting.clone().try_lock_owned() else { return };
        if !self.is_away() || !self.rest.lock().is_over(Instant::now()) {
            return;
        }
        let (pool, dialer) = (self.clone(), dialer.clone());
        tokio::spawn(async move {
            let _one = one;
            match pool.connect(&dialer).await {
                Ok(()) => reached(),
                Err(problem) => tracing::debug!(node = %pool.node, %problem, "a node is still away"),
            }
        });
    }

    /// Calls on their way.
    pub fn calls(&self) -> usize {
        self.open.lock().iter().map(|wire| wire.calls()).sum()
    }

    /// Closes what is open: it is a member no more.
    pub fn close(&self) {
        self.open.lock().clear();
    }

    fn take(&self) -> Option<Lane> {
        let mut open = self.open.lock();
        open.retain(|wire| !wire.has_ended.load(Relaxed));
        let wire = open.iter().filter(|wire| !wire.is_suspect()).min_by_key(|wire| wire.calls())?.clone();
        let permit = wire.streams.clone().try_acquire_owned().ok()?;
        wire.used.fetch_add(1, Relaxed);
        if wire.calls() == 1 {
            wire.busy.notify_one();
        }
        Some(Lane { wire, permit })
    }

    /// Whether nothing comes on any connection that is open.
    fn is_silent(&self) -> bool {
        let open = self.open.lock();
        !open.is_empty() && open.iter().all(|wire| wire.is_suspect())
    }

    /// Opens a second connection where the first is busy. Its calls do not wait for that.
    fn spread(self: &Arc<Self>, dialer: &Arc<Dialer>, lane: &Lane) {
        if lane.wire.calls() <= STREAMS_SPREAD || self.open.lock().len() >= CONNECTIONS_MAX {
            return;
        }
        let (pool, dialer) = (self.clone(), dialer.clone());
        tokio::spawn(async move {
            let Ok(_one) = pool.connecting.try_lock() else { return };
            if pool.open.lock().len() < CONNECTIONS_MAX
                && let Err(problem) = pool.connect(&dialer).await
            {
                tracing::debug!(node = %pool.node, %problem, "no second connection");
            }
        });
    }

    async fn connect(self: &Arc<Self>, dialer: &Dialer) -> Result<(), Problem> {
        if !self.rest.lock().is_over(Instant::now()) {
            return Err(self.away("it could not be reached a moment ago"));
        }
        let late = |_| self.away(&format!("it did not answer in {} s", CONNECT_TIMEOUT.as_secs()));
        let connected = timeout(CONNECT_TIMEOUT, self.open_one(dialer)).await.map_err(late).and_then(|opened| opened);
        match connected {
            Ok(wire) => {
                self.rest.lock().reached();
                self.open.lock().push(wire);
                Ok(())
            }
            Err(problem) => {
                self.rests();
                Err(problem)
            }
        }
    }

    /// It could not be reached: nobody tries it for a while.
    fn rests(&self) {
        let mut chance = [0];
        // Without a random number all rests are the shortest.
        let _ = getrandom::fill(&mut chance);
        self.rest.lock().failed(Instant::now(), chance[0]);
    }

    async fn open_one(self: &Arc<Self>, dialer: &Dialer) -> Result<Arc<Wire>, Problem> {
        let address = dialer.members.address(&self.node);
        self.tried.lock().clone_from(&address);
        let address = address.ok_or_else(|| self.away("its address is not known"))?;
        let room = WireRoom::take(&dialer.budget)?;
        let connecting = fleet_trust::link::connect_for_calls(&dialer.trust, &address, &self.node);
        let (peer, stream) = connecting.await.map_err(|problem| match problem.code {
            // What TLS says of a listener that is not there: it cannot know that this is no anchor.
            Code::AnchorsAway => self.away(&problem.detail),
            _ => problem,
        })?;
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_max_send_streams(STREAMS_MAX)
            .max_send_buffer_size(STREAM_SEND_BYTES)
            .max_header_list_size(HEAD_BYTES_MAX);
        let heard = LastByte::new();
        let handshake = builder.handshake(Listened::new(stream, heard.clone())).await;
        let (sender, connection) = handshake.map_err(|error| self.away(&error.to_string()))?;
        let streams = Arc::new(Semaphore::new(STREAMS_MAX));
        let (used, has_ended, busy, is_suspect) = Default::default();
        let wire = Arc::new(Wire { sender, room, streams, used, has_ended, heard, busy, is_suspect });
        tokio::spawn(self.clone().drive(connection, peer, wire.clone()));
        Ok(wire)
    }

    /// Runs a connection to its end. Whatever is on it then fails.
    async fn drive<S>(self: Arc<Self>, mut connection: Connection<S>, mut peer: Peer, wire: Arc<Wire>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let node = self.node;
        let pings = connection.ping_pong();
        tokio::select! {
            ended = connection => match ended {
                Ok(()) => tracing::debug!(%node, "a connection to a node has ended"),
                Err(error) => tracing::debug!(%node, %error, "a connection to a node broke"),
            },
            why = peer.ended() => tracing::info!(%node, ?why, "a connection to a node is cut"),
            () = wire.idle() => tracing::debug!(%node, "closed an idle connection to a node"),
            () = wire.silent(pings) => {
                tracing::info!(%node, "a node has gone silent");
                self.rests();
            }
        }
        wire.has_ended.store(true, Relaxed);
        self.open.lock().retain(|one| !Arc::ptr_eq(one, &wire));
    }

    fn away(&self, why: &str) -> Problem {
        Problem::new(Code::MemberAway, format!("the node {} cannot be reached: {why}", self.node))
    }
}

impl Wire {
    fn calls(&self) -> usize {
        STREAMS_MAX - self.streams.available_permits()
    }

    async fn idle(&self) {
        let mut used = self.used.load(Relaxed);
        loop {
            sleep(IDLE_TIMEOUT).await;
            let now = self.used.load(Relaxed);
            if now == used && self.calls() == 0 {
                return;
            }
            used = now;
        }
    }

    /// Whether nothing has come for so long that no new call is sent. One byte is enough to be believed again.
    pub fn is_suspect(&self) -> bool {
        self.is_suspect.load(Relaxed) && self.heard.silence(self.heard.began()) >= SUSPECT_AFTER
    }

    /// Returns when nothing has come for too long while calls were under way. Asks nothing while there are none.
    async fn silent(&self, pings: Option<PingPong>) {
        let Some(pings) = pings else { return std::future::pending().await };
        let mut asking = Asking::new(pings);
        loop {
            self.busy.notified().await;
            let since = Instant::now();
            while self.calls() > 0 || self.is_suspect() {
                sleep(LOOK_INTERVAL).await;
                let silence = Silence::of(self.heard.silence(since));
                self.is_suspect.store(silence >= Silence::Suspect, Relaxed);
                if silence == Silence::Over {
                    return;
                }
                asking.look(silence, since).await;
            }
            self.is_suspect.store(false, Relaxed);
        }
    }
}
