//! The side that listens: one socket for strangers who join, members who say hello, and members who connect.
//!
//! ```text
//!   accept ─▶ door ─▶ ClientHello: which protocol? ─┬▶ lighter-join/1   ─▶ one question, one answer      anchors
//!                                                   ├▶ lighter-hello/1  ─▶ one hello, one welcome        anchors
//!                                                   ├▶ lighter-fleet/1  ─▶ MemberArrival, for the caller of `serve`
//!                                                   ├▶ lighter-calls/1  ─▶ the same, where calls are served
//!                                                   ├▶ lighter-engine/1 ─▶ the same, where the engine is  anchors
//!                                                   ├▶ lighter-routes/1 ─▶ the same                       anchors
//!                                                   └▶ lighter-anchor/1 ─▶ as lighter-fleet/1
//! ```
//! Until a connection has proved something it holds a seat in the door, and loses it after [`STRANGER_TIMEOUT`].

use crate::anchor::{Anchor, Invited, KNOCK_PURPOSE};
use crate::digits::{Digits, commitment};
use crate::door::{CONNECTIONS, JOINS, KNOCKS, KNOCKS_MAX, LIVES, Pace, SEATS_MAX, Seats, Source};
use crate::id::NodeId;
use crate::keys::{PublicKey, is_signed, random};
use crate::link::{self, KNOCK_TIMEOUT, channel_of, receive};
use crate::message::{REQUEST_BYTES_MAX, Reply, Request};
use crate::trust::{Peer, Trust};
use crate::verify::key_of;
use parking_lot::Mutex;
use problem::{Code, Problem};
use rustls::server::Acceptor;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a connection may take until it has proved something. Then it is closed.
pub const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);
/// Nodes whose questions may change the ledger now: a thread waits for each until it is its turn. Others wait without
/// one, for five seconds, and are then refused. Who takes nodes out, or invites them, waits for no more than these.
pub const TURNS_MAX: usize = 16;
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after the system refused to accept, which it does where descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A member that has connected.
#[derive(Debug)]
pub struct MemberArrival {
    /// Whose it is, as its certificate says; and when it has to end.
    pub peer: Peer,
    pub stream: TlsStream<TcpStream>,
}

/// Where connections of members go. While one of these is full, they wait.
#[derive(Debug, Clone)]
pub struct Arrivals {
    pub members: mpsc::Sender<MemberArrival>,
    /// Those that carry calls. None: they are closed.
    pub calls: Option<mpsc::Sender<MemberArrival>>,
    /// Those to the fleet's engine. None: they are closed.
    pub engine: Option<mpsc::Sender<MemberArrival>>,
}

impl From<mpsc::Sender<MemberArrival>> for Arrivals {
    fn from(members: mpsc::Sender<MemberArrival>) -> Self {
        Self { members, calls: None, engine: None }
    }
}

/// What all connections of one listener share.
struct Doorway {
    trust: Arc<Trust>,
    anchor: Option<Arc<Anchor>>,
    arrivals: Arrivals,
    door: Mutex<Door>,
    turns: Arc<Semaphore>,
}

struct Door {
    connections: Pace,
    joins: Pace,
    knocking: Pace,
    lives: Pace<NodeId>,
    strangers: Seats<AbortHandle>,
    knocks: Seats<AbortHandle>,
}

/// The seat of one connection. It is given back when this is dropped.
struct Seat {
    doorway: Arc<Doorway>,
    number: u64,
    source: Source,
    is_knock: bool,
}

