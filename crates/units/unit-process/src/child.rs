//! A child as the node sees it: a fresh copy of a zygote that waits for work on its socket.

use crate::cgroup::{Bounds, Group};
use crate::descriptors as fd;
use crate::zygote::Zygote;
use crate::{Shared, wire};
use problem::{Code, Problem};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How long a fork may take.
const FORK_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a killed child may take to be gone; after it the zygote is given up.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes on their way through the socket: a large array is sent in few steps.
const SOCKET_BYTES: libc::c_int = 4 << 20;

/// Priority of a unit that has used its first milliseconds, as `nice` has it.
const NICE: i32 = 10;

pub struct Child {
    pub number: u64,
    pub stream: UnixStream,
    pub reader: wire::Reader,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
    pub life: Life,
    /// Calls it has served.
    pub calls: u32,
    pub since: Instant,
}

/// A child's process and what the kernel counts of it. Dropping it kills the child and cleans up after it.
pub struct Life {
    process: u32,
    /// Whether others go first.
    is_back: AtomicBool,
    /// Taken when it is dropped.
    left: Option<Left>,
}

/// What is cleaned up after a child.
struct Left {
    pidfd: OwnedFd,
    group: Group,
    exit: Exit,
    zygote: Arc<Zygote>,
    slot: u32,
    runtime: Handle,
}

/// When and how the process ended, as its zygote says; asked as often as one likes.
struct Exit {
    /// None once it has been heard.
    receiver: Option<oneshot::Receiver<i32>>,
    status: Option<i32>,
}

impl Exit {
    fn has_come(&mut self) -> bool {
        if let Some(receiver) = &mut self.receiver {
            match receiver.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return false,
                heard => self.heard(heard.ok()),
            }
        }
        true
    }

    /// Waits for it; none if nobody knows how it ended.
    async fn wait(&mut self) -> Option<i32> {
        if let Some(receiver) = &mut self.receiver {
            let status = receiver.await.ok();
            self.heard(status);
        }
        self.status
    }

    fn heard(&mut self, status: Option<i32>) {
        self.receiver = None;
        self.status = status;
    }
}

impl Child {
    pub async fn fork(
        shared: &Arc<Shared>,
        zygote: &Arc<Zygote>,
        slot: u32,
        exited: oneshot::Receiver<i32>,
        bounds: &Bounds,
    ) -> Result<Self, Problem> {
        let forked = Self::fork_now(shared, zygote, slot, exited, bounds);
        let failed = |error: io::Error| Problem::new(Code::NodeFull, format!("no room for another unit: {error}"));
        match tokio::time::timeout(FORK_TIME_MAX, forked).await {
            Ok(forked) => forked.map_err(failed),
            Err(_) => Err(failed(io::Error::new(io::ErrorKind::TimedOut, "a fork took too long"))),
        }
    }

    async fn fork_now(
        shared: &Arc<Shared>,
        zygote: &Arc<Zygote>,
        slot: u32,
        exited: oneshot::Receiver<i32>,
        bounds: &Bounds,
    ) -> io::Result<Self> {
        let (ours, theirs) = fd::stream_pair()?;
        let (stdout, out) = fd::pipe()?;
        let (stderr, err) = fd::pipe()?;
        for end in [&ours, &stdout, &stderr] {
            fd::set_nonblocking(end)?;
        }
        for end in [&ours, &theirs] {
            fd::set_send_room(end, SOCKET_BYTES);
        }
        fd::ask_for_senders(&ours, true)?;
        zygote.send(slot, [theirs.as_fd(), out.as_fd(), err.as_fd()]).await?;
        drop((theirs, out, err));
        let stream = UnixStream::from_std(StdStream::from(ours))?;
        let process = ready(&stream).await?;
        let pidfd = fd::pidfd(process)?;
        // It held its end of the socket when its number was taken down: the number is its own and not a successor's.
        if stream.ready(Interest::WRITABLE).await?.is_write_closed() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the child ended at once"));
        }
        fd::ask_for_senders(&stream, false)?;
        zygote.can_read.store(fd::is_memory_readable(process), Relaxed);
        let number = shared.next_number();
        let group = zygote.family().member(&format!("unit-{number}"), bounds)?;
        let joined = tokio::task::spawn_blocking(move || group.add(process).map(|()| group));
        let group = joined.await.map_err(io::Error::other)??;
        let exit = Exit { receiver: Some(exited), status: None };
        let left = Left { pidfd, group, exit, zygote: zygote.clone(), slot, runtime: Handle::current() };
        let receiver = pipe::Receiver::from_owned_fd;
        Ok(Self {
            number,
            stream,
            reader: wire::Reader::default(),
            stdout: receiver(stdout)?,
            stderr: receiver(stderr)?,
            life: Life { process, is_back: AtomicBool::new(false), left: Some(left) },
            calls: 0,
            since: Instant::now(),
        })
    }
}

