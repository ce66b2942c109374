//! `lighter boot`: a board in QEMU, enrolled with the node of this data folder, until Ctrl-C.

use super::flash::{Board, enrolled, kernel, unusable};
use clap::Args;
use cli::stop::{Result, Stop};
use cli::{Run, Session, locate};
use problem::{Code, Problem};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use tokio::runtime::Builder;
use unit_metal::enrolled::host_destination;
use unit_metal::line::{self, Gateway};
use unit_metal::qemu::{self, Machine};
use whole_file::write_new;

#[derive(Debug, Args)]
pub struct Boot {
    /// Kind of board
    #[arg(long, value_name = "KIND")]
    board: Board,
    /// Name of the board [default: its kind]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Memory of the board in MiB
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=4_096))]
    memory_mb: u32,
    /// UDP port of the node to which the board sends its beacons [default: where the node of the data folder listens]
    #[arg(long, value_name = "PORT")]
    beacon_port: Option<u16>,
    /// Run a board of this machine's own kind on the processor, without emulation
    #[arg(long)]
    kvm: bool,
    /// Kernel to use instead of the one that comes with this program
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
}

impl Run for Boot {
    /// Returns when the machine has ended.
    fn run(self, session: &Session) -> Result {
        let machine = self.board.machine();
        let data = locate::data_folder(session.global.data_folder.as_deref())?;
        let beacon_port = self.beacon_port.or_else(|| locate::known_node(&data)?.beacons);
        let beacon_port = beacon_port.unwrap_or(board_link::BEACON_PORT);
        let folder = data.join("boards");
        let enrolled = enrolled(&folder)?;
        let name = self.name.as_deref().unwrap_or(machine.as_str());
        let image = kernel(self.board, self.kernel.as_deref())?;
        let no_port = |error: std::io::Error| Stop::new(Code::Internal, format!("no free port: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(no_port)?;
        let port = listener.local_addr().map_err(no_port)?.port();
        let mut settings = enrolled.enrol(name, machine.as_str(), image.kernel())?;
        settings.link_port_seen = port;
        // QEMU's Pi has no network but a serial line.
        let line = (machine == Machine::Raspi3b).then(|| folder.join(format!("{name}.line")));
        settings.beacon_to = match line {
            None => vec![host_destination(beacon_port)],
            Some(_) => line::make(&mut settings, beacon_port),
        };
        let image = image.with(&settings).map_err(unusable)?;
        let file_name = format!("{name}.image");
        let file = folder.join(&file_name);
        write_new(&folder, &file_name, image.elf()).map_err(|error| Stop::file(&file, &error))?;
        let console = folder.join(format!("{name}.console"));
        File::create(&console).map_err(|error| Stop::file(&console, &error))?;
        let say = |text| session.out.say(text);
        say(format!("board {name} on 127.0.0.1:{port}, beacons to UDP {beacon_port}; Ctrl-C ends it"));
        if !is_heard(beacon_port) {
            let start = format!("start the node with `lighter up --boards --beacon-port {beacon_port}`");
            say(format!("nobody hears UDP {beacon_port} here yet: {start}, or name its port"));
        }
        // For the machine, or for this end of its line.
        let listener = line.as_ref().map(|_| listener);
        let start = qemu::Start {
            machine,
            image: &file,
            memory_mb: self.memory_mb,
            link_port: port,
            board_port: settings.link_port,
            console: Some(&console),
            kvm: self.kvm,
            slip: line.as_deref(),
            wire: None,
        };
        let failed = |error: std::io::Error| Stop::new(Code::Internal, format!("waiting for QEMU: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let status = runtime.block_on(async {
            let mut child = qemu::start(&start)?;
            let _gateway = match (&line, listener) {
                (Some(line), Some(listener)) => {
                    let gateway = Gateway::start(line, listener, settings.link_port, beacon_port);
                    Some(gateway.map_err(|error| Stop::file(line, &error))?)
                }
                _ => None,
            };
            let status = tokio::select! {
                status = child.wait() => Some(status.map_err(failed)?),
                never = show(&console) => match never {},
                _ = tokio::signal::ctrl_c() => None,
            };
            Ok::<_, Stop>(status)
        })?;
        status.map_or(Ok(()), |status| ended_well(machine, status))
    }
}

fn ended_well(machine: Machine, status: ExitStatus) -> Result {
    if status.success() {
        return Ok(());
    }
    let problem = Problem::new(Code::ToolMissing, format!("{} ended with {status}", machine.program()));
    Err(problem.with_hint("the lines above say why").into())
}

/// Whether somebody on this machine listens to a UDP port; where that cannot be seen, it is taken to be so.
fn is_heard(port: u16) -> bool {
    let tables: Vec<String> =
        ["/proc/net/udp", "/proc/net/udp6"].iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
    tables.is_empty() || tables.iter().any(|table| has_port(table, port))
}

/// Reads the kernel's table of sockets: the second word of a line is the local address, `0100007F:1C8F`.
fn has_port(table: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().skip(1).any(|line| line.split_whitespace().nth(1).is_some_and(|address| address.ends_with(&end)))
}

/// Shows a board's console as it grows.
async fn show(console: &Path) -> std::convert::Infallible {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let mut shown = 0;
    loop {
        let mut new = Vec::new();
        let read = File::open(console).and_then(|mut file| {
            file.seek(SeekFrom::Start(shown))?;
            file.read_to_end(&mut new)
        });
        if read.is_ok() && !new.is_empty() {
            shown += new.len() as u64;
            // Nobody reads: the board runs on.
            let _ = std::io::stdout().write_all(&new).and_then(|()| std::io::stdout().flush());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_in_the_kernels_table_as_a_local_one_alone() {
        let table = "  sl  local_address rem_address   st\n  12: 00000000:1C8F 00000000:0035 07 00000000:00000000\n";
        assert!(has_port(table, 7_311) && !has_port(table, 53));
    }
}
