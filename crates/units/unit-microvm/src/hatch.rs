//! How node and guest talk while the guest runs on: a question, a reply and the next event need no exit.
//!
//! ```text
//!   guest: asks, counts, looks for the answer ──▶ node that listens: take ─▶ works ─▶ answer ──▶ guest goes on
//!        └ patience is over, or nobody listens: exit ─▶ thread: left ─▶ told as ever, or taken already: waits
//! ```
//! An exit to the tender and the way back cost tens of microseconds where the machine is itself a guest, and each wakes
//! a thread. Whose turn it is stands in the node's own memory, under a lock. What the guest counts is a hint and no
//! more: whatever it writes there, a question is taken once, and what it says is copied before it is checked.

use crate::exits::{self, Asked, Bounds, GuestRange, Lie};
use crate::memory::{Memory, Outside};
use crate::tender::{TOLD_MAX, Told, What};
use kernel_abi::exits::{CallPage, DONE, Exit, REFUSED, hatch};
use kernel_abi::{layout, ring};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// How long a guest looks for the answer to a call, and for its next event: about what leaving and coming back take.
const CALL_PATIENCE: Duration = Duration::from_micros(60);
const REST_PATIENCE: Duration = Duration::from_micros(100);
/// What a thread may have told when something is taken: what fits, what it waits with, and after that lines once more
/// and the guest's end.
const HEARD_MAX: usize = TOLD_MAX + 3;

/// What thread and node share of a machine.
pub struct Hatch {
    memory: Arc<Memory>,
    tsc_hz: u64,
    /// None while the machine is nobody's.
    state: Mutex<Option<State>>,
}

struct State {
    bounds: Bounds,
    began: Instant,
    /// The last question that was taken, or told by an exit.
    last: u64,
    /// The node has answered that one, and an exit for its sake may still be under way.
    answered: bool,
    turn: Turn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The guest runs, or is about to.
    Guest,
    /// The node has taken what the guest asks, which looks for the answer or is leaving.
    Node(Taken),
    /// The same, and it has left: its thread waits.
    Waits(Taken),
    /// Its thread has left, and told.
    Thread,
}

/// What was taken: a call with room for its answer, or a reply, after which there may be another event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Call(GuestRange),
    Reply,
}

/// What an exit means.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// It asks: nobody has heard that yet.
    Asks,
    /// The node has its question, and answers into this room or says that it has.
    Called(GuestRange),
    /// The node has its reply.
    Replied,
    /// It is answered already.
    Answered,
}

/// Where an answer or an event goes.
#[derive(Debug)]
pub enum Handed {
    /// It is there, and the guest sees it.
    Done,
    /// It is there, and the thread is to enter the guest.
    Go,
    /// By the thread.
    Thread(Vec<u8>),
}

impl Hatch {
    pub fn new(memory: Arc<Memory>, tsc_hz: u64) -> Self {
        Self { memory, tsc_hz, state: Mutex::default() }
    }

    /// Where the memory lies in this process.
    #[cfg(test)]
    pub fn place(&self) -> u64 {
        self.memory.host_address()
    }

    /// Says whether the memory is still mapped.
    #[cfg(test)]
    pub fn memory(&self) -> std::sync::Weak<Memory> {
        Arc::downgrade(&self.memory)
    }

    /// From the thread: a unit is there, and stands still.
    pub fn starts(&self, bounds: Bounds, began: Instant) {
        let (last, turn) = (self.load(hatch::ASKED), Turn::Thread);
        *self.state.lock() = Some(State { bounds, began, last, answered: false, turn });
    }

    /// From the thread: there is no unit any more.
    pub fn ends(&self) {
        *self.state.lock() = None;
    }

    /// From the thread, which enters the guest.
    pub fn enters(&self) {
        if let Some(state) = &mut *self.state.lock()
            && matches!(state.turn, Turn::Thread | Turn::Waits(_))
        {
            state.turn = Turn::Guest;
        }
    }

    /// From the thread: the guest has left to ask for something.
    pub fn left(&self) -> Left {
        let mut state = self.state.lock();
        let Some(state) = &mut *state else { return Left::Asks };
        let asked = self.load(hatch::ASKED);
        match state.turn {
            Turn::Node(taken) | Turn::Waits(taken) => {
                state.turn = Turn::Waits(taken);
                match taken {
                    Taken::Call(room) => Left::Called(room),
                    Taken::Reply => Left::Replied,
                }
            }
            // Once: one that leaves again for the same has lied, and is told of like any other.
            Turn::Guest if state.answered && asked == state.last => {
                state.answered = false;
                Left::Answered
            }
            Turn::Guest | Turn::Thread => {
                (state.last, state.answered, state.turn) = (asked, false, Turn::Thread);
                Left::Asks
            }
        }
    }

