//! Where outgoing requests may go: the check looks at the address of the real connection, whatever a name said before.
//!
//! ```text
//!   request ─▶ a grant names the host?    yes ─▶ client "named": any address
//!              a wildcard covers it       yes ─▶ client "outer": no address that is this machine's own, link-local or of
//!                                                a cloud's metadata; asked where names become addresses
//! ```
//! There are two clients, because connections are kept: a connection that one function was allowed to open must not
//! serve another function that is not allowed to.
#![forbid(unsafe_code)]

use http::{Request, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::vec;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tower_service::Service;
use unit::Reach;

/// Bytes that a host may send before they are read: the window of an HTTP/2 stream, the buffer of an HTTP/1 connection.
pub const WINDOW_BYTES: u32 = 256 << 10;
/// The same of all streams of one connection.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of a response's header fields. A response with more fails.
const HEADERS_BYTES_MAX: u32 = 64 << 10;
/// How long a unit waits for a host to answer, if it does not say.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(30);

/// Addresses outside of the link-local ranges at which clouds give their machines credentials.
const METADATA: [IpAddr; 4] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsent {
    /// The host is at an address that has to be named.
    Inner(IpAddr),
    NameUnknown,
    Refused,
    Unreachable,
    ConnectTimedOut,
    Tls(String),
    /// Connected, and then it went wrong.
    Broken(String),
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(address) => f.write_str(&must_be_named(*address)),
            Self::NameUnknown => f.write_str("its name has no address"),
            Self::Refused => f.write_str("it refused the connection"),
            Self::Unreachable => f.write_str("it cannot be reached"),
            Self::ConnectTimedOut => f.write_str("no connection in the time there was for it"),
            Self::Tls(why) => write!(f, "no secure connection: {why}"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

impl Error for Unsent {}

/// How long to wait for an answer, within the time of the call.
pub fn time_left(wanted: Option<Duration>, deadline: Instant) -> Duration {
    wanted.unwrap_or(ANSWER_TIMEOUT).min(deadline.saturating_duration_since(Instant::now()))
}

/// What to say of an address that a wildcard does not cover.
pub fn must_be_named(address: IpAddr) -> String {
    format!(
        "{address} is an address of this machine, of its link or of its cloud's metadata, which a wildcard does not cover; \
         name the host in grants.hosts"
    )
}

/// Whether an address is this machine's own, of its link alone, or where a cloud keeps credentials.
pub fn is_inner(address: IpAddr) -> bool {
    if METADATA.contains(&address) {
        return true;
    }
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local() || address.octets()[0] == 0,
        IpAddr::V6(address) if address.is_loopback() || address.is_unspecified() => true,
        IpAddr::V6(address) => {
            address.is_unicast_link_local() || embedded(address).is_some_and(|inner| is_inner(inner.into()))
        }
    }
}

/// The address of version 4 that one of version 6 leads to: mapped, compatible, by NAT64 or 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let at = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(at(high, low)),
        [0x2002, high, low, ..] => Some(at(high, low)),
        _ => None,
    }
}

type Kept<B> = legacy::Client<Connector, B>;

/// The clients of one kind of unit.
pub struct Clients<B> {
    named: Kept<B>,
    outer: Kept<B>,
}

tokio::task_local! {
    /// How long the request that is being sent waits for a connection.
    static CONNECT_MAX: Option<Duration>;
}

impl<B> Clients<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    /// Clients whose connections belong to the current runtime, not to the threads of whichever unit opened them.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { named: client(Reach::Named), outer: client(Reach::Outer) })
    }

    /// Sends a request and waits for the head of its response; `connect_max` bounds the wait for a connection alone.
    ///
    /// # Errors
    /// There is none.
    pub async fn request(
        &self,
        reach: Reach,
        connect_max: Option<Duration>,
        request: Request<B>,
    ) -> Result<Response<Incoming>, Unsent> {
        let client = match reach {
            Reach::Named => &self.named,
            Reach::Outer => &self.outer,
        };
        CONNECT_MAX.scope(connect_max, client.request(request)).await.map_err(|error| why(&error))
    }
}

