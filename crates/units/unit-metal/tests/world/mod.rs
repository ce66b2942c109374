//! What the tests share: boards in QEMU, built from `kernel/`, and a node that talks to them.
#![allow(dead_code, reason = "each test file uses a part")]

use board_link::{Boot, Destination, Goal, Hash, Image, Keys, Policy, Settings, Sighting, Stages, hash, seal_payload};
use event::Event;
use frame::{Checksum, Frame, Kind, Limits, Value};
use kernel_code::{Features, Target};
use problem::Problem;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;
use unit_metal::finder::Finder;
use unit_metal::line::{self, Gateway};
use unit_metal::qemu::{self, HOST_SEEN, Machine};
use unit_metal::session::{BoardSaid, BoardWork, Session};

pub const HELLO: &str = "hello";
pub const ATTACK: &str = "attack";
const SEED: [u8; 32] = [7; 32];

pub fn node() -> Keys {
    Keys::from_seed(&[1; 32])
}

pub fn signer() -> Keys {
    Keys::from_seed(&[2; 32])
}

/// A board that runs.
pub struct Board {
    pub machine: Machine,
    pub kernel: Hash,
    pub finder: Finder,
    pub link_port: u16,
    pub folder: tempfile::TempDir,
    /// Raw frames go in here.
    pub wire: UdpSocket,
    _gateway: Option<Gateway>,
    _qemu: tokio::process::Child,
}

pub struct Reply {
    pub frame: Vec<u8>,
    pub stages: Stages,
    pub lines: Vec<String>,
}

impl Board {
    /// None: this machine has no QEMU for it, which is said.
    pub async fn start(machine: Machine, settings: Settings) -> Option<Self> {
        if machine.find().is_none() {
            println!("skipped: qemu: the board {}: {} is not installed", machine.as_str(), machine.program());
            return None;
        }
        let finder = Finder::listen(0).await.unwrap();
        let link_port = qemu::free_port().unwrap();
        let settings = Settings {
            name: format!("test-{}", machine.as_str()),
            seed: SEED,
            link_port_seen: link_port,
            beacon_pause_ms: 200,
            beacon_to: vec![Destination { address: HOST_SEEN, port: finder.port() }],
            nodes: vec![node().channel_public()],
            signers: vec![signer().id().0],
            ..settings
        };
        let mut settings = settings;
        let folder = tempfile::tempdir().unwrap();
        let line = (machine == Machine::Raspi3b).then(|| folder.path().join("line"));
        let listener = line.as_ref().map(|_| TcpListener::bind(("127.0.0.1", link_port)).unwrap());
        if line.is_some() {
            settings.beacon_to = line::make(&mut settings, finder.port());
        }
        let image = Image::read(unit_metal::kernel(machine)).unwrap();
        let kernel = image.kernel();
        let file = folder.path().join("image");
        std::fs::write(&file, image.with(&settings).unwrap().elf()).unwrap();
        let console = folder.path().join("console");
        let wire = UdpSocket::bind("127.0.0.1:0").unwrap();
        let reserved = UdpSocket::bind("127.0.0.1:0").unwrap();
        let ports =
            qemu::Wire { board: reserved.local_addr().unwrap().port(), here: wire.local_addr().unwrap().port() };
        wire.connect(("127.0.0.1", ports.board)).unwrap();
        drop(reserved);
        let start = qemu::Start {
            machine,
            image: &file,
            memory_mb: 256,
            link_port,
            board_port: settings.link_port,
            console: Some(&console),
            kvm: false,
            slip: line.as_deref(),
            wire: (machine != Machine::Raspi3b).then_some(ports),
        };
        let qemu = qemu::start(&start).unwrap();
        let gateway = listener.map(|listener| {
            Gateway::start(line.as_ref().unwrap(), listener, settings.link_port, finder.port()).unwrap()
        });
        Some(Self { machine, kernel, finder, link_port, folder, wire, _gateway: gateway, _qemu: qemu })
    }

    pub async fn heard(&self) -> Sighting<SocketAddr> {
        let id = Keys::from_seed(&SEED).id();
        let heard = tokio::time::timeout(Duration::from_secs(20), self.finder.wait(&id, |_| true)).await;
        heard.unwrap_or_else(|_| panic!("no beacon; its console:\n{}", self.console()))
    }

