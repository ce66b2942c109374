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

mod connect;
mod resolve;
mod shares;

use connect::{Connector, Places};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioTimer;
use resolve::{Lookups, Resolver};
use shares::Shares;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use unit::Reach;

/// Bytes that a host may send before they are read: the window of an HTTP/2 stream, the buffer of an HTTP/1 connection.
pub const WINDOW_BYTES: u32 = 256 << 10;
/// The same of all streams of one connection: as much as HTTP/2 can say. Functions share a connection, and with less
/// a few responses that one of them does not read would stall those of all others. Each response is counted with the
/// window of its stream, so a bound here would bound nothing more.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Bytes of a response's header fields. A response with more fails.
const HEADERS_BYTES_MAX: u32 = 64 << 10;
/// How long a unit waits for a host to answer, if it does not say.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection is kept that nobody uses, up to twice as long, and how many such of one host.
const IDLE: Duration = Duration::from_secs(5);
const IDLE_MAX: usize = 16;
/// Connections of the whole process at once, a quarter of the files that systems let a process open, and those of one
/// function.
const OPEN_MAX: usize = 256;
const OF_FUNCTION_MAX: usize = 128;
/// How long one waits for a place, before there is none: `Unsent::Full`. Longer than anything stays that is idle, so
/// only what is in use keeps somebody out.
const PLACE_WAIT: Duration = Duration::from_secs(12);

/// Addresses outside of the link-local ranges at which clouds give their machines credentials.
const METADATA: [IpAddr; 6] = [
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
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
    /// The node has as many connections as it may.
    Full,
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
            Self::Full => f.write_str("the node has as many outgoing connections as it may; try again in a moment"),
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
        // One cloud has several services in this range, which give credentials and more.
        IpAddr::V6(address) if matches!(address.segments(), [0xfd00, 0xec2, ..]) => true,
        IpAddr::V6(address) => {
            address.is_unicast_link_local() || embedded(address).iter().any(|inner| is_inner((*inner).into()))
        }
    }
}

/// The addresses of version 4 that one of version 6 may lead to: mapped, compatible, translated, by NAT64 or 6to4.
fn embedded(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let at = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => vec![at(high, low)],
        [0x64, 0xff9b, 1, ..] => by_local_nat64(address.octets()),
        _ => Vec::new(),
    }
}

/// A network chooses how long the prefix of its own NAT64 is, which says where the address lies (RFC 6052, 2.2): each
/// place counts. What begins with zero is most likely no address there.
fn by_local_nat64(octets: [u8; 16]) -> Vec<Ipv4Addr> {
    const PLACES: [[usize; 4]; 4] = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
    let found = PLACES.map(|places| Ipv4Addr::from(places.map(|place| octets[place])));
    let likely: Vec<_> = found.into_iter().filter(|address| address.octets()[0] != 0).collect();
    if likely.is_empty() { found.to_vec() } else { likely }
}

type Kept<B> = legacy::Client<Connector, B>;

/// The clients of one kind of unit.
pub struct Clients<B> {
    named: Kept<B>,
    outer: Kept<B>,
}

/// For whom a request is sent.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Its name: a function has a share of connections and of lookups.
    pub function: Arc<str>,
    /// How long it waits for a connection alone.
    pub connect_max: Option<Duration>,
}

tokio::task_local! {
    /// For whom a connection is opened.
    static CALLER: Caller;
}

impl<B> Clients<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
{
    /// Clients whose connections belong to the current runtime, not to the threads of whichever unit opened them.
    pub fn new() -> Arc<Self> {
        Self::within(&BOUNDS)
    }

