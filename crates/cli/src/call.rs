//! `lighter call`: call a function through the API and print its reply as it comes.

use super::client::{Client, announced, encoded, is_problem};
use super::nearest::{explain, function_path};
use super::output::Output;
use super::stop::{FAILED, Result, Stop};
use super::{DataFolder, Session, words};
use api_types::REQUEST_ID;
use clap::Args;
use problem::{Code, Problem};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;
use ureq::Body;
use ureq::http::Response;
use ureq::http::header::{CONTENT_TYPE, HeaderMap};

/// Bytes of an event's data that are read here. The node has a limit of its own, `limits.body_bytes`.
const DATA_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a reply that are shown at once: on a terminal, and inside a JSON document.
const SHOWN_BYTES_MAX: u64 = 64 << 20;

/// Codes of problems that a unit made itself, and wrote about to its log.
const UNIT_PROBLEMS: [Code; 8] = [
    Code::UnitTrapped,
    Code::UnitNoReply,
    Code::UnitInvalid,
    Code::UnitRetry,
    Code::UnitFatal,
    Code::UnitBadReply,
    Code::UnitExited,
    Code::UnitGarbled,
];

#[derive(Debug, Args)]
pub struct Call {
    /// Function to call
    name: String,
    #[command(flatten)]
    data: Data,
    /// Media type of the data [default: guessed from the data]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Print on stderr where the time went
    #[arg(long)]
    timing: bool,
    /// Method and path of the request, for functions that export wasi:http
    #[arg(long, num_args = 2, value_names = ["METHOD", "PATH"])]
    http: Option<Vec<String>>,
    /// Board to call it on, for isolation = "metal" [default: the least busy one]
    #[arg(long, value_name = "BOARD")]
    on: Option<String>,
    #[command(flatten)]
    _folder: DataFolder,
}

/// The data of an event, from one of three places.
#[derive(Debug, Args)]
pub struct Data {
    /// Data of the event
    #[arg(id = "text", long = "data", short = 'd', value_name = "TEXT", conflicts_with = "file")]
    text: Option<String>,
    /// File with the data; - is standard input, which is also read when it is a pipe or a file
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Data {
    pub fn read(&self, out: Output) -> Result<Vec<u8>> {
        let stdin = || {
            let progress = out.progress();
            progress.step("reading the data from standard input (--data '' is for none)");
            whole(io::stdin().lock(), Path::new("standard input"))
        };
        match (&self.text, &self.file) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(file)) if file.as_os_str() == "-" => stdin(),
            (None, Some(file)) => whole(File::open(file).map_err(|error| Stop::named("--file", file, &error))?, file),
            (None, None) if io::stdin().is_terminal() => Ok(Vec::new()),
            (None, None) => stdin(),
        }
    }
}

fn whole(reader: impl Read, path: &Path) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    reader.take(DATA_BYTES_MAX + 1).read_to_end(&mut data).map_err(|error| Stop::file(path, &error))?;
    if data.len() as u64 > DATA_BYTES_MAX {
        let detail = format!("{} has more than {}", path.display(), words::bytes(DATA_BYTES_MAX));
        return Err(Stop::new(Code::BodyTooLarge, detail));
    }
    Ok(data)
}

/// The media type data most probably has.
pub fn guessed_type(data: &[u8]) -> &'static str {
    match (data.trim_ascii_start().first(), std::str::from_utf8(data)) {
        (Some(b'{' | b'['), Ok(text)) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
            "application/json"
        }
        (_, Ok(_)) => "text/plain; charset=utf-8",
        (_, Err(_)) => "application/octet-stream",
    }
}

impl Call {
    pub fn run(&self, session: &Session) -> Result {
        let out = session.out;
        let client = session.client()?;
        let mut path = function_path(&client, &self.name)? + "/call";
        if let Some([method, target]) = self.http.as_deref() {
            path += &format!("?method={}&path={}", encoded(method), encoded(target));
        }
        let data = if self.has_no_body() { Vec::new() } else { self.data.read(out)? };
        let mut request = announced(client.request("POST", &path), data.len());
        if let Some(kind) = self.content_type.as_deref().or((!data.is_empty()).then(|| guessed_type(&data))) {
            request = request.header(CONTENT_TYPE, kind);
        }
        if let Some(board) = &self.on {
            request = request.header(manifest::BOARD_HEADER, board);
        }
        let progress = out.progress();
        progress.step(format!("calling {}", self.name));
        let since = Instant::now();
        let response = client.exchange(request, data)?;
        drop(progress);
        let head = ReplyHead::of(&response, since);
        let reply = match is_problem(&response) {
            true => Err(self.failed(&client, response, &head, out)?),
            false => self.print(&client, response, &head, out),
        };
        if self.timing && !out.json {
            out.complain(timing_line(&head.timing, head.round_trip_us));
        }
        reply
    }

    /// A request without a body must not wait for one on standard input.
    fn has_no_body(&self) -> bool {
        let said = self.data.text.is_some() || self.data.file.is_some();
        let method = self.http.as_ref().map(|http| http[0].as_str());
        !said && matches!(method, Some("GET" | "HEAD" | "DELETE" | "OPTIONS"))
    }