    /// Waits until it is heard again after a restart.
    pub async fn heard_after(&self, boot: Boot) -> Sighting<SocketAddr> {
        let id = Keys::from_seed(&SEED).id();
        let heard = self.finder.wait(&id, |seen| seen.beacon.boot != boot);
        let heard = tokio::time::timeout(Duration::from_secs(20), heard).await;
        heard.unwrap_or_else(|_| panic!("it did not come back; its console:\n{}", self.console()))
    }

    pub fn console(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("console")).unwrap_or_default()
    }

    pub fn goal(&self, seen: &Sighting<SocketAddr>) -> Goal {
        let policy = Policy { kernels: vec![self.kernel], accepts_software_root: true };
        let beacon = &seen.beacon;
        Goal { board: beacon.board, channel_key: beacon.channel_key, boot: beacon.boot, policy }
    }

    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.link_port).into()
    }

    pub async fn session(&self) -> Result<Session, Problem> {
        let seen = self.heard().await;
        Session::open(self.machine.as_str(), self.address(), &node(), self.goal(&seen)).await
    }

    /// Compiles a guest for the board and brings it there.
    pub async fn bring(&self, session: &mut Session, guest: &str) -> Result<Hash, Problem> {
        let payload = payload(self.machine, guest);
        let code = hash(&payload);
        session.bring(code, &payload).await.map(|()| code)
    }
}

pub fn payload(machine: Machine, guest: &str) -> Vec<u8> {
    let target = target(machine);
    seal_payload(&compiled(target, guest), &board_link::format_of(target.as_str()), &signer())
}

pub fn target(machine: Machine) -> Target {
    match machine {
        Machine::QemuX86 => Target::X86_64(Features::default()),
        Machine::QemuArm | Machine::Raspi3b => Target::Aarch64,
    }
}

pub fn compiled(target: Target, guest: &str) -> Vec<u8> {
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../guests/prebuilt/{guest}.wasm"));
    kernel_code::compile(&std::fs::read(image).unwrap(), target).unwrap()
}

/// An event, as the frame of a call.
pub fn event(data: &[u8]) -> Vec<u8> {
    let event = Event {
        id: "1".into(),
        source: "/test".into(),
        kind: "test".into(),
        attempt: 1,
        data: data.into(),
        ..Event::default()
    };
    let body = frame::event_body(&event).unwrap();
    Frame { kind: Kind::Call, id: 1, body }.encode(Checksum::Front, &Limits::default()).unwrap().to_vec()
}

/// One call; every question of the function is answered with null.
pub async fn run(session: &mut Session, code: Hash, event: Vec<u8>, run_max: Duration) -> Result<Reply, Problem> {
    let work =
        BoardWork { id: 9, code, may: u64::MAX, run_max, memory_bytes_max: 64 << 20, now_ms: 1_700_000_000_000, event };
    session.call(work).await?;
    let mut lines = Vec::new();
    loop {
        match session.said(9).await? {
            BoardSaid::Asks { frame, .. } => {
                let id = Frame::decode(&frame, &Limits::default()).unwrap().id;
                let answer = Frame { kind: Kind::Reply, id, body: Value::Null };
                session.answer(answer.encode(Checksum::Front, &Limits::default()).unwrap().to_vec()).await?;
            }
            BoardSaid::Line { line, .. } => lines.push(line),
            BoardSaid::Replied { stages, frame } => return Ok(Reply { frame, stages, lines }),
        }
    }
}

/// What a function that failed is said to have done.
pub fn failure_of(reply: &[u8]) -> String {
    let frame = Frame::decode(reply, &Limits::default()).unwrap();
    assert_eq!(frame.kind, Kind::Failure);
    match frame.body.get("kind") {
        Some(Value::Str(kind)) => (*kind).to_owned(),
        other => panic!("no failure: {other:?}"),
    }
}

pub fn data_of(reply: &[u8]) -> Vec<u8> {
    let frame = Frame::decode(reply, &Limits::default()).unwrap();
    match frame.body {
        Value::Buffer(data) | Value::Bytes(data) => data.to_vec(),
        other => panic!("no reply: {other:?}"),
    }
}
