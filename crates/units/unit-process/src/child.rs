//! A child as the node sees it: a fresh copy of a zygote that waits for work on its socket.

use crate::allowance::Rest;
use crate::arena::Arena;
use crate::cgroup::{Bounds, Group};
use crate::descriptors::{self as fd, Received, Sender};
use crate::jail::zygote::{BORN, UNBORN};
use crate::process::Process;
use crate::rack::Rack;
use crate::zygote::Zygote;
use crate::{ProcessInner, loading, wire};
use problem::{Code, Problem};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

/// How long a fork may take.
const FORK_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a killed child may take to be gone; after it its slot is given up until it is.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a unit may go on that has closed its socket, and how often it is looked whether it does.
const LINGER_TIME_MAX: Duration = Duration::from_millis(200);
const LINGER_LOOK_EVERY: Duration = Duration::from_millis(2);
/// Bytes on their way from the node to a unit: a large array is sent in few steps.
const TO_UNIT_BYTES: libc::c_int = 4 << 20;
/// Bytes on their way from a unit to the node. The room is small on purpose: a send of 16 MiB that never waits for room
/// keeps a core for 8 ms on a kernel without preemption. With this room it waits every fraction of a millisecond, and
/// others get their turn. Large replies are not sent (`lent.rs`).
const FROM_UNIT_BYTES: libc::c_int = 24 << 10;

/// Priority of a unit that has used its first milliseconds, as `nice` has it.
pub const NICE: i32 = 10;

pub struct Child {
    pub number: u64,
    pub stream: UnixStream,
    pub reader: wire::Reader,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
    pub life: Life,
    /// Calls it has served.
    pub calls: u32,
    /// Since it waits for a call, as far as somebody has looked.
    rest: Option<Rest>,
}

/// A child's process and what the kernel counts of it. Dropping it kills the child and cleans up after it.
pub struct Life {
    pub process: Arc<Process>,
    /// Whether others go first.
    is_back: AtomicBool,
    /// Taken when it is dropped.
    left: Option<Left>,
}

/// What is cleaned up after a child.
struct Left {
    group: Group,
    /// Locked by who waits for it.
    exit: AsyncMutex<Exit>,
    zygote: Arc<Zygote>,
    slot: u32,
    /// What it can read of the node's memory, and where that belongs.
    lent: OnceLock<(Arena, Arc<Rack<Arena>>)>,
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

/// Why there is no child.
pub enum Unborn {
    /// The zygote was not told to fork: its slot is as it was.
    NotBegun(Problem),
    /// The zygote could not fork: its slot is as it was, too.
    NotForked(Problem),
    /// It was forked and said why it is no unit, or ended; its slot is being cleared.
    Refused(Problem),
    /// Nobody knows what became of it.
    Lost(Problem),
}

impl Child {
    /// Forks a child, and waits until it is ready.
    pub async fn fork(
        shared: &Arc<ProcessInner>,
        zygote: &Arc<Zygote>,
        slot: u32,
        exited: oneshot::Receiver<i32>,
        bounds: &Bounds,
    ) -> Result<Self, Unborn> {
        let has_served = zygote.has_served();
        let forked = timeout(FORK_TIME_MAX, Self::fork_now(shared, zygote, slot, exited, bounds)).await;
        let forked = forked.unwrap_or_else(|_| Err(Unborn::Lost(not_begun(took_too_long(), has_served))));
        let mut child = forked?;
        if zygote.starts_anew() {
            loading::load(&mut child, zygote).await.map_err(Unborn::Refused)?;
        }
        child.rest = Some(child.life.begins_to_rest(Instant::now(), child.life.cpu()));
        Ok(child)
    }

    /// One more call is behind it.
    pub fn has_served(&mut self) {
        self.calls += 1;
        self.rest = None;
    }

    /// Whether it has done next to nothing since it waits for a call. What it did before the first look after a call
    /// nobody knows.
    pub fn rests(&mut self, now: Instant) -> bool {
        let used = self.life.cpu();
        let rest = self.rest.get_or_insert(self.life.begins_to_rest(now, used));
        let (rests, has_lasted) = (rest.suffices(now, used), rest.has_lasted(now));
        if !rests {
            self.life.left().zygote.has_restless_child(self.calls == 0);
        } else if self.calls == 0 && has_lasted {
            self.life.left().zygote.has_resting_child();
        }
        rests
    }

