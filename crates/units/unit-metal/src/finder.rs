//! Listens for beacons, and remembers which boards were heard, where and when.

use board_link::{BEACON_BYTES_MAX, BoardId, Heard, Sighting, Sightings};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::watch;

/// A board that has not been heard for so long is taken for gone.
pub const SILENT_AFTER: Duration = Duration::from_secs(5);

/// The boards that were heard. Cheap to clone; listens until the last one is dropped.
#[derive(Clone)]
pub struct Finder {
    lookout: Arc<Lookout>,
    heard: watch::Receiver<u64>,
}

/// Takes in the beacons that come to its port.
struct Lookout {
    sightings: Mutex<Sightings<SocketAddr>>,
    enrolled: Mutex<BTreeSet<BoardId>>,
    began: Instant,
    port: u16,
}

impl Finder {
    /// Listens on this UDP port of every address. 0: any port.
    ///
    /// # Errors
    /// The port is taken, or may not be used.
    pub async fn listen(port: u16) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
        let port = socket.local_addr()?.port();
        let (tell, heard) = watch::channel(0);
        let lookout = Lookout { sightings: Mutex::default(), enrolled: Mutex::default(), began: Instant::now(), port };
        let lookout = Arc::new(lookout);
        let weak = Arc::downgrade(&lookout);
        tokio::spawn(async move {
            // One byte more than the longest: what fills it all is too long.
            let mut datagram = [0; BEACON_BYTES_MAX + 1];
            loop {
                let received = socket.recv_from(&mut datagram).await;
                let Some(lookout) = weak.upgrade() else { return };
                // An error of one datagram says nothing of the next; but it must not be a loop.
                let Ok((bytes, from)) = received else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                lookout.hear(&datagram[..bytes], from);
                tell.send_modify(|count| *count += 1);
            }
        });
        Ok(Self { lookout, heard })
    }

    pub fn port(&self) -> u16 {
        self.lookout.port
    }

    /// These boards never lose their place to strangers.
    pub fn enroll(&self, boards: impl IntoIterator<Item = BoardId>) {
        *self.lookout.enrolled.lock() = boards.into_iter().collect();
    }

    /// What was heard of a board, and how long ago.
    pub fn seen(&self, board: &BoardId) -> Option<(Sighting<SocketAddr>, Duration)> {
        let now_ms = self.lookout.now_ms();
        let seen = self.lookout.sightings.lock().get(board).cloned()?;
        let ago = Duration::from_millis(now_ms.saturating_sub(seen.heard_ms));
        Some((seen, ago))
    }

    /// All boards, with how long ago each was heard.
    pub fn all(&self) -> Vec<(Sighting<SocketAddr>, Duration)> {
        let now_ms = self.lookout.now_ms();
        let sightings = self.lookout.sightings.lock();
        sightings
            .all()
            .map(|seen| (seen.clone(), Duration::from_millis(now_ms.saturating_sub(seen.heard_ms))))
            .collect()
    }

    /// Waits for a beacon of this board that satisfies `is_it`.
    pub async fn wait(&self, board: &BoardId, is_it: impl Fn(&Sighting<SocketAddr>) -> bool) -> Sighting<SocketAddr> {
        let mut heard = self.heard.clone();
        loop {
            if let Some((seen, _)) = self.seen(board).filter(|(seen, _)| is_it(seen)) {
                return seen;
            }
            if heard.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Lookout {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn hear(&self, datagram: &[u8], from: SocketAddr) {
        let enrolled = self.enrolled.lock();
        let heard = self.sightings.lock().hear(datagram, from, self.now_ms(), |board| enrolled.contains(board));
        if let Heard::New(board) = heard {
            tracing::debug!(%board, %from, "a board was heard");
        }
    }
}
