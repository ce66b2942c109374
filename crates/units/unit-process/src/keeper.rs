//! The node's end of a jail's keeper: process 1, which acts inside the jail for the node (`jail/keeper.rs`).

use crate::descriptors as fd;
use crate::jail::keeper::{DONE, MESSAGE_BYTES_MAX};
use crate::process::Process;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::AbortHandle;

/// Who waits for which answer: they come in the order of the requests.
type Waiting = Arc<Mutex<VecDeque<oneshot::Sender<io::Result<()>>>>>;

/// Dropping it ends the keeper, and with it the jail.
pub struct Keeper {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Waiting,
    /// Held while a request is sent, so that they go in the order in which they are waited for.
    turn: AsyncMutex<()>,
    listener: AbortHandle,
}

impl Keeper {
    pub fn new(socket: AsyncFd<OwnedFd>) -> Self {
        let (socket, waiting) = (Arc::new(socket), Waiting::default());
        let listener = tokio::spawn(listen(socket.clone(), waiting.clone())).abort_handle();
        Self { socket, waiting, turn: AsyncMutex::new(()), listener }
    }

    /// Moves a process of the jail to the group with these entrances. May take milliseconds: the kernel waits for every
    /// processor.
    pub async fn add(&self, process: &Process, entrances: &[File]) -> io::Result<()> {
        if entrances.is_empty() {
            return Ok(());
        }
        let fds: Vec<_> = entrances.iter().map(AsFd::as_fd).collect();
        let request = format!("add {}", process.inside());
        let (answer, answered) = oneshot::channel();
        let turn = self.turn.lock().await;
        // Before it is sent: the answer may come at once.
        self.waiting.lock().push_back(answer);
        self.socket.async_io(Interest::WRITABLE, |socket| fd::send(socket, request.as_bytes(), &fds)).await?;
        drop(turn);
        answered.await.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the jail has ended")))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Hands on the answers until the keeper is gone; whoever waits then is told by being forgotten.
async fn listen(socket: Arc<AsyncFd<OwnedFd>>, waiting: Waiting) {
    let mut room = [0; MESSAGE_BYTES_MAX];
    while let Ok(got @ 1..) = socket.async_io(Interest::READABLE, |socket| fd::receive(socket, &mut room)).await {
        let answer = match &room[..got] {
            DONE => Ok(()),
            why => Err(io::Error::other(String::from_utf8_lossy(why).into_owned())),
        };
        let Some(first) = waiting.lock().pop_front() else { break };
        // Who no longer waits has given up the whole jail.
        first.send(answer).ok();
    }
    waiting.lock().clear();
}
