//! A question at the terminal whose answer does not appear on it.

use super::stop::{Result, Stop};
use problem::Code;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use std::io::{self, Write};

/// Characters of an answer; further ones are not taken.
const ANSWER_CHARS_MAX: usize = 16_384;

/// Asks on stderr and reads one line.
///
/// # Errors
/// [`Stop::Interrupted`] on Ctrl-C and Ctrl-D.
pub fn hidden(question: &str) -> Result<String> {
    let failed = |error: io::Error| Stop::new(Code::FileUnusable, format!("the terminal: {error}"));
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question}").and_then(|()| stderr.flush()).map_err(failed)?;
    terminal::enable_raw_mode().map_err(failed)?;
    let answer = read_line();
    // Whatever happened, the terminal must be as it was.
    let restored = terminal::disable_raw_mode();
    let _ = writeln!(stderr);
    restored.map_err(failed)?;
    answer.map_err(failed)?.ok_or(Stop::Interrupted)
}

fn read_line() -> io::Result<Option<String>> {
    let mut answer = String::new();
    loop {
        let Event::Key(key) = event::read()? else { continue };
        match typed(&mut answer, key) {
            Typed::More => {}
            Typed::Enter => return Ok(Some(answer)),
            Typed::Stop => return Ok(None),
        }
    }
}

enum Typed {
    More,
    Enter,
    Stop,
}

fn typed(answer: &mut String, key: KeyEvent) -> Typed {
    if key.kind == KeyEventKind::Release {
        return Typed::More;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Enter => return Typed::Enter,
        KeyCode::Char('c' | 'd') if control => return Typed::Stop,
        KeyCode::Char('u') if control => answer.clear(),
        KeyCode::Char(c) if !control && answer.len() < ANSWER_CHARS_MAX => answer.push(c),
        KeyCode::Backspace => {
            answer.pop();
        }
        _ => {}
    }
    Typed::More
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_edit_the_answer_and_control_c_gives_up() {
        let mut answer = String::new();
        let mut press = |code, modifiers| typed(&mut answer, KeyEvent::new(code, modifiers));
        for c in ['a', 'B', 'x'] {
            press(KeyCode::Char(c), KeyModifiers::NONE);
        }
        press(KeyCode::Backspace, KeyModifiers::NONE);
        assert!(matches!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Typed::Stop));
        assert!(matches!(press(KeyCode::Enter, KeyModifiers::NONE), Typed::Enter));
        assert_eq!(answer, "aB");
    }
}
