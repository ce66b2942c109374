//! Packets: smoltcp between a network card and the sockets a board has, all of a fixed number and size.

use crate::{Card, Nic};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use board_link::{Network, Settings};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet};
use smoltcp::socket::{dhcpv4, tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint, Ipv4Address, Ipv4Cidr};

/// Connections at once, those that are only half there included.
pub const CONNECTIONS_MAX: usize = 8;
const BUFFER_BYTES: usize = 64 << 10;
/// Packets taken in before anything else has its turn.
const PACKETS_A_TURN: usize = 64;
const DATAGRAMS_MAX: usize = 8;
const ECHOES_MAX: usize = 64;
const ECHO_BYTES: usize = 64 << 10;
/// Without an answer from the other end. Longer than the longest run the default settings allow.
const SILENCE_MAX: Duration = Duration::from_secs(90);

pub struct Net {
    card: Card<dyn Nic>,
    interface: Interface,
    sockets: SocketSet<'static>,
    beacons: SocketHandle,
    dhcp: Option<SocketHandle>,
    connections: Vec<SocketHandle>,
    echo: Option<SocketHandle>,
    link_port: u16,
    now_ns: fn() -> u64,
}

impl Net {
    /// `seed` makes sequence numbers and ports hard to guess; `now_ns` is the clock.
    pub fn new(nic: Box<dyn Nic>, settings: &Settings, seed: u64, now_ns: fn() -> u64) -> Self {
        let address = nic.ethernet_address();
        let hardware = address.map_or(HardwareAddress::Ip, |address| EthernetAddress(address).into());
        let mut card = Card(nic);
        let mut config = Config::new(hardware);
        config.random_seed = seed;
        let interface = Interface::new(config, &mut card, instant(now_ns));
        let mut sockets = SocketSet::new(Vec::new());
        let datagrams = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; DATAGRAMS_MAX], vec![0; 8 << 10]);
        let mut beacons = udp::Socket::new(datagrams(), datagrams());
        // A port that is not 0 can be bound once.
        let _ = beacons.bind(settings.beacon_port);
        let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER_BYTES]);
        let connections = (0..CONNECTIONS_MAX).map(|_| sockets.add(tcp::Socket::new(buffer(), buffer()))).collect();
        let mut net = Self {
            beacons: sockets.add(beacons),
            dhcp: None,
            connections,
            echo: None,
            link_port: settings.link_port,
            now_ns,
            card,
            interface,
            sockets,
        };
        if settings.echo_port != 0 {
            let datagrams =
                || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; ECHOES_MAX], vec![0; ECHO_BYTES]);
            let mut echo = udp::Socket::new(datagrams(), datagrams());
            let _ = echo.bind(settings.echo_port);
            net.echo = Some(net.sockets.add(echo));
        }
        match settings.network {
            Network::Dhcp if address.is_some() => net.dhcp = Some(net.sockets.add(dhcpv4::Socket::new())),
            // Nobody on a serial line gives addresses away: the board stays without one.
            Network::Dhcp => {}
            Network::Static { address, prefix, gateway } => {
                let address = Ipv4Cidr::new(Ipv4Address::from(address), prefix);
                net.set_address(Some((address, gateway.map(Ipv4Address::from))));
            }
        }
        net
    }

    /// Lets packets in and out; says whether there were any.
    pub fn turn(&mut self) -> bool {
        let now = instant(self.now_ns);
        let mut is_busy = self.card.0.is_receiving();
        for _ in 0..PACKETS_A_TURN {
            match self.interface.poll_ingress_single(now, &mut self.card, &mut self.sockets) {
                PollIngressSingleResult::None => break,
                _ => is_busy = true,
            }
        }
        self.echo();
        self.interface.poll_egress(now, &mut self.card, &mut self.sockets);
        self.interface.poll_maintenance(now);
        // Nobody has anything to say to us where beacons come from.
        while self.sockets.get_mut::<udp::Socket<'_>>(self.beacons).recv().is_ok() {}
        if let Some(handle) = self.dhcp {
            let lease = match self.sockets.get_mut::<dhcpv4::Socket<'_>>(handle).poll() {
                Some(dhcpv4::Event::Configured(lease)) => Some(Some((lease.address, lease.router))),
                Some(dhcpv4::Event::Deconfigured) => Some(None),
                None => None,
            };
            if let Some(lease) = lease {
                self.set_address(lease);
            }
        }
        is_busy
    }

    pub fn address(&self) -> Option<Ipv4Address> {
        self.interface.ipv4_addr()
    }

    pub fn send_beacon(&mut self, beacon: &[u8], address: [u8; 4], port: u16) {
        let to = IpEndpoint::new(IpAddress::Ipv4(Ipv4Address::from(address)), port);
        // Where there is no room, the next one says the same.
        let _ = self.sockets.get_mut::<udp::Socket<'_>>(self.beacons).send_slice(beacon, to);
    }

    /// One of the connections, by number.
    pub fn connection(&mut self, number: usize) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.connections[number])
    }

    /// Waits for whoever connects next.
    pub fn listen(&mut self, number: usize) {
        let port = self.link_port;
        let socket = self.connection(number);
        socket.set_timeout(Some(SILENCE_MAX));
        socket.set_nagle_enabled(false);
        // The port is not 0, and the socket is closed.
        let _ = socket.listen(port);
    }

    /// Sends what came to the echo's port back to where it came from.
    fn echo(&mut self) {
        let Some(echo) = self.echo else { return };
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(echo);
        while socket.can_send() {
            let Ok((datagram, from)) = socket.recv().map(|(bytes, from)| (bytes.to_vec(), from.endpoint)) else {
                return;
            };
            let _ = socket.send_slice(&datagram, from);
        }
    }

    fn set_address(&mut self, lease: Option<(Ipv4Cidr, Option<Ipv4Address>)>) {
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            if let Some((address, _)) = lease {
                let _ = addresses.push(IpCidr::Ipv4(address));
            }
        });
        self.interface.routes_mut().remove_default_ipv4_route();
        if let Some((_, Some(router))) = lease {
            let _ = self.interface.routes_mut().add_default_ipv4_route(router);
        }
    }
}

fn instant(now_ns: fn() -> u64) -> Instant {
    Instant::from_micros((now_ns() / 1_000) as i64)
}
