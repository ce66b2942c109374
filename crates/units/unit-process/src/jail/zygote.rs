//! A zygote that is the jail's own: it loads nothing of a function, and starts a program anew for each child.
//!
//! ```text
//!   node ── "fork SLOT READ" + socket, stdout, stderr ──▶ zygote ── fork ──▶ child: closed in
//!   node ◀── born ── child            the kernel says which process it is, and the node moves it to its own group
//!   node ◀── unborn ── zygote         on the same socket, where the system refuses the fork
//!   node ── go ──▶ child ── becomes the program, which says that it is ready, or why it will never be
//!   node ◀── "ready" · "exited SLOT STATUS" ── zygote
//!   node ── "empty SLOT ALONE" ──▶ zygote ── removes what the child has left ──▶ "emptied SLOT" · "kept SLOT"
//! ```
//! For programs that cannot be forked once they run, as a virtual machine with threads. What it says to the node is
//! what the zygote of the Python SDK says. No code of a function ever runs in it.

use super::inside::{Exec, Failed};
use super::{SCRATCH, empty, files, syscalls};
use crate::descriptors as fd;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, process, thread};

/// What a child says when it is there, and what it then waits for.
pub const BORN: &[u8] = b"b";
pub const GO: &[u8] = b"g";
/// What a zygote says in the place of a child that it could not fork; that of the Python SDK as well.
pub const UNBORN: &[u8] = b"u";

/// Bytes of a message from the node.
const MESSAGE_BYTES_MAX: usize = 256;
/// Descriptors of a child: its socket, and the pipes of its output.
const CHILDS: usize = 3;
/// How often processes that children have left are killed before the slot is kept, and the pause between.
const ORPHAN_TURNS_MAX: u32 = 20;
const ORPHAN_PAUSE: Duration = Duration::from_millis(5);
/// The status of a child that cannot become its program.
const NO_PROGRAM: i32 = 70;

/// Serves the node until it is gone. Returns only what kept it from beginning.
pub fn run(control: &OwnedFd, program: Exec) -> Failed {
    let begun = Bell::hang().and_then(|bell| fd::send(control, b"ready", &[]).map(|()| bell));
    let bell = match begun {
        Ok(bell) => bell,
        Err(error) => return Failed::at("beginning as a zygote")(error),
    };
    let mut zygote = Zygote { control, program, bell, slots: BTreeMap::new() };
    while zygote.serve().is_ok() {}
    // The keeper ends the jail when this process ends.
    process::exit(0)
}

struct Zygote<'a> {
    control: &'a OwnedFd,
    program: Exec,
    bell: Bell,
    /// By the process that has one.
    slots: BTreeMap<libc::pid_t, u32>,
}

impl Zygote<'_> {
    /// Waits for one thing and does it.
    ///
    /// # Errors
    /// The node is gone.
    fn serve(&mut self) -> io::Result<()> {
        let is_asked = self.bell.wait(self.control)?;
        self.reap()?;
        if !is_asked {
            return Ok(());
        }
        let mut room = [0; MESSAGE_BYTES_MAX];
        let received = fd::receive_beside(self.control, &mut room)?;
        let message = String::from_utf8_lossy(&room[..received.bytes]);
        let mut words = message.split(' ');
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u32>().ok());
        match (words.next(), number(words.next()), number(words.next())) {
            (Some("fork"), Some(slot), Some(_)) if received.descriptors.len() == CHILDS => {
                self.fork(slot, &received.descriptors)
            }
            (Some("empty"), Some(slot), Some(alone)) => self.empty(slot, alone == 1),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn fork(&mut self, slot: u32, descriptors: &[OwnedFd]) -> io::Result<()> {
        // Another unit may have closed it: their user is the same.
        fs::set_permissions(scratch(slot), Permissions::from_mode(0o700)).ok();
        // SAFETY: the process has one thread, so that its copy lacks nothing.
        #[expect(unsafe_code, reason = "no safe call forks")]
        let child = unsafe { libc::fork() };
        match child {
            0 => {
                let error = become_program(&self.program, &self.bell, slot, descriptors);
                eprintln!("the program of this unit cannot be started: {error}");
                process::exit(NO_PROGRAM)
            }
            1.. => {
                self.slots.insert(child, slot);
                Ok(())
            }
            // Who waits for the child has given up where this cannot be said.
            _ => {
                fd::send(&descriptors[0], UNBORN, &[]).ok();
                Ok(())
            }
        }
    }

    /// Takes leave of children that have ended, and tells the node.
    fn reap(&mut self) -> io::Result<()> {
        let mut has_ended = false;
        loop {
            let mut status = 0;
            // SAFETY: the number is valid for writes.
            #[expect(unsafe_code, reason = "no safe call waits for any child")]
            let child = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if child <= 0 {
                break;
            }
            if let Some(slot) = self.slots.remove(&child) {
                has_ended = true;
                fd::send(self.control, format!("exited {slot} {status}").as_bytes(), &[])?;
            }
        }
        if has_ended {
            self.kill_orphans();
        }
        Ok(())
    }

    /// Removes what the child of this slot has left. What cannot be removed the node finds, and gives up the slot.
    ///
    /// Alone: no control group has ended what the child had started. One that forks faster than it is found may go on.
    fn empty(&mut self, slot: u32, alone: bool) -> io::Result<()> {
        let word = if !alone || self.is_without_orphans()? { "emptied" } else { "kept" };
        empty::empty(&scratch(slot)).ok();
        fd::send(self.control, format!("{word} {slot}").as_bytes(), &[])
    }

    fn is_without_orphans(&mut self) -> io::Result<bool> {
        for _ in 0..ORPHAN_TURNS_MAX {
            if self.kill_orphans() == 0 {
                return Ok(true);
            }
            thread::sleep(ORPHAN_PAUSE);
            self.reap()?;
        }
        Ok(false)
    }

    /// Processes that ended children have started and left: they are children of this process now.
    fn kill_orphans(&self) -> usize {
        let own = process::id();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let orphans = processes.filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse::<libc::pid_t>().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()?;
            (parent == own && !self.slots.contains_key(&number)).then_some(number)
        });
        let orphans: Vec<_> = orphans.collect();
        for number in &orphans {
            // SAFETY: plain numbers; it is a child of this process that was not reaped, so the number is still its own.
            #[expect(unsafe_code, reason = "no safe call signals")]
            unsafe {
                libc::kill(*number, libc::SIGKILL);
            }
        }
        orphans.len()
    }
}

