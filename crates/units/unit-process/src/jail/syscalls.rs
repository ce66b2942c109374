//! The system calls a unit may use: what an interpreter with threads and subprocesses needs, and no more.
//!
//! Everything else answers EPERM, so that a program can say what it missed. `clone3` answers ENOSYS: its flags lie in
//! memory, where a filter cannot look; the C library falls back to `clone`, whose flags it can.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::env::consts::ARCH;

/// Flags of `clone` that make namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64
    | 0x80;

/// Requests of `ioctl` on ordinary descriptors; those of terminals that only look.
const IOCTLS: [u64; 6] = [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451];

/// What `prctl` may be asked: names, seccomp and no-new-privileges (which only tighten), memory names. Neither whose
/// death is told, nor who may look into it.
const PRCTLS: [libc::c_int; 8] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_PDEATHSIG,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_SET_SECCOMP,
    libc::PR_SET_VMA,
];

/// What `fcntl` may be asked: copies and flags of a descriptor, locks, the room of a pipe. No signals to other
/// processes (`F_SETOWN`), no leases and notices, by which one process hears of another.
const FCNTLS: [libc::c_int; 15] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_GETLK,
    libc::F_SETLK,
    libc::F_SETLKW,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
    libc::F_SETPIPE_SZ,
    libc::F_GETPIPE_SZ,
    libc::F_GET_SEALS,
];

/// Options of sockets that may be asked for: what a socket is, and its room. None says who is at the other end.
const SOCKET_OPTIONS: [libc::c_int; 12] = [
    libc::SO_TYPE,
    libc::SO_DOMAIN,
    libc::SO_PROTOCOL,
    libc::SO_ERROR,
    libc::SO_ACCEPTCONN,
    libc::SO_SNDBUF,
    libc::SO_RCVBUF,
    libc::SO_RCVLOWAT,
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
    // The same with wider numbers.
    66,
    67,
];

/// Those that may be set: room for what comes, and times. No filters, no descriptors of who sent it, and no room for
/// what is sent: the node bounds it, so that no send keeps a core for long.
const SOCKET_OPTIONS_SET: [libc::c_int; 6] =
    [libc::SO_RCVBUF, libc::SO_RCVLOWAT, libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, 66, 67];

/// Flags with which messages may be sent and received: nothing urgent (`MSG_OOB`), which the kernel keeps beside the
/// stream.
const MESSAGE_FLAGS: libc::c_int = libc::MSG_PEEK
    | libc::MSG_TRUNC
    | libc::MSG_DONTWAIT
    | libc::MSG_EOR
    | libc::MSG_WAITALL
    | libc::MSG_NOSIGNAL
    | libc::MSG_MORE
    | libc::MSG_CMSG_CLOEXEC;

/// Allowed whatever their arguments.
const ALLOWED: &[i64] = &[
    // files
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_flock,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_umask,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_fgetxattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    // memory
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    libc::SYS_msync,
    libc::SYS_get_mempolicy,
    // processes of its own
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getpriority,
    libc::SYS_getcpu,
    libc::SYS_restart_syscall,
    // signals: how far they reach is Landlock's and the child's own filter's
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    // waiting and time
    libc::SYS_futex,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    libc::SYS_getrandom,
    // the sockets it has; it can make none but pairs
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // walls of its own: they can only be higher
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

/// Older forms that aarch64 never had.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_alarm,
    libc::SYS_time,
    libc::SYS_arch_prctl,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_utimes,
    libc::SYS_utime,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[i64] = &[];

/// # Errors
/// The kernel has no seccomp, or this processor is not known.
pub fn restrict() -> Result<(), String> {
    let [first, second] = programs()?;
    // In this order: what both say something about gets the stricter answer of the last one that is not "allow".
    seccompiler::apply_filter(&first).map_err(|error| error.to_string())?;
    seccompiler::apply_filter(&second).map_err(|error| error.to_string())
}

/// Lets this process signal itself alone, where Landlock cannot see to that.
///
/// # Errors
/// The kernel has no seccomp, or this processor is not known.
pub fn signal_itself_alone() -> Result<(), String> {
    let target: TargetArch = ARCH.try_into().map_err(|_| format!("there is no filter for {ARCH}"))?;
    let other = |_| {
        let other = Condition::new(0, Width::Dword, Is::Ne, u64::from(std::process::id()));
        SeccompRule::new(vec![other.map_err(|error| error.to_string())?]).map_err(|error| error.to_string())
    };
    let rules = [libc::SYS_kill, libc::SYS_tgkill].map(|call| other(call).map(|rule| (call, vec![rule])));
    let rules = rules.into_iter().collect::<Result<_, String>>()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), target);
    let program = filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())?;
    let given = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|error| error.to_string())?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the structure and the program it names are valid for the call. The call that usually does this is not
    // among those that the jail's own filter allows.
    #[expect(unsafe_code, reason = "a filter above a filter")]
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const given) };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().to_string()) }
}

