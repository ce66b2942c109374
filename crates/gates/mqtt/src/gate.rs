//! The gate as the node holds it: listeners, the broker behind one lock, and what keeps it going.

use crate::bell::Ring;
use crate::broker::{Broker, ConnectionKey, Counts, Message, Now, SessionInfo, View};
use crate::client::serve;
use crate::limits::Limits;
use crate::line::{Line, Wrote};
use crate::node::{Node, Refused};
use crate::passwords::Passwords;
use crate::peers::{Peer, PeerPermit, Peers};
use crate::users::Users;
use budget::{Budget, Purpose};
use gate_connections::{Certificates, Usher};
use parking_lot::Mutex;
use problem::{Code, Problem};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Connections that wait to be accepted. The kernel may allow fewer.
const BACKLOG: u32 = 1_024;

/// How often the broker looks what is due.
const DUE_EVERY: Duration = Duration::from_millis(250);

/// Connections one task writes to itself before it leaves the rest to theirs.
const DIRECT_WRITES_MAX: usize = 64;

/// How long a listener rests after an error that the next attempt would meet too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a drain waits for connections to be told.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// An address the gate listens on.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Listens; with certificates, for TLS only. Needs a tokio runtime.
    ///
    /// # Errors
    /// L9004: the address is in use, not this machine's, or not allowed.
    pub fn bind(address: SocketAddr, certificates: Option<&Certificates>) -> Result<Self, Problem> {
        let listen = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_reuseaddr(true)?;
            socket.set_keepalive(true)?;
            socket.bind(address)?;
            let socket = socket.listen(BACKLOG)?;
            let address = socket.local_addr()?;
            let tls = certificates.map(|certificates| TlsAcceptor::from(certificates.config_for(&[b"mqtt"])));
            Ok(Self { socket, address, tls })
        };
        listen().map_err(|error: std::io::Error| {
            Problem::new(Code::ListenFailed, format!("cannot listen on {address} for MQTT: {error}"))
        })
    }

    /// The address, with the port that the system chose if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running gate. Dropping it cuts all connections.
pub struct Gate<N: Node> {
    shared: Arc<GateInner<N>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What all connections share.
pub(crate) struct GateInner<N: Node> {
    core: Mutex<Core<N>>,
    pub limits: Limits,
    pub users: Arc<Users>,
    pub passwords: Arc<Passwords>,
    pub budget: Arc<Budget>,
    node: Arc<N>,
    started: Instant,
    permits: Arc<Semaphore>,
    peers: Arc<Peers>,
    open: AtomicU32,
    pub usher: Usher,
    /// Somebody waits for the disk.
    to_disk: Notify,
    /// Connections that others have something for.
    for_others: Mutex<Vec<Arc<Line>>>,
    to_others: Notify,
    /// Told when the gate ends.
    ended: tokio::sync::watch::Sender<bool>,
}

struct Core<N: Node> {
    broker: Broker<N>,
    lines: Vec<Option<Arc<Line>>>,
    dirty: Vec<ConnectionKey>,
}

impl<N: Node> Gate<N> {
    /// Restores what was kept, and serves the listeners. Needs a tokio runtime.
    ///
    /// # Errors
    /// The records cannot be read; L9003: `budget` has no room to check a password in.
    pub fn start(
        listeners: Vec<Listener>,
        limits: Limits,
        users: Users,
        node: Arc<N>,
        budget: &Arc<Budget>,
    ) -> Result<Self, Problem> {
        let started = Instant::now();
        let users = Arc::new(users);
        check_hash_room(&users, budget)?;
        let broker = Broker::new(limits.clone(), node.clone(), &users, budget, now_since(started))?;
        let (usher, ushering) = Usher::new();
        let shared = Arc::new(GateInner {
            core: Mutex::new(Core { broker, lines: Vec::new(), dirty: Vec::new() }),
            permits: Arc::new(Semaphore::new(limits.connections_max.max(1))),
            peers: Peers::new(limits.connections_per_address_max),
            limits,
            passwords: Passwords::new(users.clone(), budget.clone()),
            budget: budget.clone(),
            users,
            node,
            started,
            open: AtomicU32::new(0),
            usher,
            to_disk: Notify::new(),
            for_others: Mutex::default(),
            to_others: Notify::new(),
            ended: tokio::sync::watch::Sender::new(false),
        });
        let mut tasks: Vec<_> =
            listeners.into_iter().map(|listener| tokio::spawn(accept(listener, shared.clone()))).collect();
        tasks.push(tokio::spawn(do_due(shared.clone())));
        tasks.push(tokio::spawn(watch_disk(shared.clone())));
        tasks.push(tokio::spawn(write_to_others(shared.clone())));
        tasks.push(tokio::spawn(ushering));
        Ok(Self { shared, tasks: Mutex::new(tasks) })
    }

