//! The node's end: a listener on loopback that the client of NATS connects to.

use crate::keys::Credentials;
use crate::process::EngineState;
use crate::tunnel::far::{Far, name_of};
use crate::tunnel::owner::owner;
use crate::tunnel::{GREETING_TIMEOUT, ask};
use fleet_trust::{Address, Trust, link};
use parking_lot::Mutex;
use problem::{Code, Problem};
use rustix::process::geteuid;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Connections at once. The client has one, and for a moment another one. More are closed.
const CONNECTIONS_MAX: usize = 4;
/// The pause after the system refused to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the engine is for a node.
pub struct Ways {
    pub trust: Arc<Trust>,
    /// What the client shows. It is given what an anchor has signed before each connection.
    pub credentials: Credentials,
    /// The engine of this very node, which is an anchor.
    pub own: Option<Arc<Far>>,
}

/// See the top of this file. Dropping it cuts what goes through it.
pub struct Near {
    address: SocketAddr,
    trouble: Arc<Trouble>,
    serving: JoinHandle<()>,
}

/// Why the last connection did not reach an engine.
type Trouble = Mutex<Option<Problem>>;

impl Near {
    /// Begins to listen, on the present runtime.
    ///
    /// # Errors
    /// The system gives no listener.
    pub fn open(ways: Ways) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let trouble = Arc::<Trouble>::default();
        let serving = tokio::spawn(serve(TcpListener::from_std(listener)?, Arc::new(ways), trouble.clone()));
        Ok(Self { address, trouble, serving })
    }

    /// Where the client connects.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What keeps it from the engine; none while something goes through.
    pub fn trouble(&self) -> Option<Problem> {
        self.trouble.lock().clone()
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, ways: Arc<Ways>, trouble: Arc<Trouble>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let own = geteuid().as_raw();
    let mut through = JoinSet::new();
    let mut turn = 0_usize;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = through.join_next() => continue,
        };
        let Ok((client, from)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let is_others = client.local_addr().is_ok_and(|ours| owner(from, ours).is_some_and(|user| user != own));
        let place = places.clone().try_acquire_owned();
        let (false, Ok(place)) = (is_others, place) else { continue };
        through.spawn(lead(client, ways.clone(), turn, trouble.clone(), place));
        turn = turn.wrapping_add(1);
    }
}

/// Leads one connection to one of the anchors, by turns: the client tries again if that one is of no use.
async fn lead(client: TcpStream, ways: Arc<Ways>, turn: usize, trouble: Arc<Trouble>, _place: OwnedSemaphorePermit) {
    let anchors = ways.trust.membership().anchors;
    // One of several anchors goes to another one while its own server is not up.
    let is_up = |own: &&Arc<Far>| anchors.len() < 2 || matches!(own.state(), EngineState::Up { .. });
    let led = match ways.own.as_ref().filter(is_up) {
        Some(own) => to_own(client, &ways, own, &trouble).await,
        None => match anchors.get(turn % anchors.len().max(1)) {
            Some(anchor) => to_anchor(client, &ways, anchor, &trouble).await,
            None => Err(Problem::new(Code::AnchorsAway, "this node knows of no anchor")),
        },
    };
    if let Err(problem) = led {
        tracing::debug!(%problem, "the engine was not reached");
        *trouble.lock() = Some(problem);
    }
}

async fn to_own(client: TcpStream, ways: &Ways, own: &Far, trouble: &Trouble) -> Result<(), Problem> {
    if !matches!(own.state(), EngineState::Up { .. }) {
        // It says itself what keeps it; what was said of an earlier connection is over.
        *trouble.lock() = None;
        return Ok(());
    }
    let admitted = own.admit(&ways.credentials.public_key(), &name_of(&ways.trust.node()), true);
    let admitted = admitted.ok_or_else(|| Problem::new(Code::EngineUnsound, "the fleet's engine is not up here"))?;
    ways.credentials.show(admitted.jwt);
    let broken =
        |error| Problem::new(Code::EngineUnsound, format!("the fleet's engine at {}: {error}", admitted.listen));
    let server = TcpStream::connect(admitted.listen).await.map_err(broken)?;
    server.set_nodelay(true).map_err(broken)?;
    *trouble.lock() = None;
    copy(client, server).await
}

async fn to_anchor(client: TcpStream, ways: &Ways, anchor: &Address, trouble: &Trouble) -> Result<(), Problem> {
    let (mut peer, mut stream) = link::connect_for_engine(&ways.trust, anchor).await?;
    let key = ways.credentials.public_key();
    let late = |_| Problem::new(Code::AnchorsAway, format!("{anchor} was silent for {} s", GREETING_TIMEOUT.as_secs()));
    let jwt = timeout(GREETING_TIMEOUT, ask(&mut stream, &key)).await.map_err(late)?;
    let jwt = jwt.map_err(|error| link::why(&error))?;
    let jwt = jwt.ok_or_else(|| {
        Problem::new(Code::EngineMissing, format!("the anchor at {anchor} has no engine now"))
            .with_hint("`lighter fleet` on that anchor says why")
    })?;
    ways.credentials.show(jwt);
    *trouble.lock() = None;
    tokio::select! {
        copied = copy(client, stream) => copied,
        // It says the reason when it is asked the next time.
        _ = peer.ended() => Ok(()),
    }
}

async fn copy(mut client: TcpStream, mut server: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), Problem> {
    // How a connection ended that was a good one is no trouble.
    let _ = client.set_nodelay(true);
    let _ = copy_bidirectional(&mut client, &mut server).await;
    Ok(())
}