impl Life {
    fn left(&self) -> &Left {
        self.left.as_ref().expect("there until it is dropped")
    }

    pub fn group(&self) -> &Group {
        &self.left().group
    }

    /// Lets others go first, or no longer: a unit that works for long must not hold up those that are soon done.
    pub fn step_back(&self, wanted: bool) {
        if self.is_back.swap(wanted, Relaxed) != wanted {
            fd::set_nice(self.process, if wanted { NICE } else { 0 });
        }
    }

    /// Appends what lies at `address` in the memory of its process: bytes of the unit, which it may change meanwhile.
    pub fn read_memory(&self, address: u64, bytes: usize, into: &mut Vec<u8>) -> io::Result<()> {
        let got = fd::read_memory(self.process, address, bytes, into)?;
        // Nobody else can have got its number while it had not ended.
        if fd::has_ended(&self.left().pidfd) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process has ended"));
        }
        if got < bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "there is less"));
        }
        Ok(())
    }

    /// CPU time it has used: of all its processes where they are counted together.
    pub fn cpu(&self) -> Duration {
        let alone = || fd::process_cpu_ns(self.process).map(Duration::from_nanos);
        self.group().cpu().or_else(alone).unwrap_or_default()
    }

    /// Bytes it holds in memory of its own, as far as the system tells; for where no control group counts them.
    pub fn resident_bytes(&self) -> u64 {
        const PAGE_BYTES: u64 = 4_096;
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.process)).unwrap_or_default();
        let mut pages = text.split(' ').skip(1).map(|pages| pages.parse().unwrap_or(0_u64));
        let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        resident.saturating_sub(shared) * PAGE_BYTES
    }

    /// Whether it still waits for work.
    pub fn is_there(&mut self) -> bool {
        let left = self.left.as_mut().expect("there until it is dropped");
        !left.zygote.is_dead() && !left.exit.has_come()
    }

    /// What the node has ended its zygote for, and it with it, if it has.
    pub fn why_zygote_ended(&self) -> Option<&Problem> {
        self.left().zygote.why_ended()
    }

    /// How its process has ended, as the system says it; none if nobody knows.
    pub async fn status(&mut self) -> Option<i32> {
        let left = self.left.as_mut().expect("there until it is dropped");
        tokio::time::timeout(END_TIME_MAX, left.exit.wait()).await.ok()?
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let Some(left) = self.left.take() else { return };
        fd::kill(&left.pidfd);
        left.group.kill();
        let runtime = left.runtime.clone();
        runtime.spawn(async move {
            let Left { group, mut exit, zygote, slot, pidfd, .. } = left;
            match tokio::time::timeout(END_TIME_MAX, exit.wait()).await {
                Ok(_) => zygote.free(slot),
                Err(_) => tracing::warn!(target: "lighter::jails", slot, "a unit that was killed does not end; its slot is not used again"),
            }
            drop(pidfd);
            // Waits for its processes to be gone.
            tokio::task::spawn_blocking(move || drop(group)).await.ok();
        });
    }
}

/// Waits for the first frame, by which a child says that it is ready, and for the kernel's word which process sent it.
async fn ready(stream: &UnixStream) -> io::Result<u32> {
    let expected = wire::ready();
    let mut room = vec![0; expected.len()];
    let (mut have, mut process) = (0, None);
    while have < expected.len() {
        let read = || fd::receive_with_sender(stream, &mut room[have..]);
        let (got, sender) = stream.async_io(Interest::READABLE, read).await?;
        if got == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the child ended at once; `lighter logs` may say why",
            ));
        }
        have += got;
        process = sender.or(process);
    }
    if room != expected {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the child did not say that it is ready"));
    }
    process
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel does not say which process the child is"))
}
