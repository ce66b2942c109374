//! The way from an anchor's server to that of another anchor: a listener on loopback for the server here, and a
//! connection of the fleet behind it.
//!
//! ```text
//!  nats-server ─▶ loopback ─▶ RouteWay ══ lighter-routes/1, TLS 1.3 ══▶ Far ─▶ loopback ─▶ nats-server
//! ```

use crate::tunnel::owner::owner;
use fleet_trust::{Anchor, NodeId, Trust, link};
use problem::{Code, Problem};
use rustix::process::geteuid;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// Connections at once: the server has one, and for a moment another one. More are closed.
const CONNECTIONS_MAX: usize = 4;
/// The pause after the system refused to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// See the top of this file. Dropping it cuts what goes through it.
pub struct RouteWay {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl RouteWay {
    /// Begins to listen, on the present runtime.
    ///
    /// # Errors
    /// The system gives no listener.
    pub fn open(trust: Arc<Trust>, anchor: Arc<Anchor>, to: NodeId) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let serving = tokio::spawn(serve(TcpListener::from_std(listener)?, trust, anchor, to));
        Ok(Self { address, serving })
    }

    /// Where the server here connects.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RouteWay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, trust: Arc<Trust>, anchor: Arc<Anchor>, to: NodeId) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let own = geteuid().as_raw();
    let mut through = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = through.join_next() => continue,
        };
        let Ok((server, from)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let is_others = server.local_addr().is_ok_and(|ours| owner(from, ours).is_some_and(|user| user != own));
        let (false, Ok(place)) = (is_others, places.clone().try_acquire_owned()) else { continue };
        let (trust, anchor) = (trust.clone(), anchor.clone());
        through.spawn(async move {
            let _place = place;
            if let Err(problem) = lead(server, &trust, &anchor, &to).await {
                tracing::debug!(node = %to, %problem, "the server of another anchor was not reached");
            }
        });
    }
}

async fn lead(mut server: TcpStream, trust: &Trust, anchor: &Anchor, to: &NodeId) -> Result<(), Problem> {
    let none = || Problem::new(Code::NotAnchor, format!("the node {to} is no anchor"));
    // Where it listens now: it may have moved.
    let at = anchor.set().1.remove(to).ok_or_else(none)?;
    let (mut peer, mut stream) = link::connect_for_routes(trust, &at, to).await?;
    let _ = server.set_nodelay(true);
    tokio::select! {
        copied = copy_bidirectional(&mut server, &mut stream) => copied.map(|_| ()).map_err(|error| link::why(&error)),
        _ = peer.ended() => Ok(()),
    }
}
