//! The checks of all classes, on a board in QEMU that a node has enrolled, as `lighter boot` does it.

use board_link::{Goal, Image};
use checks::{Images, Running, Trait};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};
use unit_metal::MetalClass;
use unit_metal::enrolled::{Enrolled, EnrolledBoard, host_destination};
use unit_metal::finder::Finder;
use unit_metal::qemu::{self, Machine};
use unit_metal::session::Session;

const MACHINE: Machine = Machine::QemuArm;
const NAME: &str = "checked";
/// It sends several beacons in this time.
const HEARD: Duration = Duration::from_secs(1);
/// A board that hangs starts again within a few seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The board as somebody beside the node sees it.
struct Board {
    enrolled: Enrolled,
    entry: EnrolledBoard,
    finder: Finder,
    _qemu: tokio::process::Child,
}

impl Board {
    async fn start(folder: &std::path::Path, beacon_port: u16) -> Self {
        let enrolled = Enrolled::open(&folder.join("boards")).unwrap();
        let finder = Finder::listen(0).await.unwrap();
        let image = Image::read(unit_metal::kernel(MACHINE)).unwrap();
        let mut settings = enrolled.enrol(NAME, MACHINE.as_str(), image.kernel()).unwrap();
        settings.link_port_seen = qemu::free_port().unwrap();
        settings.beacon_pause_ms = 200;
        // An emulated board takes its time, and how long a run takes is not what the checks are about.
        settings.run_ms_max = 600_000;
        settings.beacon_to = [beacon_port, finder.port()].map(host_destination).into();
        let file = folder.join("image");
        std::fs::write(&file, image.with(&settings).unwrap().elf()).unwrap();
        let start = qemu::Start {
            machine: MACHINE,
            image: &file,
            memory_mb: 256,
            link_port: settings.link_port_seen,
            board_port: settings.link_port,
            console: None,
            kvm: false,
            slip: None,
            wire: None,
        };
        let qemu = qemu::start(&start).unwrap();
        let entry = enrolled.all().unwrap().remove(0);
        Self { enrolled, entry, finder, _qemu: qemu }
    }

    /// Waits until it takes sessions: it starts, or starts again after it has hung.
    async fn settles(&self) {
        let began = Instant::now();
        loop {
            // A call of some length ends before the board is heard again.
            let Some((seen, _)) = self.finder.seen(&self.entry.id).filter(|(_, ago)| *ago < HEARD) else {
                assert!(began.elapsed() < PATIENCE, "it is not heard");
                tokio::time::sleep(HEARD / 10).await;
                continue;
            };
            let EnrolledBoard { id, channel_key, .. } = self.entry;
            let goal = Goal { board: id, channel_key, boot: seen.beacon.boot, policy: self.entry.policy() };
            let mut address = seen.address;
            address.set_port(seen.beacon.link_port);
            match Session::open(NAME, address, self.enrolled.keys(), goal).await {
                Ok(session) => return session.end().await,
                Err(problem) => assert!(began.elapsed() < PATIENCE, "{problem}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metal_class_passes_every_check_that_a_board_can() {
    if MACHINE.find().is_none() {
        println!("skipped: qemu: the checks of the metal class: {} is not installed", MACHINE.program());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let beacon_port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let board = Arc::new(Board::start(folder.path(), beacon_port).await);
    let class = MetalClass::new(&folder.path().join("boards")).unwrap();
    class.listen(beacon_port).await.unwrap();
    let settles = || -> Running<'static> {
        let board = board.clone();
        Box::pin(async move { board.settles().await })
    };
    let images = Images {
        hello: include_bytes!("../../../../guests/prebuilt/hello.wasm"),
        counter: include_bytes!("../../../../guests/prebuilt/counter.wasm"),
        attack: include_bytes!("../../../../guests/prebuilt/attack.wasm"),
        attack_source: "lib.rs:",
        dumps: false,
        lacks: &[
            Trait::Start,
            Trait::Reuse,
            Trait::CpuTime,
            Trait::Stop,
            Trait::SideBySide,
            Trait::SourceLines,
            Trait::Wasi,
        ],
        wasi: None,
        settles: &settles,
    };
    checks::run(&class, &images, folder.path()).await;
}
