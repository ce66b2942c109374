//! A session with a board over TCP: opened for one boot of one board, attested before anything is said.

use board_link::{Failed, FailedKind, Goal, Hash, Keys, Link, LinkFault, Message, Stages};
use problem::{Code, Problem};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const OPEN_MAX: Duration = Duration::from_secs(5);
/// Between two things a board says where it has nothing to compute.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A serial line, half used.
const SLOWEST_BYTES_PER_SECOND: u64 = 5_000;
const READ_BYTES: usize = 64 << 10;

/// A session. Dropped, the connection is closed, and the board drops what it did for it.
pub struct Session {
    board: String,
    stream: TcpStream,
    link: Link,
    read: Vec<u8>,
    /// Of `read`, what the link has not taken yet.
    left: std::ops::Range<usize>,
    began: Instant,
}

/// What a board is to run.
#[derive(Debug, Clone)]
pub struct BoardWork {
    pub id: u64,
    pub code: Hash,
    pub may: u64,
    pub run_max: Duration,
    pub memory_bytes_max: u64,
    pub now_ms: u64,
    pub event: Vec<u8>,
}

/// What a board says while it runs.
#[derive(Debug)]
pub enum BoardSaid {
    Asks { number: u32, frame: Vec<u8> },
    Line { level: u8, line: String },
    Replied { stages: Stages, frame: Vec<u8> },
}