    async fn fork_now(
        shared: &Arc<ProcessInner>,
        zygote: &Arc<Zygote>,
        slot: u32,
        exited: oneshot::Receiver<i32>,
        bounds: &Bounds,
    ) -> Result<Self, Unborn> {
        let has_served = zygote.has_served();
        let early = |error| Unborn::NotBegun(not_begun(error, has_served));
        let lost = |error| Unborn::Lost(not_begun(error, has_served));
        let (Wires { stream, stdout, stderr }, childs) = Wires::open().map_err(early)?;
        let number = shared.next_number();
        let making = make_group(zygote.clone(), number, *bounds);
        zygote.send(slot, childs.each_ref().map(AsFd::as_fd)).await.map_err(early)?;
        drop(childs);
        // One that loads the function itself does so in its own group: it only says that it is there.
        let first = if zygote.starts_anew() { BORN.to_vec() } else { wire::ready() };
        let sender = match said(&stream, &first).await.map_err(lost)? {
            First::Ready(sender) => sender,
            First::Unborn => {
                let error = io::Error::other("the system lets its zygote start no other process");
                return Err(Unborn::NotForked(not_begun(error, has_served)));
            }
        };
        let (process, group) = settle(zygote, &stream, sender, making).await.map_err(lost)?;
        let exit = AsyncMutex::new(Exit { receiver: Some(exited), status: None });
        let left =
            Left { group, exit, zygote: zygote.clone(), slot, lent: OnceLock::new(), runtime: Handle::current() };
        Ok(Self {
            number,
            stream,
            reader: wire::Reader::default(),
            stdout,
            stderr,
            life: Life { process: Arc::new(process), is_back: AtomicBool::new(false), left: Some(left) },
            calls: 0,
            rest: None,
        })
    }
}

/// What a child is heard by.
struct Wires {
    stream: UnixStream,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
}

impl Wires {
    /// Opens them, and the child's own ends.
    fn open() -> io::Result<(Self, [OwnedFd; 3])> {
        let (ours, theirs) = fd::stream_pair()?;
        let (stdout, out) = fd::pipe()?;
        let (stderr, err) = fd::pipe()?;
        for end in [&ours, &stdout, &stderr] {
            fd::set_nonblocking(end)?;
        }
        fd::set_send_room(&ours, TO_UNIT_BYTES);
        fd::set_send_room(&theirs, FROM_UNIT_BYTES);
        fd::ask_for_senders(&ours, true)?;
        let stream = UnixStream::from_std(StdStream::from(ours))?;
        let receiver = pipe::Receiver::from_owned_fd;
        Ok((Self { stream, stdout: receiver(stdout)?, stderr: receiver(stderr)? }, [theirs, out, err]))
    }
}

fn took_too_long() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a fork took too long")
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
            // Priorities reach the first process and those that have not left its group of processes.
            if !self.group().weigh(wanted) {
                self.process.set_nice(if wanted { NICE } else { 0 });
            }
        }
    }

    /// Appends what lies at `address` in the memory of its process: bytes of the unit, which it may change meanwhile.
    pub fn read_memory(&self, address: u64, bytes: usize, into: &mut Vec<u8>) -> io::Result<()> {
        if self.process.read_memory(address, bytes, into)? < bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "there is less"));
        }
        Ok(())
    }

    /// It was lent this, which comes back once it has ended and all that it has started.
    pub fn lend(&self, arena: Arena, home: Arc<Rack<Arena>>) {
        let once = self.left().lent.set((arena, home));
        assert!(once.is_ok(), "a unit is lent its last call alone");
    }

    /// CPU time it has used: of all its processes where they are counted together.
    pub fn cpu(&self) -> Duration {
        self.group().cpu().or_else(|| self.process.cpu()).unwrap_or_default()
    }

    fn begins_to_rest(&self, now: Instant, used: Duration) -> Rest {
        Rest::new(now, used, self.left().zygote.starts_anew())
    }

    /// Bytes it holds in memory of its own, as far as the system tells; for where no control group counts them.
    pub fn resident_bytes(&self) -> u64 {
        self.process.resident_bytes()
    }

    /// Whether it still waits for work.
    pub fn is_there(&mut self) -> bool {
        let left = self.left.as_mut().expect("there until it is dropped");
        !left.zygote.is_dead() && !left.exit.get_mut().has_come()
    }

    /// What the node has ended its zygote for, and it with it, if it has.
    pub fn why_zygote_ended(&self) -> Option<&Problem> {
        self.left().zygote.why_ended()
    }

    /// Waits for a unit that has closed its socket to end, which most do by that, and says how it has, as the system
    /// has it. None: it goes on, or nobody knows. It may still work: its limits have to be watched meanwhile.
    pub async fn status(&self) -> Option<i32> {
        let began = Instant::now();
        while !self.process.has_ended() {
            if began.elapsed() >= LINGER_TIME_MAX {
                return None;
            }
            sleep(LINGER_LOOK_EVERY).await;
        }
        let wait = async { self.left().exit.lock().await.wait().await };
        timeout(END_TIME_MAX, wait).await.ok()?
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let Some(left) = self.left.take() else { return };
        self.process.kill();
        let runtime = left.runtime.clone();
        runtime.spawn(async move {
            let Left { group, exit, zygote, slot, lent, .. } = left;
            let mut exit = exit.into_inner();
            // One by one where the kernel cannot kill a group, and there may be many.
            let killed = spawn_blocking(move || {
                group.kill();
                group
            });
            let group = killed.await.ok();
            let has_ended = timeout(END_TIME_MAX, exit.wait()).await.is_ok();
            // Waits for all of its processes to be gone.
            let are_all_gone = spawn_blocking(|| group.is_some_and(Group::end)).await.unwrap_or(false);
            if let Some((arena, home)) = lent.into_inner() {
                arena.come_back(&home);
            }
            if has_ended {
                return zygote.clear(slot, are_all_gone).await;
            }
            zygote.give_up(slot, "a unit that was killed does not end");
            // It may end yet, and its zygote may before it: who waits for that keeps no zygote.
            let late = Arc::downgrade(&zygote);
            drop(zygote);
            exit.wait().await;
            if let Some(zygote) = late.upgrade() {
                zygote.take_back();
                zygote.clear(slot, are_all_gone).await;
            }
        });
    }
}

