//! The other end of a serial line with packets on it: a network of two, the board and this machine.
//!
//! ```text
//!   TCP to a port here ─▶ accepted ─▶ smoltcp ─▶ SLIP ─▶ line ─▶ the board
//!   beacons to a port here ◀────── UDP ◀────────────────┘
//! ```
//! It needs no rights on the system, because it does not use the system's network.

use board_link::{Destination, Network, Settings};
use network::{Card, SerialLine, Slip};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::{Duration as NetDuration, Instant as NetInstant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, Ipv4Address};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The two ends of the line.
pub const HERE: [u8; 4] = [10, 0, 8, 1];
pub const BOARD: [u8; 4] = [10, 0, 8, 2];
pub const PREFIX: u8 = 24;

const CONNECTIONS_MAX: usize = 8;
/// What waits in them is on its way for a long time, on a line as slow as this.
const BUFFER_BYTES: usize = 8 << 10;
const KEEP_ALIVE: NetDuration = NetDuration::from_secs(1);
/// Of the line, not yet looked at.
const ARRIVED_BYTES_MAX: usize = 1 << 20;
/// Between two looks at a line where nothing happens.
const PAUSE: Duration = Duration::from_micros(500);
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Makes a board's settings those of a board in QEMU on a line, and says where its beacons go.
pub fn make(settings: &mut Settings, beacon_port: u16) -> Vec<Destination> {
    settings.network = Network::Static { address: BOARD, prefix: PREFIX, gateway: None };
    // QEMU's Pi starts again as soon as its watchdog is set.
    settings.hardware_watchdog = false;
    vec![Destination { address: HERE, port: beacon_port }]
}

