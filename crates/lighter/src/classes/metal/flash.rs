//! `lighter flash`: an image for a board, or the files for its SD card, enrolled with the node of this data folder.

use board_link::{Image, ImageFault};
use clap::{Args, ValueEnum};
use cli::stop::{Result, Stop};
use cli::{Run, Session, locate, words};
use problem::{Code, Problem};
use serde::Serialize;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use unit_metal::enrolled::Enrolled;
use unit_metal::qemu::Machine;
use whole_file::write_new;

#[derive(Debug, Args)]
pub struct Flash {
    /// Kind of board
    #[arg(long, value_name = "KIND")]
    board: Board,
    /// Name of the board; an existing board of this name gets a new identity
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Folder to write to, such as a mounted SD card
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Address of the board with the length of the network part, such as 10.0.8.2/24 [default: DHCP]
    #[arg(long, value_name = "ADDRESS/BITS")]
    address: Option<String>,
    /// Gateway for packets that leave the local network
    #[arg(long, value_name = "ADDRESS", requires = "address")]
    gateway: Option<Ipv4Addr>,
    /// Do not use the board's own watchdog: QEMU's Pi resets as soon as it is used
    #[arg(long)]
    no_hardware_watchdog: bool,
    /// Kernel to use instead of the one that comes with this program
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Board {
    QemuArm,
    QemuX86,
    Raspi3b,
}

/// What was written.
#[derive(Serialize)]
struct Written {
    board: String,
    kernel: String,
    files: Vec<PathBuf>,
    bytes: u64,
}

impl Board {
    pub const fn machine(self) -> Machine {
        match self {
            Self::QemuArm => Machine::QemuArm,
            Self::QemuX86 => Machine::QemuX86,
            Self::Raspi3b => Machine::Raspi3b,
        }
    }
}

impl Run for Flash {
    /// Each file is written beside its place, made durable and renamed; the one that makes the others count comes last.
    /// So a card holds the old or the new, whenever the power goes.
    fn run(self, session: &Session) -> Result {
        let folder = locate::data_folder(session.global.data_folder.as_deref())?.join("boards");
        let network = self.network()?;
        let image = kernel(self.board, self.kernel.as_deref())?;
        let hash = image.kernel();
        let mut settings = enrolled(&folder)?.enrol(&self.name, self.board.machine().as_str(), hash)?;
        settings.hardware_watchdog = !self.no_hardware_watchdog;
        settings.network = network;
        let image = image.with(&settings).map_err(unusable)?;
        let files: Vec<(&str, Vec<u8>)> = match self.board {
            Board::Raspi3b => vec![("kernel8.img", image.flat().map_err(unusable)?), ("config.txt", CONFIG.into())],
            Board::QemuArm | Board::QemuX86 => vec![("image.elf", image.elf().to_vec())],
        };
        fs::create_dir_all(&self.to).map_err(|error| Stop::file(&self.to, &error))?;
        let mut written =
            Written { board: self.name.clone(), kernel: board_link::fingerprint(&hash), files: Vec::new(), bytes: 0 };
        for (name, bytes) in files {
            let path = self.to.join(name);
            write_new(&self.to, name, &bytes).map_err(|error| Stop::file(&path, &error))?;
            written.bytes += bytes.len() as u64;
            written.files.push(path);
        }
        if session.out.json {
            return session.out.json(&written);
        }
        for file in &written.files {
            session.out.line(file.display().to_string())?;
        }
        let size = words::bytes(written.bytes);
        session
            .out
            .say(format!("board {}, kernel {}, {size}; the image holds its secret key", self.name, written.kernel));
        if matches!(self.board, Board::Raspi3b) {
            session.out.say("the card needs the Pi's own bootcode.bin, start.elf and fixup.dat beside them");
        }
        Ok(())
    }
}

impl Flash {
    fn network(&self) -> Result<board_link::Network> {
        let Some(text) = &self.address else {
            return match self.board {
                Board::Raspi3b => {
                    Err(Problem::new(Code::Usage, "a raspi3b needs an address: nobody on a serial line gives one away")
                        .with_hint("for instance: --address 10.0.8.2/24")
                        .into())
                }
                Board::QemuArm | Board::QemuX86 => Ok(board_link::Network::Dhcp),
            };
        };
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            let (address, prefix): (Ipv4Addr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            let gateway = self.gateway.map(|gateway| gateway.octets());
            (prefix <= 32).then_some(board_link::Network::Static { address: address.octets(), prefix, gateway })
        });
        parsed.ok_or_else(|| Stop::new(Code::Usage, format!("{text:?} is not an address: write it like 10.0.8.2/24")))
    }
}

/// What the Pi's firmware is told: 64 bits, and both serial lines as they are.
const CONFIG: &str = "arm_64bit=1\nkernel=kernel8.img\nenable_uart=1\ndtoverlay=disable-bt\ncore_freq=250\n";

pub fn enrolled(folder: &Path) -> Result<Enrolled> {
    if let Some(data) = folder.parent() {
        fs::create_dir_all(data).map_err(|error| Stop::file(data, &error))?;
    }
    Ok(Enrolled::open(folder)?)
}

/// The kernel that comes with this program, or another.
pub fn kernel(board: Board, file: Option<&Path>) -> Result<Image> {
    let elf = match file {
        Some(file) => fs::read(file).map_err(|error| Stop::file(file, &error))?,
        None => unit_metal::kernel(board.machine()),
    };
    let about = |fault| match file {
        Some(file) => Stop::new(Code::BoardImage, format!("{}: {fault}", file.display())),
        None => unusable(fault),
    };
    Image::read(elf).map_err(about)
}

pub fn unusable(fault: ImageFault) -> Stop {
    Stop::new(Code::BoardImage, format!("the board's image cannot be used: {fault}"))
}
