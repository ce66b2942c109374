//! Sockets, pipes and processes as descriptors: the few system calls that have no safe form elsewhere.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::thread;

/// Descriptors sent in one message.
pub const FDS_MAX: usize = 4;
/// Of Linux 6.5: messages come with a descriptor of the process that sent them.
const SO_PASSPIDFD: libc::c_int = 76;
const SCM_PIDFD: libc::c_int = 4;

/// Room for what travels beside a message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Beside([u8; 256]);

/// Two ends of a socket of packets: each message arrives whole or not at all.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(libc::SOCK_SEQPACKET)
}

/// Two ends of a stream of bytes.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(libc::SOCK_STREAM)
}

fn pair(kind: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two; on success both are open and nobody else's.
    #[expect(unsafe_code, reason = "making a pair of sockets")]
    unsafe {
        check(libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// The reading and the writing end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: as for `pair`.
    #[expect(unsafe_code, reason = "making a pipe")]
    unsafe {
        check(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for as long as it is borrowed.
    #[expect(unsafe_code, reason = "changing the flags of a descriptor")]
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        check(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK))
    }
}

/// Makes room for `bytes` on their way to the other end, as far as the system allows.
pub fn set_send_room(fd: impl AsFd, bytes: libc::c_int) {
    // SAFETY: the descriptor is open, the option is a number.
    #[expect(unsafe_code, reason = "setting an option of a socket")]
    unsafe {
        let (fd, size) = (fd.as_fd().as_raw_fd(), size_of_val(&bytes) as libc::socklen_t);
        // As root beyond the system's limit, else up to it.
        if libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, (&raw const bytes).cast(), size) != 0 {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, (&raw const bytes).cast(), size);
        }
    }
}

/// From now on messages say which process sent them: by a descriptor where the kernel can (6.5), else by its number.
pub fn ask_for_senders(fd: impl AsFd, wanted: bool) -> io::Result<()> {
    let on = libc::c_int::from(wanted);
    let set = |option| {
        // SAFETY: the descriptor is open, the option is a number.
        #[expect(unsafe_code, reason = "setting an option of a socket")]
        unsafe {
            let (fd, size) = (fd.as_fd().as_raw_fd(), size_of_val(&on) as libc::socklen_t);
            check(libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const on).cast(), size))
        }
    };
    set(SO_PASSPIDFD).or_else(|_| set(libc::SO_PASSCRED))
}

/// Sends one message, with descriptors beside it. A stream may take a part of it, which is an error: what is sent so is
/// small.
pub fn send(socket: impl AsFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(fds.len() <= FDS_MAX, "room was made for so many");
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let mut beside = Beside([0; 256]);
    // SAFETY: the header points to the message and to `beside`, both alive until the call returns; what is written to
    // `beside` stays within the length that CMSG_SPACE gives, which is far below its size for FDS_MAX descriptors.
    #[expect(unsafe_code, reason = "sending descriptors")]
    unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !fds.is_empty() {
            let bytes = (fds.len() * size_of::<RawFd>()) as libc::c_uint;
            header.msg_control = beside.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(bytes) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(bytes) as _;
            for (place, fd) in fds.iter().enumerate() {
                libc::CMSG_DATA(first).cast::<RawFd>().add(place).write_unaligned(fd.as_raw_fd());
            }
        }
        let sent = libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL);
        match usize::try_from(sent) {
            Ok(sent) if sent == message.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// Receives one message, without the descriptors somebody may send along: those are closed.
pub fn receive(socket: impl AsFd, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `room` is valid for writes of its length. Without room for them the kernel closes descriptors sent along.
    #[expect(unsafe_code, reason = "receiving one packet")]
    let got = unsafe { libc::recv(socket.as_fd().as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// What came in one step.
#[derive(Debug)]
pub struct Received {
    pub bytes: usize,
    /// Who sent it, if that was asked for and the process has not ended.
    pub sender: Option<Sender>,
    /// What the sender has sent along.
    pub descriptors: Vec<OwnedFd>,
}

/// A process, as the kernel names it to who receives its message.
#[derive(Debug)]
pub enum Sender {
    Descriptor(OwnedFd),
    /// The number it had when it sent the message.
    Number(u32),
}

/// Receives up to `room` bytes, and what came beside them.
pub fn receive_beside(socket: impl AsFd, room: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut beside = Beside([0; 256]);
    let (mut sender, mut descriptors) = (None, Vec::new());
    // SAFETY: the header points to `room` and `beside`, both alive and as large as is said; headers beside the message
    // are those the kernel has written, walked as it wants them walked; descriptors in them are open and nobody else's.
    #[expect(unsafe_code, reason = "receiving who sent it")]
    unsafe {
        let mut header: libc::msghdr = zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = beside.0.as_mut_ptr().cast();
        header.msg_controllen = beside.0.len() as _;
        let got = libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC);
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        while !next.is_null() {
            let (data, bytes) = (libc::CMSG_DATA(next), (*next).cmsg_len as usize - libc::CMSG_LEN(0) as usize);
            match ((*next).cmsg_level, (*next).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    let process = data.cast::<libc::ucred>().read_unaligned().pid;
                    sender = u32::try_from(process).ok().filter(|process| *process != 0).map(Sender::Number);
                }
                (libc::SOL_SOCKET, SCM_PIDFD) => {
                    // Below zero if the process has ended meanwhile.
                    let pidfd = Some(data.cast::<RawFd>().read_unaligned()).filter(|pidfd| *pidfd >= 0);
                    sender = pidfd.map(|pidfd| Sender::Descriptor(OwnedFd::from_raw_fd(pidfd)));
                }
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    let numbers = (0..bytes / size_of::<RawFd>()).map(|place| data.cast::<RawFd>().add(place));
                    descriptors.extend(numbers.map(|number| OwnedFd::from_raw_fd(number.read_unaligned())));
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(&raw const header, next);
        }
        Ok(Received { bytes: got, sender, descriptors })
    }
}

/// Brings all that was written to the file system of this file or folder to its disk.
pub fn sync_file_system(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed.
    #[expect(unsafe_code, reason = "no safe call syncs a file system")]
    let synced = unsafe { libc::syncfs(fd.as_fd().as_raw_fd()) };
    check(synced)
}

/// A descriptor of a process that is there.
pub fn pidfd(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers; on success the descriptor is open and nobody else's.
    #[expect(unsafe_code, reason = "no safe call opens a process")]
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, process, 0);
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Whether the process has ended, if only a moment ago.
pub fn has_ended(pidfd: impl AsFd) -> bool {
    let mut asked = libc::pollfd { fd: pidfd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, valid for the call.
    #[expect(unsafe_code, reason = "no safe call looks at a descriptor of a process")]
    let ready = unsafe { libc::poll(&raw mut asked, 1, 0) };
    ready != 0
}

/// Appends up to `bytes` bytes that begin at `address` in the memory of a process. Says how many there were; that it
/// was this process's memory is for the caller to make sure of.
pub fn read_memory(process: u32, address: u64, bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
    into.reserve(bytes);
    let there = usize::try_from(address).map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))?;
    let process = libc::pid_t::try_from(process).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let room = into.spare_capacity_mut();
    let local = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(there), iov_len: bytes };
    // SAFETY: there is room for so many bytes, and nobody else has it; the other address is looked up in the other
    // process by the kernel, which says so where there is nothing. So many bytes as it says have been written.
    #[expect(unsafe_code, reason = "no safe call reads another process's memory")]
    unsafe {
        let got = libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0);
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        into.set_len(into.len() + got);
        Ok(got)
    }
}

