//! Where words go: data on stdout, talk on stderr, one JSON document or one JSON line at a time for machines.

use super::progress::Progress;
use super::stop::{Result, Stop};
use super::table::Table;
use super::words;
use problem::{Document, Problem};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// How a command speaks.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub json: bool,
    quiet: bool,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
}

impl Output {
    pub fn new(json: bool, quiet: bool) -> Self {
        // A dumb terminal cannot erase a line, so it gets what a file gets.
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            json,
            quiet,
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal() && !dumb,
        }
    }

    pub fn is_terminal(&self) -> bool {
        self.stdout_is_terminal
    }

    /// Bytes as they are.
    pub fn raw(&self, bytes: &[u8]) -> Result {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Stop::PipeClosed,
            _ => Stop::new(problem::Code::FileUnusable, format!("standard output: {error}")),
        })
    }

    /// What a function made: as it is for a file or a pipe, made harmless for a terminal.
    pub fn made(&self, bytes: &[u8], what: &str) -> Result {
        if !self.stdout_is_terminal {
            return self.raw(bytes);
        }
        match std::str::from_utf8(bytes) {
            Ok("") => {}
            Ok(text) => self.line(text.strip_suffix('\n').unwrap_or(text))?,
            Err(_) => self.say(format!(
                "{what} is {} of binary data: send it to a file or a pipe",
                words::bytes(bytes.len() as u64)
            )),
        }
        Ok(())
    }

    /// A line for people. It may reach a terminal by detours, so it is made harmless in a pipe too.
    pub fn line(&self, line: impl Display) -> Result {
        self.raw(words::harmless(&format!("{line}\n")).as_bytes())
    }

    pub fn table(&self, table: &Table) -> Result {
        table.lines().iter().try_for_each(|line| self.line(line))
    }

    /// One JSON document.
    pub fn json(&self, value: &impl Serialize) -> Result {
        let mut text = serde_json::to_vec_pretty(value).expect("what we print is made of plain data");
        text = words::harmless_json(text);
        text.push(b'\n');
        self.raw(&text)
    }

    /// One line of a stream of JSON documents.
    pub fn json_line(&self, value: &impl Serialize) -> Result {
        let mut text = serde_json::to_vec(value).expect("what we print is made of plain data");
        text = words::harmless_json(text);
        text.push(b'\n');
        self.raw(&text)
    }

    /// A word to the person at the terminal.
    pub fn say(&self, line: impl Display) {
        if !self.quiet {
            self.complain(line);
        }
    }

    /// What to do next: only where a person reads along.
    pub fn advise(&self, line: impl Display) {
        if !self.json {
            self.say(line);
        }
    }

    /// A word that even `--quiet` does not silence.
    pub fn complain(&self, line: impl Display) {
        // With stderr gone there is nobody left to tell.
        let _ = io::stderr().lock().write_all(words::harmless(&format!("{line}\n")).as_bytes());
    }

    pub fn problem(&self, problem: &Problem) {
        match self.json {
            true => {
                let text = serde_json::to_vec(&Document::from(problem)).expect("a problem has only strings");
                let mut line = words::harmless_json(text);
                line.push(b'\n');
                // As above.
                let _ = io::stderr().lock().write_all(&line);
            }
            false => self.complain(problem),
        }
    }

    pub fn progress(&self) -> Progress {
        Progress::new(self.quiet || self.json, self.stderr_is_terminal)
    }

    /// The one step of a command that has said nothing of what it does.
    pub fn waiting(&self, text: impl Into<String>) -> Option<Progress> {
        Progress::unless_shown(self.quiet || self.json, self.stderr_is_terminal, text)
    }

    /// Says nothing from now on but results and errors.
    #[must_use]
    pub fn silent(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Progress in whole lines, for when other lines come in between.
    pub fn progress_in_lines(&self) -> Progress {
        Progress::new(self.quiet || self.json, false)
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }
}