    /// The node's problem, with what helps to look into it. A function may answer with a problem of its own: that is a
    /// reply like any other.
    fn failed(&self, client: &Client, response: Response<Body>, head: &ReplyHead, out: Output) -> Result<Stop> {
        let body = client.bytes(response, SHOWN_BYTES_MAX)?;
        let is_ours = serde_json::from_slice::<problem::Document>(&body)
            .is_ok_and(|document| document.kind.starts_with("urn:lighter:"));
        let Some(problem) = Problem::from_json(&body).filter(|_| is_ours) else {
            match out.json {
                true => out.json(&head.to_json(&body))?,
                false => out.made(&body, "the reply")?,
            }
            out.say(format!("status {}", head.status));
            return Ok(Stop::Status(FAILED));
        };
        let problem = match &self.on {
            Some(_) if problem.code == Code::ApiRequest => {
                problem.with_hint("drop --on, or deploy it with isolation = \"metal\"")
            }
            _ => problem,
        };
        let name = match &self.on {
            Some(board) if problem.code == Code::BoardUnknown => board,
            _ => &self.name,
        };
        let stop = explain(client, name, problem.into());
        let (Stop::Problem(problem), Some(id)) = (&stop, &head.request_id) else { return Ok(stop) };
        if !UNIT_PROBLEMS.contains(&problem.code) {
            return Ok(stop);
        }
        out.problem(problem);
        out.advise(format!("  request {id}: `lighter logs {}` has what the function wrote", self.name));
        Ok(Stop::Status(stop.exit_code()))
    }

    fn print(&self, client: &Client, response: Response<Body>, head: &ReplyHead, out: Output) -> Result {
        if out.json {
            let body = client.bytes(response, SHOWN_BYTES_MAX)?;
            out.json(&head.to_json(&body))?;
        } else if out.is_terminal() {
            out.made(&client.bytes(response, SHOWN_BYTES_MAX)?, "the reply")?;
        } else {
            copy(client, response, out)?;
        }
        match head.status {
            ..400 => Ok(()),
            status => {
                out.say(format!("status {status}"));
                Err(Stop::Status(FAILED))
            }
        }
    }
}

fn copy(client: &Client, response: Response<Body>, out: Output) -> Result {
    let mut reader = response.into_body().into_reader();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match reader.read(&mut buffer).map_err(|error| client.broken(&error))? {
            0 => return Ok(()),
            count => out.raw(&buffer[..count])?,
        }
    }
}

/// What a reply says before its body.
struct ReplyHead {
    status: u16,
    content_type: Option<String>,
    request_id: Option<String>,
    /// What the node measured, in microseconds.
    timing: Vec<(String, f64)>,
    round_trip_us: f64,
}

impl ReplyHead {
    fn of(response: &Response<Body>, since: Instant) -> Self {
        let text = |headers: &HeaderMap, name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        let headers = response.headers();
        Self {
            status: response.status().as_u16(),
            content_type: text(headers, CONTENT_TYPE.as_str()),
            request_id: text(headers, REQUEST_ID),
            timing: timing(&text(headers, "server-timing").unwrap_or_default()),
            round_trip_us: since.elapsed().as_micros() as f64,
        }
    }

    fn to_json(&self, body: &[u8]) -> serde_json::Value {
        let timing: serde_json::Map<_, _> =
            self.timing.iter().map(|(name, us)| (format!("{name}_us"), (*us).into())).collect();
        let mut document = serde_json::json!({
            "status": self.status,
            "content_type": self.content_type,
            "request_id": self.request_id,
            "timing": timing,
            "round_trip_us": self.round_trip_us,
        });
        match std::str::from_utf8(body) {
            Ok(text) => document["body"] = text.into(),
            Err(_) => document["body_base64"] = words::base64(body).into(),
        }
        document
    }
}

/// Reads a `Server-Timing` header, whose durations are milliseconds.
fn timing(header: &str) -> Vec<(String, f64)> {
    let metric = |metric: &str| {
        let (name, parameters) = metric.split_once(';')?;
        let ms =
            parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("dur=")?.parse::<f64>().ok())?;
        Some((name.trim().to_owned(), ms * 1e3))
    };
    header.split(',').filter_map(metric).collect()
}

fn timing_line(timing: &[(String, f64)], round_trip_us: f64) -> String {
    let parts = timing.iter().map(|(name, us)| format!("{name} {}", words::microseconds(*us)));
    let whole = format!("round trip {}", words::microseconds(round_trip_us));
    parts.chain([whole]).collect::<Vec<_>>().join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_timing_becomes_a_line() {
        let timing = timing("queue;dur=0.012, start;dur=0.0021;desc=\"x\", run;desc=y;dur=1.5, odd, none;desc=z");
        assert_eq!(timing_line(&timing, 2_000.0), "queue 12 µs · start 2.1 µs · run 1.5 ms · round trip 2.0 ms");
    }

    #[test]
    fn data_has_the_type_it_looks_like() {
        assert_eq!(guessed_type(b" {\"a\": 1}"), "application/json");
        assert_eq!(guessed_type(b"{a"), "text/plain; charset=utf-8");
        assert_eq!(guessed_type(b"world"), "text/plain; charset=utf-8");
        assert_eq!(guessed_type(b"\xff\xfe"), "application/octet-stream");
    }

    #[test]
    fn bytes_that_are_no_text_travel_in_json_as_base64() {
        let head = ReplyHead {
            status: 200,
            content_type: None,
            request_id: None,
            timing: vec![("run".into(), 7.0)],
            round_trip_us: 9.0,
        };
        assert_eq!(head.to_json(b"hi")["body"], "hi");
        assert_eq!(head.to_json(b"\xff")["body_base64"], "/w==");
        assert_eq!(head.to_json(b"")["timing"]["run_us"], 7.0);
    }
}