fn programs() -> Result<[BpfProgram; 2], String> {
    let target: TargetArch = ARCH.try_into().map_err(|_| format!("there is no filter for {ARCH}"))?;
    let compile = |rules, otherwise, matched| {
        let filter = SeccompFilter::new(rules, otherwise, matched, target).map_err(|error| error.to_string())?;
        BpfProgram::try_from(filter).map_err(|error| error.to_string())
    };
    let hidden = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let no_clone3 = compile(hidden, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    let allowed = compile(rules()?, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?;
    Ok([no_clone3, allowed])
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, String> {
    let any = ALLOWED.iter().chain(ALLOWED_OLD).chain(&[libc::SYS_clone3]);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = any.map(|call| (*call, Vec::new())).collect();
    let all = |conditions: &[(u8, Is, u64)]| {
        let one = |(argument, comparison, value): &(u8, Is, u64)| {
            Condition::new(*argument, Width::Dword, comparison.clone(), *value).map_err(|error| error.to_string())
        };
        let conditions = conditions.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        SeccompRule::new(conditions).map_err(|error| error.to_string())
    };
    let is = |argument, comparison, value| all(&[(argument, comparison, value)]);
    let one_of = |argument, values: &[libc::c_int]| {
        values.iter().map(|value| is(argument, Is::Eq, *value as u64)).collect::<Result<Vec<_>, _>>()
    };
    let options = |values: &[libc::c_int]| {
        let option = |value: &libc::c_int| all(&[(1, Is::Eq, libc::SOL_SOCKET as u64), (2, Is::Eq, *value as u64)]);
        values.iter().map(option).collect::<Result<Vec<_>, String>>()
    };
    let no_other_flags =
        |argument| Ok::<_, String>(vec![is(argument, Is::MaskedEq(u64::from(!(MESSAGE_FLAGS as u32))), 0)?]);
    rules.insert(libc::SYS_clone, vec![is(0, Is::MaskedEq(NAMESPACES), 0)?]);
    rules.insert(libc::SYS_socketpair, vec![is(0, Is::Eq, libc::AF_UNIX as u64)?]);
    rules.insert(libc::SYS_prlimit64, vec![is(0, Is::Eq, 0)?]);
    let ioctls = IOCTLS.iter().map(|request| is(1, Is::Eq, *request));
    rules.insert(libc::SYS_ioctl, ioctls.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_prctl, one_of(0, &PRCTLS)?);
    rules.insert(libc::SYS_fcntl, one_of(1, &FCNTLS)?);
    // Its own priority and processors, and nobody else's: 0 means whoever calls.
    rules.insert(libc::SYS_setpriority, vec![all(&[(0, Is::Eq, libc::PRIO_PROCESS as u64), (1, Is::Eq, 0)])?]);
    rules.insert(libc::SYS_sched_setaffinity, vec![is(0, Is::Eq, 0)?]);
    rules.insert(libc::SYS_getsockopt, options(&SOCKET_OPTIONS)?);
    rules.insert(libc::SYS_setsockopt, options(&SOCKET_OPTIONS_SET)?);
    for (call, flags) in
        [(libc::SYS_sendto, 3), (libc::SYS_recvfrom, 3), (libc::SYS_sendmsg, 2), (libc::SYS_recvmsg, 2)]
    {
        rules.insert(call, no_other_flags(flags)?);
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_signal_itself_alone_cannot_signal_another() {
        // A filter is a thread's own.
        let tried = std::thread::spawn(|| {
            // SAFETY: plain numbers; signal 0 signals nobody.
            #[expect(unsafe_code, reason = "no safe call signals")]
            let kill = |process: u32| match unsafe { libc::kill(process as libc::pid_t, 0) } {
                0 => None,
                _ => std::io::Error::last_os_error().raw_os_error(),
            };
            let parent = std::os::unix::process::parent_id();
            assert_eq!((kill(std::process::id()), kill(parent)), (None, None));
            // SAFETY: plain numbers.
            #[expect(unsafe_code, reason = "what a jail has done before")]
            unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            }
            signal_itself_alone().unwrap();
            assert_eq!((kill(std::process::id()), kill(parent)), (None, Some(libc::EPERM)));
        });
        tried.join().unwrap();
    }

    #[test]
    fn the_filters_compile_and_leave_out_what_reaches_beyond() {
        programs().unwrap();
        let rules = rules().unwrap();
        for call in [
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_bpf,
            libc::SYS_keyctl,
            libc::SYS_add_key,
            libc::SYS_io_uring_setup,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
            libc::SYS_memfd_create,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_send_signal,
            libc::SYS_pidfd_getfd,
            libc::SYS_tkill,
            libc::SYS_rt_sigqueueinfo,
            libc::SYS_reboot,
            libc::SYS_init_module,
            libc::SYS_setuid,
            libc::SYS_capset,
            libc::SYS_mknodat,
            libc::SYS_open_by_handle_at,
            libc::SYS_fsopen,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_personality,
            libc::SYS_kcmp,
            libc::SYS_sethostname,
            libc::SYS_clock_settime,
            libc::SYS_syslog,
        ] {
            assert!(!rules.contains_key(&call), "{call}");
        }
    }
}
