//! The board as a whole: its parts, its sessions, its beacon, and the round it goes.

use crate::entropy::Entropy;
use crate::executive::Executive;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arch_metal::{Exclusive, free_bytes, idle, measured, now_ns, set_alarm};
use board_link::{
    Beacon, BoardSide, HANDSHAKE_MS_MAX, Hash, Keys, Link, LinkFault, Load, Machine, Message, Settings, SettingsFault,
};
use core::array;
use core::net::Ipv4Addr;
use drivers::Randomness;
use network::{CONNECTIONS_MAX, Net, Nic, tcp};

/// How long the round goes on at once after the last packet, before it sleeps between turns.
const AWAKE_NS: u64 = 2_000_000;
const SLEEP_US: u64 = 500;
/// A connection that is not even made after this long gives its place to others.
const HALF_OPEN_MS_MAX: u64 = 1_000;

/// What a board is made of.
pub struct Parts {
    /// The kind of board.
    pub board: &'static str,
    pub architecture: &'static str,
    pub memory_bytes: u64,
    pub nic: Option<Box<dyn Nic>>,
    pub randomness: Option<Box<dyn Randomness>>,
    /// Feeds a watchdog in hardware, for so many microseconds. The timer's interrupt is there in any case.
    pub feed: Option<fn(u64)>,
}

/// All that outlives a call.
pub struct Station {
    pub net: Net,
    pub entropy: Entropy,
    pub settings: Settings,
    sessions: [Session; CONNECTIONS_MAX],
    side: Arc<BoardSide>,
    feed: Option<fn(u64)>,
    beacon: Beacon,
    beacon_due_ms: u64,
    /// As it was said last.
    address: Option<Ipv4Addr>,
}

#[derive(Default)]
struct Session {
    link: Option<Link>,
    /// Since when somebody is about to connect.
    half_open_ms: Option<u64>,
}

/// The session is over.
#[derive(Debug)]
pub struct Over;

pub fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Goes round for ever.
pub fn run(parts: Parts) -> ! {
    let (board, memory_mb) = (parts.board, parts.memory_bytes >> 20);
    let kernel = kernel_hash();
    crate::say!("{board}, {memory_mb} MiB, kernel {}", board_link::fingerprint(&kernel));
    let settings = match Settings::read(arch_metal::settings()) {
        Ok(settings) => settings,
        Err(fault) => refuse(fault),
    };
    let mut executive = match Executive::new(parts.architecture, &settings) {
        Ok(executive) => executive,
        Err(why) => panic!("{why}"),
    };
    let station = Station::new(parts, settings, kernel, executive.formats());
    let station = Arc::new(Exclusive::new(station));
    let mut last_ns = now_ns();
    loop {
        let is_busy = station.with(Station::turn);
        for connection in 0..CONNECTIONS_MAX {
            let heard = station.with(|station| station.hear(connection));
            if let Ok(Some(message)) = heard {
                last_ns = now_ns();
                executive.answer(&station, connection, message);
            }
        }
        station.with(|station| station.beacon_if_due(&executive));
        if is_busy {
            last_ns = now_ns();
        } else if now_ns() - last_ns > AWAKE_NS {
            idle(SLEEP_US);
        }
    }
}

fn kernel_hash() -> Hash {
    let [text, constants] = measured();
    board_link::hash_of_two(text, constants)
}

/// An image without settings is nobody: it says so, and waits to be turned off.
fn refuse(fault: SettingsFault) -> ! {
    crate::say!("{fault}; `lighter flash` and `lighter boot` give an image its settings");
    arch_metal::stop()
}

impl Station {
    fn new(parts: Parts, settings: Settings, kernel: Hash, formats: Vec<String>) -> Self {
        let keys = Keys::from_seed(&settings.seed);
        let mut entropy = Entropy::new(&settings.seed, parts.randomness);
        let mut boot = [0; 16];
        entropy.fill(&mut boot);
        let seed = entropy.seed();
        let seed = u64::from_le_bytes(array::from_fn(|index| seed[index]));
        let uses_watchdog = settings.hardware_watchdog;
        let nic = parts.nic.unwrap_or_else(|| panic!("there is no network card"));
        let net = Net::new(nic, &settings, seed, now_ns);
        let beacon = Beacon {
            board: keys.id(),
            channel_key: keys.channel_public(),
            boot,
            sequence: 0,
            uptime_ms: 0,
            kernel,
            link_port: settings.link_port_seen,
            name: settings.name.clone(),
            machine: Machine {
                board: parts.board.to_string(),
                architecture: parts.architecture.to_string(),
                memory_bytes: parts.memory_bytes,
            },
            formats,
            load: Load::default(),
        };
        crate::say!("board {} {:?}, ready after {} us", keys.id(), settings.name, now_ns() / 1_000);
        // A message is kept once as it arrives and once more as what it says.
        let message_bytes_max = u32::try_from(free_bytes() / 4).unwrap_or(u32::MAX);
        let side = BoardSide { keys, nodes: settings.nodes.clone(), boot, kernel, message_bytes_max };
        Self {
            net,
            entropy,
            settings,
            sessions: array::from_fn(|_| Session::default()),
            side: Arc::new(side),
            feed: parts.feed.filter(|_| uses_watchdog),
            beacon,
            beacon_due_ms: 0,
            address: None,
        }
    }

    /// The watchdog, the network, and who comes and goes.
    fn turn(&mut self) -> bool {
        self.watch(self.settings.watchdog_ms);
        let is_busy = self.net.turn();
        let address = self.net.address();
        if let Some(address) = address.filter(|_| address != self.address) {
            crate::say!("address {address}");
        }
        self.address = address;
        for connection in 0..CONNECTIONS_MAX {
            self.admit(connection);
        }
        is_busy
    }