    /// Connections open now, those that have not said CONNECT among them.
    pub fn connections(&self) -> u32 {
        self.shared.open.load(Ordering::Relaxed)
    }

    pub fn counts(&self) -> Counts {
        self.shared.core.lock().broker.counts()
    }

    /// All sessions, in no order.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.shared.core.lock().broker.sessions()
    }

    /// Ends a session and its connection. Says whether there was one. It does not wait for the disk.
    pub fn end_session(&self, user: Option<&str>, client: &str) -> bool {
        self.shared.with(|broker, now| broker.end(now, user, client))
    }

    /// Publishes for the node. Returns once everything it caused is durable.
    ///
    /// # Errors
    /// Nothing was published; or the disk failed, and it is not known.
    pub async fn publish(&self, view: View<'_>, retain: bool, client: &Arc<str>) -> Result<(), Refused> {
        let shared = &self.shared;
        let ticket = shared.with(|broker, now| broker.publish_from_node(now, view, retain, client))?;
        if ticket == 0 {
            return Ok(());
        }
        shared.node.durable(ticket).await.map(|_| ()).map_err(Refused::Unavailable)
    }

    /// Publishes for the node, and does not wait for the disk. The number is that of the commit.
    ///
    /// # Errors
    /// Nothing was published.
    pub fn publish_soon(&self, view: View<'_>, retain: bool, client: &Arc<str>) -> Result<u64, Refused> {
        self.shared.with(|broker, now| broker.publish_from_node(now, view, retain, client))
    }

    /// As [`Broker::filters`].
    pub fn filters(&self, known: Option<u64>) -> Option<(u64, BTreeSet<String>)> {
        self.shared.core.lock().broker.filters(known)
    }

    /// Hands over what is retained under these filters. Nothing is published before `take` has ended: it must be quick.
    pub fn with_retained<T>(&self, filters: &BTreeSet<String>, take: impl FnOnce(Vec<Arc<Message>>) -> T) -> T {
        let core = self.shared.core.lock();
        take(core.broker.retained(filters))
    }

    /// Milliseconds since 1970, as the broker counts them.
    pub fn unix_ms(&self) -> u64 {
        self.shared.now().unix_ms
    }

    /// Tells all clients, closes their connections and keeps their sessions.
    pub async fn drain(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.iter().for_each(JoinHandle::abort);
        for task in tasks {
            // It ended because it was aborted, which is no error.
            let _ = task.await;
        }
        self.shared.with(|broker, now| broker.shut_down(now));
        let all = u32::try_from(self.shared.limits.connections_max.max(1)).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.shared.permits.acquire_many(all)).await;
    }
}

impl<N: Node> Drop for Gate<N> {
    fn drop(&mut self) {
        self.tasks.get_mut().iter().for_each(JoinHandle::abort);
        // First said, then cut: who joins meanwhile looks at it afterwards.
        self.shared.ended.send_replace(true);
        let core = self.shared.core.lock();
        core.lines.iter().flatten().for_each(|line| line.bell.ring(Ring::Cut));
    }
}

impl<N: Node> GateInner<N> {
    pub fn now(&self) -> Now {
        now_since(self.started)
    }

    /// For who has not joined yet: the others are [cut](Ring::Cut).
    pub fn ended(&self) -> tokio::sync::watch::Receiver<bool> {
        self.ended.subscribe()
    }

    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// A wrong name or password; a name that is no user's is not handed on.
    pub fn failed_login(&self, peer: IpAddr, name: &str) {
        self.node.failed_login(peer, self.users.named(name).as_ref());
    }

