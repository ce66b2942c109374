//! A screen that shows a node while it changes: a thread looks at the node, keys come in, and each redraws the screen.
//!
//! ```text
//! thread ──look──▶ channel ──▶ Screen ──▶ terminal
//!                  keys ──────▶ ┘
//! ```
//! Where there is no terminal, `--json` prints what each look finds.

use super::Session;
use super::stop::{Result, Stop};
use clap::Args;
use problem::{Code, Problem};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

/// How often the terminal is looked at for keys.
const KEY_POLL: Duration = Duration::from_millis(50);

/// How often the node is looked at.
#[derive(Debug, Args)]
pub struct Looks {
    /// Seconds between two updates
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,
    /// End after this many updates [default: never]
    #[arg(long, short = 'n', value_name = "LOOKS")]
    count: Option<u64>,
}

/// What is shown.
pub trait Screen {
    /// What a look at the node finds.
    type Sample: Send + 'static;

    fn draw(&self, frame: &mut Frame<'_>);

    fn take(&mut self, sample: Self::Sample);

    /// Why the last look found nothing. The next sample ends it.
    fn trouble(&mut self, detail: String);

    /// A key that does not end the screen.
    fn press(&mut self, key: KeyCode);
}

impl Looks {
    /// # Errors
    /// [`Code::Usage`]: there is neither a terminal nor `--json`. `instead` is a command that needs neither.
    pub fn check(session: &Session, instead: &str) -> Result {
        if session.out.json || session.out.is_terminal() {
            return Ok(());
        }
        let problem = Problem::new(Code::Usage, "standard output is not a terminal");
        Err(problem.with_hint(format!("add --json for a document each second, or use `{instead}`")).into())
    }

    /// Looks, and tells what was found.
    pub fn print<T>(&self, look: impl Fn() -> Result<T>, mut tell: impl FnMut(T) -> Result) -> Result {
        let mut looks = 0;
        while self.count.is_none_or(|count| looks < count) {
            thread::sleep(self.interval());
            tell(look()?)?;
            looks += 1;
        }
        Ok(())
    }

    /// Shows a screen until somebody ends it. Looks are taken in a thread, so that a slow node makes no slow keys.
    pub fn show<S: Screen>(&self, screen: &mut S, look: impl Fn() -> Result<S::Sample> + Send + 'static) -> Result {
        let (sender, samples) = sync_channel(1);
        let interval = self.interval();
        thread::spawn(move || {
            loop {
                thread::sleep(interval);
                if sender.send(look()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = ratatui::try_init().map_err(|error| broken(&error))?;
        let ended = self.watch(&mut terminal, screen, &samples);
        ratatui::try_restore().map_err(|error| broken(&error))?;
        ended
    }

    fn watch<S: Screen>(
        &self,
        terminal: &mut DefaultTerminal,
        screen: &mut S,
        samples: &Receiver<Result<S::Sample>>,
    ) -> Result {
        let mut looks = 0;
        loop {
            terminal.draw(|frame| screen.draw(frame)).map_err(|error| broken(&error))?;
            if event::poll(KEY_POLL).map_err(|error| broken(&error))?
                && let Event::Key(key) = event::read().map_err(|error| broken(&error))?
            {
                match pressed(key) {
                    Some(Wish::End) => return Ok(()),
                    Some(Wish::Interrupt) => return Err(Stop::Interrupted),
                    Some(Wish::Key(key)) => screen.press(key),
                    None => {}
                }
            }
            while let Ok(sample) = samples.try_recv() {
                match sample {
                    Ok(sample) => {
                        screen.take(sample);
                        looks += 1;
                    }
                    Err(Stop::Problem(problem)) => screen.trouble(problem.detail.into_owned()),
                    Err(stop) => return Err(stop),
                }
            }
            if self.count.is_some_and(|count| looks >= count) {
                return Ok(());
            }
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval)
    }
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    End,
    Interrupt,
    Key(KeyCode),
}

fn pressed(key: KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Interrupt,
        KeyCode::Char('q') | KeyCode::Esc => Wish::End,
        other => Wish::Key(other),
    })
}

fn broken(error: &io::Error) -> Stop {
    Stop::new(Code::FileUnusable, format!("the terminal: {error}"))
}

fn interval(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds @ 0.1..=3_600.0) => Ok(seconds),
        _ => Err("it must be between 0.1 and 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_c_interrupts_and_a_plain_c_does_not() {
        let key = |code, modifiers| pressed(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Interrupt));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Some(Wish::Key(KeyCode::Char('c'))));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Wish::End));
    }
}
