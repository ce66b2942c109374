//! What goes on while a command works: a line that moves on a terminal, a line a step elsewhere.
//!
//! ```text
//! terminal    | compiling hello (13.0 MB)  4.2 s        drawn again ten times a second, gone when the step ends
//! elsewhere   compiling hello (13.0 MB) …               only when a step takes more than a second, then ever more rarely
//! both        compiled hello in 18.1 s                  what a finished step leaves behind
//! ```

use super::words;
use ratatui::crossterm::terminal;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(100);
/// A step shorter than this is not shown while it runs: a flicker helps nobody.
const SHOWN_AFTER: Duration = Duration::from_millis(300);
/// Without a terminal, the first word about a step that takes long.
const SAID_AFTER: Duration = Duration::from_secs(1);

/// How many show steps now. There is one stderr: whoever only waits stays silent while a command says what it does.
static SHOWING: AtomicUsize = AtomicUsize::new(0);

/// Shows steps on stderr. Dropping it ends the step that runs.
pub struct Progress {
    shared: Arc<Shared>,
    ticker: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    silent: bool,
    live: bool,
    step: Option<Step>,
    drawn: bool,
    ended: bool,
}

struct Step {
    text: String,
    since: Instant,
    /// Without a terminal: when to speak next, counted from `since`.
    next_word: Duration,
}

impl Progress {
    pub fn new(silent: bool, live: bool) -> Self {
        let shared =
            Arc::new(Shared { state: Mutex::new(State { silent, live, ..State::default() }), ..Shared::default() });
        let ticker = (!silent).then(|| {
            SHOWING.fetch_add(1, Ordering::Relaxed);
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.tick())
        });
        Self { shared, ticker }
    }

    /// A step, unless another is shown already.
    pub fn unless_shown(silent: bool, live: bool, text: impl Into<String>) -> Option<Self> {
        if silent || SHOWING.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let progress = Self::new(silent, live);
        progress.step(text);
        Some(progress)
    }

    /// Begins a step, which ends the one before.
    pub fn step(&self, text: impl Into<String>) {
        let mut state = self.shared.lock();
        state.step = Some(Step { text: text.into(), since: Instant::now(), next_word: SAID_AFTER });
    }

    /// Other words for the step that runs.
    pub fn update(&self, text: impl Into<String>) {
        if let Some(step) = &mut self.shared.lock().step {
            step.text = text.into();
        }
    }

    /// Ends the step and leaves a line behind.
    pub fn done(&self, line: impl AsRef<str>) {
        let mut state = self.shared.lock();
        state.erase();
        state.step = None;
        if !state.silent {
            let _ = writeln!(io::stderr(), "{}", words::harmless(line.as_ref()));
        }
    }

    /// Ends the step without a word.
    pub fn end(&self) {
        let mut state = self.shared.lock();
        state.erase();
        state.step = None;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
            SHOWING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn tick(&self) {
        let mut state = self.lock();
        let mut turn = 0;
        while !state.ended {
            state.show(turn);
            turn += 1;
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        state.erase();
    }
}

impl State {
    fn show(&mut self, turn: usize) {
        let Some(step) = &mut self.step else { return };
        let elapsed = step.since.elapsed();
        if self.live && elapsed >= SHOWN_AFTER {
            let width = terminal::size().map_or(80, |(columns, _)| usize::from(columns));
            let _ = write!(io::stderr(), "\r\x1b[K{}", live_line(turn, &step.text, elapsed, width));
            self.drawn = true;
        } else if !self.live && elapsed >= step.next_word {
            let _ = writeln!(io::stderr(), "{}", plain_line(&step.text, elapsed));
            step.next_word = elapsed * 3;
        }
    }

    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// The line on a terminal, cut so that it never wraps.
fn live_line(turn: usize, text: &str, elapsed: Duration, width: usize) -> String {
    let wheel = ['|', '/', '-', '\\'][turn % 4];
    let line = format!("{wheel} {}  {}", words::harmless(text), words::duration(elapsed));
    line.chars().take(width.saturating_sub(1)).collect()
}

/// The line in a file or a pipe.
fn plain_line(text: &str, elapsed: Duration) -> String {
    match elapsed < SAID_AFTER * 2 {
        true => format!("{} …", words::harmless(text)),
        false => format!("{} … {}", words::harmless(text), words::duration(elapsed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_on_a_terminal_turns_its_wheel_and_never_wraps() {
        let elapsed = Duration::from_millis(4_200);
        assert_eq!(live_line(0, "compiling hello", elapsed, 80), "| compiling hello  4.2 s");
        assert_eq!(live_line(1, "compiling hello", elapsed, 12), "/ compiling");
        assert_eq!(live_line(7, "x", elapsed, 0), "");
    }

    #[test]
    fn a_line_in_a_file_says_the_time_once_it_matters() {
        assert_eq!(plain_line("compiling", Duration::from_millis(1_050)), "compiling …");
        assert_eq!(plain_line("compiling", Duration::from_secs(9)), "compiling … 9.0 s");
    }
}