    /// From the node: whether somebody will look for questions, and whether the unit may rest after its reply where it
    /// is. Whoever stops looking says so, and looks once more.
    pub fn listens(&self, listens: bool, rests: bool) {
        let turns = |time: Duration| {
            let turns = u128::from(self.tsc_hz) * time.as_nanos() / 1_000_000_000;
            u64::try_from(turns).unwrap_or(0)
        };
        self.store(hatch::CALL_TURNS, turns(CALL_PATIENCE));
        self.store(hatch::REST_TURNS, if rests { turns(REST_PATIENCE) } else { 0 });
        self.store(hatch::LISTENS, listens.into());
    }

    /// From the node: it looks again.
    pub fn hears(&self) {
        self.store(hatch::LISTENS, 1);
    }

    /// From the node: nobody looks any more.
    pub fn is_deaf(&self) {
        self.store(hatch::LISTENS, 0);
    }

    /// From the node: what the guest asks, or replies, if it does.
    pub fn take(&self) -> Option<Told> {
        let mut state = self.state.lock();
        let state = state.as_mut().filter(|state| state.turn == Turn::Guest)?;
        let asked = self.load(hatch::ASKED);
        if asked == state.last {
            return None;
        }
        let port = u16::try_from(self.load(hatch::PORT)).ok();
        let port = port.filter(|port| matches!(Exit::of(*port), Some(Exit::Call | Exit::Receive)))?;
        (state.last, state.answered) = (asked, false);
        let lied = |why: String| Some(Told { lines: Vec::new(), what: What::Lied(why) });
        let Ok(words) = self.memory.read_words(layout::CALL) else { return lied("it has no call page".into()) };
        let (what, taken) = match exits::check(port, &CallPage::from_words(words), &state.bounds) {
            Err(Lie(why)) => return lied(why),
            Ok(Asked::Call { verb: None, .. }) => {
                self.settle(state, REFUSED, 0);
                return None;
            }
            Ok(Asked::Call { verb: Some(verb), request, answer }) => {
                (self.copy(request).map(|request| What::Asks { verb, request }), Taken::Call(answer))
            }
            Ok(Asked::Receive { memory_bytes, reply, .. }) => {
                (self.copy(reply).map(|reply| What::Replied { reply, memory_bytes }), Taken::Reply)
            }
            Ok(_) => return None,
        };
        let Ok(what) = what else { return lied("it named what it has not".into()) };
        state.turn = Turn::Node(taken);
        Some(Told { lines: lines(&self.memory), what })
    }

    /// From the node: what the guest says next, by itself or by its thread. Lines that the thread told come before what
    /// is taken here, and the end of the guest takes its place.
    pub fn hear(&self, told: &mut mpsc::Receiver<Told>) -> Option<Told> {
        // First: what it had logged by then, its thread has told by now.
        let taken = self.take();
        let (mut lines, mut last) = (Vec::new(), None);
        for _ in 0..HEARD_MAX {
            let Ok(told) = told.try_recv() else { break };
            lines.extend(told.lines);
            let is_more = !matches!(told.what, What::Lines);
            last = Some(told.what);
            if is_more {
                break;
            }
        }
        let (own, asked) = taken.map(|taken| (taken.lines, taken.what)).unzip();
        lines.extend(own.into_iter().flatten());
        let what = match last {
            None | Some(What::Lines) => asked.or(last),
            more => more,
        };
        what.map(|what| Told { lines, what })
    }

    /// From the node: whether the unit still is where it replied.
    pub fn rests(&self) -> bool {
        self.state.lock().as_ref().is_some_and(|state| state.turn == Turn::Node(Taken::Reply))
    }

    /// From the node: the answer to what the guest asked.
    pub fn answer(&self, bytes: Vec<u8>) -> Handed {
        self.give(bytes, |taken| if let Taken::Call(room) = taken { Some(room) } else { None })
    }

    /// From the node: an event for the unit.
    pub fn event(&self, bytes: Vec<u8>) -> Handed {
        let room = usize::try_from(layout::INBOX_BYTES).unwrap_or(0);
        let room = GuestRange { at: layout::INBOX, bytes: room };
        self.give(bytes, |taken| (taken == Taken::Reply).then_some(room))
    }

