//! How a benchmark speaks with a board: it is the board's node, which it knows by its settings, and calls one function.

use crate::run::Bench;
use anyhow::{Context as _, bail, ensure};
use board_link::{Destination, Goal, Hash, Image, Keys, Policy, Settings, Stages, seal_payload};
use event::Event;
use frame::{Checksum, Frame, Kind, Limits, Value};
use kernel_code::{Features, Target};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unit_metal::finder::Finder;
use unit_metal::qemu::{HOST_SEEN, Machine};
use unit_metal::session::{BoardSaid, BoardWork, Session};

/// How long a board may take until it is heard.
const BOOT_MAX: Duration = Duration::from_secs(60);
const SEED: [u8; 32] = [7; 32];

fn node() -> Keys {
    Keys::from_seed(&[1; 32])
}

fn signer() -> Keys {
    Keys::from_seed(&[2; 32])
}

/// A kernel with its settings, as a file.
pub struct Prepared {
    pub file: PathBuf,
    /// The port of this machine that leads to the board's.
    link: u16,
    kernel: Hash,
}

impl Prepared {
    /// It is heard by `finder`, and found at the port `link` of this machine.
    pub fn new(
        bench: &Bench,
        machine: Machine,
        finder: &Finder,
        link: u16,
        settings: Settings,
    ) -> anyhow::Result<Self> {
        let settings = Settings {
            name: "bench".to_owned(),
            seed: SEED,
            link_port_seen: link,
            beacon_to: vec![Destination { address: HOST_SEEN, port: finder.port() }],
            nodes: vec![node().channel_public()],
            signers: vec![signer().id().0],
            ..settings
        };
        let image = Image::read(unit_metal::kernel(machine)).map_err(|fault| anyhow::anyhow!("{fault}"))?;
        let kernel = image.kernel();
        let file = bench.work().join("board");
        std::fs::write(&file, image.with(&settings).map_err(|fault| anyhow::anyhow!("{fault}"))?.elf())?;
        Ok(Self { file, link, kernel })
    }

    /// Waits for its first beacon: what a session with it is for.
    pub async fn heard(&self, finder: &Finder) -> anyhow::Result<Goal> {
        let id = Keys::from_seed(&SEED).id();
        let heard = tokio::time::timeout(BOOT_MAX, finder.wait(&id, |_| true)).await;
        let beacon = heard.context("no beacon of the board")?.beacon;
        let policy = Policy { kernels: vec![self.kernel], accepts_software_root: true };
        Ok(Goal { board: beacon.board, channel_key: beacon.channel_key, boot: beacon.boot, policy })
    }

    pub async fn session(&self, goal: Goal) -> anyhow::Result<Session> {
        Ok(Session::open("bench", ([127, 0, 0, 1], self.link).into(), &node(), goal).await?)
    }
}

/// A component, compiled for the board and signed by its node.
pub fn payload(component: &[u8], machine: Machine) -> anyhow::Result<Vec<u8>> {
    let target = match machine {
        Machine::QemuX86 => Target::X86_64(Features::default()),
        Machine::QemuArm | Machine::Raspi3b => Target::Aarch64,
    };
    let compiled = kernel_code::compile(component, target)?;
    Ok(seal_payload(&compiled, &board_link::format_of(target.as_str()), &signer()))
}

/// What one call took and was answered with.
pub struct Answer {
    pub took: Duration,
    pub stages: Stages,
    pub data: Vec<u8>,
}

/// Calls the function whose code the board has; `id` is a call's number in its session.
pub async fn call(session: &mut Session, code: Hash, id: u64, data: &str) -> anyhow::Result<Answer> {
    let event = Event { kind: "bench".into(), attempt: 1, data: data.into(), ..Event::default() };
    let body = frame::event_body(&event).map_err(|error| anyhow::anyhow!("{error}"))?;
    let limits = Limits::default();
    let frame = Frame { kind: Kind::Call, id: 1, body }.encode(Checksum::Front, &limits);
    let event = frame.map_err(|error| anyhow::anyhow!("{error}"))?.to_vec();
    let run_max = Duration::from_secs(60);
    let began = Instant::now();
    let work = BoardWork { id, code, may: 0, run_max, memory_bytes_max: 64 << 20, now_ms: 1_700_000_000_000, event };
    session.call(work).await?;
    let BoardSaid::Replied { stages, frame } = session.said(id).await? else { bail!("the board asks for something") };
    let took = began.elapsed();
    let reply = Frame::decode(&frame, &limits).map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(reply.kind == Kind::Reply, "the board's function failed: {:?}", reply.body);
    match reply.body {
        Value::Buffer(data) | Value::Bytes(data) => Ok(Answer { took, stages, data: data.to_vec() }),
        other => bail!("another reply: {other:?}"),
    }
}
