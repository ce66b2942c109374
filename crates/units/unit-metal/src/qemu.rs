//! Boards in QEMU, to try out and to test: the machine, its devices, and the way its packets take.

use problem::{Code, Problem};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::{Child, Command};

/// How the host's network looks to a board behind QEMU's own.
pub const HOST_SEEN: [u8; 4] = [10, 0, 2, 2];

/// A kind of board QEMU has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    QemuArm,
    QemuX86,
    Raspi3b,
}

/// One that is to be started.
#[derive(Debug)]
pub struct Start<'a> {
    pub machine: Machine,
    pub image: &'a Path,
    pub memory_mb: u32,
    /// Of this machine; connections to it go to the board's own.
    pub link_port: u16,
    pub board_port: u16,
    /// The board's console goes there; none: nowhere.
    pub console: Option<&'a Path>,
    /// Uses KVM where the board's processor is the machine's.
    pub kvm: bool,
    /// A Pi's second serial line, which carries its packets.
    pub slip: Option<&'a Path>,
    /// Another way into the board's network: Ethernet frames, each in a UDP datagram to and from these ports here.
    pub wire: Option<Wire>,
}

/// Ports of 127.0.0.1.
#[derive(Debug, Clone, Copy)]
pub struct Wire {
    /// QEMU takes frames here.
    pub board: u16,
    /// And sends them there.
    pub here: u16,
}

impl Machine {
    pub const ALL: [Self; 3] = [Self::QemuArm, Self::QemuX86, Self::Raspi3b];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QemuArm => "qemu-arm",
            Self::QemuX86 => "qemu-x86",
            Self::Raspi3b => "raspi3b",
        }
    }

    pub const fn program(self) -> &'static str {
        match self {
            Self::QemuArm | Self::Raspi3b => "qemu-system-aarch64",
            Self::QemuX86 => "qemu-system-x86_64",
        }
    }

    /// The program, if it is installed.
    pub fn find(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(self.program())).find(|file| file.is_file())
    }
}

/// Starts it. The machine ends with the child.
///
/// # Errors
/// [`Code::ToolMissing`]: QEMU is not installed, or does not start.
pub fn start(start: &Start<'_>) -> Result<Child, Problem> {
    let machine = start.machine;
    let missing = |why: String| {
        Problem::new(Code::ToolMissing, why).with_hint("on Debian: apt-get install qemu-system-x86 qemu-system-arm")
    };
    let program = machine.find().ok_or_else(|| missing(format!("{} is not installed", machine.program())))?;
    let mut command = Command::new(program);
    command.args(arguments(start)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.kill_on_drop(true);
    command.spawn().map_err(|error| missing(format!("{} does not start: {error}", machine.program())))
}

fn arguments(start: &Start<'_>) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut say = |line: &str| words.extend(line.split(' ').map(str::to_owned));
    match start.machine {
        Machine::QemuArm => say("-M virt -cpu cortex-a72"),
        Machine::QemuX86 if start.kvm => say("-M microvm,pit=off,pic=off,rtc=off -cpu host -accel kvm"),
        Machine::QemuX86 => say("-M microvm,pit=off,pic=off,rtc=off -cpu max -accel tcg"),
        Machine::Raspi3b => say("-M raspi3b"),
    }
    say("-nodefaults -no-user-config -display none");
    let file = |path: &Path| path.display().to_string().replace(',', ",,");
    let console = start.console.map_or_else(|| "null".to_owned(), |path| format!("file:{}", file(path)));
    let mut words_after = vec!["-kernel".to_owned(), start.image.display().to_string(), "-serial".to_owned(), console];
    match start.machine {
        Machine::Raspi3b => {
            let line =
                start.slip.map_or_else(|| "null".to_owned(), |path| format!("unix:{},server=on,wait=off", file(path)));
            words_after.extend(["-serial".to_owned(), line]);
        }
        Machine::QemuArm | Machine::QemuX86 => {
            let Start { memory_mb, link_port, board_port, .. } = start;
            say(&format!("-m {memory_mb} -global virtio-mmio.force-legacy=false"));
            let forward = format!("hostfwd=tcp:127.0.0.1:{link_port}-:{board_port}");
            match start.wire {
                None => say(&format!("-netdev user,id=n0,{forward}")),
                Some(Wire { board, here }) => {
                    say(&format!("-netdev user,id=u0,{forward} -netdev hubport,id=h0,hubid=0,netdev=u0"));
                    say(&format!("-netdev socket,id=s0,udp=127.0.0.1:{here},localaddr=127.0.0.1:{board}"));
                    say("-netdev hubport,id=h1,hubid=0,netdev=s0 -netdev hubport,id=n0,hubid=0");
                }
            }
            say("-device virtio-net-device,netdev=n0 -device virtio-rng-device");
        }
    }
    words.append(&mut words_after);
    words
}

/// A TCP port of this machine that nobody uses now.
///
/// # Errors
/// There is none.
pub fn free_port() -> std::io::Result<u16> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?.local_addr().map(|address| address.port())
}
