//! The first program of a minimal Linux, and its only one: a network card, and two services behind it.
//!
//! ```text
//!   UDP 7     echoes
//!   UDP 9000  a number of rounds: starts itself as `/init ROUNDS`, and answers with what that prints
//! ```
//! `init ROUNDS` is a chain of MD5 digests: the last one, and the nanoseconds of CPU time it took. Built by
//! `benchmarks/peers`, statically.

#[path = "../../guests/md5/src/md5.rs"]
mod md5;
mod modules;

use modules::MODULES;
use std::ffi::{c_int, c_long, c_ulong};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::{fs, io, thread, time};

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn ioctl(file: c_int, request: c_ulong, ...) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
}

const FINIT_MODULE: c_long = 313;
const PROCESS_CPU: c_int = 2;
const SET_ADDRESS: c_ulong = 0x8916;
const SET_MASK: c_ulong = 0x891c;
const SET_FLAGS: c_ulong = 0x8914;
const UP_AND_RUNNING: u16 = 0x41;

fn main() -> io::Result<()> {
    if let Some(rounds) = std::env::args().nth(1) {
        let before = cpu_ns();
        let digest = md5::chain(rounds.parse().expect("a number of rounds"));
        print!("{} {}", md5::hex(digest), cpu_ns() - before);
        return Ok(());
    }
    for module in MODULES {
        let file = fs::File::open(format!("/{module}.ko"))?;
        // SAFETY: an open file, and an empty text with its NUL.
        if unsafe { syscall(FINIT_MODULE, file.as_raw_fd(), c"".as_ptr(), 0) } != 0 {
            println!("{module}: {}", io::Error::last_os_error());
        }
    }
    bring_up("lo", Ipv4Addr::LOCALHOST)?;
    while let Err(error) = bring_up("eth0", Ipv4Addr::new(10, 0, 2, 15)) {
        println!("eth0: {error}");
        thread::sleep(time::Duration::from_millis(50));
    }
    thread::spawn(|| serve(7, |data| data.to_vec()));
    println!("ready");
    serve(9_000, |data| {
        let rounds = String::from_utf8_lossy(data).into_owned();
        // There is no /dev/null here.
        let output = Command::new("/init").arg(rounds).stdin(Stdio::inherit()).stderr(Stdio::inherit()).output();
        output.map(|output| output.stdout).unwrap_or_default()
    })
}

fn serve(port: u16, answer: impl Fn(&[u8]) -> Vec<u8>) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let mut datagram = [0; 65_536];
    loop {
        let (bytes, from) = socket.recv_from(&mut datagram)?;
        socket.send_to(&answer(&datagram[..bytes]), from)?;
    }
}

fn bring_up(name: &str, address: Ipv4Addr) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let place = |address: Ipv4Addr| {
        let mut bytes = [0; 24];
        bytes[0] = 2;
        bytes[4..8].copy_from_slice(&address.octets());
        bytes
    };
    let mut flags = [0; 24];
    flags[..2].copy_from_slice(&UP_AND_RUNNING.to_le_bytes());
    let mask = Ipv4Addr::new(255, 255, 255, 0);
    for (request, value) in [(SET_ADDRESS, place(address)), (SET_MASK, place(mask)), (SET_FLAGS, flags)] {
        let mut asked = [0_u8; 40];
        asked[..name.len()].copy_from_slice(name.as_bytes());
        asked[16..].copy_from_slice(&value);
        // SAFETY: a structure of the size and form these requests read.
        if unsafe { ioctl(socket.as_raw_fd(), request, asked.as_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn cpu_ns() -> i64 {
    let mut now = [0; 2];
    // SAFETY: seconds and nanoseconds are written there.
    unsafe { clock_gettime(PROCESS_CPU, &raw mut now) };
    now[0] * 1_000_000_000 + now[1]
}
