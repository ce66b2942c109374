//! A process of a jail, known by a descriptor that the kernel gave for it. A number alone is not a process: the zygote
//! decides when its children end and are reaped, and from then on other processes may get their numbers.
//!
//! ```text
//!   message ── the kernel's word who sent it ──▶ descriptor ──▶ number ──▶ is it of this jail? ──▶ does the process still live?
//! ```
//! A process that has not ended when the descriptor is asked last had its number all the while. So a use of the number
//! is a question, and the answer counts only if the process lives after it. What must not hit another process goes by
//! the descriptor, or is done by the jail's keeper, where numbers of other processes mean nothing.

use crate::descriptors::{self as fd, Sender};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// A namespace of processes: that of one jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    device: u64,
    inode: u64,
}

impl Namespace {
    /// The one in which a process is.
    pub fn of(process: u32) -> io::Result<Self> {
        let status = fs::metadata(format!("/proc/{process}/ns/pid"))?;
        Ok(Self { device: status.dev(), inode: status.ino() })
    }
}

/// A process of a jail.
#[derive(Debug)]
pub struct Process {
    pidfd: OwnedFd,
    number: u32,
    inside: u32,
}

impl Process {
    /// Who sent a message, if it is a process of this jail that has not ended.
    ///
    /// # Errors
    /// Whatever else it is.
    pub fn of_sender(sender: Option<Sender>, jail: Namespace) -> io::Result<Self> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "the kernel does not say which process sent it");
        let pidfd = match sender.ok_or_else(unknown)? {
            Sender::Descriptor(pidfd) => pidfd,
            Sender::Number(number) => fd::pidfd(number)?,
        };
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
        let (number, inside) = numbers(&info).ok_or_else(ended)?;
        let found = Namespace::of(number);
        let process = Self { pidfd, number, inside };
        match process.after(found)? {
            found if found == jail => Ok(process),
            _ => Err(io::Error::new(io::ErrorKind::PermissionDenied, "a process that is not of this jail sent it")),
        }
    }

    /// Its number here, for what is asked of it while it is known to wait.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its number as the jail itself has it.
    pub fn inside(&self) -> u32 {
        self.inside
    }

    pub fn kill(&self) {
        fd::kill(&self.pidfd);
    }

    pub fn has_ended(&self) -> bool {
        fd::has_ended(&self.pidfd)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended, or the system does not allow it.
    pub fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        fd::signal(&self.pidfd, signal)
    }

    /// CPU time of all its threads.
    pub fn cpu(&self) -> Option<Duration> {
        let found = fd::process_cpu_ns(self.number).map(Duration::from_nanos);
        self.after(found.ok_or_else(ended)).ok()
    }

    /// Bytes it holds in memory of its own, as far as the system tells.
    pub fn resident_bytes(&self) -> u64 {
        const PAGE_BYTES: u64 = 4_096;
        let text = self.after(fs::read_to_string(format!("/proc/{}/statm", self.number))).unwrap_or_default();
        let mut pages = text.split(' ').skip(1).map(|pages| pages.parse().unwrap_or(0_u64));
        let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        resident.saturating_sub(shared) * PAGE_BYTES
    }

    /// Whether this system lets the node read its memory.
    pub fn is_memory_readable(&self) -> bool {
        // Nothing is mapped at the lowest address: whoever may read is told just that.
        match self.read_memory(0, 1, &mut Vec::new()) {
            Ok(_) => true,
            Err(error) => error.raw_os_error() == Some(libc::EFAULT),
        }
    }

    /// Appends up to `bytes` bytes that begin at `address` in its memory, and says how many there were.
    pub fn read_memory(&self, address: u64, bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
        let before = into.len();
        let got = self.after(fd::read_memory(self.number, address, bytes, into));
        if got.is_err() {
            into.truncate(before);
        }
        got
    }

    /// Sets the priority of its group of processes.
    pub fn set_nice(&self, nice: i32) {
        if !fd::has_ended(&self.pidfd) {
            fd::set_nice(self.number, nice);
        }
    }

    /// Sets the priority of its first thread, and of all that it starts from then on.
    pub fn set_nice_alone(&self, nice: i32) {
        if !fd::has_ended(&self.pidfd) {
            fd::set_nice_alone(self.number, nice);
        }
    }

    /// What was asked by its number, if that was its own until now.
    fn after<T>(&self, answer: io::Result<T>) -> io::Result<T> {
        if fd::has_ended(&self.pidfd) { Err(ended()) } else { answer }
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the process has ended")
}

