//! `lighter debug --attach`: where in its code a working unit is, and its memory.
//!
//! ```text
//! lighter ps ──▶ UNIT ──▶ node: it is looked at, and goes on ──▶ its log lines, registers, and a core file
//! ```

use api_types::{SeenUnit, UnitInfo};
use cli::Session;
use cli::client::{Client, encoded};
use cli::nearest::explain;
use cli::saved::{STDOUT, save};
use cli::stop::{Result, Stop};
use cli::words;
use problem::{Code, Problem};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Bytes of the line before the core: lines of the log, and a frame each. A longer one is no answer of a node.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// `wanted`: a unit by its number, or as the log has it: `NAME#NUMBER`. `core`: where its memory is to go.
pub fn run(session: &Session, wanted: &str, core: Option<&Path>) -> Result {
    let client = session.client()?;
    let (function, unit) = found(&client, wanted)?;
    let query = if core.is_some() { "?core=true" } else { "" };
    let path = format!("/v1/functions/{}/units/{unit}/attach{query}", encoded(&function));
    let response = client.ask("POST", &path, ()).map_err(|stop| explain(&client, &function, stop))?;
    let mut reader = BufReader::new(response.into_body().into_reader());
    let mut line = Vec::new();
    reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(|error| client.broken(&error))?;
    let seen: SeenUnit = serde_json::from_slice(&line)
        .map_err(|error| Stop::new(Code::Unknown, format!("no answer of a node: {error}")))?;
    let saved = match core.filter(|_| seen.core_bytes.is_some()) {
        Some(file) => Some((file, save(&client, reader, file)?)),
        None => None,
    };
    if saved.is_some_and(|(file, _)| file.as_os_str() == STDOUT) {
        return Ok(());
    }
    if session.out.json {
        return session.out.json(&seen);
    }
    let SeenUnit { unit, log, lines, .. } = &seen;
    session.out.line(format!(
        "{function}#{} works for {}",
        unit.unit,
        unit.request_id.as_deref().unwrap_or("nobody")
    ))?;
    for line in log.iter().flat_map(|line| line.message.lines()).chain(lines.iter().map(String::as_str)) {
        session.out.line(format!("  {line}"))?;
    }
    if let Some((file, bytes)) = saved {
        session.out.advise(format!("wrote {} to {}", words::bytes(bytes), file.display()));
    }
    Ok(())
}

/// The function and the number of the unit that is meant.
fn found(client: &Client, wanted: &str) -> Result<(String, u64)> {
    let refused = || {
        let problem = Problem::new(Code::Usage, format!("{wanted:?} is not a unit"));
        problem.with_hint("write its number in `lighter ps`, or what the log has: hello#7")
    };
    let (function, number) = wanted.rsplit_once('#').map_or((None, wanted), |(name, number)| (Some(name), number));
    let number: u64 = number.parse().map_err(|_| refused())?;
    if let Some(function) = function {
        return Ok((function.to_owned(), number));
    }
    let mut units: Vec<UnitInfo> = client.get("/v1/units")?;
    units.retain(|unit| unit.unit == number);
    match &*units {
        [] => Err(Problem::new(Code::UnitUnknown, format!("there is no unit {number}")).into()),
        [one] => Ok((one.function.clone(), number)),
        several => {
            let names: Vec<String> = several.iter().map(|one| format!("{}#{number}", one.function)).collect();
            let problem = Problem::new(Code::Usage, format!("several units have the number {number}"));
            Err(problem.with_hint(format!("say which: {}", names.join(", "))).into())
        }
    }
}