/// Serves a listener until it is aborted. Without an `anchor` only members are let in. `arrivals` is where connections
/// of members go; while that is full they wait, each with its seat and its time.
pub async fn serve(
    listener: TcpListener,
    trust: Arc<Trust>,
    anchor: Option<Arc<Anchor>>,
    arrivals: impl Into<Arrivals>,
) {
    let now = Instant::now();
    let door = Mutex::new(Door {
        connections: Pace::new(CONNECTIONS, now),
        joins: Pace::new(JOINS, now),
        knocking: Pace::new(KNOCKS, now),
        lives: Pace::new(LIVES, now),
        strangers: Seats::new(SEATS_MAX),
        knocks: Seats::new(KNOCKS_MAX),
    });
    let turns = Arc::new(Semaphore::new(TURNS_MAX));
    let doorway = Arc::new(Doorway { trust, anchor, arrivals: arrivals.into(), door, turns });
    loop {
        match listener.accept().await {
            Ok((socket, from)) => doorway.enter(socket, from),
            Err(error) => {
                tracing::warn!(%error, "the fleet's listener cannot accept");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Doorway {
    /// Gives a connection a seat and a task, or closes it.
    fn enter(self: &Arc<Self>, socket: TcpStream, from: SocketAddr) {
        let source = Source::of(from.ip());
        let mut door = self.door.lock();
        if !door.connections.admits(source, Instant::now()) {
            return;
        }
        // The task waits for this lock before it does anything that needs its seat.
        let (sender, number) = tokio::sync::oneshot::channel();
        let doorway = self.clone();
        let task = tokio::spawn(async move {
            let Ok(number) = number.await else { return };
            let seat = Seat { doorway: doorway.clone(), number, source, is_knock: false };
            if let Err(problem) = doorway.serve(socket, seat).await {
                tracing::debug!(%from, %problem, "a connection to the fleet's listener ended");
            }
        });
        let (number, evicted) = door.strangers.enter(source, task.abort_handle());
        drop(door);
        evicted.inspect(AbortHandle::abort);
        // It was aborted already if nobody listens.
        let _ = sender.send(number);
    }

    async fn serve(self: Arc<Self>, socket: TcpStream, seat: Seat) -> Result<(), Problem> {
        let Some((mut stream, is_stranger)) = in_time(self.handshake(socket, seat.source)).await? else {
            return Ok(());
        };
        if !is_stranger {
            seat.is_known();
        }
        if is_stranger {
            let Some(anchor) = self.anchor.clone() else { return Ok(()) };
            return answer_stranger(anchor, &mut stream, seat).await;
        }
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let node = chain.first().and_then(|leaf| key_of(leaf)).map(|key| NodeId::of(&key));
        let node = node.ok_or_else(|| Problem::new(Code::NotAdmitted, "the peer showed no certificate"))?;
        match (stream.get_ref().1.alpn_protocol(), self.anchor.clone()) {
            (Some(link::HELLO), Some(anchor)) => in_time(self.welcome(anchor, &mut stream, node)).await,
            (Some(link::FLEET | link::ANCHOR), _) => self.arrives(&self.arrivals.members, node, stream).await,
            (Some(link::CALLS), _) => self.arrives_if(self.arrivals.calls.as_ref(), node, stream).await,
            (Some(link::ENGINE | link::ROUTES), Some(_)) => {
                self.arrives_if(self.arrivals.engine.as_ref(), node, stream).await
            }
            _ => Ok(()),
        }
    }

    async fn arrives_if(
        &self,
        to: Option<&mpsc::Sender<MemberArrival>>,
        node: NodeId,
        stream: TlsStream<TcpStream>,
    ) -> Result<(), Problem> {
        match to {
            Some(to) => self.arrives(to, node, stream).await,
            None => Ok(()),
        }
    }

    async fn arrives(
        &self,
        to: &mpsc::Sender<MemberArrival>,
        node: NodeId,
        stream: TlsStream<TcpStream>,
    ) -> Result<(), Problem> {
        let arrival = MemberArrival { peer: self.trust.connected(node)?, stream };
        let gone = |_| Problem::new(Code::Internal, "nobody serves members");
        in_time(async { to.send(arrival).await.map_err(gone) }).await
    }

    /// TLS, after a look at what the other side wants. `None`: it is not wanted here, or too often.
    async fn handshake(
        &self,
        socket: TcpStream,
        source: Source,
    ) -> Result<Option<(TlsStream<TcpStream>, bool)>, Problem> {
        let _ = socket.set_nodelay(true);
        let hello = LazyConfigAcceptor::new(Acceptor::default(), socket).await.map_err(|error| link::why(&error))?;
        let is_stranger = hello.client_hello().alpn().is_some_and(|mut all| all.any(|one| one == link::JOIN));
        if is_stranger && (self.anchor.is_none() || !self.door.lock().joins.admits(source, Instant::now())) {
            return Ok(None);
        }
        let config = if is_stranger { self.trust.for_strangers() } else { self.trust.for_members() };
        let stream = hello.into_stream(config).await.map_err(|error| link::why(&error))?;
        Ok(Some((stream, is_stranger)))
    }

    async fn welcome(
        &self,
        anchor: Arc<Anchor>,
        stream: &mut TlsStream<TcpStream>,
        node: NodeId,
    ) -> Result<(), Problem> {
        let presence = match request(stream).await? {
            Request::Hello(presence) => presence,
            Request::Leave => return self.farewell(anchor, stream, node).await,
            _ => return refuse(stream, &out_of_place()).await,
        };
        let is_known = anchor.is_known(&node, presence);
        let hello = move || anchor.hello(&node, presence);
        let heard = match is_known {
            true => blocking(hello).await,
            false => in_turn(self.turn_of(node).await, hello).await,
        };
        if heard.as_ref().is_ok_and(|heard| heard.is_new_life) {
            self.trust.end_life(&node);
        }
        match heard {
            Ok(heard) => send(stream, &heard.reply).await,
            Err(problem) => refuse(stream, &problem).await,
        }
    }
}

impl Doorway {
    /// The right to ask for a change of the ledger.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let busy = || Problem::new(Code::AnchorBusy, "many nodes want the anchor to write something down");
        let turn = timeout(TURN_TIMEOUT, self.turns.clone().acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// The same for a member that begins a life, or is doubled.
    async fn turn_of(&self, node: NodeId) -> Result<OwnedSemaphorePermit, Problem> {
        if !self.door.lock().lives.admits(node, Instant::now()) {
            let detail = format!("the node {node} has begun too many lives in the last minute");
            return Err(Problem::new(Code::AnchorBusy, detail));
        }
        self.turn().await
    }

    /// A member leaves by itself: its key is revoked before it hears so, and its other connections here end.
    async fn farewell(
        &self,
        anchor: Arc<Anchor>,
        stream: &mut TlsStream<TcpStream>,
        node: NodeId,
    ) -> Result<(), Problem> {
        let known = self.trust.revoked();
        match blocking(move || anchor.revoke_beside(known.as_deref(), &node)).await {
            Ok(list) => {
                self.trust.learn_revoked(list.bytes())?;
                tracing::info!(%node, "a node has left the fleet");
                send(stream, &Reply::Left).await
            }
            Err(problem) => refuse(stream, &problem).await,
        }
    }
}

/// One question of somebody who shows no certificate.
async fn answer_stranger(anchor: Arc<Anchor>, stream: &mut TlsStream<TcpStream>, seat: Seat) -> Result<(), Problem> {
    let channel = channel_of(stream.get_ref().1)?;
    let asked = in_time(request(stream)).await;
    let admission = match asked {
        Ok(Request::Join { invitation, key, name, proof, signature }) => {
            let join = move || {
                let asked = Invited { invitation, key, name: &name, proof: &proof, signature: &signature };
                anchor.join(&asked, &channel)
            };
            in_turn(seat.doorway.turn().await, join).await
        }
        Ok(Request::Renew { key, signature }) => {
            in_turn(seat.doorway.turn().await, move || anchor.renew(&key, &signature, &channel)).await
        }
        Ok(Request::Knock { key, name, commitment }) => {
            let knocked = Knocked { key, name, commitment };
            return answer_knock(anchor, stream, seat, &channel, knocked).await;
        }
        Ok(Request::Reveal { .. } | Request::Hello(_) | Request::Leave) => Err(out_of_place()),
        Err(problem) => Err(problem),
    };
    match admission {
        Ok(admission) => {
            seat.is_known();
            in_time(send(stream, &Reply::Admitted(admission))).await
        }
        Err(problem) => in_time(refuse(stream, &problem)).await,
    }
}

struct Knocked {
    key: PublicKey,
    name: String,
    commitment: [u8; 32],
}

/// The nonce first, then what the commitment was made of, then a person.
async fn answer_knock(
    anchor: Arc<Anchor>,
    stream: &mut TlsStream<TcpStream>,
    mut seat: Seat,
    channel: &[u8; 32],
    Knocked { key, name, commitment: committed }: Knocked,
) -> Result<(), Problem> {
    if !seat.may_knock() {
        let problem = Problem::new(Code::AnchorBusy, "too many nodes have asked to be let in by digits");
        return in_time(refuse(stream, &problem)).await;
    }
    if let Err(problem) = anchor.check_free(&name, &key) {
        return in_time(refuse(stream, &problem)).await;
    }
    let of_anchor = random()?;
    in_time(send(stream, &Reply::Nonce(of_anchor))).await?;
    let Request::Reveal { nonce, signature } = in_time(request(stream)).await? else {
        return in_time(refuse(stream, &out_of_place())).await;
    };
    let is_kept = commitment(&key, &nonce) == committed;
    if !is_kept || !is_signed(&key, KNOCK_PURPOSE, &[channel, name.as_bytes()], &signature) {
        let problem = Problem::new(Code::NotAdmitted, "the node does not keep to its commitment or its key");
        return in_time(refuse(stream, &problem)).await;
    }
    seat.knocks();
    let digits = Digits::of(&key, &anchor.ca_hash(), &nonce, &of_anchor);
    let mut waiting = anchor.wait(&name, key, digits);
    let mut byte = [0];
    let admission = tokio::select! {
        admission = &mut waiting.admission => admission.ok(),
        // It has gone, or says something out of turn.
        _ = stream.read(&mut byte) => return Ok(()),
        () = sleep(KNOCK_TIMEOUT) => None,
    };
    match admission {
        Some(admission) => in_time(send(stream, &Reply::Admitted(admission))).await,
        None => in_time(refuse(stream, &Problem::new(Code::NotAdmitted, "nobody let this node in"))).await,
    }
}

impl Seat {
    /// A member has connected from there, or a node has become one.
    fn is_known(&self) {
        let mut door = self.doorway.door.lock();
        door.connections.knows(self.source);
        door.joins.knows(self.source);
    }

    /// Whether one more may ask for digits now.
    fn may_knock(&self) -> bool {
        self.doorway.door.lock().knocking.admits(self.source, Instant::now())
    }

    /// From the strangers to those who wait for a person.
    fn knocks(&mut self) {
        let mut door = self.doorway.door.lock();
        let Some(task) = door.strangers.leave(self.number) else { return };
        let (number, evicted) = door.knocks.enter(self.source, task);
        drop(door);
        evicted.inspect(AbortHandle::abort);
        (self.number, self.is_knock) = (number, true);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut door = self.doorway.door.lock();
        let seats = if self.is_knock { &mut door.knocks } else { &mut door.strangers };
        seats.leave(self.number);
    }
}

async fn request(stream: &mut TlsStream<TcpStream>) -> Result<Request, Problem> {
    let (head, body) = receive(stream, REQUEST_BYTES_MAX).await?;
    Ok(Request::read(head, &body)?)
}

async fn refuse(stream: &mut TlsStream<TcpStream>, problem: &Problem) -> Result<(), Problem> {
    send(stream, &Reply::from(problem)).await
}

/// The last message of a connection, with TLS's own goodbye.
async fn send(stream: &mut TlsStream<TcpStream>, reply: &Reply) -> Result<(), Problem> {
    stream.write_all(&reply.write()).await.map_err(|error| link::why(&error))?;
    stream.flush().await.map_err(|error| link::why(&error))
}

fn out_of_place() -> Problem {
    Problem::new(Code::FleetMessage, "the question has no place here")
}

/// Signatures and disks, beside the threads that serve everybody.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    let failed = |error: tokio::task::JoinError| Problem::new(Code::Internal, format!("an answer failed: {error}"));
    spawn_blocking(work).await.map_err(failed)?
}

/// The same for whom it is the turn. It is until the work is done, also where the asker has gone meanwhile.
async fn in_turn<T: Send + 'static>(
    turn: Result<OwnedSemaphorePermit, Problem>,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let turn = turn?;
    blocking(move || {
        let _turn = turn;
        work()
    })
    .await
}

async fn in_time<T>(work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let late = |_| Problem::new(Code::FleetMessage, format!("nothing came in {} s", STRANGER_TIMEOUT.as_secs()));
    timeout(STRANGER_TIMEOUT, work).await.map_err(late)?
}
