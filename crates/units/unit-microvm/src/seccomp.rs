//! What a tender's thread may ask of the system once its guest is about to run: if a guest ever got hold of the thread,
//! there is no file to open, no socket to make and no program to start.

use crate::processor::IOCTLS;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is, SeccompCondition as Condition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;
use std::sync::OnceLock;

/// Allowed whatever their arguments: memory, waiting and waking, time, the end.
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_futex,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mremap,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_tgkill,
];

/// Puts this thread behind the filter, for good.
///
/// # Errors
/// The system has no such filters.
pub fn enter() -> io::Result<()> {
    static FILTER: OnceLock<Result<BpfProgram, String>> = OnceLock::new();
    let filter = FILTER.get_or_init(|| program().map_err(|error| error.to_string()));
    let filter = filter.as_ref().map_err(|error| io::Error::other(error.clone()))?;
    seccompiler::apply_filter(filter).map_err(io::Error::other)
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    let requests = IOCTLS.into_iter().map(|request| rule(1, Width::Dword, Is::Eq, request));
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    let not_executable = Is::MaskedEq(libc::PROT_EXEC as u64);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![rule(2, Width::Qword, not_executable.clone(), 0)?]);
    }
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::try_from(ARCH)?)?.try_into()
}

fn rule(argument: u8, width: Width, is: Is, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![Condition::new(argument, width, is, value)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_filter_no_file_is_opened_and_no_code_is_made() {
        std::thread::spawn(|| {
            enter().unwrap();
            let refused = std::fs::File::open("/dev/null").unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
            assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_err());
            assert!(std::process::Command::new("/bin/true").spawn().is_err());
            // Memory, however much, is still to be had.
            assert_eq!(vec![1_u8; 8 << 20].iter().map(|byte| usize::from(*byte)).sum::<usize>(), 8 << 20);
        })
        .join()
        .unwrap();
    }
}