    fn give(&self, bytes: Vec<u8>, room: impl FnOnce(Taken) -> Option<GuestRange>) -> Handed {
        let mut state = self.state.lock();
        let Some(state) = &mut *state else { return Handed::Thread(bytes) };
        // After a reply the thread waits for anything, and not only to be told that an event is there.
        let (taken, has_left) = match state.turn {
            Turn::Node(taken) => (taken, false),
            Turn::Waits(taken @ Taken::Call(_)) => (taken, true),
            Turn::Waits(Taken::Reply) | Turn::Guest | Turn::Thread => return Handed::Thread(bytes),
        };
        let Some(room) = room(taken).filter(|room| bytes.len() <= room.bytes) else {
            // The guest is to leave for it, and to fetch it.
            self.is_deaf();
            return Handed::Thread(bytes);
        };
        if self.memory.write(room.at, &bytes).is_err() {
            return Handed::Thread(bytes);
        }
        self.settle(state, DONE, bytes.len() as u64);
        state.turn = if has_left { Turn::Thread } else { Turn::Guest };
        if has_left { Handed::Go } else { Handed::Done }
    }

    /// Says that what the guest asked last is answered.
    fn settle(&self, state: &mut State, status: u64, answer_bytes: u64) {
        state.answered = true;
        if settle(&self.memory, state.began, status, answer_bytes).is_ok() {
            self.store(hatch::ANSWERED, state.last);
        }
    }

    fn copy(&self, range: GuestRange) -> Result<Vec<u8>, Outside> {
        self.memory.copy(range.at, range.bytes)
    }

    fn load(&self, at: u64) -> u64 {
        self.memory.load(at).unwrap_or(0)
    }

    fn store(&self, at: u64, word: u64) {
        // Every machine has a call page.
        let _ = self.memory.store(at, word);
    }
}

/// Writes status, length and the time into the call page of a guest that stands still, or looks for its answer.
pub fn settle(memory: &Memory, began: Instant, status: u64, answer_bytes: u64) -> Result<(), Outside> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let (unix_ns, monotonic_ns) = (ns(unix), ns(began.elapsed()));
    let page = CallPage { status, answer_bytes, unix_ns, monotonic_ns, ..CallPage::default() };
    memory.write_words(layout::CALL, &page.words())
}

