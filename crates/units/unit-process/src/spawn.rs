//! Starts jails: this program again, as process 1 of new namespaces, from a thread that lives as long as the node.
//!
//! The thread matters: the kernel kills a jail when the thread that started it ends (`PR_SET_PDEATHSIG`), which is how
//! no unit outlives a node that was killed. The jail's process 1, whom that signal reaches, never runs a unit's code
//! (`jail/keeper.rs`).

use crate::jail::rights;
use parking_lot::Mutex;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use tokio::sync::oneshot;

/// Namespaces of every jail; the one of users comes before (rootless) or after the mounts (root).
const NAMESPACES: libc::c_int =
    libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWNET;

/// Descriptors of a jail are first moved beyond those they become.
const OUT_OF_THE_WAY: RawFd = 16;

/// The child's stack: it calls the system, not much else.
const STACK_BYTES: usize = 64 << 10;

/// What a jail is born with: the control socket, the pipes of its output, the bundle, and the socket of its keeper.
pub struct Inherited {
    pub control: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    pub code: OwnedFd,
    pub keeper: OwnedFd,
}

/// A process just started.
pub struct Started {
    pub process: u32,
    /// Ready to read once it has ended.
    pub pidfd: OwnedFd,
    /// Whether it was born in a user namespace, and waits for its user to be mapped.
    pub in_user_namespace: bool,
}

type Request = (Inherited, oneshot::Sender<io::Result<Started>>);

/// The thread that starts jails. Dropping it ends them all.
pub struct Spawner(Mutex<Sender<Request>>);

impl Spawner {
    /// `arguments` make this program a jail.
    pub fn start(arguments: &[String]) -> io::Result<Self> {
        let texts = ["lighter"].into_iter().chain(arguments.iter().map(String::as_str));
        let arguments: Vec<CString> = texts.map(CString::new).collect::<Result<_, _>>()?;
        let (sender, receiver) = channel::<Request>();
        thread::Builder::new().name("lighter-jails".into()).spawn(move || {
            for (inherited, reply) in receiver {
                reply.send(start(inherited, &arguments)).ok();
            }
        })?;
        Ok(Self(Mutex::new(sender)))
    }

    pub async fn spawn(&self, inherited: Inherited) -> io::Result<Started> {
        let gone = || io::Error::other("the thread that starts jails has ended");
        let (sender, receiver) = oneshot::channel();
        self.0.lock().send((inherited, sender)).map_err(|_| gone())?;
        receiver.await.map_err(|_| gone())?
    }
}

fn start(inherited: Inherited, arguments: &[CString]) -> io::Result<Started> {
    let Inherited { control, stdout, stderr, code, keeper } = inherited;
    let all = [control, stdout, stderr, code, keeper];
    let moved = all.iter().map(|fd| out_of_the_way(fd.as_fd())).collect::<io::Result<Vec<_>>>()?;
    // SAFETY: no arguments, no memory.
    #[expect(unsafe_code, reason = "asking who we are")]
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root {
        match clone(NAMESPACES, &moved, arguments) {
            // Root in a container that may not make namespaces by itself.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            started => {
                let (process, pidfd) = started?;
                return Ok(Started { process, pidfd, in_user_namespace: false });
            }
        }
    }
    let (process, pidfd) = clone(NAMESPACES | libc::CLONE_NEWUSER, &moved, arguments)?;
    Ok(Started { process, pidfd, in_user_namespace: true })
}

fn out_of_the_way(fd: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open; the new one is nobody else's.
    #[expect(unsafe_code, reason = "a copy of a descriptor beyond a number")]
    unsafe {
        let copy = libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
        if copy < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(copy)) }
    }
}

/// What the child needs to become a jail.
struct Becoming<'a> {
    fds: &'a [RawFd],
    arguments: &'a [*const libc::c_char],
    environment: &'a [*const libc::c_char],
    keep_rights: bool,
}

/// Starts a child in new namespaces, which becomes this program with `arguments`.
///
/// The child uses this process's memory until then, and this thread waits for that: a copy of a node's memory would
/// take milliseconds, during which no thread of it could map or touch a page.
fn clone(flags: libc::c_int, fds: &[OwnedFd], arguments: &[CString]) -> io::Result<(u32, OwnedFd)> {
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let becoming = Becoming {
        fds: &fds,
        arguments: &pointers,
        environment: &[std::ptr::null()],
        keep_rights: flags & libc::CLONE_NEWUSER != 0,
    };
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let mut pidfd: libc::c_int = -1;
    let flags = flags | libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the child has a stack of its own, aligned as any system wants it, and the kernel stops this thread until
    // it has become another program or ended: what it is shown lives that long and nobody else changes it. It makes
    // system calls only. Its signal handlers and descriptors are copies.
    #[expect(unsafe_code, reason = "no safe call starts a process in namespaces")]
    unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        let shown = (&raw const becoming).cast_mut().cast();
        let process = libc::clone(become_jail, top, flags, shown, &raw mut pidfd);
        let process = u32::try_from(process).map_err(|_| io::Error::last_os_error())?;
        Ok((process, OwnedFd::from_raw_fd(pidfd)))
    }
}

/// Does not return: ends the process if it cannot become another program.
extern "C" fn become_jail(becoming: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent has made it and waits. From here on there are system calls only, on lists that end with a null
    // pointer.
    #[expect(unsafe_code, reason = "between clone and exec")]
    unsafe {
        let Becoming { fds, arguments, environment, keep_rights } = &*becoming.cast::<Becoming<'_>>();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if *keep_rights {
            // In the new user namespace it may do everything, as nobody; becoming another program would end that.
            rights::keep_for_building();
        }
        for (place, fd) in fds.iter().enumerate() {
            libc::dup2(*fd, place as libc::c_int);
        }
        // All others go when it becomes another program: the node opens nothing without that mark. This is for those
        // of libraries that do.
        libc::syscall(libc::SYS_close_range, fds.len(), libc::c_uint::MAX, 0);
        libc::execve(c"/proc/self/exe".as_ptr(), arguments.as_ptr(), environment.as_ptr());
        libc::_exit(127)
    }
}