impl Session {
    /// Connects, shakes hands, and judges the board's evidence by the policy of `goal`.
    ///
    /// # Errors
    /// - [`Code::BoardLost`]: nobody answers there.
    /// - [`Code::BoardDistrusted`]: whoever answers is not the board, or not one the policy trusts.
    pub async fn open(board: &str, address: SocketAddr, keys: &Keys, goal: Goal) -> Result<Self, Problem> {
        let began = Instant::now();
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|error| Problem::new(Code::Internal, format!("the system has no randomness: {error}")))?;
        let link = Link::open(keys, goal, seed, 0).map_err(|fault| distrusted(board, fault))?;
        let opening = async {
            let stream = TcpStream::connect(address).await.map_err(|error| lost(board, &error.to_string()))?;
            let _ = stream.set_nodelay(true);
            let read = vec![0; READ_BYTES];
            let mut session = Self { board: board.to_owned(), stream, link, read, left: 0..0, began };
            session.flush().await?;
            while !session.link.is_open() {
                session.step().await?;
            }
            Ok(session)
        };
        timeout(OPEN_MAX, opening).await.map_err(|_| lost(board, "it does not answer"))?
    }

    /// Makes sure the payload of this hash is on the board; `payload` is sent only if it is not.
    ///
    /// # Errors
    /// [`Code::BoardRefused`]: the board does not take it. [`Code::BoardLost`].
    pub async fn bring(&mut self, code: Hash, payload: &[u8]) -> Result<(), Problem> {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        match self.ask(&Message::Offer { code, bytes }, ANSWER_MAX).await? {
            Message::Held { .. } => return Ok(()),
            Message::Wanted { .. } => {}
            other => return Err(self.unexpected(&other)),
        }
        let wait_max = ANSWER_MAX + Duration::from_millis(u64::from(bytes) * 1_000 / SLOWEST_BYTES_PER_SECOND);
        match self.ask(&Message::Code { bytes: payload.to_vec() }, wait_max).await? {
            Message::Held { .. } => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Begins a call; what follows comes from [`Session::said`].
    ///
    /// # Errors
    /// [`Code::BoardLost`].
    pub async fn call(&mut self, work: BoardWork) -> Result<(), Problem> {
        let BoardWork { id, code, may, run_max, memory_bytes_max, now_ms, event } = work;
        let run_ms_max = u32::try_from(run_max.as_millis()).unwrap_or(u32::MAX);
        self.tell(&Message::Call { id, code, may, run_ms_max, memory_bytes_max, now_ms, event }).await
    }

    /// Waits for what the board says next in a call, however long that takes.
    ///
    /// # Errors
    /// [`Code::ReplyTooLarge`]: no session carries it. [`Code::BoardRefused`], [`Code::BoardLost`].
    pub async fn said(&mut self, id: u64) -> Result<BoardSaid, Problem> {
        match self.hear().await? {
            Message::HostCall { number, frame } => Ok(BoardSaid::Asks { number, frame }),
            Message::Log { level, line } => Ok(BoardSaid::Line { level, line }),
            Message::Reply { id: of, stages, frame } if of == id => Ok(BoardSaid::Replied { stages, frame }),
            Message::Failed(Failed { kind: FailedKind::TooLarge, reason }) => {
                Err(Problem::new(Code::ReplyTooLarge, format!("on the board {}: {reason}", self.board)))
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Answers what the board asked last.
    ///
    /// # Errors
    /// [`Code::BoardLost`].
    pub async fn answer(&mut self, frame: Vec<u8>) -> Result<(), Problem> {
        self.tell(&Message::Answer { frame }).await
    }

    /// The end. What was not sent yet may be lost, which is no loss.
    pub async fn end(mut self) {
        if self.tell(&Message::Drop).await.is_ok() {
            let _ = self.stream.shutdown().await;
        }
    }

    async fn ask(&mut self, message: &Message, wait_max: Duration) -> Result<Message, Problem> {
        self.tell(message).await?;
        let board = self.board.clone();
        timeout(wait_max, self.hear()).await.map_err(|_| lost(&board, "it does not answer"))?
    }

    async fn tell(&mut self, message: &Message) -> Result<(), Problem> {
        self.link.write(message).map_err(|fault| match fault {
            LinkFault::Message(fault) => {
                Problem::new(Code::BoardRefused, format!("the board {} cannot be told: {fault}", self.board))
            }
            fault => distrusted(&self.board, fault),
        })?;
        self.flush().await
    }

    async fn hear(&mut self) -> Result<Message, Problem> {
        loop {
            if let Some(message) = self.step().await? {
                return Ok(message);
            }
        }
    }

    /// Takes some bytes; returns the message they complete, if they do.
    async fn step(&mut self) -> Result<Option<Message>, Problem> {
        if self.left.is_empty() {
            let bytes =
                self.stream.read(&mut self.read).await.map_err(|error| lost(&self.board, &error.to_string()))?;
            if bytes == 0 {
                return Err(lost(&self.board, "it closed the connection"));
            }
            self.left = 0..bytes;
        }
        let taken = self.link.receive(&self.read[self.left.clone()]).map_err(|fault| distrusted(&self.board, fault))?;
        self.left.start += taken;
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.link.read(now_ms).map_err(|fault| distrusted(&self.board, fault))
    }

    async fn flush(&mut self) -> Result<(), Problem> {
        while !self.link.outgoing().is_empty() {
            let sent = self.stream.write(self.link.outgoing()).await;
            let sent = sent.map_err(|error| lost(&self.board, &error.to_string()))?;
            if sent == 0 {
                return Err(lost(&self.board, "it closed the connection"));
            }
            self.link.sent(sent);
        }
        Ok(())
    }

    fn unexpected(&self, message: &Message) -> Problem {
        let board = &self.board;
        match message {
            Message::Failed(Failed { kind: FailedKind::Payload | FailedKind::Link, reason }) => {
                Problem::new(Code::BoardRefused, format!("the board {board} does not run this code: {reason}"))
            }
            Message::Failed(Failed { kind, reason }) => {
                Problem::new(Code::BoardRefused, format!("the board {board} refuses ({}): {reason}", kind.word()))
            }
            _ => Problem::new(Code::BoardRefused, format!("the board {board} answers what was not asked")),
        }
    }
}

fn lost(board: &str, why: &str) -> Problem {
    Problem::new(Code::BoardLost, format!("the board {board} went away: {why}"))
}

fn distrusted(board: &str, fault: LinkFault) -> Problem {
    Problem::new(Code::BoardDistrusted, format!("the board {board} is not trusted: {fault}"))
}