    /// Lets the broker do something for the connection of `line`, then sends what came of it: to that connection at
    /// once, to others together with what their other senders have for them.
    pub fn with_line<T>(self: &Arc<Self>, line: &Line, work: impl FnOnce(&mut Broker<N>, Now) -> T) -> T {
        let mut core = self.core.lock();
        let now = self.now();
        let done = work(&mut core.broker, now);
        let mut ready = self.gather(&mut core);
        drop(core);
        let own = ready.iter().position(|other| other.key == line.key).map(|at| ready.swap_remove(at));
        if !ready.is_empty() {
            self.for_others.lock().append(&mut ready);
            self.to_others.notify_one();
        }
        self.send(own);
        done
    }

    /// Lets the broker do something, then sends what came of it.
    pub fn with<T>(self: &Arc<Self>, work: impl FnOnce(&mut Broker<N>, Now) -> T) -> T {
        let mut core = self.core.lock();
        let now = self.now();
        let done = work(&mut core.broker, now);
        let ready = self.gather(&mut core);
        drop(core);
        self.send(ready);
        done
    }

    /// Adds a connection that `connect` makes in the broker.
    ///
    /// # Errors
    /// What `connect` said; the socket is its caller's again.
    pub fn join<E>(
        self: &Arc<Self>,
        socket: Option<OwnedWriteHalf>,
        connect: impl FnOnce(&mut Broker<N>, Now) -> Result<ConnectionKey, E>,
    ) -> Result<Arc<Line>, (E, Option<OwnedWriteHalf>)> {
        let mut core = self.core.lock();
        let now = self.now();
        let line = match connect(&mut core.broker, now) {
            Err(refused) => Err((refused, socket)),
            Ok(key) => {
                let at = key as usize;
                if core.lines.len() <= at {
                    core.lines.resize(at + 1, None);
                }
                let line = Arc::new(Line::new(key, socket));
                core.lines[at] = Some(line.clone());
                Ok(line)
            }
        };
        let ready = self.gather(&mut core);
        drop(core);
        self.send(ready);
        line
    }

    /// Forgets a connection.
    pub fn leave(self: &Arc<Self>, key: ConnectionKey) {
        let mut core = self.core.lock();
        let now = self.now();
        core.lines[key as usize] = None;
        core.broker.lost(now, key);
        let ready = self.gather(&mut core);
        drop(core);
        self.send(ready);
    }

    /// Takes from the broker what connections are to be sent.
    fn gather(&self, core: &mut Core<N>) -> Vec<Arc<Line>> {
        let mut ready = Vec::new();
        let mut dirty = std::mem::take(&mut core.dirty);
        core.broker.dirty(&mut dirty);
        while !dirty.is_empty() {
            for key in dirty.drain(..) {
                let Some(line) = core.lines.get(key as usize).cloned().flatten() else { continue };
                if line.is_held_up.load(Ordering::Relaxed) && core.broker.may_read(key) {
                    line.bell.ring(Ring::Read);
                }
                let broker = &mut core.broker;
                if line.fill(|buffer| broker.take(key, buffer)) {
                    ready.push(line);
                } else if !broker.is_connected(key) {
                    line.set_closing();
                }
            }
            // Taking makes room, and the session may have sent more.
            core.broker.dirty(&mut dirty);
        }
        core.dirty = dirty;
        if core.broker.waits_for().is_some() {
            self.to_disk.notify_one();
        }
        ready
    }

    /// Writes what was gathered: directly where the socket takes it, else by the connection's own task.
    fn send(self: &Arc<Self>, ready: impl IntoIterator<Item = Arc<Line>>) {
        for (at, line) in ready.into_iter().enumerate() {
            if at >= DIRECT_WRITES_MAX || line.socket.is_none() {
                line.bell.ring(Ring::Write);
            } else {
                self.flush(&line);
            }
        }
    }

    /// Writes all that the socket takes, and leaves the rest, or the end, to the connection's own task.
    fn flush(self: &Arc<Self>, line: &Line) {
        if line.socket.is_some() && (self.write(line) != Wrote::All || line.is_over()) {
            line.bell.ring(Ring::Write);
        }
    }

