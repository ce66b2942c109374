//! `lighter compile-unit TARGET CPU_SECONDS`, which nobody types: reads an image from stdin, writes its code to stdout,
//! and has nothing else to do with the world.
//!
//! It gives up what it does not need before it looks at the image: its place in the queue for a core, files, sockets,
//! other programs. Somebody who takes it over can still choose the code it returns, which the node runs; nothing else
//! is in reach.

use problem::{Code, Problem};
use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is,
    SeccompCondition as Condition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fs;
use std::io::{self, Read, Write};
use std::process::ExitCode;

/// The hidden command by which this program becomes the compiler.
pub const COMMAND: &str = "compile-unit";
/// Its status when the image is at fault. What is wrong with it is written to stderr.
pub const IMAGE_AT_FAULT: u8 = 2;
/// Its status when anything else is.
const NODE_AT_FAULT: u8 = 3;

/// Its place among those that want a core: a tenth of one where others want it as well. The last place, 19, is a
/// seventieth: beside a busy neighbour a deployment of seconds became one of minutes.
const NICE: i32 = 10;
/// Seconds of CPU time after the first signal at which a compiler that ignores it is killed.
const GRACE_SECONDS: u64 = 2;

/// What it may ask of the system once it looks at the image: memory, threads of its own, its two pipes, the end.
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_futex,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Makes the code of an image for one target.
pub type Compile = Box<dyn Fn(&[u8]) -> Result<Vec<u8>, Problem>>;

/// The compiler for a target, made by the class whose word for the target it is; none if it is another's.
pub type Maker = fn(&str) -> Option<Result<Compile, Problem>>;

/// Does what the command line asks of it, with the compiler that one of these makes.
pub fn main(makers: impl IntoIterator<Item = Maker>) -> ExitCode {
    let mut arguments = std::env::args().skip(2);
    let (target, cpu_seconds) = (arguments.next(), arguments.next().and_then(|seconds| seconds.parse().ok()));
    match target
        .zip(cpu_seconds)
        .ok_or_else(not_for_people)
        .and_then(|(target, seconds)| compile(makers, &target, seconds))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            writeln!(io::stderr(), "{}", problem.detail).ok();
            ExitCode::from(if problem.code == Code::CompileFailed { IMAGE_AT_FAULT } else { NODE_AT_FAULT })
        }
    }
}

fn not_for_people() -> Problem {
    Problem::new(Code::Internal, "the node runs this to compile an image; `lighter deploy` is what you want")
}

fn compile(makers: impl IntoIterator<Item = Maker>, target: &str, cpu_seconds: u64) -> Result<(), Problem> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Problem::new(Code::Internal, format!("{what}: {error}"));
    step_back(cpu_seconds).map_err(|error| failed("stepping back", &error))?;
    let mut image = Vec::new();
    io::stdin().lock().read_to_end(&mut image).map_err(|error| failed("reading the image", &error))?;
    let compile = compiler(makers, target)?;
    if let Err(error) = shut_in() {
        // Some systems have no filters. The node logs what is said here.
        writeln!(io::stderr(), "the compiler runs without a filter of system calls: {error}").ok();
    }
    let code = compile(&image)?;
    io::stdout().lock().write_all(&code).map_err(|error| failed("writing the code", &error))
}

/// The compiler for a target.
///
/// # Errors
/// None of them has one.
pub fn compiler(makers: impl IntoIterator<Item = Maker>, target: &str) -> Result<Compile, Problem> {
    let made = makers.into_iter().find_map(|make| make(target));
    made.unwrap_or_else(|| Err(Problem::new(Code::Internal, format!("there is no target {target:?}"))))
}

/// Behind everybody who wants a core, before everybody when memory runs out, and gone with the node. Threads inherit
/// it.
fn step_back(cpu_seconds: u64) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Raising it is everybody's right; where there is no such file, nothing is lost.
    fs::write("/proc/self/oom_score_adj", "1000").ok();
    nice(NICE)?;
    let at_once = |most| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Core, at_once(0))?;
    setrlimit(Resource::Fsize, at_once(0))?;
    Ok(setrlimit(Resource::Cpu, Rlimit { current: Some(cpu_seconds), maximum: Some(cpu_seconds + GRACE_SECONDS) })?)
}

/// Nothing but [`ALLOWED`] from now on, in every thread there is and will be.
fn shut_in() -> Result<(), Box<dyn std::error::Error>> {
    for filter in filters()? {
        seccompiler::apply_filter_all_threads(&filter)?;
    }
    Ok(())
}

/// The first lets the second be put in place.
fn filters() -> Result<[BpfProgram; 2], BackendError> {
    // The flags of `clone3` lie where a filter cannot look. Where it is missing, the C library takes `clone`.
    let hidden = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // Threads have names and start no processes. Code is made here and not run: no page becomes executable.
    let thread = libc::CLONE_THREAD as u64;
    allowed.insert(libc::SYS_prctl, vec![rule(0, Width::Dword, Is::Eq, libc::PR_SET_NAME as u64)?]);
    allowed.insert(libc::SYS_clone, vec![rule(0, Width::Qword, Is::MaskedEq(thread), thread)?]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        allowed.insert(call, vec![rule(2, Width::Qword, Is::MaskedEq(libc::PROT_EXEC as u64), 0)?]);
    }
    let arch = TargetArch::try_from(ARCH)?;
    let answer = |code: i32| SeccompAction::Errno(code as u32);
    Ok([
        SeccompFilter::new(hidden, SeccompAction::Allow, answer(libc::ENOSYS), arch)?.try_into()?,
        SeccompFilter::new(allowed, answer(libc::EPERM), SeccompAction::Allow, arch)?.try_into()?,
    ])
}

fn rule(argument: u8, width: Width, is: Is, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![Condition::new(argument, width, is, value)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn shut_in_it_has_threads_and_memory_and_nothing_else() {
        let shut_in = thread::spawn(|| {
            filters().unwrap().iter().for_each(|filter| seccompiler::apply_filter(filter).unwrap());
            let refused = fs::File::open("/dev/null").unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
            assert!(std::net::UdpSocket::bind("127.0.0.1:0").is_err());
            assert!(std::process::Command::new("/bin/true").spawn().is_err());
            let sum = thread::spawn(|| vec![1_u8; 8 << 20].iter().map(|byte| usize::from(*byte)).sum::<usize>());
            assert_eq!(sum.join().unwrap(), 8 << 20);
        });
        shut_in.join().unwrap();
    }
}