fn client<B>(reach: Reach) -> Kept<B>
where
    B: Body<Data: Send> + Send,
{
    let mut http = HttpConnector::new_with_resolver(Resolver { system: GaiResolver::new(), reach });
    http.enforce_http(false);
    http.set_nodelay(true);
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(http);
    legacy::Client::builder(OnRuntime(Handle::current()))
        .pool_idle_timeout(IDLE)
        .http1_max_buf_size(WINDOW_BYTES as usize)
        .http2_initial_stream_window_size(WINDOW_BYTES)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .build(Connector(https))
}

#[derive(Clone)]
struct OnRuntime(Handle);

impl<F> hyper::rt::Executor<F> for OnRuntime
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

type BoxError = Box<dyn Error + Send + Sync>;
type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Connects, in the time that the request gives it.
#[derive(Clone)]
pub struct Connector(HttpsConnector<HttpConnector<Resolver>>);

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Boxed<Self::Response, BoxError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connect_max = CONNECT_MAX.try_with(|max| *max).ok().flatten();
        let connecting = self.0.call(uri);
        Box::pin(async move {
            let Some(connect_max) = connect_max else { return connecting.await };
            tokio::time::timeout(connect_max, connecting).await.unwrap_or_else(|_| Err(Unsent::ConnectTimedOut.into()))
        })
    }
}

/// Turns a name into the addresses that may be connected to.
#[derive(Clone)]
pub struct Resolver {
    system: GaiResolver,
    reach: Reach,
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Unsent;
    type Future = Boxed<Self::Response, Unsent>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (found, reach) = (self.system.call(name), self.reach);
        Box::pin(async move {
            let found: Vec<SocketAddr> = found.await.map_err(|_| Unsent::NameUnknown)?.collect();
            let may = |address: &SocketAddr| reach == Reach::Named || !is_inner(address.ip());
            let (may, must_not): (Vec<_>, Vec<_>) = found.into_iter().partition(may);
            match (may.is_empty(), must_not.first()) {
                (true, Some(inner)) => Err(Unsent::Inner(inner.ip())),
                (true, None) => Err(Unsent::NameUnknown),
                (false, _) => Ok(may.into_iter()),
            }
        })
    }
}

/// What lies at the bottom of an error of the client.
fn why(error: &legacy::Error) -> Unsent {
    let mut bottom = error.to_string();
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(cause) = next {
        if let Some(unsent) = cause.downcast_ref::<Unsent>() {
            return unsent.clone();
        }
        if let Some(cause) = cause.downcast_ref::<io::Error>().filter(|_| error.is_connect()) {
            return match cause.kind() {
                io::ErrorKind::ConnectionRefused => Unsent::Refused,
                io::ErrorKind::TimedOut => Unsent::ConnectTimedOut,
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Unsent::Tls(cause.to_string()),
                _ => Unsent::Unreachable,
            };
        }
        bottom = cause.to_string();
        next = cause.source();
    }
    Unsent::Broken(bottom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inside_is_known_in_every_spelling() {
        for inner in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "169.254.0.1",
            "::1",
            "::",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            assert!(is_inner(inner.parse().unwrap()), "{inner}");
        }
        for outer in ["192.0.2.1", "10.0.0.1", "192.168.1.1", "fec0::1", "fd00::1", "2001:db8::1", "::ffff:192.0.2.1"] {
            assert!(!is_inner(outer.parse().unwrap()), "{outer}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_followed_only_if_it_is_named() {
        for (reach, leads) in [(Reach::Named, true), (Reach::Outer, false)] {
            let mut resolver = Resolver { system: GaiResolver::new(), reach };
            let found = resolver.call("localhost".parse().unwrap()).await.map(|found| found.count());
            assert_eq!(found.is_ok_and(|count| count > 0), leads);
        }
        // Spellings that only the system's resolver reads as an address.
        let mut resolver = Resolver { system: GaiResolver::new(), reach: Reach::Outer };
        for name in ["127.1", "2130706433", "0x7f.1"] {
            let found = resolver.call(name.parse().unwrap()).await.map(|found| found.count());
            assert!(matches!(found, Err(Unsent::Inner(_) | Unsent::NameUnknown)), "{name}: {found:?}");
        }
    }
}