/// Takes the lines out of the ring. It is copied before it is looked at, and only written to if there were any.
pub fn lines(memory: &Memory) -> Vec<(u32, Vec<u8>)> {
    let mut head = [0; ring::HEAD];
    if memory.read(layout::LOG, &mut head).is_err() || head == [0; ring::HEAD] {
        return Vec::new();
    }
    let used = u64::from(u32::from_le_bytes(head)).min(layout::LOG_BYTES);
    let ring = memory.copy(layout::LOG, usize::try_from(used).unwrap_or(0)).unwrap_or_default();
    // An error here would be one of the next write too.
    let _ = memory.write(layout::LOG, &[0; ring::HEAD]);
    exits::lines(&ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_abi::{Policy, Verb};

    const HEAP: u64 = 0x20_0000;

    /// A hatch whose unit runs, and what its guest would do.
    fn hatch() -> Hatch {
        let hatch = Hatch::new(Arc::new(Memory::reserve(4 << 20).unwrap()), 1_000_000_000);
        hatch.starts(
            Bounds { heap: HEAP..2 * HEAP, code: 0..0, policy: Policy::least(), bytes_max: 1 << 20 },
            Instant::now(),
        );
        hatch.enters();
        hatch.listens(true, true);
        hatch
    }

    impl Hatch {
        fn asks(&self, exit: Exit, verb: Verb, request: &[u8]) {
            self.memory.write(HEAP, request).unwrap();
            let page = CallPage {
                number: verb.number().into(),
                request: HEAP,
                request_bytes: request.len() as u64,
                answer: layout::INBOX,
                answer_bytes_max: 16,
                ..CallPage::default()
            };
            self.memory.write_words(layout::CALL, &page.words()).unwrap();
            self.store(hatch::PORT, exit.port().into());
            self.store(hatch::ASKED, self.load(hatch::ASKED) + 1);
        }

        fn is_answered(&self) -> bool {
            self.load(hatch::ASKED) == self.load(hatch::ANSWERED)
        }

        fn answer_bytes(&self) -> u64 {
            CallPage::from_words(self.memory.read_words(layout::CALL).unwrap()).answer_bytes
        }
    }

    #[track_caller]
    fn takes(hatch: &Hatch) -> Vec<u8> {
        match hatch.take().expect("something was asked").what {
            What::Asks { verb: Verb::ConfigGet, request } => request,
            What::Replied { reply, .. } => reply,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_question_is_taken_once_and_answered_where_the_guest_looks() {
        let hatch = hatch();
        assert!(hatch.take().is_none(), "nothing was asked yet");
        for turn in 0..3 {
            hatch.asks(Exit::Call, Verb::ConfigGet, b"what");
            assert_eq!(takes(&hatch), b"what");
            assert!(hatch.take().is_none() && !hatch.is_answered());
            assert!(matches!(hatch.answer(vec![turn; 16]), Handed::Done));
            assert!(hatch.is_answered() && hatch.answer_bytes() == 16);
            assert_eq!(hatch.memory.copy(layout::INBOX, 16).unwrap(), [turn; 16]);
        }
        // It had left for an answer that was there by then; once.
        assert_eq!((hatch.left(), hatch.left()), (Left::Answered, Left::Asks));
    }

    #[test]
    fn who_leaves_is_told_of_unless_the_node_has_heard_it() {
        let hatch = hatch();
        hatch.asks(Exit::Call, Verb::ConfigGet, b"first");
        assert_eq!(hatch.left(), Left::Asks);
        assert!(hatch.take().is_none(), "its thread tells");
        assert!(matches!(hatch.answer(vec![1]), Handed::Thread(_)), "and answers");
        hatch.enters();
        hatch.asks(Exit::Call, Verb::ConfigGet, b"second");
        takes(&hatch);
        assert!(matches!(hatch.left(), Left::Called(room) if room.bytes == 16));
        assert!(matches!(hatch.answer(vec![2]), Handed::Go));
        hatch.enters();
        // What is too large for the room goes by the thread, and the guest leaves for it.
        hatch.asks(Exit::Call, Verb::ConfigGet, b"third");
        takes(&hatch);
        assert!(matches!(hatch.answer(vec![3; 17]), Handed::Thread(bytes) if bytes.len() == 17));
        assert_eq!(hatch.load(hatch::LISTENS), 0);
        assert!(matches!(hatch.left(), Left::Called(_)));
    }

    #[test]
    fn the_next_event_finds_a_unit_where_it_rests_or_where_it_has_gone() {
        let hatch = hatch();
        hatch.asks(Exit::Receive, Verb::ConfigGet, b"reply");
        assert_eq!(takes(&hatch), b"reply");
        assert!(hatch.rests() && matches!(hatch.event(vec![4; 100]), Handed::Done) && hatch.is_answered());
        hatch.asks(Exit::Receive, Verb::ConfigGet, b"again");
        takes(&hatch);
        assert_eq!(hatch.left(), Left::Replied);
        assert!(!hatch.rests() && matches!(hatch.event(vec![5; 100]), Handed::Thread(_)));
    }

    /// A unit that logged by an exit and then replied without one: its lines were lost, or stood under its next call.
    #[test]
    fn what_the_thread_told_before_is_heard_before() {
        let hatch = hatch();
        let (tell, mut told) = mpsc::channel(TOLD_MAX);
        let line = |text: &[u8]| (2, text.to_vec());
        let tells = |text: &[u8], what| tell.try_send(Told { lines: vec![line(text)], what }).unwrap();
        assert!(hatch.hear(&mut told).is_none());
        tells(b"first", What::Lines);
        tells(b"second", What::Lines);
        hatch.asks(Exit::Receive, Verb::ConfigGet, b"reply");
        let heard = hatch.hear(&mut told).unwrap();
        assert_eq!(heard.lines, [line(b"first"), line(b"second")]);
        assert!(matches!(heard.what, What::Replied { reply, .. } if reply == b"reply"));
        assert!(hatch.hear(&mut told).is_none());
        // Only lines; and an end, which what was asked before it is nothing to.
        tells(b"third", What::Lines);
        assert!(matches!(hatch.hear(&mut told).unwrap().what, What::Lines));
        assert!(matches!(hatch.event(Vec::new()), Handed::Done));
        tells(b"fourth", What::Lines);
        hatch.asks(Exit::Call, Verb::ConfigGet, b"what");
        tells(b"fifth", What::Stopped);
        let heard = hatch.hear(&mut told).unwrap();
        assert_eq!(heard.lines, [line(b"fourth"), line(b"fifth")]);
        assert!(matches!(heard.what, What::Stopped));
    }

    #[test]
    fn what_is_refused_is_answered_at_once_and_lies_are_told() {
        let hatch = hatch();
        hatch.asks(Exit::Call, Verb::StoreGet, b"not its own");
        assert!(hatch.take().is_none() && hatch.is_answered());
        let page = CallPage::from_words(hatch.memory.read_words(layout::CALL).unwrap());
        assert_eq!(page.status, REFUSED);
        hatch.asks(Exit::Log, Verb::ConfigGet, b"for which it must leave");
        assert!(hatch.take().is_none() && !hatch.is_answered());
        hatch.asks(Exit::Call, Verb::ConfigGet, b"a lie");
        hatch.memory.store(layout::CALL + 8, layout::PAGE_TABLES).unwrap();
        assert!(matches!(hatch.take(), Some(Told { what: What::Lied(_), .. })));
        hatch.ends();
        assert!(hatch.take().is_none() && hatch.left() == Left::Asks && !hatch.rests());
    }
}