/// Why a unit does not begin. Where none ever did, and it is not the machine that says no, it is the function.
fn not_begun(error: io::Error, has_served: bool) -> Problem {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, InvalidData, TimedOut, UnexpectedEof};
    match error.kind() {
        BrokenPipe | ConnectionReset | InvalidData | TimedOut | UnexpectedEof if !has_served => {
            Problem::new(Code::StartFailed, format!("the function was loaded, and no unit of it begins: {error}"))
        }
        _ => Problem::new(Code::NodeFull, format!("no room for another unit: {error}")),
    }
}

/// Makes the group of a child while it is forked, and opens it to be entered.
fn make_group(zygote: Arc<Zygote>, number: u64, bounds: Bounds) -> JoinHandle<io::Result<(Group, Vec<File>)>> {
    spawn_blocking(move || {
        let group = zygote.family().member(&format!("unit-{number}"), &bounds)?;
        let entrances = group.entrances()?;
        Ok((group, entrances))
    })
}

/// Finds out which process a child is that has said it is ready, and moves it to its own group.
async fn settle(
    zygote: &Zygote,
    stream: &UnixStream,
    sender: Option<Sender>,
    making: JoinHandle<io::Result<(Group, Vec<File>)>>,
) -> io::Result<(Process, Group)> {
    let process = Process::of_sender(sender, zygote.namespace())?;
    fd::ask_for_senders(stream, false)?;
    zygote.can_read.store(process.is_memory_readable(), Relaxed);
    let (group, entrances) = making.await.map_err(io::Error::other)??;
    zygote.keeper().add(&process, &entrances).await?;
    Ok((process, group))
}

/// What comes first on the socket of a child.
#[derive(Debug)]
enum First {
    /// By the child: that it is ready, and the kernel's word which process says so.
    Ready(Option<Sender>),
    /// By its zygote: that there is no child.
    Unborn,
}

/// Waits for the first bytes, which a child says when it is ready.
async fn said(stream: &UnixStream, expected: &[u8]) -> io::Result<First> {
    let mut room = vec![0; expected.len()];
    let (mut have, mut last) = (0, None);
    while have < expected.len() {
        let read = || fd::receive_beside(stream, &mut room[have..]);
        let Received { bytes, sender, .. } = stream.async_io(Interest::READABLE, read).await?;
        if bytes == 0 {
            break;
        }
        have += bytes;
        last = sender;
    }
    match &room[..have] {
        all if all == expected => Ok(First::Ready(last)),
        UNBORN => Ok(First::Unborn),
        part if part.len() < expected.len() => {
            let why = "the child ended at once; `lighter logs` may say why";
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the child did not say that it is ready")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    async fn heard(bytes: &[u8], expected: &[u8]) -> io::Result<First> {
        let (ours, theirs) = fd::stream_pair()?;
        fd::set_nonblocking(&ours)?;
        fd::ask_for_senders(&ours, true)?;
        File::from(theirs).write_all(bytes)?;
        said(&UnixStream::from_std(StdStream::from(ours))?, expected).await
    }

    /// A fork that the system refused was told by silence, as a child is that ends: all calls of the function ended
    /// with its zygote.
    #[tokio::test]
    async fn a_refused_fork_is_told_from_a_child_that_ends() {
        for expected in [BORN.to_vec(), wire::ready()] {
            assert!(matches!(heard(&expected, &expected).await, Ok(First::Ready(Some(_)))));
            assert!(matches!(heard(UNBORN, &expected).await, Ok(First::Unborn)));
            assert_eq!(heard(b"", &expected).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            let garbled = vec![b'?'; expected.len()];
            assert_eq!(heard(&garbled, &expected).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
