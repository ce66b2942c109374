//! What beacons of all kinds do to a node: boards of ours that are keys and sockets, and no machines.

use super::*;
use board_link::{Beacon, Keys, Load, Machine};
use std::net::UdpSocket;
use std::time::Duration;

const KERNEL: board_link::Hash = [1; 32];

/// A node that has enrolled one board, and listens.
struct Bench {
    class: MetalClass,
    /// Of the board.
    keys: Keys,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let class = MetalClass::new(folder.path()).unwrap();
        let settings = class.shared.enrolled.enrol("shed", "qemu-arm", KERNEL).unwrap();
        class.listen(0).await.unwrap();
        Self { class, keys: Keys::from_seed(&settings.seed), _folder: folder }
    }

    fn finder(&self) -> &Finder {
        self.class.shared.finder.get().unwrap()
    }

    /// Somebody who sends beacons to the node.
    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", self.finder().port())).unwrap();
        socket
    }

    /// Of this life of the board, which takes sessions at this port.
    fn beacon(&self, boot: u8, sequence: u32, link_port: u16) -> Vec<u8> {
        let beacon = Beacon {
            board: self.keys.id(),
            channel_key: self.keys.channel_public(),
            boot: [boot; 16],
            sequence,
            uptime_ms: 1_000,
            kernel: KERNEL,
            link_port,
            name: "shed".into(),
            machine: Machine { board: "qemu-arm".into(), architecture: "aarch64".into(), memory_bytes: 256 << 20 },
            formats: Vec::new(),
            load: Load::default(),
        };
        beacon.sign(&self.keys)
    }
}

/// Nobody had told the finder which boards are enrolled: strangers took what it checks in a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_forgeries_does_not_silence_a_board_that_is_enrolled() {
    let bench = Bench::new().await;
    let (board, stranger) = (bench.socket(), bench.socket());
    // Nobody takes sessions there.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut forgery = bench.beacon(1, 1_000, nowhere);
    *forgery.last_mut().unwrap() ^= 1;
    board.send(&bench.beacon(1, 1, nowhere)).unwrap();
    bench.finder().wait(&bench.keys.id(), |_| true).await;
    for second in 1..=6 {
        // So many at once that the system has room for them.
        for _ in 0..10 {
            (0..40).for_each(|_| _ = stranger.send(&forgery));
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
        board.send(&bench.beacon(1, 1 + second, nowhere)).unwrap();
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    let described = bench.class.describe().await.unwrap();
    assert_eq!(described.iter().map(|board| (&*board.name, board.state)).collect::<Vec<_>>(), [("shed", "heard")]);
}
