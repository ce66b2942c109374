//! Two machines in the same QEMU, emulated: Linux with one program, and our kernel.
//!
//! Both have a processor `max`, 256 MiB, a virtio network card and QEMU's own network. Linux is Debian's kernel for
//! clouds on the board `q35`: on `microvm`, where our kernel is, it finds either no clock (with ACPI) or no card
//! (without).

#[path = "../../linux/modules.rs"]
mod modules;

use super::board::{self, Prepared};
use crate::run::Bench;
use anyhow::{Context as _, bail};
use board_link::{Hash, Settings, hash};
use modules::MODULES;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use unit_metal::finder::Finder;
use unit_metal::qemu::{Machine, free_port};
use unit_metal::session::Session;

const ECHO_PORT: u16 = 7;
const WORK_PORT: u16 = 9_000;
const BOOT_MAX: Duration = Duration::from_secs(60);
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A child that ends with its value.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Qemu {
    fn start(board: &str, card: &str, forwards: &[String], more: &[&Path], line: &[&str]) -> anyhow::Result<Self> {
        let forwards: String = forwards.iter().map(|forward| format!(",hostfwd={forward}")).collect();
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-M", board, "-cpu", "max", "-accel", "tcg", "-m", "256", "-nodefaults", "-no-user-config"])
            .args(["-display", "none", "-serial", "null", "-global", "virtio-mmio.force-legacy=false"])
            .args(["-netdev", &format!("user,id=n0{forwards}"), "-device", card])
            .arg("-kernel")
            .args(more)
            .args(line)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Ok(Self(command.spawn().context("starting qemu-system-x86_64")?))
    }
}

/// What answers datagrams at some port of this machine.
pub struct Echo(UdpSocket);

impl Echo {
    fn to(port: u16) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind(("127.0.0.1", 0))?;
        socket.connect(("127.0.0.1", port))?;
        Ok(Self(socket))
    }

    /// Sends a datagram and waits for the one that answers it.
    pub fn ask(&self, data: &[u8]) -> anyhow::Result<(Duration, Vec<u8>)> {
        self.0.set_read_timeout(Some(ANSWER_MAX))?;
        let mut answer = vec![0; 65_536];
        let began = Instant::now();
        self.0.send(data)?;
        let bytes = self.0.recv(&mut answer)?;
        let took = began.elapsed();
        answer.truncate(bytes);
        Ok((took, answer))
    }

    /// Waits until somebody answers.
    fn wait(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        self.0.set_read_timeout(Some(Duration::from_millis(500)))?;
        while began.elapsed() < BOOT_MAX {
            // A machine that is still starting refuses, or is silent.
            if self.0.send(b"are you there").is_ok() && self.0.recv(&mut [0; 64]).is_ok() {
                std::thread::sleep(Duration::from_secs(1));
                self.0.set_nonblocking(true)?;
                while self.0.recv(&mut [0; 64]).is_ok() {}
                self.0.set_nonblocking(false)?;
                return Ok(());
            }
        }
        bail!("no answer after {} s", BOOT_MAX.as_secs());
    }
}

pub struct Linux {
    pub echo: Echo,
    work: Echo,
    _qemu: Qemu,
}

impl Linux {
    pub fn start(bench: &Bench) -> anyhow::Result<Self> {
        let folder = bench.peers.program("linux")?;
        let mut archive = Archive::default();
        archive.add("init", 0o100_755, &fs::read(folder.join("init"))?);
        for module in MODULES {
            let file = format!("{module}.ko");
            archive.add(&file, 0o100_644, &fs::read(folder.join(&file))?);
        }
        let initramfs = bench.work().join("initramfs");
        fs::write(&initramfs, archive.end())?;
        let (echo, work) = (free_port()?, free_port()?);
        let forwards = [format!("udp:127.0.0.1:{echo}-:{ECHO_PORT}"), format!("udp:127.0.0.1:{work}-:{WORK_PORT}")];
        let more = [&*folder.join("vmlinuz"), Path::new("-initrd"), &*initramfs];
        let card = "virtio-net-pci,netdev=n0,romfile=";
        let qemu = Qemu::start("q35", card, &forwards, &more, &["-append", "quiet panic=-1"])?;
        let machine = Self { echo: Echo::to(echo)?, work: Echo::to(work)?, _qemu: qemu };
        machine.echo.wait().context("Linux")?;
        Ok(machine)
    }

    /// A process for so many rounds: how long until its answer, its digest, and its own CPU time.
    pub fn md5(&self, rounds: u64) -> anyhow::Result<Run> {
        let (took, answer) = self.work.ask(rounds.to_string().as_bytes())?;
        Run::read(took, &answer)
    }
}

/// One chain of digests.
pub struct Run {
    pub took: Duration,
    pub cpu: Duration,
    pub digest: String,
}

impl Run {
    /// `DIGEST NANOSECONDS`.
    pub fn read(took: Duration, said: &[u8]) -> anyhow::Result<Self> {
        let text = String::from_utf8_lossy(said).into_owned();
        let (digest, cpu) = text.split_once(' ').with_context(|| format!("another answer: {text:?}"))?;
        Ok(Self { took, cpu: Duration::from_nanos(cpu.trim().parse()?), digest: digest.to_owned() })
    }
}

/// A newc archive, as the kernel unpacks it.
#[derive(Default)]
pub struct Archive(Vec<u8>);

impl Archive {
    /// The whole of it.
    pub fn end(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.0
    }

    pub fn add(&mut self, name: &str, mode: u32, data: &[u8]) {
        let inode = u32::try_from(self.0.len()).unwrap_or(0);
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(0);
        self.0.extend(b"070701");
        for field in [inode, mode, 0, 0, 1, 0, length(data.len()), 0, 0, 0, 0, length(name.len() + 1), 0] {
            self.0.extend(format!("{field:08x}").bytes());
        }
        self.0.extend(name.bytes().chain([0]));
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// Our kernel on the board `qemu-x86`, with a session and one function on it.
pub struct Board {
    pub echo: Echo,
    session: Session,
    code: Hash,
    number: u64,
    _qemu: Qemu,
}

impl Board {
    pub async fn start(bench: &Bench, guest: &str) -> anyhow::Result<Self> {
        let finder = Finder::listen(0).await?;
        let (link, echo) = (free_port()?, free_port()?);
        let settings = Settings { beacon_pause_ms: 500, echo_port: ECHO_PORT, ..Settings::default() };
        let link_port = settings.link_port;
        let board = Prepared::new(bench, Machine::QemuX86, &finder, link, settings)?;
        let forwards = [format!("tcp:127.0.0.1:{link}-:{link_port}"), format!("udp:127.0.0.1:{echo}-:{ECHO_PORT}")];
        let line = ["-device", "virtio-rng-device"];
        let qemu = Qemu::start("microvm", "virtio-net-device,netdev=n0", &forwards, &[&*board.file], &line)?;
        let goal = board.heard(&finder).await?;
        let mut session = board.session(goal).await?;
        let payload = board::payload(&bench.guest(guest)?, Machine::QemuX86)?;
        let code = hash(&payload);
        session.bring(code, &payload).await?;
        Ok(Self { echo: Echo::to(echo)?, session, code, number: 0, _qemu: qemu })
    }

    /// A call of the function for so many rounds: code is linked, run and dropped again.
    pub async fn md5(&mut self, rounds: u64) -> anyhow::Result<Run> {
        self.number += 1;
        let answer = board::call(&mut self.session, self.code, self.number, &rounds.to_string()).await?;
        Run::read(answer.took, &answer.data)
    }
}
