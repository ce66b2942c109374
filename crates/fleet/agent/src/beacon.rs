//! The beacon's two sockets: an anchor answers who asks, a new node asks its networks. Bytes are in `fleet-trust`.

use fleet_trust::beacon::{ASK_BYTES, ASKS, HERE_BYTES_MAX, Here, ask, is_near, read_ask};
use fleet_trust::door::{Pace, Source};
use fleet_trust::{FleetId, random};
use problem::{Code, Problem};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout_at};

/// Where anchors listen, unless they were told otherwise.
pub const PORT: u16 = 8_702;
/// When a new node asks, counted from the beginning: the network may lose a datagram.
const ASKED_AT: [Duration; 3] = [Duration::ZERO, Duration::from_millis(300), Duration::from_millis(800)];
/// How long it waits for answers in all.
const ANSWERED_BY: Duration = Duration::from_millis(1_500);
/// Anchors that are looked at. Further answers are dropped.
const FOUND_MAX: usize = 32;
/// Networks that are asked. Further ones are not.
const NETWORKS_MAX: usize = 16;
/// The pause after the system refused to read, as it does where memory has run out.
const READ_PAUSE: Duration = Duration::from_millis(50);

/// Answers who asks and is near, for as long as it lives.
pub async fn answer(socket: UdpSocket, here: Here) {
    let mut pace = Pace::new(ASKS, Instant::now());
    // One byte more than a question has: a longer datagram is none.
    let mut bytes = [0; ASK_BYTES + 1];
    loop {
        let Ok((count, from)) = socket.recv_from(&mut bytes).await else {
            sleep(READ_PAUSE).await;
            continue;
        };
        let Some(echo) = read_ask(&bytes[..count]).filter(|_| is_near(from.ip())) else { continue };
        if pace.admits(Source::of(from.ip()), Instant::now()) {
            // Who cannot be reached asks again.
            let _ = socket.send_to(&here.write(&echo), from).await;
        }
    }
}

/// Asks these addresses, most of them of whole networks, which anchors are there. Each fleet's anchors by the address
/// from which they answered.
///
/// # Errors
/// [`Code::ListenFailed`]: the system gives no socket.
pub async fn seek(asked: &[SocketAddr]) -> Result<BTreeMap<SocketAddr, (FleetId, String)>, Problem> {
    let failed = |error| Problem::new(Code::ListenFailed, format!("a socket to look for anchors: {error}"));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.map_err(failed)?;
    socket.set_broadcast(true).map_err(failed)?;
    let (echo, began) = (random()?, tokio::time::Instant::now());
    let mut found = BTreeMap::new();
    let mut bytes = [0; HERE_BYTES_MAX + 1];
    for (round, at) in ASKED_AT.iter().enumerate() {
        timeout_at(began + *at, collect(&socket, &echo, &mut bytes, &mut found)).await.ok();
        if round > 0 && !found.is_empty() {
            // Whoever answers has heard the first question; another fleet has until the end to do so.
            break;
        }
        for to in asked {
            // A network without a route is no network of this machine.
            let _ = socket.send_to(&ask(&echo), to).await;
        }
    }
    timeout_at(began + ANSWERED_BY, collect(&socket, &echo, &mut bytes, &mut found)).await.ok();
    Ok(found)
}

/// Never ends by itself.
async fn collect(
    socket: &UdpSocket,
    echo: &[u8; 16],
    bytes: &mut [u8],
    found: &mut BTreeMap<SocketAddr, (FleetId, String)>,
) {
    loop {
        let Ok((count, from)) = socket.recv_from(bytes).await else {
            sleep(READ_PAUSE).await;
            continue;
        };
        let Some(Here { fleet, name, port }) = Here::read(&bytes[..count], echo) else { continue };
        let address = SocketAddr::new(from.ip(), port);
        if found.len() < FOUND_MAX || found.contains_key(&address) {
            found.insert(address, (fleet, name));
        }
    }
}

/// What a new node asks: this machine, and all of each network that it is in.
pub fn around() -> Vec<SocketAddr> {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let networks = networks(&routes).into_iter().take(NETWORKS_MAX);
    let all = [Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST].into_iter().chain(networks);
    all.map(|address| SocketAddr::from((address, PORT))).collect()
}

/// The broadcast addresses of the networks that need no router, from the system's table of routes.
fn networks(routes: &str) -> Vec<Ipv4Addr> {
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok().map(u32::from_be);
        let (network, router, mask) = (number(1)?, number(2)?, number(7)?);
        // One machine is no network, and everything is none either.
        let is_network = router == 0 && mask != 0 && mask.leading_ones() < 31;
        is_network.then(|| Ipv4Addr::from(network | !mask))
    };
    let mut networks: Vec<Ipv4Addr> = routes.lines().skip(1).filter_map(of_line).collect();
    networks.sort_unstable();
    networks.dedup();
    networks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_without_a_router_are_asked() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
            wlan0\t0001A8C0\t00000000\t0001\t0\t0\t600\t00FFFFFF\t0\t0\t0\n\
            tun0\t0100000A\t00000000\t0001\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n\
            eth1\t0000140A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
            garbled\t1\n";
        let networks = networks(routes);
        assert_eq!(networks, [Ipv4Addr::new(10, 20, 255, 255), Ipv4Addr::new(192, 168, 1, 255)]);
    }
}
