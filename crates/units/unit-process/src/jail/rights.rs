//! Users, capabilities and the kernel's older limits: after this the jail can gain nothing any more.

use super::inside::Failed;
use std::io;

/// Highest number a capability can have.
const CAPABILITY_MAX: libc::c_ulong = 63;
/// Open files of one process. To open one more fails.
const FILES_MAX: u64 = 256;
const STACK_BYTES: u64 = 8 << 20;
/// First in line when memory runs out.
const OOM_SCORE: &str = "1000";

pub fn unshare_user() -> io::Result<()> {
    // SAFETY: the process has one thread; nothing of it depends on which user namespace it is in.
    #[expect(unsafe_code, reason = "no safe call leaves a namespace")]
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })
}

/// Changes to a user and group for good, in no other group.
pub fn become_user(user: u32) -> io::Result<()> {
    // SAFETY: plain numbers; a null list of no groups.
    #[expect(unsafe_code, reason = "changing the user")]
    unsafe {
        check(libc::setgroups(0, std::ptr::null()))?;
        check(libc::setresgid(user, user, user))?;
        check(libc::setresuid(user, user, user))
    }
}

/// A host name, a root of the control groups and a place in line for memory that say nothing of this machine. To be
/// called while there are capabilities, and before `/proc` is another one.
pub fn give_up_names() -> Result<(), Failed> {
    // SAFETY: plain numbers and texts of the lengths that are said; the process has one thread.
    #[expect(unsafe_code, reason = "no safe call names a host")]
    unsafe {
        check(libc::sethostname(c"unit".as_ptr(), 4)).map_err(Failed::at("host name"))?;
        check(libc::setdomainname(c"".as_ptr(), 0)).map_err(Failed::at("domain name"))?;
        // A kernel without them has no `/proc` for jails either.
        libc::unshare(libc::CLONE_NEWCGROUP);
    }
    // When memory runs out, the kernel is to end units and not the node. More than a system allows, it refuses.
    std::fs::write("/proc/self/oom_score_adj", OOM_SCORE).ok();
    Ok(())
}

/// No privilege, no way to get one, a session of its own, and bounded.
pub fn drop_all(processes: u64) -> Result<(), Failed> {
    let step = |name: &str, done: io::Result<()>| done.map_err(Failed::at(name));
    // SAFETY: plain numbers; the texts and structures are valid for the calls.
    #[expect(unsafe_code, reason = "giving up privileges")]
    unsafe {
        for capability in 0..=CAPABILITY_MAX {
            // Fails for numbers this kernel does not have, and where the right to drop is gone already.
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        let mut header = Header { version: VERSION, process: 0 };
        let none = [Data::default(); 2];
        step("capabilities", check_long(libc::syscall(libc::SYS_capset, &raw mut header, none.as_ptr())))?;
        step("no new privileges", check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))?;
        // The node's death is the jail's; a change of user has forgotten it. What was missed between is found by the
        // keeper.
        step("death with the node", check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0)))?;
        libc::umask(0o077);
        libc::setsid();
    }
    for (name, limit, value) in [
        ("core dumps", libc::RLIMIT_CORE, 0),
        ("open files", libc::RLIMIT_NOFILE, FILES_MAX),
        ("processes", libc::RLIMIT_NPROC, processes),
        ("stack", libc::RLIMIT_STACK, STACK_BYTES),
        ("locked memory", libc::RLIMIT_MEMLOCK, 0),
        ("message queues", libc::RLIMIT_MSGQUEUE, 0),
    ] {
        step(name, set_limit(limit, value))?;
    }
    Ok(())
}

fn set_limit(limit: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let limits = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limits` is valid for the call.
    #[expect(unsafe_code, reason = "setting a limit")]
    check(unsafe { libc::setrlimit(limit, &raw const limits) })
}

/// Capabilities for building the walls: mounting, and dropping capabilities.
const BUILDING: [u32; 2] = [21, 8];

/// Hands the capabilities for building on to the program that this process becomes. System calls only: this is for
/// between fork and exec.
pub fn keep_for_building() {
    let mask = BUILDING.iter().fold(0, |mask, capability| mask | 1 << capability);
    let data = [Data { effective: mask, permitted: mask, inheritable: mask }, Data::default()];
    let mut header = Header { version: VERSION, process: 0 };
    // SAFETY: the structures are the kernel's and valid for the call, the rest are plain numbers.
    #[expect(unsafe_code, reason = "no safe call sets capabilities")]
    unsafe {
        libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr());
        for capability in BUILDING {
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0);
        }
    }
}

/// Version 3 of the structures below.
const VERSION: u32 = 0x2008_0522;

/// The kernel's `cap_user_header_t`.
#[repr(C)]
struct Header {
    version: u32,
    process: i32,
}

/// The kernel's `cap_user_data_t`: nothing effective, permitted or inheritable.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn check_long(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
