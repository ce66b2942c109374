//! Takes connections from a listener and runs each to its end.

use crate::crowd::Member;
use crate::gate::{ConnectionPermit, GateInner, Listener};
use crate::http1::guard::{Guard, Version};
use crate::line::Line;
use crate::service::{Connection, Handler, Peer, serve};
use crate::watch::watch;
use gate_connections::Certificates;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use problem::Problem;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio_rustls::TlsAcceptor;

/// How long a listener rests after an error that the next attempt would meet too, such as no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a refused client may take to stop sending before its connection is cut.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections taken from a listener before those that are there have a turn.
pub const ACCEPTED_AT_ONCE: usize = 16;

/// Runs until it is aborted.
pub(crate) async fn accept<H: Handler>(listener: Listener, shared: Arc<GateInner>, handler: Arc<H>) {
    let mut accepted = 0_usize;
    loop {
        accepted = accepted.wrapping_add(1);
        if accepted.is_multiple_of(ACCEPTED_AT_ONCE) {
            yield_now().await;
        }
        match listener.socket.accept().await {
            Ok((stream, address)) => {
                // Replies are written whole, so there is nothing to gain by waiting for more.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection ended before it began");
                    continue;
                }
                let is_tls = listener.tls.is_some();
                // Who has as many as it may makes nobody give way.
                let Some(entered) = shared.comes(address) else { continue };
                // Only now, so that nobody gives way to a connection that does not come.
                let Some((permit, room)) = GateInner::permit(&shared, entered).await.taken(address, is_tls).await
                else {
                    continue;
                };
                let line = Arc::new(Line::new(shared.next_number(), room));
                let held = (permit, shared.crowd.enter(&line));
                let number = line.number;
                let peer = Peer { address, tls: is_tls };
                let connection = Connection { handler: handler.clone(), line, shared: shared.clone(), peer };
                let task = match &listener.tls {
                    None => tokio::spawn(run_plain(stream, connection, held)),
                    Some(tls) => tokio::spawn(run_tls(stream, tls.clone(), connection, held)),
                };
                shared.crowd.runs(number, task.abort_handle());
            }
            Err(error) => pause(&error, listener.address).await,
        }
    }
}

async fn pause(error: &io::Error, address: SocketAddr) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        return;
    }
    tracing::error!(%error, %address, "cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// What a connection holds until its end.
type Held = (ConnectionPermit, Member);

/// What is left of a connection that has ended, to be closed.
type Left = Option<Box<dyn Send>>;

async fn run_plain<H: Handler>(stream: TcpStream, connection: Connection<H>, held: Held) {
    let shared = connection.shared.clone();
    let guard = Guard::new(stream, connection.line.clone());
    let left = run(guard, connection, None).await;
    show_out(&shared, left, held);
}

async fn run_tls<H: Handler>(stream: TcpStream, tls: Arc<Certificates>, connection: Connection<H>, held: Held) {
    let (line, shared) = (&connection.line, &connection.shared);
    // A handshake has the time that a head has.
    line.head_waits();
    let handshake = Box::pin(TlsAcceptor::from(tls.server_config()).accept(stream));
    match watch(pin!(handshake), line, shared, |_| true).await {
        Some(Ok(stream)) => {
            line.head_done();
            let version = (stream.get_ref().1.alpn_protocol() == Some(b"h2")).then_some(Version::Http2);
            let guard = Guard::new(stream, line.clone());
            let shared = shared.clone();
            let left = run(guard, connection, version).await;
            return show_out(&shared, left, held);
        }
        Some(Err(error)) => tracing::debug!(%error, peer = %connection.peer.address, "no TLS handshake"),
        None => {}
    }
    drop(held);
}

/// Closes what is left of a connection. It gives way to nobody any more.
fn show_out(shared: &GateInner, left: Left, (permit, member): Held) {
    drop(member);
    shared.usher.shows_out((left, permit));
}

async fn run<S, H>(mut guard: Guard<S>, connection: Connection<H>, version: Option<Version>) -> Left
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let version = match version {
        Some(version) => version,
        None => {
            let said = watch(pin!(guard.version()), &connection.line, &connection.shared, |_| true).await;
            let Some(Ok(Some(version))) = said else { return Some(Box::new(guard)) };
            version
        }
    };
    if let Err(full) = connection.line.room.speaks(version) {
        connection.shared.speak_of(connection.peer.address, &Problem::from(full).detail);
        return None;
    }
    match version {
        Version::Http1 => Box::pin(run_http1(guard, Arc::new(connection))).await,
        Version::Http2 => Box::pin(run_http2(guard, Arc::new(connection))).await,
    }
}

async fn run_http1<S, H>(mut guard: Guard<S>, connection: Arc<Connection<H>>) -> Left
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    guard.vet(connection.shared.config.head_bytes());
    let service = service_fn({
        let connection = connection.clone();
        move |request| serve(connection.clone(), request)
    });
    let mut http1 = connection.shared.http1.serve_connection(TokioIo::new(guard), service);
    let close = |http1: Pin<&mut _>| {
        hyper::server::conn::http1::Connection::graceful_shutdown(http1);
        false
    };
    let ended = watch(Pin::new(&mut http1), &connection.line, &connection.shared, close).await;
    report(ended, &connection);
    if connection.line.has_refused() {
        let mut guard = http1.into_parts().io.into_inner();
        let _ = tokio::time::timeout(DISCARD_TIMEOUT, guard.discard()).await;
        return Some(Box::new(guard));
    }
    Some(Box::new(http1))
}

async fn run_http2<S, H>(mut guard: Guard<S>, connection: Arc<Connection<H>>) -> Left
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    guard.open();
    let service = service_fn({
        let connection = connection.clone();
        move |request| serve(connection.clone(), request)
    });
    let mut http2 = connection.shared.http2.serve_connection(TokioIo::new(guard), service);
    let close = |http2: Pin<&mut _>| {
        hyper::server::conn::http2::Connection::graceful_shutdown(http2);
        false
    };
    let ended = watch(Pin::new(&mut http2), &connection.line, &connection.shared, close).await;
    report(ended, &connection);
    Some(Box::new(http2))
}

fn report<H>(ended: Option<hyper::Result<()>>, connection: &Connection<H>) {
    let Connection { line, shared, peer, .. } = connection;
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, peer = %peer.address, "a connection broke off"),
        None if line.abused() => {
            shared.speak_of(peer.address, "it takes back its requests, or sends what is none");
        }
        None => tracing::debug!(peer = %peer.address, "closed a quiet or slow connection"),
    }
}