/// Kills the process; one that has ended already is no error.
pub fn kill(pidfd: impl AsFd) {
    // SAFETY: the descriptor is open; a null `siginfo` is allowed.
    #[expect(unsafe_code, reason = "no safe call signals by descriptor")]
    unsafe {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_fd().as_raw_fd(), libc::SIGKILL, nothing, 0);
    }
}

/// Sends it a signal.
///
/// # Errors
/// It has ended, or the system does not allow it.
pub fn signal(pidfd: impl AsFd, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open; a null `siginfo` is allowed.
    #[expect(unsafe_code, reason = "no safe call signals by descriptor")]
    let sent = unsafe {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_fd().as_raw_fd(), signal, nothing, 0)
    };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes leave of an ended child of this process, so that its number is free again.
pub fn reap(pidfd: impl AsFd) {
    // SAFETY: the descriptor is open, `info` is valid for writes.
    #[expect(unsafe_code, reason = "no safe call waits by descriptor")]
    unsafe {
        let mut info: libc::siginfo_t = zeroed();
        let id = pidfd.as_fd().as_raw_fd() as libc::id_t;
        libc::waitid(libc::P_PIDFD, id, &raw mut info, libc::WEXITED | libc::WNOHANG);
    }
}

/// Sets the priority of all processes of the group that `leader` leads. Where that is not allowed, it stays.
pub fn set_nice(leader: u32, nice: i32) {
    // SAFETY: plain numbers.
    #[expect(unsafe_code, reason = "no safe call sets the priority of a group")]
    unsafe {
        libc::setpriority(libc::PRIO_PGRP, leader, nice);
    }
}

/// Sets the priority of the first thread of a process; those that begin later begin with it. Where that is not allowed,
/// it stays.
pub fn set_nice_alone(process: u32, nice: i32) {
    // SAFETY: plain numbers.
    #[expect(unsafe_code, reason = "no safe call sets the priority of another process")]
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, process, nice);
    }
}

/// Whether this process may give a priority back that it has taken: without that right it must take none.
pub fn can_raise_priority() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    // In Linux priorities are those of threads, so this tries it out on one of its own.
    let tried = || {
        // SAFETY: plain numbers; zero is the calling thread.
        #[expect(unsafe_code, reason = "no safe call sets a priority")]
        unsafe {
            let own = libc::getpriority(libc::PRIO_PROCESS, 0);
            libc::setpriority(libc::PRIO_PROCESS, 0, own + 1) == 0 && libc::setpriority(libc::PRIO_PROCESS, 0, own) == 0
        }
    };
    if let Some(can) = CAN.get() {
        return *can;
    }
    // Where no thread is to be had it is not known, and tried again the next time.
    let Ok(thread) = thread::Builder::new().spawn(tried) else { return false };
    *CAN.get_or_init(|| thread.join().unwrap_or(false))
}

/// CPU time of all threads of a process, in nanoseconds; none once it has ended.
pub fn process_cpu_ns(process: u32) -> Option<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: both numbers are valid for writes.
    #[expect(unsafe_code, reason = "no safe call reads another process's clock")]
    unsafe {
        let mut time: libc::timespec = zeroed();
        let found = libc::clock_getcpuclockid(libc::pid_t::try_from(process).ok()?, &raw mut clock) == 0;
        (found && libc::clock_gettime(clock, &raw mut time) == 0)
            .then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// CPU time of this thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    // SAFETY: the number is valid for writes; the clock is always there.
    #[expect(unsafe_code, reason = "no safe call reads a thread's clock")]
    unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