/// In the child. Returns only if it could not become the program.
fn become_program(program: &Exec, bell: &Bell, slot: u32, descriptors: &[OwnedFd]) -> io::Error {
    let prepare = || {
        bell.take_down()?;
        for (place, descriptor) in descriptors.iter().enumerate() {
            // SAFETY: plain numbers. Whoever owned the descriptors 0, 1 and 2 does not come back.
            #[expect(unsafe_code, reason = "no safe call moves a descriptor to a place")]
            if unsafe { libc::dup2(descriptor.as_raw_fd(), place as libc::c_int) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let scratch = scratch(slot);
        files::restrict_to(&scratch).map_err(io::Error::other)?;
        if files::lets_signals_out() {
            syscalls::signal_itself_alone().map_err(io::Error::other)?;
        }
        // SAFETY: no memory is involved.
        #[expect(unsafe_code, reason = "no safe call begins a session")]
        unsafe {
            libc::setsid();
        }
        std::env::set_current_dir(&scratch)?;
        // SAFETY: it was opened above, and stays open.
        #[expect(unsafe_code, reason = "the socket is descriptor 0 now")]
        let socket = unsafe { BorrowedFd::borrow_raw(0) };
        fd::send(socket, BORN, &[])?;
        let mut word = [0; GO.len()];
        match fd::receive(socket, &mut word)? {
            1.. if word == GO => Ok(scratch),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the node is gone")),
        }
    };
    match prepare() {
        Ok(scratch) => program.with(super::SCRATCH_WORD, &scratch.display().to_string()).exec(),
        Err(error) => error,
    }
}

fn scratch(slot: u32) -> PathBuf {
    Path::new(SCRATCH).join(slot.to_string())
}

/// Tells of ended children while this process waits, and at no other time.
struct Bell {
    while_waiting: libc::sigset_t,
}

impl Bell {
    fn hang() -> io::Result<Self> {
        extern "C" fn ring(_: libc::c_int) {}
        // SAFETY: the sets and the action are valid for the calls, and the handler does nothing.
        #[expect(unsafe_code, reason = "no safe call waits for signals and descriptors at once")]
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = ring as extern "C" fn(libc::c_int) as libc::sighandler_t;
            let (mut ended, mut before): (libc::sigset_t, libc::sigset_t) = (zeroed(), zeroed());
            libc::sigemptyset(&raw mut ended);
            libc::sigaddset(&raw mut ended, libc::SIGCHLD);
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const ended, &raw mut before))?;
            check(libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()))?;
            libc::sigdelset(&raw mut before, libc::SIGCHLD);
            Ok(Self { while_waiting: before })
        }
    }

    /// Whether there is a message; else a child may have ended.
    fn wait(&self, control: impl AsFd) -> io::Result<bool> {
        let mut asked = libc::pollfd { fd: control.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure and the set are valid for the call.
        #[expect(unsafe_code, reason = "no safe call waits for signals and descriptors at once")]
        let ready = unsafe { libc::ppoll(&raw mut asked, 1, std::ptr::null(), &raw const self.while_waiting) };
        match ready {
            0.. => Ok(asked.revents != 0),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }

    /// As signals were before, for another program.
    fn take_down(&self) -> io::Result<()> {
        // SAFETY: the set is valid for the call.
        #[expect(unsafe_code, reason = "no safe call changes signals")]
        unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            check(libc::sigprocmask(libc::SIG_SETMASK, &raw const self.while_waiting, std::ptr::null_mut()))
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