    fn within(bounds: &Bounds) -> Arc<Self> {
        Arc::new(Self { named: client(Reach::Named, bounds), outer: client(Reach::Outer, bounds) })
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    /// There is none.
    pub async fn request(
        &self,
        caller: Caller,
        reach: Reach,
        request: Request<B>,
    ) -> Result<Response<Incoming>, Unsent> {
        let client = match reach {
            Reach::Named => &self.named,
            Reach::Outer => &self.outer,
        };
        CALLER.scope(caller, client.request(request)).await.map_err(|error| why(&error))
    }
}

/// What bounds outgoing requests.
struct Bounds {
    idle: Duration,
    places: Places,
    lookups: Arc<Lookups>,
}

/// Those of the process, which has several [`Clients`].
static BOUNDS: LazyLock<Bounds> = LazyLock::new(|| Bounds {
    idle: IDLE,
    places: Places {
        free: Arc::new(Semaphore::new(OPEN_MAX)),
        of_function: Arc::new(Shares::new(OF_FUNCTION_MAX)),
        wait: PLACE_WAIT,
    },
    lookups: Lookups::of_system(),
});

fn client<B>(reach: Reach, bounds: &Bounds) -> Kept<B>
where
    B: Body<Data: Send> + Send,
{
    let mut http = HttpConnector::new_with_resolver(Resolver { lookups: bounds.lookups.clone(), reach });
    http.enforce_http(false);
    http.set_nodelay(true);
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(http);
    legacy::Client::builder(OnRuntime(Handle::current()))
        // Without a timer what is idle would be closed only when its host is asked again.
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(bounds.idle)
        .pool_max_idle_per_host(IDLE_MAX)
        .http1_max_buf_size(WINDOW_BYTES as usize)
        .http2_initial_stream_window_size(WINDOW_BYTES)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
        .build(Connector { https, places: bounds.places.clone() })
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
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tower_service::Service;

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
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "::ffff:0:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1::a9:fea9:fe00:0",
            "64:ff9b:1::7f00:1",
            "64:ff9b:1::",
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
        for outer in [
            "192.0.2.1",
            "10.0.0.1",
            "192.168.1.1",
            "fec0::1",
            "fd00::1",
            "fd20:ce::1",
            "2001:db8::1",
            "::ffff:192.0.2.1",
            "::ffff:0:192.0.2.1",
            "64:ff9b:1::192.0.2.1",
            "64:ff9b:1:c000:2:100::",
        ] {
            assert!(!is_inner(outer.parse().unwrap()), "{outer}");
        }
    }

    /// Serves connections and keeps them; says how many are open. What comes to `/wait` gets no answer.
    async fn host() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, open) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counter = open.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counter.fetch_add(1, SeqCst);
                let counter = counter.clone();
                tokio::spawn(async move {
                    let mut room = [0; 1 << 10];
                    while let Ok(1..) = stream.read(&mut room).await {
                        if !room.starts_with(b"GET /wait ") {
                            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok();
                        }
                    }
                    counter.fetch_sub(1, SeqCst);
                });
            }
        });
        (address, open)
    }

    fn bounds(idle: Duration, open_max: usize) -> Bounds {
        let of_function = Arc::new(Shares::new(OF_FUNCTION_MAX));
        let places = Places { free: Arc::new(Semaphore::new(open_max)), of_function, wait: Duration::from_millis(50) };
        Bounds { idle, places, lookups: Lookups::of_system() }
    }

    async fn get(clients: &Clients<String>, uri: String) -> Result<u16, Unsent> {
        let request = Request::get(uri).body(String::new()).unwrap();
        clients
            .request(Caller { function: "f".into(), connect_max: None }, Reach::Named, request)
            .await
            .map(|response| response.status().as_u16())
    }

    async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What was idle was closed only when its host was asked again, and a host has as many names as a URL has users.
    #[tokio::test]
    async fn a_connection_that_nobody_uses_is_closed_whatever_it_was_opened_for() {
        let (address, open) = host().await;
        let bounds = bounds(Duration::from_millis(200), 64);
        let clients = Clients::within(&bounds);
        for user in 0..50 {
            assert_eq!(get(&clients, format!("http://u{user}@{address}/")).await, Ok(200));
        }
        until("all are closed", || open.load(SeqCst) == 0 && bounds.places.free.available_permits() == 64).await;
    }

    #[tokio::test]
    async fn there_are_so_many_connections_and_then_none_until_one_is_closed() {
        let (address, open) = host().await;
        let bounds = bounds(IDLE, 2);
        let clients: Arc<Clients<String>> = Clients::within(&bounds);
        let ask = |path: &str| {
            let (clients, uri) = (clients.clone(), format!("http://{address}{path}"));
            tokio::spawn(async move { get(&clients, uri).await })
        };
        let waiting = [ask("/wait"), ask("/wait")];
        until("both are open", || open.load(SeqCst) == 2).await;
        assert_eq!(ask("/").await.unwrap(), Err(Unsent::Full));
        waiting.iter().for_each(|one| one.abort());
        until("both are closed", || bounds.places.free.available_permits() == 2).await;
        assert_eq!(ask("/").await.unwrap(), Ok(200));
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_followed_only_if_it_is_named() {
        for (reach, leads) in [(Reach::Named, true), (Reach::Outer, false)] {
            let mut resolver = Resolver { lookups: Lookups::of_system(), reach };
            let found = resolver.call("localhost".parse().unwrap()).await.map(|found| found.count());
            assert_eq!(found.is_ok_and(|count| count > 0), leads);
        }
        // Spellings that only the system's resolver reads as an address.
        let mut resolver = Resolver { lookups: Lookups::of_system(), reach: Reach::Outer };
        for name in ["127.1", "2130706433", "0x7f.1"] {
            let found = resolver.call(name.parse().unwrap()).await.map(|found| found.count());
            assert!(matches!(found, Err(Unsent::Inner(_) | Unsent::NameUnknown)), "{name}: {found:?}");
        }
    }
}