/// Carries packets until it is dropped, or the line ends.
pub struct Gateway {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Takes the line at `socket`, which a machine that was just started offers soon. Connections to `listener` go to
    /// `board_port` of the board; what the board sends to `beacon_port` goes to that port here.
    ///
    /// # Errors
    /// There is no line there.
    pub fn start(socket: &Path, listener: TcpListener, board_port: u16, beacon_port: u16) -> std::io::Result<Self> {
        let since = Instant::now();
        let line = loop {
            match UnixStream::connect(socket) {
                Ok(line) => break line,
                Err(error) if since.elapsed() > CONNECT_MAX => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        line.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        let beacons = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        beacons.connect((Ipv4Addr::LOCALHOST, beacon_port))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let wire = Wire { stream: line, arrived: VecDeque::new(), is_over: is_over.clone() };
        let mut side = Side::new(wire, listener, beacons, board_port, beacon_port);
        let thread = std::thread::Builder::new().name("line".into()).spawn(move || {
            while !side.card.0.line().is_over() {
                if !side.turn() {
                    std::thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// This end of the line.
struct Side {
    card: Card<Slip<Wire>>,
    interface: Interface,
    sockets: SocketSet<'static>,
    beacons_in: SocketHandle,
    beacons_out: UdpSocket,
    listener: TcpListener,
    pairs: Vec<Pair>,
    board_port: u16,
    next_port: u16,
    began: Instant,
}

/// A connection here, and the one to the board that it goes on as.
struct Pair {
    stream: TcpStream,
    handle: SocketHandle,
}

impl Side {
    fn new(wire: Wire, listener: TcpListener, beacons_out: UdpSocket, board_port: u16, beacon_port: u16) -> Self {
        let mut card = Card(Box::new(Slip::new(wire)));
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut card, NetInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // The first of at least one.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(Ipv4Address::from(HERE)), PREFIX));
        });
        let datagrams = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 8], vec![0; 8 << 10]);
        let mut beacons = udp::Socket::new(datagrams(), datagrams());
        // A port that is not 0 can be bound once.
        let _ = beacons.bind(beacon_port);
        let mut sockets = SocketSet::new(Vec::new());
        let beacons_in = sockets.add(beacons);
        Self {
            card,
            interface,
            sockets,
            beacons_in,
            beacons_out,
            listener,
            pairs: Vec::new(),
            board_port,
            next_port: 49_152,
            began: Instant::now(),
        }
    }

    /// Whether anything happened.
    fn turn(&mut self) -> bool {
        let now = NetInstant::from_micros(i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX));
        let mut is_busy = self.accept();
        self.interface.poll(now, &mut self.card, &mut self.sockets);
        is_busy |= !self.card.0.line().arrived.is_empty();
        while let Ok((beacon, _)) = self.sockets.get_mut::<udp::Socket<'_>>(self.beacons_in).recv() {
            // Nobody listens there: the next one says the same.
            let _ = self.beacons_out.send(beacon);
            is_busy = true;
        }
        let Self { pairs, sockets, .. } = self;
        pairs.retain_mut(|pair| {
            let socket = sockets.get_mut::<tcp::Socket<'_>>(pair.handle);
            is_busy |= pair.copy(socket);
            let is_alive = socket.is_active();
            if !is_alive {
                sockets.remove(pair.handle);
            }
            is_alive
        });
        self.interface.poll(now, &mut self.card, &mut self.sockets);
        is_busy
    }

    fn accept(&mut self) -> bool {
        if self.pairs.len() == CONNECTIONS_MAX {
            return false;
        }
        let Ok((stream, _)) = self.listener.accept() else { return false };
        let _ = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER_BYTES]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        // A board that has started again says so when it is asked about a connection of its life before.
        socket.set_keep_alive(Some(KEEP_ALIVE));
        let (from, to) = (self.next_port, (Ipv4Address::from(BOARD), self.board_port));
        self.next_port = self.next_port.checked_add(1).unwrap_or(49_152);
        if socket.connect(self.interface.context(), to, from).is_ok() {
            let handle = self.sockets.add(socket);
            self.pairs.push(Pair { stream, handle });
        }
        true
    }
}

impl Pair {
    /// Both ways, as much as there is and has room.
    fn copy(&mut self, socket: &mut tcp::Socket<'_>) -> bool {
        let mut is_busy = false;
        let stream = &mut self.stream;
        if socket.can_send() {
            let sent = socket.send(|room| match stream.read(room) {
                Ok(0) => (0, Some(false)),
                Ok(count) => (count, Some(true)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => (0, None),
                Err(_) => (0, Some(false)),
            });
            match sent {
                Ok(Some(true)) => is_busy = true,
                Ok(Some(false)) => socket.close(),
                _ => {}
            }
        }
        if socket.can_recv() {
            let written = socket.recv(|bytes| match stream.write(bytes) {
                Ok(count) => (count, true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => (0, true),
                Err(_) => (0, false),
            });
            is_busy = true;
            if written == Ok(false) {
                socket.abort();
            }
        }
        is_busy
    }
}

/// Bytes to and from the line.
struct Wire {
    stream: UnixStream,
    arrived: VecDeque<u8>,
    is_over: Arc<AtomicBool>,
}

impl Wire {
    /// Takes what has arrived; says whether that was anything.
    fn take(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        match self.stream.read(&mut bytes) {
            Ok(count @ 1..) => self.arrived.extend(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Ok(0) | Err(_) => {
                self.is_over.store(true, Relaxed);
                return false;
            }
        }
        true
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

impl SerialLine for Wire {
    fn get(&mut self) -> Option<u8> {
        if self.arrived.is_empty() {
            self.take();
        }
        self.arrived.pop_front()
    }

    /// A machine that cannot get rid of its bytes takes none: while it takes none, its own are taken.
    fn put(&mut self, byte: u8) {
        while !self.is_over() {
            match self.stream.write(&[byte]) {
                Ok(1) => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.arrived.len() > ARRIVED_BYTES_MAX || !self.take() {
                        std::thread::sleep(PAUSE);
                    }
                }
                _ => self.is_over.store(true, Relaxed),
            }
        }
    }
}