/// The process's number here and in its own namespace, from what the kernel says of a descriptor.
fn numbers(info: &str) -> Option<(u32, u32)> {
    let value = |key: &str| info.lines().find_map(|line| line.strip_prefix(key));
    let number = value("Pid:")?.trim().parse().ok().filter(|number| *number != 0)?;
    Some((number, value("NSpid:")?.split_whitespace().last()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A program that says a word on a socket, and the other end.
    fn says(program: &mut Command) -> (Child, OwnedFd) {
        let (ours, theirs) = fd::stream_pair().unwrap();
        fd::ask_for_senders(&ours, true).unwrap();
        (program.stdout(Stdio::from(theirs)).spawn().unwrap(), ours)
    }

    fn heard(socket: &OwnedFd) -> fd::Received {
        fd::receive_beside(socket, &mut [0; 64]).unwrap()
    }

    fn own() -> Namespace {
        Namespace::of(std::process::id()).unwrap()
    }

    #[test]
    fn numbers_are_those_outside_and_inside() {
        assert_eq!(numbers("pos:\t0\nPid:\t712\nNSpid:\t712\t17\n"), Some((712, 17)));
        assert_eq!(numbers("Pid:\t712\nNSpid:\t712\n"), Some((712, 712)));
        for gone in ["Pid:\t-1\nNSpid:\t-1\n", "Pid:\t0\nNSpid:\t0\n", "pos:\t0\n"] {
            assert_eq!(numbers(gone), None, "{gone}");
        }
    }

    #[test]
    fn who_sent_it_is_found_while_it_lives_and_only_in_its_own_jail() {
        let (mut cat, ours) = says(Command::new("sh").args(["-c", "echo here; read word"]).stdin(Stdio::piped()));
        let sender = heard(&ours).sender;
        let process = Process::of_sender(sender, own()).unwrap();
        assert_eq!((process.number, process.cpu().is_some()), (cat.id(), true));
        let number = Some(Sender::Number(cat.id()));
        assert_eq!(Process::of_sender(number, own()).unwrap().number, cat.id());
        let other = Namespace { device: own().device, inode: own().inode + 1 };
        let stranger = Process::of_sender(Some(Sender::Number(cat.id())), other).unwrap_err();
        assert_eq!(stranger.kind(), io::ErrorKind::PermissionDenied);
        cat.kill().unwrap();
        cat.wait().unwrap();
        assert!(process.cpu().is_none() && process.read_memory(0, 1, &mut Vec::new()).is_err());
    }

    /// Finding R10, the window as wide as it can be: the sender has ended and was reaped before its message is read,
    /// and its number belongs to whoever came next.
    #[test]
    fn who_has_ended_is_nobody_whoever_has_its_number_now() {
        let (mut echo, ours) = says(Command::new("echo").arg("here"));
        let number = echo.id();
        echo.wait().unwrap();
        assert!(Process::of_sender(heard(&ours).sender, own()).is_err());
        assert!(Process::of_sender(Some(Sender::Number(number)), own()).is_err());
        assert!(Process::of_sender(None, own()).is_err());
    }

    #[test]
    fn descriptors_sent_along_are_found() {
        let (ours, theirs) = fd::stream_pair().unwrap();
        fd::ask_for_senders(&ours, true).unwrap();
        let files = [std::fs::File::open("/dev/null").unwrap(), std::fs::File::open("/dev/null").unwrap()];
        let files: Vec<_> = files.iter().map(std::os::fd::AsFd::as_fd).collect();
        fd::send(&theirs, b"x", &files).unwrap();
        let received = heard(&ours);
        assert_eq!((received.bytes, received.descriptors.len()), (1, 2), "all of them are owned, and dropped");
    }
}
