//! What beacons of all kinds do to a node: boards of ours that are keys and sockets, and no machines.

use super::*;
use board_link::{Beacon, BoardSide, Keys, Link, LinkFault, Load, Machine};
use std::net::UdpSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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

    /// The board in this life, which opens sessions and says nothing in them; it ends when it is dropped.
    fn board(&self, boot: u8, listener: Arc<TcpListener>) -> tokio::task::JoinSet<()> {
        let side = Arc::new(BoardSide {
            keys: self.keys.clone(),
            nodes: vec![self.class.shared.enrolled.keys().channel_public()],
            boot: [boot; 16],
            kernel: KERNEL,
            message_bytes_max: 1 << 20,
        });
        let mut lives = tokio::task::JoinSet::new();
        lives.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Whoever asks for another life of it is not answered.
                let _ = open(stream, side.clone()).await;
            }
        });
        lives
    }
}

/// The board's part of one session, until the node ends it.
async fn open(mut stream: TcpStream, side: Arc<BoardSide>) -> Result<(), LinkFault> {
    let (mut link, mut bytes) = (Link::accept(side, [4; 32], 0), [0; 4_096]);
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        let mut arrived = &bytes[..count];
        while !arrived.is_empty() {
            arrived = &arrived[link.receive(arrived)?..];
            link.read(0)?;
        }
        let answer = link.outgoing().to_vec();
        link.sent(answer.len());
        if stream.write_all(&answer).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Nobody had told the finder which boards are enrolled: strangers took what it checks in a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_forgeries_does_not_silence_a_board_that_is_enrolled() {
    let bench = Bench::new().await;
    let (board, stranger) = (bench.socket(), bench.socket());
    // Nobody takes sessions there.
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
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

/// One beacon of an earlier life, kept and sent again by anybody, ended the call that was at work on the board.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replayed_beacon_ends_no_call_and_a_restart_does() {
    let bench = Bench::new().await;
    let (shared, finder) = (&bench.class.shared, bench.finder());
    let (board, stranger) = (bench.socket(), bench.socket());
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let port = listener.local_addr().unwrap().port();
    let mut life = bench.board(2, listener.clone());
    board.send(&bench.beacon(2, 1, port)).unwrap();
    finder.wait(&bench.keys.id(), |seen| seen.beacon.boot == [2; 16]).await;
    let [entry] = &shared.entries().unwrap()[..] else { panic!("one board") };
    let candidate = shared.candidate(entry).unwrap();
    let restarted = shared.restarted(&candidate);
    tokio::pin!(restarted);
    // Of a life that is over, and of one that has not begun.
    for (boot, sequence) in [(1, 1_000), (3, 1)] {
        stranger.send(&bench.beacon(boot, sequence, port)).unwrap();
        let not_yet = tokio::time::timeout(Duration::from_secs(1), &mut restarted).await;
        assert!(not_yet.is_err(), "the board is still in its second life, and not in {boot}");
        assert_eq!(finder.seen(&bench.keys.id()).unwrap().0.beacon.boot, [boot; 16]);
    }
    life.shutdown().await;
    let _life = bench.board(3, listener);
    board.send(&bench.beacon(3, 2, port)).unwrap();
    tokio::time::timeout(Duration::from_secs(20), restarted).await.expect("it has started again");
}