    /// Writes all that the socket takes, going back to the broker for more. Only for connections without TLS.
    pub fn write(self: &Arc<Self>, line: &Line) -> Wrote {
        let Some(socket) = &line.socket else { return Wrote::All };
        loop {
            match line.write(|bytes| socket.try_write(bytes)) {
                Wrote::All if !line.is_over() && line.has_more() && self.refill(line) => {}
                wrote => return wrote,
            }
        }
    }

    /// Asks the broker for more. Says whether there is something to write.
    pub fn refill(self: &Arc<Self>, line: &Line) -> bool {
        let mut core = self.core.lock();
        let broker = &mut core.broker;
        let filled = line.fill(|buffer| broker.take(line.key, buffer));
        // Room for one may have let the broker go on with others.
        let ready = self.gather(&mut core);
        drop(core);
        ready.iter().for_each(|other| other.bell.ring(Ring::Write));
        filled
    }
}

/// Passwords are checked where there is room for their hash, so there must be some.
fn check_hash_room(users: &Users, budget: &Budget) -> Result<(), Problem> {
    let (needed, room) = (users.hash_bytes(), budget.part_bytes(Purpose::Mqtt));
    if needed <= room {
        return Ok(());
    }
    let detail = format!("to check a password of mqtt.users takes {needed} bytes of memory, and MQTT may have {room}");
    let hint = "raise --memory-bytes-max, or use hashes that take less memory";
    Err(Problem::new(Code::ConfigInvalid, detail).with_hint(hint))
}

fn now_since(started: Instant) -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { steady_ms: started.elapsed().as_millis() as u64, unix_ms: unix.as_millis() as u64 }
}

/// The right to one connection.
pub(crate) struct ConnectionPermit<N: Node> {
    shared: Arc<GateInner<N>>,
    _permit: OwnedSemaphorePermit,
    _of_peer: PeerPermit,
}

impl<N: Node> Drop for ConnectionPermit<N> {
    fn drop(&mut self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connections taken from a listener before those that are there have a turn.
const ACCEPTED_AT_ONCE: usize = 16;

/// Runs until it is aborted.
async fn accept<N: Node>(listener: Listener, shared: Arc<GateInner<N>>) {
    let mut accepted = 0_usize;
    loop {
        accepted = accepted.wrapping_add(1);
        if accepted.is_multiple_of(ACCEPTED_AT_ONCE) {
            tokio::task::yield_now().await;
        }
        let permit = shared.permits.clone().acquire_owned().await.expect("permits are never closed");
        match listener.socket.accept().await {
            Ok((stream, address)) => {
                let Some(of_peer) = shared.peers.enter(Peer::of(address.ip())) else {
                    tracing::debug!(%address, "an address has as many MQTT connections as it may");
                    continue;
                };
                // What is sent is gathered already.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "an MQTT connection ended before it began");
                    continue;
                }
                shared.open.fetch_add(1, Ordering::Relaxed);
                let of_connection = ConnectionPermit { shared: shared.clone(), _permit: permit, _of_peer: of_peer };
                tokio::spawn(serve(stream, address, listener.tls.clone(), shared.clone(), of_connection));
            }
            Err(error) => {
                tracing::error!(%error, address = %listener.address, "cannot accept an MQTT connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn do_due<N: Node>(shared: Arc<GateInner<N>>) {
    let mut interval = tokio::time::interval(DUE_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        shared.with(|broker, now| broker.do_due(now));
    }
}

/// Writes what connections have for each other, after all that can run has run: what several publish for one subscriber
/// goes out in one write.
async fn write_to_others<N: Node>(shared: Arc<GateInner<N>>) {
    loop {
        shared.to_others.notified().await;
        tokio::task::yield_now().await;
        let ready = std::mem::take(&mut *shared.for_others.lock());
        shared.send(ready);
    }
}

/// Waits for the disk in everyone's stead.
async fn watch_disk<N: Node>(shared: Arc<GateInner<N>>) {
    loop {
        let wanted = shared.core.lock().broker.waits_for();
        let Some(ticket) = wanted else {
            shared.to_disk.notified().await;
            continue;
        };
        match shared.node.durable(ticket).await {
            Ok(durable) => shared.with(|broker, now| broker.durable(now, durable.max(ticket))),
            Err(problem) => {
                shared.with(|broker, now| broker.fail(now, &problem));
                return;
            }
        }
    }
}
