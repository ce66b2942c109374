//! `lighter logs`: the output of functions, and the node's remarks about them.

use super::client::Client;
use super::nearest::{explain, function_path};
use super::output::Output;
use super::stop::{Result, Stop};
use super::{Session, words};
use api_types::LogLine;
use clap::Args;
use problem::Code;

#[derive(Debug, Args)]
pub struct Logs {
    /// Function [default: all]
    name: Option<String>,
    /// Keep printing lines as they are written
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines to begin with
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 100)]
    tail: usize,
}

impl Logs {
    pub fn run(&self, session: &Session) -> Result {
        let client = session.client()?;
        print(&client, session.out, self.name.as_deref(), self.follow, self.tail, |_| true)?;
        match self.follow {
            true => Err(Stop::new(Code::NodeUnreachable, format!("the node at {} ended the log", client.url()))),
            false => Ok(()),
        }
    }
}

/// Prints the lines that are wanted, until the node ends the stream.
pub fn print(
    client: &Client,
    out: Output,
    name: Option<&str>,
    follow: bool,
    tail: usize,
    wanted: impl Fn(&LogLine) -> bool,
) -> Result {
    let path = match name {
        Some(name) => function_path(client, name)?,
        None => "/v1/functions/-".to_owned(),
    };
    let request = client.request("GET", &format!("{path}/logs?follow={follow}&tail={tail}"));
    let answer = client.exchange(request, ()).and_then(|response| client.succeeded(response));
    let answer = answer.map_err(|stop| explain(client, name.unwrap_or_default(), stop))?;
    for line in client.lines::<LogLine>(answer) {
        let line = line?;
        match wanted(&line) {
            true if out.json => out.json_line(&line)?,
            true => out.line(text(&line))?,
            false => {}
        }
    }
    Ok(())
}

/// `2026-11-21 03:54:19.123 info  hello#7  message  (request)`, with the unit that wrote it if one did; further lines
/// of a message are indented.
fn text(line: &LogLine) -> String {
    let message = line.message.trim_end_matches('\n').replace('\n', "\n    ");
    let request = match line.request_id.as_str() {
        "" => String::new(),
        id => format!("  ({id})"),
    };
    let unit = match line.unit {
        0 => String::new(),
        unit => format!("#{unit}"),
    };
    format!("{} {:<5} {}{unit}  {message}{request}", words::time(line.time_ms), line.level, line.function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_when_how_who_and_what() {
        let line = LogLine {
            sequence: 1,
            time_ms: 1_795_233_259_123,
            level: "info".into(),
            function: "hello".into(),
            version: 1,
            unit: 7,
            request_id: "r1".into(),
            stream: "log".into(),
            message: "one\ntwo\n".into(),
        };
        assert_eq!(text(&line), "2026-11-21 03:54:19.123 info  hello#7  one\n    two  (r1)");
        let of_the_node = LogLine { unit: 0, request_id: String::new(), message: "idle".into(), ..line };
        assert_eq!(text(&of_the_node), "2026-11-21 03:54:19.123 info  hello  idle");
    }
}