    /// The next sign of life comes in so long, or the machine starts again.
    pub fn watch(&self, ms: u32) {
        // The hardware comes second: it knows nothing to report.
        const SECOND_US: u64 = 2_000_000;
        let us = u64::from(ms) * 1_000;
        set_alarm(us);
        if let Some(feed) = self.feed {
            feed(us + SECOND_US);
        }
    }

    fn admit(&mut self, connection: usize) {
        let now_ms = now_ms();
        let state = self.net.connection(connection).state();
        let session = &mut self.sessions[connection];
        match state {
            tcp::State::Closed => {
                *session = Session::default();
                self.net.listen(connection);
            }
            tcp::State::SynReceived => {
                let since = *session.half_open_ms.get_or_insert(now_ms);
                if now_ms - since > HALF_OPEN_MS_MAX {
                    self.close(connection);
                }
            }
            tcp::State::Established if session.link.is_none() => {
                let seed = self.entropy.seed();
                session.half_open_ms = None;
                session.link = Some(Link::accept(self.side.clone(), seed, now_ms));
            }
            tcp::State::Established => {
                if session.link.as_ref().is_some_and(|link| link.is_overdue(now_ms)) {
                    self.close(connection);
                }
            }
            tcp::State::Listen => {}
            // The other end has said all it had to say; so have we.
            _ => {
                let is_done = self.net.connection(connection).send_queue() == 0;
                let since = *session.half_open_ms.get_or_insert(now_ms);
                if is_done || now_ms - since > HANDSHAKE_MS_MAX {
                    self.close(connection);
                }
            }
        }
    }

    /// Moves bytes both ways, and returns a message once one is whole.
    pub fn hear(&mut self, connection: usize) -> Result<Option<Message>, Over> {
        let Some(link) = &mut self.sessions[connection].link else { return Err(Over) };
        let socket = self.net.connection(connection);
        if socket.state() == tcp::State::Closed {
            return Err(Over);
        }
        let now_ms = now_ms();
        let heard = loop {
            push(link, socket);
            let mut fault = None;
            let taken = socket.recv(|bytes| match link.receive(bytes) {
                Ok(taken) => (taken, taken),
                Err(why) => {
                    fault = Some(why);
                    (0, 0)
                }
            });
            match (fault, link.read(now_ms), taken) {
                (Some(fault), ..) | (None, Err(fault), _) => break Err(fault),
                (None, Ok(Some(message)), _) => break Ok(Some(message)),
                (None, Ok(None), Ok(taken)) if taken > 0 => {}
                _ => break Ok(None),
            }
        };
        push(link, socket);
        heard.map_err(|fault| {
            crate::say!("a session ends: {fault}");
            self.close(connection);
            Over
        })
    }

    /// Sends a message, all of it, as a part of a run: the watchdog is not fed.
    pub fn send(&mut self, connection: usize, message: &Message) -> Result<(), Over> {
        self.send_all(connection, message, |_| {})
    }

    /// Sends a message, all of it, after a run. A slow line may take longer for that than the watchdog waits, which
    /// is fed as long as the line takes more; and the session begins to rest only now.
    pub fn answer(&mut self, connection: usize, message: &Message) -> Result<(), Over> {
        self.send_all(connection, message, |station| station.watch(station.settings.watchdog_ms))?;
        if let Some(link) = &mut self.sessions[connection].link {
            link.stays(now_ms());
        }
        Ok(())
    }

    /// `took` is called whenever the connection has taken some of it.
    fn send_all(&mut self, connection: usize, message: &Message, took: fn(&Self)) -> Result<(), Over> {
        let link = self.sessions[connection].link.as_mut().ok_or(Over)?;
        link.write(message).map_err(|_: LinkFault| Over)?;
        loop {
            let Some(link) = &mut self.sessions[connection].link else { return Err(Over) };
            let before = link.outgoing().len();
            push(link, self.net.connection(connection));
            let left = link.outgoing().len();
            if left < before {
                took(self);
            }
            self.net.turn();
            if left == 0 {
                return Ok(());
            }
            if !self.net.connection(connection).may_send() {
                return Err(Over);
            }
        }
    }

    /// Ends a session at once, whatever it was about.
    pub fn close(&mut self, connection: usize) {
        self.net.connection(connection).abort();
        self.sessions[connection] = Session::default();
    }

    fn beacon_if_due(&mut self, executive: &Executive) {
        let now_ms = now_ms();
        if now_ms < self.beacon_due_ms || self.net.address().is_none() {
            return;
        }
        self.beacon_due_ms = now_ms + u64::from(self.settings.beacon_pause_ms.max(100));
        let sessions = self.sessions.iter().filter(|session| session.link.as_ref().is_some_and(Link::is_open)).count();
        self.beacon.sequence += 1;
        self.beacon.uptime_ms = now_ms;
        self.beacon.load = Load {
            // At most 8.
            sessions: sessions as u8,
            is_running: false,
            runs: executive.runs(),
            free_bytes: free_bytes(),
        };
        let datagram = self.beacon.sign(&self.side.keys);
        self.net.send_beacon(&datagram, [255; 4], self.settings.beacon_port);
        for to in self.settings.beacon_to.clone() {
            self.net.send_beacon(&datagram, to.address, to.port);
        }
    }
}

/// From the session to the connection, as much as there is room for.
fn push(link: &mut Link, socket: &mut tcp::Socket<'_>) {
    while !link.outgoing().is_empty() {
        match socket.send_slice(link.outgoing()) {
            Ok(sent) if sent > 0 => link.sent(sent),
            _ => return,
        }
    }
}
